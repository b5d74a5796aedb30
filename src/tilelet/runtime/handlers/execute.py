"""`tilelet run`, and scripts without a command: execute programs and compare their outputs."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.harness import OutputMismatch
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.source import display_path
from tilelet.diag.text import plural
from tilelet.dtypes import Argument, Arguments, Array
from tilelet.runtime.data.inputs import check_memory
from tilelet.runtime.data.specs import TensorSpec
from tilelet.runtime.handlers.count import Data, say_compiled
from tilelet.runtime.harness.case_run import CaseRun, as_spec
from tilelet.runtime.programs.compiler import CompiledProgram, ProgramCall
from tilelet.runtime.progress import progress
from tilelet.runtime.validation.differences import mismatches
from tilelet.runtime.validation.judge import Judgement

if TYPE_CHECKING:
    from tilelet.checks.comparison import GoldenComparison
    from tilelet.ir.core import Program
    from tilelet.runtime.config import RunConfig
    from tilelet.runtime.output.run_directory import RunDirectory
    from tilelet.runtime.programs.engines import TaskCounter
    from tilelet.runtime.session import Session


_MAX_ELEMENTS_SEARCHED = 1 << 17
"""Largest number of elements of all arguments for which a failed comparison is searched."""


@dataclass(frozen=True)
class Executed:
    """A finished execution.

    pristine   arguments as they were before it; `arguments` hold the results
    case       what was run, if it was a case
    """

    program: CompiledProgram
    tasks: TaskCounter
    arguments: Arguments
    pristine: Arguments
    config: RunConfig
    directory: RunDirectory
    session: Session
    case: CaseRun | None = None


@dataclass
class Execute:
    """Executes programs, compares the outputs of cases with their goldens, and reports.

    checks  run the cheap checks after a program has run
    """

    checks: bool = False
    _checked: dict[int, Program] = field(default_factory=dict[int, "Program"])
    executes = True
    silent = False
    only_results = True
    records = False

    def case(self, run: CaseRun) -> None:
        config = run.case.config
        with run.compiling():
            compiled = run.compiled
            if not config.stops_after_compile and not compiled.has_ranks:
                compiled.prepare(config, run.directory, records=self.records, now=run.session)
        if compiled.has_ranks and self.explore_ranks(compiled, run.lent_inputs, config) is not None:
            run.result.passed, run.result.was_executed = True, False
            return
        run.session.announce(config)
        if config.stops_after_compile:
            run.skip_validation("the program was only compiled")
            return
        with run.console.stage("generate inputs"):
            check_memory(run.case.specs)
            pristine = run.lent_inputs()
        self._run_and_compare(run, pristine)

    def call(self, call: ProgramCall) -> None:
        program, now = call.program, call.session
        now.announce(call.config)
        arguments = call.arguments
        if program.has_ranks:
            if self.explore_ranks(program, lambda: arguments, call.config) is not False:
                program.run_tasks(arguments, call.config, now=now)
            return
        pristine = self.before_call(arguments)
        directory = now.run_directory(program.name, call.config)
        with progress(f"running {program.name}"):
            tasks = program.run_tasks(
                arguments, call.config, directory=directory, records=self.records, now=now
            )
        self.after(Executed(program, tasks, arguments, pristine, call.config, directory, now))
        text = self._check(program, arguments, call.config, tasks.counts(), None, now)
        if text:
            now.say_once(f"{program.name}: done{text}")

    def uncalled(self, program: CompiledProgram, path: str, now: Session) -> None:
        del now
        say_compiled(program, f"{path} runs nothing by itself")

    def explore_ranks(
        self, program: CompiledProgram, arguments: Data, config: RunConfig
    ) -> bool | None:
        """Explores a program of several ranks and returns whether to run it; None: always."""
        del program, arguments, config
        return None

    def before_call(self, arguments: Arguments) -> Arguments:
        """Return the arguments as they are before a call, for `after`."""
        return arguments

    def after(self, executed: Executed) -> None:
        """Model an execution whose configuration asks for a profile."""
        if executed.config.profiles:
            from tilelet.runtime.handlers.profile_run import show_profile

            figures = show_profile(executed)
            if executed.case:
                executed.case.result.profile = figures

    def _check(
        self,
        program: CompiledProgram,
        arguments: Arguments,
        config: RunConfig,
        counts: Mapping[str, int],
        comparison: GoldenComparison | None,
        now: Session,
    ) -> str:
        """Run the cheap checks, once per program; return the text for the verdict line."""
        passed = program.program
        if not self.checks or id(passed) in self._checked or program.has_ranks:
            return ""
        self._checked[id(passed)] = passed
        from tilelet.runtime.handlers.cheap_checks import cheap_verdict

        platform = now.platform_of(config)
        # A machine-readable document needs the full verdict, which is not cached.
        remembers = not now.quiet_diagnostics
        verdict, unchecked = cheap_verdict(
            program.name, passed, arguments, platform, counts, comparison, remembers
        )
        now.unchecked.append(unchecked)
        if verdict is None:
            return ""
        now.verdicts.append(verdict)
        if verdict.ok:
            return ""
        now.report(verdict.diagnostics)
        return f" on this CPU; {plural(len(verdict.findings), 'finding')} for {verdict.machine}"

    # ---- cases

    def _run_and_compare(self, run: CaseRun, pristine: dict[str, Argument]) -> None:
        case, console, compiled, specs = run.case, run.console, run.compiled, run.specs
        tensors = run.tensors(pristine)
        expected = None
        if case.golden is not None or case.golden_data is not None:
            with console.stage("compute golden"):
                expected = run.expected(tensors, case.golden)
        written = [p.name for p in compiled.parameters if p.is_written]
        arguments = {
            n: a.copy() if n in written and isinstance(a, np.ndarray) else a
            for n, a in pristine.items()
        }
        with console.stage("runtime"), progress(f"running {compiled.name}"):
            tasks = compiled.run_tasks(
                arguments,
                case.config,
                directory=run.directory,
                records=self.records,
                now=run.session,
            )
            run.result.tasks = tasks.counts()
        self.after(
            Executed(
                compiled, tasks, arguments, pristine, case.config, run.directory, run.session, run
            )
        )
        run.save(tensors, expected)
        comparison = run.comparison()
        run.findings = self._check(
            compiled, pristine, case.config, run.result.tasks, comparison, run.session
        )
        if not expected:
            run.skip_validation("no golden" if expected is None else "no output to compare")
            return
        for name in written:
            if specs[name].name not in expected:
                console.detail(f"'{name}' is written, but not by the golden: not compared")
        with console.stage("validate"):
            by_spec = {spec.name: param for param, spec in specs.items()}
            actual = {
                name: as_spec(specs[by_spec[name]], np.asarray(arguments[by_spec[name]]))
                for name in expected
            }
            judgements = run.judge.judge_all(actual, expected, run.by_spec(tensors))
        failed = [by_spec[j.name] for j in judgements if not j.ok]
        if failed:
            pairs = {p: (actual[specs[p].name], expected[specs[p].name]) for p in failed}
            _find_where(run, pristine, pairs)
            _search_briefly(run, pristine)
        _report(run, judgements)
        if failed:
            _keep_numbers(run, judgements, actual, expected)


def _find_where(
    run: CaseRun, pristine: Arguments, pairs: Mapping[str, tuple[Array, Array]]
) -> None:
    """Find the wrong regions of the failed outputs, and the tasks that wrote them."""
    from tilelet.divergence.wrong_regions import where_wrong

    outputs = {
        param: (
            run.specs[param].name,
            *pair,
            mismatches(*pair, run.case.rtol, run.case.atol),
        )
        for param, pair in pairs.items()
    }
    with progress("finding where it is wrong"):
        run.result.where = where_wrong(run.compiled.program, pristine, outputs)


def _search_briefly(run: CaseRun, pristine: Arguments) -> None:
    """Find the wrong statement if that takes little work; the golden is called again."""
    from tilelet.divergence.answer import SHORT, answer
    from tilelet.divergence.case import no_parts

    if run.compiled.has_ranks:
        return
    if sum(np.size(array) for array in pristine.values()) > _MAX_ELEMENTS_SEARCHED:
        return
    # Discard what the golden prints: it was printed before.
    apart = contextlib.redirect_stdout(io.StringIO())
    with contextlib.suppress(UserError, UserErrors), progress("finding the statement"), apart:
        # The golden's own work is not counted: no calls over parts of its reductions.
        case = replace(run.examined(pristine), partial=no_parts)
        run.result.answer = answer(run.compiled.name, case, SHORT)


def _report(run: CaseRun, judgements: Sequence[Judgement]) -> None:
    result, console = run.result, run.console
    specs = {spec.name: spec for spec in run.specs.values()}
    result.validated = True
    for judgement in judgements:
        spec = specs[judgement.name]
        assert isinstance(spec, TensorSpec)
        matched = judgement.total - judgement.mismatched
        if judgement.ok:
            console.passed(spec, matched, judgement.total, judgement.remark)
        else:
            console.failed(spec, judgement.mismatched, judgement.total, judgement.remark)
    failures = [j for j in judgements if not j.ok]
    result.passed = not failures
    if not failures:
        return
    maps = {where.output: where.lines() for where in result.where}
    brief = result.answer.brief() if result.answer else ""
    script = _script(run)
    if run.compiled.has_ranks:
        search = f"Search for races: tilelet check {script}"
    elif brief:
        search = f"Short search: {brief}; in full: tilelet diverge {script}"
    else:
        search = f"Search: tilelet diverge {script}"
    reports = ["\n".join([j.report, *maps.get(j.name, []), search]) for j in failures]
    result.error = console.mismatch_text([j.name for j in failures], reports)
    run.session.add_errors(
        [OutputMismatch(j.name, text).diagnostic for j, text in zip(failures, reports)]
    )
    with contextlib.suppress(OSError):  # the report is in the result anyway
        run.directory.write_text("\n\n".join(reports) + "\n", "report", "mismatch.txt")


def _script(run: CaseRun) -> str:
    """Return the script that runs a case, or the file of its program if there is none."""
    main = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    is_script = main.suffix == ".py" and main.stem != "__main__"
    return display_path(str(main) if is_script else run.compiled.program.main.loc.file)


def _keep_numbers(
    run: CaseRun,
    judgements: Sequence[Judgement],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
) -> None:
    """Write the differences of each output from the golden, for the HTML page."""
    from tilelet.runtime.validation.numbers_file import numbers_json

    where, case = run.result.where, run.case
    text = numbers_json(judgements, actual, expected, where, case.rtol, case.atol)
    with contextlib.suppress(OSError):  # the report has been printed
        run.directory.write_text(text, "report", "numbers.json")
