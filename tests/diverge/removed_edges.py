"""Edges between tasks that are removed: an argument is left out of the dependencies of a call.

A removed edge is a fault if the program then has an order, legal by the rules of the runtime, that
gives other results: the tasks are executed latest first, as far as the remaining edges allow.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilelet.analysis.aliases import Aliases, accesses, is_tensor
from tilelet.checks import race
from tilelet.checks.verdict import Subject
from tilelet.device import load_machine
from tilelet.device.run import Recorded
from tilelet.device.schedule.graph import Graph
from tilelet.diag.core import UserError
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.edits import Edit, apply_edit
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import Replay, UnknownContentsError, find_control_traces
from tilelet.ir.core import Op, walk
from tilelet.ir.views import CallView

KIND = "removed edge"
MAX_TASKS = 2000
A2A3 = load_machine("a2a3")


@dataclass(frozen=True)
class Placed:
    """Outcome of a fault: the check that reported it, and whether at the right place."""

    program: str
    kind: str
    check: str  # "" if it was not reported
    right: bool
    seconds: float
    found: str = ""
    fault: str = ""


def subject_of_case(name: str, case: GoldenCase) -> Subject:
    tasks = Interpreter().run(case.program, dict(case.arguments), execute=False).tasks
    find_control_traces(case.program, tasks, case.arguments)
    return Subject(Recorded(name, case.program, tasks), case.arguments, A2A3)


def edits(case: GoldenCase) -> Iterator[tuple[Edit, int]]:
    """Yield every call without the dependencies of one of its arguments, and the argument."""
    for function in case.program.functions.values():
        for op in walk(function.body):
            if op.name != "call" or CallView(op).callee not in case.program.functions:
                continue
            positions = op.args["no_dep"] or ()
            assert isinstance(positions, tuple)
            for i, operand in enumerate(CallView(op).operands):
                if is_tensor(operand) and i not in positions:
                    made = replace(op, args={**op.args, "no_dep": (*positions, i)})
                    yield Edit(op, KIND, f"without `{operand.name}`", (made,)), i


def placed(name: str, case: GoldenCase, rng: random.Random, each: int) -> Iterator[Placed]:
    """Yield removed edges that matter, and whether the race check names an access of the call."""
    found = list(edits(case))
    rng.shuffle(found)
    count = 0
    for fault, position in found[: 6 * each]:
        if count >= each:
            break
        broken = replace(case, program=apply_edit(case.program, fault), written=None)
        start = time.perf_counter()
        subject = subject_of_case(name, broken)
        if not 0 < len(subject.tasks) <= MAX_TASKS:
            return
        races = race.Races(subject, max(A2A3.runtime))
        if not _matters(subject, races.graph):
            continue
        count += 1
        findings = races.findings()
        right = False
        text = ""
        if findings:
            named = {(p.loc.file, p.loc.line) for p in findings[0].places}
            right = bool(named & touching(case, fault.op, position))
            text = f"{findings[0].message} {sorted(line for _, line in named)}"
        seconds, at = time.perf_counter() - start, f"call line {fault.loc.line} {fault.text}"
        yield Placed(name, KIND, "race" if findings else "", right, seconds, text, at)


def touching(case: GoldenCase, call: Op, position: int) -> set[tuple[str, int]]:
    """Return the lines of the called kernel that touch one of its parameters."""
    kernel = case.program.functions[CallView(call).callee]
    aliases = Aliases(kernel.body, case.program.functions)
    param = kernel.params[position]
    return {
        (op.loc.file, op.loc.line)
        for op in walk(kernel.body)
        for value, _ in accesses(op, case.program.functions)
        if param in aliases.roots(value)
    }


def _matters(subject: Subject, graph: Graph) -> bool:
    """Whether an order that the graph allows gives other results."""
    given = (subject.program, subject.tasks, subject.arguments)
    try:
        results: list[dict[str, Any]] = []
        for order in (range(len(subject.tasks)), latest_first(graph)):
            replay = Replay(*given)
            for task in order:
                replay.execute(task)
            results.append(replay.contents())
    except (UnknownContentsError, UserError):
        return False
    names = [p.name for p in subject.program.main.params]
    return any(
        not np.array_equal(results[0][n], results[1][n], equal_nan=results[0][n].dtype.kind == "f")
        for n in names
        if n in results[0] and n in results[1]
    )


def latest_first(graph: Graph) -> list[int]:
    """Return all tasks in a topological order that runs late tasks as early as possible."""
    waiting = {t: set(graph.producers(t)) for t in range(graph.tasks)}
    consumers: dict[int, list[int]] = {}
    for task, producers in waiting.items():
        for producer in producers:
            consumers.setdefault(producer, []).append(task)
    ready = [-t for t, producers in waiting.items() if not producers]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        task = -heapq.heappop(ready)
        order.append(task)
        for consumer in consumers.get(task, ()):
            waiting[consumer].discard(task)
            if not waiting[consumer]:
                heapq.heappush(ready, -consumer)
    return order
