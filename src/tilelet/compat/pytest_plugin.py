"""`pytest -p tilelet.compat.pytest_plugin PATH/tests/st`: the language's own tests, run here.

`pypto` and `golden` mean Tilelet's modules, as under `tilelet run`. The tests' harness keeps its
own cases and fixtures; in place of its runner, which drives a board, stands `compat.test_cases`.
Tests whose subject is the text of generated code, or what only a board has, are skipped, and say
so; a test of behavior that first looks for generated files goes on. There are 16 devices unless
`--device` says otherwise.
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
    """A name of the original implementation that has no like here. Using it skips the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        reason = f"needs `{self._name}` of the original implementation"
        if Absent.looked_at:
            raise RuntimeError(reason)
        pytest.skip(reason, allow_module_level=True)

    looked_at = False
    """While a suite looks at its tests without running them, which expects plain exceptions."""


class BuildFolder(type(Path())):  # type: ignore[misc]  # the class of paths on this system
    """The folder of generated files: all exist; reading one that Tilelet does not write skips."""

    def is_dir(self, **_: Any) -> bool:
        return True

    def is_file(self, **_: Any) -> bool:
        return True

    def exists(self, **_: Any) -> bool:
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
    """Tests of a board's folder ask whether there is one: there is something as good."""
    if hasattr(plugin, "is_hardware_available"):
        plugin.is_hardware_available = lambda: True
    # The suites of March 2026 would also know where its runtime is.
    if hasattr(plugin, "ensure_simpler_available"):
        plugin.ensure_simpler_available = lambda: Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Offer as many devices as any test of several ranks takes."""
    if getattr(config.option, "device", None) == "0":
        config.option.device = "0-15"


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionstart() -> Iterator[None]:
    yield
    # A golden is a method of a test case: its text alone does not say what it computes.
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


# What compiled programs and workers have for a board's own workers and files.
BOARD_ONLY = ("from_dir", "output_dir", "_w")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Tests of what only a board has are skipped, where they first ask for it."""
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
    """The runner's file has the name of a test."""
    is_runner = collection_path.parts[-3:] == ("harness", "core", "test_runner.py")
    return True if is_runner else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    reason = next((why for name, why in SKIPPED_FOLDERS.items() if name in module_path.parts), None)
    if reason is None:
        return None
    module: SkippedModule = SkippedModule.from_parent(parent, path=module_path)  # pyright: ignore[reportUnknownMemberType]
    module.reason = reason
    return module


class SkippedModule(pytest.Module):
    """A file of tests that is not even imported."""

    reason = ""

    def collect(self) -> Any:
        pytest.skip(self.reason, allow_module_level=True)
