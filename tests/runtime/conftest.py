"""Fixtures of the tests of the harness: the engine without compilation suffices."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_ENGINE", "interp")
