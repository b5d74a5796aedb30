"""Static analysis of a kernel file: mistakes, values, tasks and modelled time.

Nothing in the file is executed. Cheap steps come first, so that diagnostics appear before figures,
and `stop` is polled between them.
"""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from tilelet.advice.core import Subject as AdviceSubject
from tilelet.advice.rules import RULES
from tilelet.advice.source import Source
from tilelet.analysis.patience import OutOfSteps, until
from tilelet.checks.registry import CHECKS
from tilelet.checks.verdict import Subject, verdict_on
from tilelet.dataclasses import dataclass, field, replace
from tilelet.device.kernel.storage import Storage
from tilelet.device.machine.description import Machine, load_machine
from tilelet.device.memory.plan import Placement
from tilelet.device.report.profile import KernelRow, Profile
from tilelet.device.run import DeviceRun
from tilelet.diag.catalogue.oracle import NotEvaluated
from tilelet.diag.core import Diagnostic, Loc, UserError, UserErrors
from tilelet.diag.internal import InternalError
from tilelet.equivalence.data_control import open_parameters
from tilelet.equivalence.order import is_ordered
from tilelet.equivalence.proof import prove_equal
from tilelet.frontend.source import SourceFile, nodes_in
from tilelet.ir.core import FunctionKind, Op, Program, Value, walk
from tilelet.ir.programs import Programs
from tilelet.runtime import session
from tilelet.runtime.handlers.record import RecordedRun
from tilelet.runtime.inspection.check import recorded_runs
from tilelet.runtime.session import Session
from tilelet.static.evaluator import Unknown
from tilelet.static.module import (
    MAX_STEPS,
    FolderLoader,
    StaticModule,
    TextProgram,
    limit_work,
    read_module,
)

MAX_TASKS = 20_000
"""Tasks of a program that are modelled while somebody types."""
_MAX_KEPT = 512
"""Programs whose results are kept for later versions of a file."""
_PROOF_BUDGET = 1_000_000
"""Elements that a proof may take while somebody types."""


class AnalysisStoppedError(Exception):
    """The text has changed, which makes the analysis obsolete."""


@dataclass(frozen=True)
class Defined:
    """A value of a kernel, and the op that defines it; None for a parameter."""

    value: Value
    op: Op | None


@dataclass(frozen=True)
class Modelled:
    """A program with its modelled run."""

    program: TextProgram
    run: DeviceRun

    @property
    def profile(self) -> Profile:
        return self.run.summary

    def kernels(self, path: str) -> Iterator[tuple[int, int, KernelRow]]:
        """Yield the kernels whose scopes are in the file: number, line, figures."""
        for number, kernel in enumerate(self.profile.kernels):
            file, _, line = kernel.where.rpartition(":")
            if PurePath(file).name == PurePath(path).name and line.isdecimal():
                yield number, int(line), kernel

    def placements(self, value: Value) -> Iterator[Placement]:
        """Yield the placements of a value's storage class in the memory plan of each kernel."""
        for kernel, plan in zip(self.run.kernels, self.run.plans):
            values = [v for op in walk(kernel.function.body) for v in _defined_by(op)]
            here = next((v for v in values if _place_of(v) == _place_of(value)), None)
            if here is None:
                continue
            storage = Storage(kernel.function)
            shared = {_place_of(v) for v in values if storage.find(v) is storage.find(here)}
            for use in plan.spaces:
                for placed in use.placements:
                    if (placed.tile.name, placed.tile.loc) in shared:
                        yield placed


@dataclass(frozen=True)
class Suggestion:
    """Advice whose rewriting is proved to keep the results and modelled to be faster."""

    diagnostic: Diagnostic
    text: str
    before_us: float
    after_us: float


@dataclass
class Analysis:
    """The analysis of one version of a file.

    module       None if the text is not Python
    diagnostics  mistakes and findings, each once
    values       values of all kernels in the file, by name
    """

    path: str
    text: str
    module: StaticModule | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    values: dict[str, list[Defined]] = field(default_factory=dict[str, list[Defined]])
    modelled: list[Modelled] = field(default_factory=list[Modelled])
    suggestions: list[Suggestion] = field(default_factory=list[Suggestion])

    def value_at(self, name: str, line: int) -> Defined | None:
        """Return the value that a name has on a line: that of its last definition before it."""
        known = [d for d in self.values.get(name, []) if d.value.loc.file == self.path]
        before = [d for d in known if d.value.loc.line <= line]
        return max(before, key=lambda d: d.value.loc.line) if before else (known or [None])[0]

    def add(self, found: list[Diagnostic]) -> None:
        self.diagnostics = list(dict.fromkeys([*self.diagnostics, *found]))


