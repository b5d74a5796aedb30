"""`run`: compile a program, make its inputs, compute the golden, execute, compare, report."""

from __future__ import annotations

import sys
import time
from bdb import BdbQuit
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilelet.diag.catalogue.harness import BadRunCall
from tilelet.diag.catalogue.python import NestedTooDeeply
from tilelet.diag.core import UNKNOWN, UserError, UserErrors
from tilelet.diag.tracebacks import give_place
from tilelet.ir.core import Program
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig, as_config
from tilelet.runtime.data.specs import Spec
from tilelet.runtime.harness.call_forms import case_of, is_spec_list
from tilelet.runtime.harness.case_run import CaseRun
from tilelet.runtime.harness.result import RunResult
from tilelet.runtime.output.bug_report import bug_text
from tilelet.runtime.output.console import Silent, StageTrace, Terse
from tilelet.runtime.programs import jit_call
from tilelet.runtime.validation.comparators import Comparator
from tilelet.runtime.validation.golden import Golden


def run(
    program: object = None,
    *args: object,
    fn: object = None,
    specs: Sequence[Spec] | None = None,
    golden_fn: Golden | None = None,
    golden_data: str | Path | None = None,
    config: RunConfig | Mapping[str, object] | None = None,
    compile_cfg: Mapping[str, object] | None = None,
    runtime_cfg: Mapping[str, object] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    compare_fn: Mapping[str, Comparator] | Comparator | None = None,
    compile_only: bool = False,
    runtime_dir: str | Path | None = None,
    save_data: bool = False,
    tensor_specs: Sequence[Spec] | None = None,
    golden: Golden | None = None,
    benchmark: object = None,  # noqa: ARG001 - how often a board repeats the run
) -> Any:
    """Run a program and compare its outputs with a golden.

    `run(program, specs, golden_fn, ...)` returns a `RunResult` and raises nothing: failures are
    in `result.error`. `tensor_specs` and `golden` are the older names of `specs` and `golden_fn`;
    with them, outputs start as zeros regardless of `init_value`.

    `run(program, *tensors, config=None)` runs on the tensors given, which receive the results, and
    returns the compiled program. Without tensors it only compiles.

    fn: another name of `program`
    config, compile_cfg, runtime_cfg: settings, all of the same kind (see `RunConfig`), also as a
        dict
    rtol, atol: tolerances, 1e-5 unless given here or in `config`
    compare_fn: a comparator for some outputs, by name, or one for all
    golden_data: a folder with stored inputs and expected results, used instead of `golden_fn`
    runtime_dir: an existing directory for the output of the run
    save_data: keep inputs and expected results
    benchmark: accepted, without effect: see `tilelet profile`
    """
    if fn is not None:
        if program is not None:
            raise BadRunCall("`program` and `fn` are the same")
        program = fn
    elif program is None:
        raise BadRunCall("there is no program")
    options: dict[str, object] = {
        "specs": specs,
        "golden_fn": golden_fn,
        "golden_data": golden_data,
        "config": config,
        "compile_cfg": compile_cfg,
        "runtime_cfg": runtime_cfg,
        "rtol": rtol,
        "atol": atol,
        "compare_fn": compare_fn,
        "compile_only": compile_only or None,
        "runtime_dir": runtime_dir,
        "save_data": save_data or None,
        "tensor_specs": tensor_specs,
        "golden": golden,
    }
    given = {name: value for name, value in options.items() if value is not None}
    has_specs = "specs" in given or "tensor_specs" in given
    if has_specs or any(is_spec_list(arg) and arg for arg in args) or set(given) - {"config"}:
        return _run_case(program, args, given)
    return _run_direct(program, args, as_config(config))


def run_jit(fn: Any, *args: Any, **options: Any) -> RunResult:
    """`run` for a `@pl.jit` function, which is specialized to the specs."""
    return run(fn, *args, **options)


def _run_direct(program: object, tensors: Sequence[object], config: RunConfig | None) -> Any:
    if not isinstance(program, Program):
        jit_call.call(program, tensors, config)
        return jit_call.compile(program, tensors, config)
    compiled = jit_call.compiled_program(program, config)
    if tensors or not compiled.parameters:
        compiled(*tensors, config=config)
    return compiled


def _run_case(program: object, args: Sequence[object], options: dict[str, object]) -> RunResult:
    """Run a case; only Ctrl-C and a debugger's `quit` leave this function as exceptions."""
    start = time.perf_counter()
    now = session.current()
    result = RunResult(passed=False, test_name=getattr(program, "name", "program"))
    console: StageTrace = StageTrace()
    case_run: CaseRun | None = None
    try:
        case = case_of(program, args, options)
        console = Silent() if now.handler.silent else Terse() if case.is_seed else StageTrace()
        result.test_name = case.name
        case_run = CaseRun(case, console, result, now)
        now.handler.case(case_run)
    except (UserError, UserErrors, RecursionError) as problem:
        error = NestedTooDeeply(UNKNOWN) if isinstance(problem, RecursionError) else problem
        result.could_run = result.passed = False
        if isinstance(error, UserError):
            give_place(error, sys._getframe())  # pyright: ignore[reportPrivateUsage]
        found = error.diagnostics if isinstance(error, UserErrors) else [error.diagnostic]
        now.add_errors(found)
        result.error = str(error)
    except MemoryError:
        result.could_run = result.passed = False
        result.error = "out of memory"
    except BdbQuit:
        raise
    except Exception as error:
        result.could_run = result.passed = False
        directory = case_run.directory if case_run else now.run_directory(result.test_name)
        result.error = bug_text(error, program, directory)
    result.execution_time = time.perf_counter() - start
    console.finish(result.passed, result.execution_time, case_run.findings if case_run else "")
    now.results.append(result)
    return result
