"""Options of the tests of programs."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-corruption",
        action="store_true",
        help="corrupt every operation of every program (minutes), not a sample",
    )
