"""`run`: compile a program, make its inputs, compute the golden, execute, compare, report."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from bdb import BdbQuit
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tilelet.analysis.control_reads import parameters_read
from tilelet.diag.catalogue.cautions import ValidationSkipped
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.harness import (
    BadDataFile,
    BadRunCall,
    GoldenDataMissing,
    OutputMismatch,
)
from tilelet.diag.catalogue.python import NestedTooDeeply
from tilelet.diag.core import UNKNOWN, UserError, UserErrors
from tilelet.diag.tracebacks import give_place
from tilelet.frontend.decorators import as_stored, can_lower_again, with_extents
from tilelet.ir.core import Program
from tilelet.ir.types import TensorType
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig, as_config
from tilelet.runtime.data.array_files import BadFileError, load_array
from tilelet.runtime.data.arrays import Array
from tilelet.runtime.data.inputs import MadeOnDemand, check_memory, initial_array
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.runtime.harness.call_forms import Case, case_of, is_spec_list
from tilelet.runtime.harness.result import RunResult
from tilelet.runtime.inspection.check import check_after_run
from tilelet.runtime.output import reporting
from tilelet.runtime.output.bug_report import bug_text
from tilelet.runtime.output.console import Silent, Terse, Trace
from tilelet.runtime.programs import jit_call
from tilelet.runtime.programs.binding import (
    Parameter,
    jit_parameters,
    match_specs,
    parameters,
    scalars_of,
)
from tilelet.runtime.programs.compiler import (
    CompiledProgram,
    compile_program,
    dump_folder,
    run_directory,
)
from tilelet.runtime.progress import progress
from tilelet.runtime.validation.comparators import Comparator
from tilelet.runtime.validation.differences import mismatches
from tilelet.runtime.validation.golden import Golden, compute_golden
from tilelet.runtime.validation.golden_cache import GoldenCache
from tilelet.runtime.validation.judge import Judge, Judgement
from tilelet.tasks.extents import Extents
from tilelet.tasks.stream import TaskStream

if TYPE_CHECKING:
    from tilelet.checks.comparison import Comparison
    from tilelet.divergence.locate import Case as Examined


def run(
    program: Any = None,
    *args: Any,
    fn: Any = None,
    specs: Sequence[Spec] | None = None,
    golden_fn: Golden | None = None,
    golden_data: str | Path | None = None,
    config: RunConfig | Mapping[str, Any] | None = None,
    compile_cfg: Mapping[str, Any] | None = None,
    runtime_cfg: Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    compare_fn: Mapping[str, Comparator] | Comparator | None = None,
    compile_only: bool = False,
    runtime_dir: str | Path | None = None,
    save_data: bool = False,
    tensor_specs: Sequence[Spec] | None = None,
    golden: Golden | None = None,
    benchmark: Any = None,  # noqa: ARG001 - how often a board repeats the run
) -> Any:
    """Run a program and compare its outputs with a golden.

    `run(program, specs, golden_fn, ...)` gives a `RunResult` and raises nothing: what goes wrong is
    in `result.error`. `tensor_specs` and `golden` are the older names of `specs` and `golden_fn`;
    with them, outputs start as zeros whatever their `init_value` says.

    `run(program, *tensors, config=None)` runs on the tensors given, which receive the results, and
    gives the compiled program. Without tensors it only compiles.

    fn: another name of `program`
    config, compile_cfg, runtime_cfg: settings, all of the same kind (see `RunConfig`), also as a
        dict
    rtol, atol: tolerances, 1e-5 unless given here or in `config`
    compare_fn: a comparator for some outputs, by name, or one for all
    golden_data: a folder with stored inputs and expected results, used instead of `golden_fn`
    runtime_dir: an existing folder for what the run writes
    save_data: keep inputs and expected results
    benchmark: accepted, without effect: see `tilelet profile`
    """
    if fn is not None:
        if program is not None:
            raise BadRunCall("`program` and `fn` are the same")
        program = fn
    elif program is None:
        raise BadRunCall("there is no program")
    options: dict[str, Any] = {
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
    """`run` for a `@pl.jit` function: the specs say what it is specialised to."""
    return run(fn, *args, **options)


def _run_direct(program: Any, tensors: Sequence[Any], config: RunConfig | None) -> Any:
    if not isinstance(program, Program):
        jit_call.call(program, tensors, config)
        return jit_call.compile(program, tensors, config)
    compiled = jit_call.compiled(program, config)
    if tensors or not compiled.parameters:
        compiled(*tensors, config=config)
    return compiled


def _run_case(program: Any, args: Sequence[Any], options: dict[str, Any]) -> RunResult:
    """Nothing but Ctrl-C and a debugger's `quit` leaves this function as an exception."""
    start = time.perf_counter()
    now = session.current()
    result = RunResult(passed=False, test_name=getattr(program, "name", "program"))
    console: Trace = Trace()
    runner: Runner | None = None
    try:
        case = case_of(program, args, options)
        silent = now.count_only or now.examiner is not None
        console = Silent() if silent else Terse() if case.is_seed else Trace()
        result.test_name = case.name
        runner = Runner(case, console, result)
        runner.run()
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
        directory = runner.directory if runner else run_directory(result.test_name)
        result.error = bug_text(error, program, directory)
    result.execution_time = time.perf_counter() - start
    console.finish(result.passed, result.execution_time, runner.findings if runner else "")
    now.results.append(result)
    return result