@dataclass
class _Results:
    """Results for one program; they depend on its own text and on the constants of the file."""

    lowered: list[Program]
    diagnostics: list[Diagnostic]
    is_modelled: bool = False
    runs: list[DeviceRun] = field(default_factory=list[DeviceRun])


def _never() -> bool:
    return False


@dataclass
class Analyzer:
    """Analyze texts on one machine; programs that an edit leaves alone keep their results.

    known  values of names from a run of the script, by file
    """

    machine: Machine = field(default_factory=lambda: load_machine("a2a3"))
    known: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    _kept: dict[Hashable, _Results] = field(default_factory=dict[Hashable, _Results])

    def analyze(
        self,
        text: str,
        path: str,
        stop: Callable[[], bool] = _never,
        others: Mapping[Path, str] | None = None,
        publish: Callable[[Analysis], None] = lambda _: None,
    ) -> Analysis:
        """Analyze a text; raise `AnalysisStoppedError` once `stop` says so.

        others   unsaved texts of other files
        publish  is called with the analysis when its diagnostics are known, and with its figures
        """
        found = Analysis(path, text)
        quiet = Session(quiet_diagnostics=True)
        with contextlib.redirect_stdout(io.StringIO()), session.active(quiet), until(stop):
            built = self._lower(found, others or {}, stop)
            publish(found)
            for program, results in built:
                _check(stop)
                self._model(found, program, results, stop)
            publish(found)
            lowered = {p: one for p, results in built for one in results.lowered}
            self._advise(found, lowered, stop)
        return found

    def module(self, text: str, path: str, others: Mapping[Path, str]) -> StaticModule:
        return self._read(text, path, others)[0]

    def _read(
        self, text: str, path: str, others: Mapping[Path, str]
    ) -> tuple[StaticModule, list[tuple[str, str]]]:
        """Read a file; return its module, and the paths and texts of the files it imports."""
        loader = FolderLoader(Path(path).parent, others)
        module = read_module(text, path, loader)
        for name, value in self.known.get(path, {}).items():
            if isinstance(module.names.get(name), Unknown):
                module.scope.names[name] = value
        imported = [(str(p), m.source.text) for p, m in loader.read.items() if m is not None]
        return module, imported

    def _lower(
        self, found: Analysis, others: Mapping[Path, str], stop: Callable[[], bool]
    ) -> list[tuple[TextProgram, _Results]]:
        try:
            module, imported = self._read(found.text, found.path, others)
        except UserError as problem:
            _check(stop)
            found.add([problem.diagnostic])
            return []
        found.module = module
        found.add([problem.diagnostic for problem in module.problems])
        around = (_without_kernels(module), *imported, repr(self.known.get(found.path)))
        built: list[tuple[TextProgram, _Results]] = []
        for program in module.programs:
            _check(stop)
            key = (*around, *_texts(program))
            results = self._kept.pop(key, None) or _build(program)
            _check(stop)  # a build that was stopped is not kept
            self._kept[key] = results
            found.add(results.diagnostics)
            for one in results.lowered:
                _index(one, found)
            built.append((program, results))
        while len(self._kept) > _MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return built

    def _model(
        self, found: Analysis, text: TextProgram, results: _Results, stop: Callable[[], bool]
    ) -> None:
        if not results.is_modelled:
            runs, diagnostics = self._modelled(results.lowered)
            _check(stop)
            results.runs, results.is_modelled = runs, True
            results.diagnostics += diagnostics
        found.modelled += [Modelled(text, run) for run in results.runs]
        found.add(results.diagnostics)

    def _modelled(self, programs: list[Program]) -> tuple[list[DeviceRun], list[Diagnostic]]:
        """Model the programs whose tasks are known; return the runs and findings of the checks."""
        cheap = [check for check in CHECKS.values() if check.cheap]
        runs: list[DeviceRun] = []
        diagnostics: list[Diagnostic] = []
        for program in programs:
            run = _record_tasks(program)
            if run is None:
                continue
            subject = Subject(run, run.arguments, self.machine, brief=True)
            with contextlib.suppress(UserError, InternalError, OutOfSteps):
                placed = DeviceRun(run, self.machine)
                _ = placed.summary, placed.plans  # requests do not wait for them
                runs.append(placed)
                with limit_work("the checks", MAX_STEPS):
                    diagnostics += verdict_on(subject, cheap).diagnostics
        return runs, diagnostics

    def _advise(
        self, found: Analysis, built: Mapping[TextProgram, Program], stop: Callable[[], bool]
    ) -> None:
        """Find rewritings that are proved and modelled to be faster."""
        if not found.modelled or found.module is None:
            return
        subject = AdviceSubject(
            Source(found.path, found.text), [modelled.run for modelled in found.modelled]
        )
        before = sum(m.profile.total_us for m in found.modelled)
        for rule in (r for r in RULES if r.rewrites):
            _check(stop)
            with contextlib.suppress(UserError, UserErrors, InternalError, OutOfSteps):
                for advice in rule.find(subject):
                    if advice.text is None:
                        continue
                    after = self._proved(found, advice.text, built, advice.rounding)
                    if after is not None and after < before:
                        found.suggestions.append(
                            Suggestion(advice.diagnostic, advice.text, before, after)
                        )

    def _proved(
        self, found: Analysis, text: str, built: Mapping[TextProgram, Program], rounding: bool
    ) -> float | None:
        """Return the modelled time of a rewritten file, if it computes the same in any order of its
        tasks, and the machine takes it.
        """
        originals = {program.name: lowered for program, lowered in built.items()}
        total = 0.0
        for program in self.module(text, found.path, {}).programs:
            original = originals.get(program.name)
            rewritten = program.build() if program.is_complete else None
            if original is None or not isinstance(rewritten, Program):
                return None
            run = _record_tasks(rewritten)
            mine = _record_tasks(original)
            if run is None or mine is None:
                return None
            placed = DeviceRun(run, self.machine)
            known = {problem.code for problem in DeviceRun(mine, self.machine).findings}
            subject = Subject(run, run.arguments, self.machine, brief=True)
            if not (
                not open_parameters(original)
                and prove_equal(
                    mine.program, run.program, rounding=rounding, budget=_PROOF_BUDGET
                ).holds
                and {problem.code for problem in placed.findings} <= known
                and is_ordered(subject, rounding=rounding)
            ):
                return None
            total += placed.summary.total_us
        return total


