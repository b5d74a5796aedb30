"""Options of these tests."""

from __future__ import annotations

import pytest

from tilelet.cpu import build


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="all generated kernels, 20 random schedules of all programs, sanitizers (minutes)",
    )


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough", default=False))


@pytest.fixture
def compile_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests with hundreds of kernels. All others compile as users do: optimisers have bugs."""
    monkeypatch.setattr(build, "OPTIMISE", "-O1")