class Runner:
    """One case on its way through the stages."""

    def __init__(self, case: Case, console: Trace, result: RunResult) -> None:
        self.case = case
        self.console = console
        self.result = result
        self.session = session.current()
        self.directory = result.directory = run_directory(case.name, case.config)
        self.findings = ""  # what the checks have to add to the verdict

    def run(self) -> None:
        case, console = self.case, self.console
        if self.session.on_case is not None:
            program, specs = self._program()
            self.session.programs_seen += 1
            self.session.on_case(program, list(specs.values()), case)
            self.result.passed, self.result.was_executed = True, False
            return
        with console.stage("compile"), progress(f"compiling {case.name}"):
            compiled, specs = self._compile()
            if not self.session.count_only and not case.config.stops_after_compile:
                compiled.prepare(case.config, self.directory)
        if compiled.has_ranks and (self.session.looks_at_tasks or self.session.on_ranks):
            self.result.passed, self.result.was_executed = True, False
            compiled.may_run(self._inputs(compiled, specs), case.config)
            return
        if self.session.count_only:
            self._count(compiled, specs)
            return
        reporting.announce(case.config)
        if case.config.stops_after_compile:
            self._skip("the program was only compiled")
        else:
            self._run_and_compare(compiled, specs)

    def _program(self) -> tuple[Program, dict[str, Spec]]:
        """The program as it was written, for these arguments, and the spec of each of them."""
        program, extents = self.case.program, Extents(keeps_others=True)
        if isinstance(program, Program):
            shapes = {s.name: s.shape for s in self.case.specs if isinstance(s, TensorSpec)}
            program = as_stored(program, shapes)
            specs = match_specs(parameters(program), self.case.specs, extents)
        else:
            specs = match_specs(jit_parameters(program), self.case.specs, extents)
            program = program.specialize(*(_example(spec) for spec in specs.values()))
        if not extents.others:
            return program, specs
        if not can_lower_again(program):
            raise next(iter(extents.others.values()))
        own = {
            name: spec.shape
            for name, spec in specs.items()
            if isinstance(spec, TensorSpec) and spec.name in extents.others
        }
        return with_extents(program, own), specs

    def _compile(self) -> tuple[CompiledProgram, dict[str, Spec]]:
        """The compiled program, and the spec of each of its parameters."""
        config = self.case.config
        program, specs = self._program()
        compiled = compile_program(program, dump_folder(self.directory, config), config)
        # An undeclared number of a `@pl.jit` function is part of its text, not a parameter.
        return compiled, {p.name: specs[p.name] for p in compiled.parameters}

    def _count(self, compiled: CompiledProgram, specs: dict[str, Spec]) -> None:
        """`tilelet tasks`: the control program runs, no kernel does."""
        makers = {
            param.name: functools.partial(self._initial, param, specs[param.name])
            for param in compiled.parameters
        }
        read = parameters_read(compiled.program)
        needed = {
            param.name: makers[param.name]()
            for param in compiled.parameters
            if param.name in read or not isinstance(param.type, TensorType)
        }
        shapes = {
            param.name: _nothing(param, specs[param.name])
            for param in compiled.parameters
            if param.name not in needed and not _has_known_shape(param)
        }
        with progress(f"counting the tasks of {compiled.name}"):
            data = functools.partial(self._inputs, compiled, specs)
            tasks = compiled.count_tasks({**needed, **shapes}, data)
        self.result.tasks = tasks.counts()
        self.result.all_counted = not isinstance(tasks, TaskStream) or tasks.complete
        self.result.passed = True
        self.result.was_executed = False
        arguments = MadeOnDemand(needed, makers)
        comparison = self._comparison(compiled, specs)
        reporting.show_recorded(compiled.name, compiled.program, tasks, arguments, comparison)

    def _comparison(self, compiled: CompiledProgram, specs: dict[str, Spec]) -> Comparison:
        """How the outputs are compared, for those who check the comparison itself."""
        from tilelet.checks.comparison import Comparison

        case, inputs = self.case, scalars_of(self.case.specs)
        sure, maybe = _outputs(compiled, specs)
        outputs = tuple(specs[name].name for name in (*sure, *maybe))
        judge = Judge(case.rtol, case.atol, case.compare_fn, case.use_torch)
        return Comparison(
            rtol=case.rtol,
            atol=case.atol,
            golden=case.golden,
            outputs=outputs,
            marked=tuple(sure),
            filled=tuple(n for n, spec in specs.items() if not _is_fresh(spec, case.is_seed)),
            own=outputs if callable(case.compare_fn) else tuple(case.compare_fn),
            judge=lambda actual, expected: all(
                j.ok for j in judge.judge_all(actual, expected, inputs)
            ),
            case=lambda: self._examined(compiled, specs, self._inputs(compiled, specs)),
        )

    def _initial(self, param: Parameter, spec: Spec) -> Any:
        """What a parameter starts with: made by its initialiser, or read back."""
        if isinstance(spec, ScalarSpec):
            return spec.value
        folder, is_seed = self._data_folder("in"), self.case.is_seed
        if folder and not _is_fresh(spec, is_seed):
            array = _stored(folder, spec)
        else:
            with progress(f"making the input {spec.name}"):
                array = initial_array(spec, zero=is_seed and spec.is_output)
        assert isinstance(param.type, TensorType)
        return array.view(param.type.dtype.numpy)

    def _run_and_compare(self, compiled: CompiledProgram, specs: dict[str, Spec]) -> None:
        case, console = self.case, self.console
        with console.stage("generate inputs"):
            check_memory(case.specs)
            pristine = self._inputs(compiled, specs)
        tensors = _tensors(specs, pristine)
        if self.session.examiner is not None:
            self.result.passed, self.result.was_executed = True, False
            self.session.examiner(compiled.name, self._examined(compiled, specs, pristine))
            return
        expected = None
        if case.golden is not None or case.golden_data is not None:
            with console.stage("compute golden"):
                expected = self._expected(compiled, specs, tensors)
        written = [p.name for p in compiled.parameters if p.is_written]
        arguments = {n: a.copy() if n in written else a for n, a in pristine.items()}
        with console.stage("runtime"), progress(f"running {compiled.name}"):
            tasks = compiled.run_tasks(arguments, case.config, directory=self.directory)
            self.result.tasks = tasks.counts()
        if self.session.recorder:
            comparison = self._comparison(compiled, specs)
            reporting.show_recorded(compiled.name, compiled.program, tasks, pristine, comparison)
        elif case.config.profiles:
            self.result.profile = reporting.show_profile(
                compiled.name, compiled.program, tasks, arguments, case.config, self.directory
            )
        self._save(specs, tensors, expected)
        if not compiled.has_ranks:
            self.findings = check_after_run(
                compiled.name,
                compiled.program,
                pristine,
                reporting.platform_of(case.config),
                self.result.tasks,
                self._comparison(compiled, specs),
            )
        if not expected:
            self._skip("no golden" if expected is None else "no output to compare")
            return
        for name in written:
            if specs[name].name not in expected:
                console.detail(f"'{name}' is written, but not by the golden: not compared")
        with console.stage("validate"):
            by_spec = {spec.name: param for param, spec in specs.items()}
            inputs = {specs[n].name: a for n, a in tensors.items()} | scalars_of(self.case.specs)
            actual = {
                name: _as_spec(specs[by_spec[name]], arguments[by_spec[name]]) for name in expected
            }
            judge = Judge(case.rtol, case.atol, case.compare_fn, case.use_torch)
            judgements = judge.judge_all(actual, expected, inputs)
        failed = [by_spec[j.name] for j in judgements if not j.ok]
        if failed:
            pairs = {p: (actual[specs[p].name], expected[specs[p].name]) for p in failed}
            self._find_where(compiled, specs, pristine, pairs)
        self._report(judgements, {spec.name: spec for spec in specs.values()})
        if failed:
            self._keep_numbers(judgements, actual, expected)

    def _examined(
        self, compiled: CompiledProgram, specs: dict[str, Spec], pristine: Mapping[str, Any]
    ) -> Examined:
        """The case for those who execute it themselves, with what its golden computes."""
        from tilelet.runtime.inspection.examined_case import examined

        case, tensors = self.case, _tensors(specs, pristine)

        def expecting(golden: Golden | None) -> dict[str, Array] | None:
            if golden is None and case.golden_data is None:
                return None
            self.case = replace(case, golden=golden)
            try:
                return self._expected(compiled, specs, tensors, cached=False)
            finally:
                self.case = case

        inputs = {specs[n].name: a for n, a in tensors.items()} | scalars_of(case.specs)
        judge = Judge(case.rtol, case.atol, case.compare_fn, case.use_torch)
        return examined(compiled, specs, pristine, case.golden, expecting, judge, inputs)

    def _find_where(
        self,
        compiled: CompiledProgram,
        specs: dict[str, Spec],
        pristine: Mapping[str, Any],
        pairs: Mapping[str, tuple[Array, Array]],
    ) -> None:
        """Which regions of the failed outputs are wrong, and who wrote them."""
        from tilelet.divergence.where import where_wrong

        outputs = {
            param: (
                specs[param].name,
                *pair,
                mismatches(*pair, self.case.rtol, self.case.atol),
            )
            for param, pair in pairs.items()
        }
        with progress("finding where it is wrong"):
            self.result.where = where_wrong(compiled.program, pristine, outputs)

    def _inputs(self, compiled: CompiledProgram, specs: dict[str, Spec]) -> dict[str, Any]:
        """Initial data by parameter."""
        return {p.name: self._initial(p, specs[p.name]) for p in compiled.parameters}

    def _data_folder(self, group: str) -> Path | None:
        data = self.case.golden_data
        if data is None:
            return None
        return data / "data" / group if (data / "data").is_dir() else data / group

    def _expected(
        self,
        compiled: CompiledProgram,
        specs: dict[str, Spec],
        tensors: dict[str, Array],
        *,
        cached: bool = True,
    ) -> dict[str, Array]:
        """Expected arrays by spec name: read back, from the cache, or from the golden itself."""
        case = self.case
        by_spec = {specs[name].name: array for name, array in tensors.items()}
        sure, maybe = _outputs(compiled, specs)
        folder = self._data_folder("out")
        if folder:
            found = [specs[p] for p in (*sure, *maybe)]
            return {
                spec.name: _stored(folder, spec)
                for spec in found
                if isinstance(spec, TensorSpec) and (spec.is_output or _is_stored(folder, spec))
            }
        assert case.golden is not None
        cache = GoldenCache()
        names = tuple(specs[p].name for p in (*sure, *maybe))
        scalars = scalars_of(self.case.specs)
        key = None
        if self.session.golden_cache and cached:
            key = cache.key(case.golden, by_spec, scalars, names, case.use_torch)
        stored = cache.load(key) if key else None
        if stored is not None and set(stored) <= set(names):
            self.console.detail("golden unchanged: from the cache")
            return {name: stored[name] for name in names if name in stored}
        with progress("computing the golden"):
            expected = compute_golden(
                case.golden,
                by_spec,
                scalars,
                outputs=[specs[p].name for p in sure],
                maybe_outputs=[specs[p].name for p in maybe],
                fresh=[specs[p].name for p in sure if _is_fresh(specs[p], case.is_seed)],
                use_torch=case.use_torch,
            )
        if key:
            cache.store(key, expected)
        return expected

    def _save(
        self,
        specs: dict[str, Spec],
        tensors: dict[str, Array],
        expected: dict[str, Array] | None,
    ) -> None:
        if not (self.case.save_data or self.session.save_data):
            return
        try:
            for name, array in tensors.items():
                self.directory.save_array("in", specs[name].name, array)
            for name, array in (expected or {}).items():
                self.directory.save_array("out", name, array)
        except OSError as error:
            raise CannotWrite.of(error) from error

    def _skip(self, why: str) -> None:
        """Nothing was compared: that is said, and it is not a failure."""
        self.result.passed = True
        self.console.skipped(why)
        self.session.add_errors([ValidationSkipped(why).diagnostic])

    def _report(self, judgements: Sequence[Judgement], specs: dict[str, Spec]) -> None:
        result = self.result
        result.validated = True
        for judgement in judgements:
            spec = specs[judgement.name]
            assert isinstance(spec, TensorSpec)
            matched = judgement.total - judgement.mismatched
            if judgement.ok:
                self.console.passed(spec, matched, judgement.total, judgement.remark)
            else:
                self.console.failed(spec, judgement.mismatched, judgement.total, judgement.remark)
        failures = [j for j in judgements if not j.ok]
        result.passed = not failures
        if not failures:
            return
        maps = {where.output: where.lines() for where in result.where}
        reports = ["\n".join([j.report, *maps.get(j.name, [])]) for j in failures]
        result.error = self.console.mismatch_text([j.name for j in failures], reports)
        self.session.add_errors(
            [OutputMismatch(j.name, text).diagnostic for j, text in zip(failures, reports)]
        )
        try:
            self.directory.write_text("\n\n".join(reports) + "\n", "report", "mismatch.txt")
        except OSError:
            return  # the report is in the result anyway

    def _keep_numbers(
        self,
        judgements: Sequence[Judgement],
        actual: Mapping[str, Array],
        expected: Mapping[str, Array],
    ) -> None:
        """For the page of the run: how far each output is from the golden, and where."""
        from tilelet.runtime.validation.numbers_file import numbers_json

        text = numbers_json(
            judgements, actual, expected, self.result.where, self.case.rtol, self.case.atol
        )
        with contextlib.suppress(OSError):  # the report has been printed
            self.directory.write_text(text, "report", "numbers.json")