def _check(stop: Callable[[], bool]) -> None:
    if stop():
        raise AnalysisStoppedError


def _without_kernels(module: StaticModule) -> str:
    """Return the text of a file without its kernels: the part that determines its constants."""
    lines: list[str | None] = list(module.source.text.split("\n"))
    nodes = [p.node for p in module.programs if p.source is module.source]
    nodes += [f.node for f in module.functions if f.source is module.source]
    for node in nodes:
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            lines[line - 1] = None
    return "\n".join(line for line in lines if line is not None)


def _texts(program: TextProgram) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and text of a program and of the kernel functions that it reaches."""
    yield _place_and_text(program.source, program.node)
    for function in program.reached():
        yield _place_and_text(function.source, function.node)


def _place_and_text(source: SourceFile, node: ast.stmt) -> tuple[str, int, str]:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    text = "\n".join(source.text.split("\n")[first - 1 : node.end_lineno])
    return source.path, first, text


def _build(program: TextProgram) -> _Results:
    """Lower a program; record its mistakes, or the name that is unknown."""
    try:
        unknown = next(program.unknown_names(), None)
        if unknown is not None:
            return _Results([], [_as_note(unknown)])
        made = program.build() if program.is_complete else None
    except UserErrors as errors:
        return _Results([], list(errors.diagnostics))
    except UserError as error:
        return _Results([], [error.diagnostic])
    except RecursionError:
        return _Results([], [])
    lowered = list(made.by_entry.values()) if isinstance(made, Programs) else [made]
    programs = [one for one in lowered if one is not None]
    return _Results(programs, [caution for one in programs for caution in one.cautions])


def _as_note(problem: NotEvaluated) -> Diagnostic:
    """Return an unknown name as a note: the file itself may be correct."""
    return replace(problem.diagnostic, severity="note")


def _record_tasks(program: Program) -> RecordedRun | None:
    """Record the tasks of a program of one chip whose shapes are all known and need no data."""
    if any(f.kind is FunctionKind.Host for f in program.functions.values()):
        return None
    try:
        with limit_work("recording", MAX_STEPS):
            (run,) = recorded_runs(program, (), {}, MAX_TASKS)
    except (UserError, UserErrors, InternalError, ValueError):
        return None
    return run


def _place_of(value: Value) -> tuple[str, Loc]:
    """Return what identifies a value also after the passes, which rebuild the program."""
    return value.name, value.loc


def _defined_by(op: Op) -> Iterator[Value]:
    yield from op.results
    for block in op.blocks:
        yield from block.params


def _index(program: Program, found: Analysis) -> None:
    for function in program.functions.values():
        for param in function.params:
            found.values.setdefault(param.name, []).append(Defined(param, None))
        for op in walk(function.body):
            for value in op.results:
                found.values.setdefault(value.name, []).append(Defined(value, op))


def assigned_names(analysis: Analysis) -> Iterator[ast.Name]:
    """Yield the names that kernels of the file assign, each at its place."""
    if analysis.module is None:
        return
    for function in analysis.module.functions:
        if function.source is not analysis.module.source:
            continue
        for node in nodes_in(function.node):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from (n for n in names if isinstance(n, ast.Name))
