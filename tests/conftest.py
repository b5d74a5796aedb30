"""What every test may use: golden texts and the Hypothesis profiles."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN_DIR = Path(__file__).parent / "golden"

# "default" is repeatable; HYPOTHESIS_PROFILE=explore looks for new counterexamples.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ instead of comparing"
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="all generated kernels, all schedules, sanitizers, clusters (many minutes)",
    )


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("diag/E0201.txt", text)`: `text` must equal that file of tests/golden."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN_DIR / name
        text = text if text.endswith("\n") else text + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {name}: run pytest with --update-golden\n{text}")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "this run", lineterm=""
            )
            pytest.fail("\n".join(["text differs from its golden file", *diff]), pytrace=False)

    return check
