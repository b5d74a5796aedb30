"""Replacement of `harness.core.test_runner` in the language's own tests.

A test case is an object with a program, tensors and expected results; `run` executes it. The rest
of the module are names that the tests' fixtures import.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilelet.diag.core import UserError, UserErrors
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.runtime.harness.result import RunResult
from tilelet.runtime.harness.runner import run
from tilelet.runtime.validation.comparators import allclose_where_defined


class Refused:
    """A program that failed to build; the test that uses it reports the mistake.

    One such program must not hide the other tests of its file.
    """

    def __init__(self, error: UserError | UserErrors) -> None:
        self._error = error
        self.reason = str(error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        raise self._error

    def __call__(self, *_: object, **__: object) -> Any:
        raise self._error


class TestRunner:
    """Runs test cases: `runner.run(case)` returns a `RunResult`."""

    __test__ = False

    def __init__(self, config: RunConfig | None = None) -> None:
        self.config = config or RunConfig()

    def run(self, test_case: Any) -> RunResult:
        name = test_case.get_name()
        try:
            program = test_case.get_program()
        except (UserError, UserErrors) as error:
            return RunResult(passed=False, test_name=name, error=str(error))
        if isinstance(program, Refused):
            return RunResult(passed=False, test_name=name, error=program.reason)
        specs: list[Spec] = [_tensor(spec) for spec in test_case.tensor_specs]
        specs += [_scalar(spec) for spec in getattr(test_case, "scalar_specs", ())]
        options: dict[str, Any] = {}
        for setting in ("rtol", "atol"):
            value = getattr(test_case.config, setting, None)
            if value is not None:
                options[setting] = value

        def golden(tensors: Mapping[str, Any]) -> None:
            test_case.compute_expected(tensors)

        compare = allclose_where_defined()
        result = run(program, specs=specs, golden_fn=golden, compare_fn=compare, **options)
        result.test_name = name
        return result


def _tensor(spec: Any) -> TensorSpec:
    dtype = getattr(spec.dtype, "torch_dtype", spec.dtype)
    return TensorSpec(spec.name, spec.shape, dtype, _initial(spec), spec.is_output)


def _initial(spec: Any) -> object:
    """Return an initial value; a function is called with the shape, as in the original."""
    value = spec.init_value
    if value is None:
        return 0  # the golden may write only part of an output
    if not callable(value) or getattr(value, "__module__", "") == "torch":
        return value
    made: Callable[..., object] = value
    needed = getattr(getattr(made, "__code__", None), "co_argcount", 0)
    defaults = len(getattr(made, "__defaults__", None) or ())
    return (lambda: made(list(spec.shape))) if needed - defaults > 0 else made


def _scalar(spec: Any) -> ScalarSpec:
    if isinstance(spec, ScalarSpec):
        return spec
    return ScalarSpec(spec.name, spec.value, getattr(spec, "ctype", "int64"))


class TestSuite:
    """Several test cases by name."""

    __test__ = False

    def __init__(self, name: str, config: RunConfig | None = None) -> None:
        self.name = name
        self.config = config
        self._cases: list[Any] = []

    def add_test(self, test_case: object) -> TestSuite:
        self._cases.append(test_case)
        return self

    def run_all(self, runner: TestRunner | None = None) -> dict[str, RunResult]:
        runner = runner or TestRunner(self.config)
        return {case.get_name(): runner.run(case) for case in self._cases}

    def summary(self, results: Mapping[str, RunResult]) -> str:
        passed = sum(result.passed for result in results.values())
        return f"{self.name}: {passed} of {len(results)} passed"


# State that fixtures read: the device of the last test, and a board's pipeline.
_last_device: dict[str, int | None] = {"value": None}


def _cache_key(  # pyright: ignore[reportUnusedFunction] - fixtures import it
    test_case: Any, *_: object, **__: object
) -> tuple[object, ...]:
    return (type(test_case).__qualname__, test_case.get_name())


def execution_summary_lines() -> Sequence[str]:
    return []


def __getattr__(name: str) -> Callable[..., None]:
    """No-op for other functions that fixtures call: queues and pipelines of a board."""
    if not _of_the_original() & {name, "*"}:
        raise AttributeError(f"the runner of these tests has no `{name}`", name=name)

    def nothing(*_: object, **__: object) -> None: ...

    return nothing


def _of_the_original() -> set[str]:
    """Return the names that the suite's runner defines; it is never run."""
    folders: list[str] = getattr(sys.modules.get("harness.core"), "__path__", [])
    for file in (Path(folder) / "test_runner.py" for folder in folders):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            return _names(file.read_text(encoding="utf-8"))
    return set()


@functools.lru_cache(maxsize=4)
def _names(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found.update(alias.asname or alias.name for alias in node.names)
    return found
