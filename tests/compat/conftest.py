"""These tests are about old scripts: the engine that needs no compiling will do."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_ENGINE", "interp")
