"""`pytest -p tilelet.compat.pytest_plugin PATH/tests/st`: run the language's own tests.

`pypto` and `golden` mean Tilelet's modules, as under `tilelet run`. The tests' harness keeps its
own cases and fixtures; `compat.test_cases` replaces its runner, which drives a board. Tests of
generated code, or of features that only a board has, are skipped with a reason; tests of behavior
that first look for generated files continue. There are 16 devices, or those of `--device`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilelet.compat import aliases, test_cases
from tilelet.frontend.decorators import keep_refused
from tilelet.runtime import session
from tilelet.runtime.programs.compiler import CompiledProgram
from tilelet.runtime.session import Session

RUNNER = "harness.core.test_runner"

SKIPPED_FOLDERS = {
    "codegen": "about the text of generated code, which is not Tilelet's",
}


class Absent:
    """A name of the original implementation without equivalent. Using it skips the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_: object, **__: object) -> Any:
        reason = f"needs `{self._name}` of the original implementation"
        if Absent.looked_at:
            raise RuntimeError(reason)
        pytest.skip(reason, allow_module_level=True)

    looked_at = False
    """Active during collection, which expects plain exceptions."""


class BuildFolder(type(Path())):  # type: ignore[misc]  # the class of paths on this system
    """A folder in which all files exist; reading one that Tilelet does not write skips the test."""

    def is_dir(self, **_: object) -> bool:
        return True

    def is_file(self, **_: object) -> bool:
        return True

    def exists(self, **_: object) -> bool:
        return os.path.exists(self)  # noqa: PTH110 - `Path.exists` calls `stat`

    def stat(self, **options: Any) -> Any:
        self._skip_missing()
        return super().stat(**options)

    def open(self, *args: Any, **options: Any) -> Any:
        self._skip_missing()
        return super().open(*args, **options)  # pyright: ignore[reportUnknownVariableType]

    def _skip_missing(self) -> None:
        if not self.exists():
            pytest.skip(f"needs `{self.name}` of the original implementation")


_own_folder = CompiledProgram.__dict__["output_dir"].func
CompiledProgram.output_dir = property(  # type: ignore[assignment]
    lambda self: BuildFolder(_own_folder(self))
)

aliases.install((*aliases.ROOTS, "simpler", "simpler_setup"), absent=Absent)
sys.modules[RUNNER] = test_cases
keep_refused(test_cases.Refused)


@pytest.hookimpl
def pytest_plugin_registered(plugin: Any) -> None:
    """Report a board as present, because suites for a board ask for one."""
    if hasattr(plugin, "is_hardware_available"):
        plugin.is_hardware_available = lambda: True
    # The suites of March 2026 also need the location of its runtime.
    if hasattr(plugin, "ensure_simpler_available"):
        plugin.ensure_simpler_available = lambda: Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Provide as many devices as any test of several ranks needs."""
    if getattr(config.option, "device", None) == "0":
        config.option.device = "0-15"


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionstart() -> Iterator[None]:
    yield
    # A golden is a method of a test case, whose text does not determine its results.
    _sessions.append(session.active(Session(golden_cache=False)))
    _sessions[-1].__enter__()


@pytest.hookimpl
def pytest_sessionfinish() -> None:
    while _sessions:
        _sessions.pop().__exit__(None, None, None)


_sessions: list[Any] = []


@pytest.hookimpl(hookwrapper=True)
def pytest_collection_finish() -> Iterator[None]:
    Absent.looked_at = True
    yield
    Absent.looked_at = False


# Attributes of compiled programs and workers for a board.
BOARD_ONLY = ("from_dir", "output_dir", "_w")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Skip a test when it first uses a feature that only a board has."""
    outcome = yield
    error = outcome.excinfo[1] if outcome.excinfo else None
    missing = ""
    if isinstance(error, AttributeError) and error.name in BOARD_ONLY:
        owner = error.obj if isinstance(error.obj, type) else type(error.obj)
        missing = f"{owner.__name__}.{error.name}"
    elif isinstance(error, TypeError) and Absent.__name__ in str(error):
        missing = "an exception class"
    elif isinstance(error, AssertionError) and "codegen" in item.name:
        missing = "generated code"
    if missing:
        outcome.force_exception(pytest.skip.Exception(f"needs `{missing}` of the original"))


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore the runner's file, which is named like a test."""
    is_runner = collection_path.parts[-3:] == ("harness", "core", "test_runner.py")
    return True if is_runner else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: object) -> pytest.Module | None:
    reason = next((why for name, why in SKIPPED_FOLDERS.items() if name in module_path.parts), None)
    if reason is None:
        return None
    module: SkippedModule = SkippedModule.from_parent(parent, path=module_path)  # pyright: ignore[reportUnknownMemberType]
    module.reason = reason
    return module


class SkippedModule(pytest.Module):
    """A test file that is skipped without being imported."""

    reason = ""

    def collect(self) -> Any:
        pytest.skip(self.reason, allow_module_level=True)
