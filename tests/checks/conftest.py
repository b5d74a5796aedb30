"""The command line, as these tests call it."""

from __future__ import annotations

from tests.cli.conftest import command_line, tilelet

__all__ = ["command_line", "tilelet"]