def _example(spec: Spec) -> Any:
    """What stands for an argument when a `@pl.jit` function is specialised."""
    if isinstance(spec, ScalarSpec):
        return spec.value
    return jit_call.example(TensorType(spec.shape, spec.element))


def _tensors(specs: Mapping[str, Spec], given: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays among arguments, in the element types of their specs."""
    return {
        name: _as_spec(specs[name], cast("Array", a))
        for name, a in given.items()
        if isinstance(a, np.ndarray)
    }


def _as_spec(spec: Spec, array: Array) -> Array:
    """The same memory as elements of the spec's type: signed ones may stand for unsigned ones."""
    return array.view(spec.element.numpy) if array.dtype != spec.element.numpy else array


def _is_fresh(spec: Spec, is_seed: bool) -> bool:
    """An output that starts as zeros, not as data."""
    if not isinstance(spec, TensorSpec) or not spec.is_output:
        return False
    return is_seed or (spec.init_value is None and spec.from_checkpoint is None)


def _outputs(compiled: CompiledProgram, specs: dict[str, Spec]) -> tuple[list[str], list[str]]:
    """Parameters that are compared in any case, and those compared if the golden writes them.

    A spec marked as output is compared. What the program writes otherwise, by its signature or in
    fact, is compared when the golden has something to say about it.
    """
    tensors = [p for p in compiled.parameters if isinstance(p.type, TensorType)]
    sure = [p.name for p in tensors if getattr(specs[p.name], "is_output", False)]
    maybe = [p.name for p in tensors if p.is_written and p.name not in sure]
    return sure, maybe


def _has_known_shape(param: Parameter) -> bool:
    return isinstance(param.type, TensorType) and all(isinstance(d, int) for d in param.type.shape)


def _nothing(param: Parameter, spec: Spec) -> Array:
    """An array for its shape only: its pages are never touched."""
    assert isinstance(param.type, TensorType)
    assert isinstance(spec, TensorSpec)
    return np.zeros(spec.shape, param.type.dtype.numpy)


def _is_stored(folder: Path, spec: TensorSpec) -> bool:
    return any((folder / f"{spec.name}{suffix}").is_file() for suffix in (".npz", ".npy", ".pt"))


def _stored(folder: Path, spec: TensorSpec) -> Array:
    """A stored array of the shape and type that its spec says."""
    try:
        array = load_array(folder, spec.name)
    except BadFileError as error:
        raise BadDataFile(spec.name, str(error)) from error
    if array is None:
        raise GoldenDataMissing(str(folder), spec.name)
    if array.shape != spec.shape:
        raise BadDataFile(spec.name, f"shape {list(array.shape)}, spec {list(spec.shape)}")
    if array.dtype != spec.element.numpy:
        raise BadDataFile(spec.name, f"dtype {array.dtype}, spec {spec.element}")
    return np.ascontiguousarray(array)
