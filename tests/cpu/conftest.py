"""Options of these tests."""

from __future__ import annotations

import pytest

from tilelet.cpu import build


@pytest.fixture
def compile_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests with hundreds of kernels. All others compile as users do: optimisers have bugs."""
    monkeypatch.setattr(build, "OPTIMISE", "-O1")
