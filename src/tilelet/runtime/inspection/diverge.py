"""`tilelet.diverge`: the first wrong statement of a program that a script runs.

a = tilelet.diverge(softmax, specs, golden)
assert a.ok, a                     # the message in full
print(a.divergence, a.found[0].diagnostic.loc)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tilelet.runtime import session

if TYPE_CHECKING:
    from tilelet.device.run import Recorded
    from tilelet.diag.catalogue.diverge import StaleRead
    from tilelet.divergence.answer import Answer, Options
    from tilelet.divergence.case import GoldenCase
    from tilelet.runtime.inspection.diverge_view import ShownAnswer


def diverge(
    program: Any,
    /,
    *args: Any,
    budget: float = 40.0,
    all_fp32: bool = False,
    platform: str = "a2a3",
    **named: Any,
) -> ShownAnswer:
    """Find the first wrong statement, compared with the golden and with double precision.

    `args` are those of `tilelet.runtime.run`: the specs, the golden, tolerances. Any other function
    is called; the result is about the first program it runs that has a finding, else the first.

    budget    work for repairs, in nominal seconds
    all_fp32  carry FP32 instead of double beside every value
    platform  the machine whose ordering rules apply
    """
    from tilelet.diag.catalogue.command import BadFlag
    from tilelet.divergence.answer import Options
    from tilelet.frontend.jit import JitFunction
    from tilelet.ir.core import Program
    from tilelet.runtime.handlers.examine import Examine
    from tilelet.runtime.harness.runner import run
    from tilelet.runtime.inspection.diverge_view import ShownAnswer

    handler = Examine()
    now = replace(session.current(), handler=handler, results=[], diagnostics=[])
    with session.active(now):
        if isinstance(program, Program | JitFunction):
            run(program, *args, **named)
        else:
            function: Callable[..., object] = program
            function(*args, **named)
    if not handler.cases:
        errors = [r.error for r in now.results if r.error]
        raise BadFlag(errors[0] if errors else "no program with inputs ran: nothing to look at")
    answers: list[ShownAnswer] = []
    for name, case in handler.cases:
        found = examine(name, case, Options(budget, all_fp32), platform)
        page = partial(page_data, name, case, found, platform)
        answers.append(ShownAnswer(**vars(found), page=page))
        if found.found:
            return answers[-1]
    return answers[0]


def examine(name: str, case: GoldenCase, options: Options, platform: str = "a2a3") -> Answer:
    """Examine a case. Tasks that are correct in program order may still read memory that another
    task has not written yet; such races are reported, too.
    """
    from tilelet.divergence.answer import answer

    result = answer(name, case, options)
    if not result.found:
        result.found += _stale_reads(name, case, platform)
    return result


def page_data(name: str, case: GoldenCase, result: Answer, platform: str) -> bytes:
    """Return the HTML page of a case: modelled run, output differences, first divergence."""
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import DeviceRun
    from tilelet.divergence.wrong_regions import where_wrong
    from tilelet.report.run_directory import diverged_data
    from tilelet.runtime.validation.judge import Judge
    from tilelet.runtime.validation.numbers_file import numbers_data

    outputs, expected = dict(result.outputs), dict(case.expected)
    judgements = Judge(case.rtol, case.atol, {}).judge_all(outputs, expected, {})
    wrong = {
        j.name: (j.name, outputs[j.name], expected[j.name], mask)
        for j in judgements
        if not j.ok and (mask := case.mismatches(outputs).get(j.name)) is not None
    }
    where = where_wrong(case.program, case.arguments, wrong)
    numbers = numbers_data(judgements, outputs, expected, where, case.rtol, case.atol)
    if result.found:
        first = result.found[0].diagnostic
        place = {"file": first.loc.file, "line": first.loc.line} if first.loc else {}
        text = "\n".join([first.message, *first.notes, *first.helps])
        numbers["divergence"] = {"text": text, **place}
    return diverged_data(DeviceRun(_record(name, case), load_machine(platform)), numbers)


def _record(name: str, case: GoldenCase) -> Recorded:
    from tilelet.device.run import Recorded
    from tilelet.interp.interpreter import Interpreter
    from tilelet.runtime.handlers.record import with_control_traces

    tasks = Interpreter().run(case.program, dict(case.arguments), execute=False).tasks
    return Recorded(name, case.program, with_control_traces(case.program, tasks, case.arguments))


def _stale_reads(name: str, case: GoldenCase, platform: str) -> list[StaleRead]:
    """Return read-write races under the rules of the newest runtime."""
    from tilelet.checks import race
    from tilelet.checks.verdict import Subject
    from tilelet.device.machine.description import load_machine
    from tilelet.diag.catalogue.diverge import StaleRead
    from tilelet.diag.core import UserError

    try:
        subject = Subject(_record(name, case), case.arguments, load_machine(platform))
        found = race.Races(subject, subject.machine.newest_period).findings()
    except UserError:
        return []  # control flow depends on data
    return [
        StaleRead(finding.diagnostic, next(p.loc for p in finding.places if p.role == "reads"))
        for finding in found
        if any(place.role == "reads" for place in finding.places)
    ]
