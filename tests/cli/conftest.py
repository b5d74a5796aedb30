"""The command line, called as a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilelet.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command: exit code, stdout, stderr."""

    def call(*argv: str) -> tuple[int, str, str]:
        try:
            code = main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def tilelet(
    command_line: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> Run:
    """Return `command_line`, run in an empty folder with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return command_line
