"""The contribution of each step of a kernel to one execution, for the costs of source lines.

Pipes work concurrently, so their busy times do not add up to the kernel's. `added` does: it is how
much a step delays the end of everything before it. A load hidden behind a product adds nothing; the
sum over all steps is the time of the execution.
"""

from __future__ import annotations

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.course import Course, Move, course_of
from tilelet.device.kernel.pipes import Walk
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.machine.description import Machine

MAX_EVENTS = 1500
"""Limit on steps of one execution that are listed individually."""


@dataclass
class StepCost:
    """One step (by position), over all its executions; times in cycles."""

    added: float = 0.0
    busy: float = 0.0
    read: float = 0.0
    written: float = 0.0
    times: float = 0.0

    def plus(self, after: StepCost, before: StepCost, factor: float) -> StepCost:
        """Add the difference between two moments, `factor` times."""
        return StepCost(
            *(
                own + (late - early) * factor
                for own, late, early in zip(self.parts, after.parts, before.parts)
            )
        )

    @property
    def parts(self) -> tuple[float, float, float, float, float]:
        return self.added, self.busy, self.read, self.written, self.times


@dataclass(frozen=True)
class Event:
    """A step's work on its pipe from its first instruction, or a run of skipped identical
    iterations.

    position  of the step; -1 for `repeats` repetitions of the preceding events, which are not
              listed
    """

    position: int
    begin_us: float
    end_us: float
    repeats: int = 0


@dataclass(frozen=True)
class ModelledExecution:
    """One execution of a kernel with one signature.

    start_us  time before the first instruction
    steps     costs by position of the step, in microseconds and bytes
    events    pipe activity step by step, up to the limit
    """

    start_us: float
    steps: dict[int, StepCost]
    events: tuple[Event, ...]
    complete: bool


def follow(kernel: DeviceKernel, machine: Machine, signature: Signature) -> ModelledExecution:
    """Simulate one execution with everything in L2."""
    walk = _StepWalk(course_of(kernel, signature), machine)
    us = machine.us
    steps = {
        position: StepCost(us(c.added), us(c.busy), c.read, c.written, c.times)
        for position, c in sorted(walk.costs_of.items())
    }
    events = tuple(
        Event(position, us(begin), us(end), repeats)
        for position, begin, end, repeats in walk.events
    )
    start = machine.body.start_cycles
    return ModelledExecution(us(start), steps, events, len(events) < MAX_EVENTS)


class _Snapshot(list[float]):
    """The state of the pipes, and the costs up to that moment."""

    costs: dict[int, StepCost]


class _StepWalk(Walk):
    def __init__(self, course: Course, machine: Machine) -> None:
        self.costs_of: dict[int, StepCost] = {}
        self.events: list[tuple[int, float, float, int]] = []
        self.latest = 0.0
        super().__init__(course, machine)

    def step(self, move: Move) -> None:
        step = move.step
        worked, _ = self.worked(step)
        super().step(move)
        busy, end = self.worked(step)
        busy -= worked
        cost = self.costs_of.setdefault(step.position, StepCost())
        reached = max(self.latest, self.reached)
        cost.added += reached - self.latest
        cost.busy += busy
        cost.times += 1
        moved = self.costs.moved(step, move.work)
        if moved.writes:
            cost.written += moved.nbytes
        else:
            cost.read += moved.nbytes
        self.latest = reached
        if len(self.events) < MAX_EVENTS:
            self.events.append((step.position, end - busy, end, 0))

    def snapshot(self) -> list[float]:
        made = _Snapshot(super().snapshot())
        made.costs = {position: StepCost(*cost.parts) for position, cost in self.costs_of.items()}
        return made

    def skip(self, history: list[list[float]], blocks: int) -> int:
        before, after = history
        begin = self.reached
        skipped = super().skip(history, blocks)
        if skipped and isinstance(before, _Snapshot) and isinstance(after, _Snapshot):
            for position, late in after.costs.items():
                early = before.costs.get(position, StepCost())
                self.costs_of[position] = self.costs_of[position].plus(late, early, skipped)
            self.passed(begin, skipped)
        return skipped

    def skip_rest(self, done: int, count: int) -> None:
        begin = self.reached
        super().skip_rest(done, count)
        for position, cost in self.costs_of.items():
            self.costs_of[position] = cost.plus(cost, StepCost(), count / done - 1)
        self.passed(begin, count - done)

    def passed(self, begin: float, repeats: int) -> None:
        """Account for iterations that were not simulated individually."""
        self.latest = max(self.latest, self.reached)
        if len(self.events) < MAX_EVENTS:
            self.events.append((-1, begin, self.reached, repeats))
