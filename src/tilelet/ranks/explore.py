"""Explore schedules: all of a small program, a sample of a large one.

The first `covered` executions are chosen by dynamic partial-order reduction: after each one, every
step that depends on an unordered earlier step of another strand is tried before it. When nothing is
left to try, every schedule is equivalent to one that ran. Beyond that budget seeded schedules
follow: a quarter random, a quarter random with remote stores that land late, and half with few
preemptions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelet.analysis.overlap import meet
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.ranks import BadSeed
from tilelet.diag.core import UserError
from tilelet.dtypes import Argument, Arguments
from tilelet.ir.core import Direction, Program
from tilelet.ranks import static
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.engine import native_kernels
from tilelet.ranks.host import plan_of
from tilelet.ranks.memory import symmetric
from tilelet.ranks.races import HappensBefore, Touch, compact
from tilelet.ranks.rank import Strand
from tilelet.ranks.requests import Condition
from tilelet.ranks.scheduler import InOrder, Policy, Random, World
from tilelet.ranks.schedules import Schedules
from tilelet.ranks.windows import KeptWindows
from tilelet.tasks.arguments import bind_arguments

Key = tuple[int, ...]
Footprint = Sequence[Touch]

MAX_COVERED = 400
"""Executions that partial-order reduction may take before seeded schedules take over."""

MAX_TRACE = 4_000
"""Steps of an execution whose pairs are compared; longer ones get seeded schedules only."""

MAX_STEPS = 40_000
"""Steps of all executions together that one exploration takes; half of them to cover all."""


def key_of(strand: Strand) -> Key:
    """Return a strand's name, which is the same in every schedule."""
    task = strand.task
    return strand.rank, -1 if task.kind is None else task.index, strand.block, task.dispatch


@dataclass
class State:
    """A state of an execution: the enabled strands, the one chosen, and those still to be tried."""

    enabled: tuple[Key, ...]
    chosen: Key
    tried: dict[Key, Footprint] = field(default_factory=dict[Key, Footprint])
    todo: set[Key] = field(default_factory=set[Key])
    sleep: dict[Key, Footprint] = field(default_factory=dict[Key, Footprint])
    footprint: Footprint = ()

    def asleep_after(self) -> dict[Key, Footprint]:
        """Return the sleep set: strands whose next step was tried before and does not depend on the
        step taken here.
        """
        known = {**self.sleep, **self.tried}
        return {
            key: steps
            for key, steps in known.items()
            if key != self.chosen and not _are_dependent(steps, self.footprint)
        }


class RedundantError(Exception):
    """Every enabled strand leads to schedules that were already explored."""


class Guided:
    """Follow a list of choices, then program order; record every state."""

    def __init__(self, prefix: Sequence[State]) -> None:
        self.states = list(prefix)
        self._at = 0
        self._then = InOrder()
        self._told: Callable[[], Footprint] = tuple

    def watch(self, take: Callable[[], Footprint]) -> None:
        self._told = take

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand:
        self.close()
        keys = {key_of(s): s for s in ready}
        if self._at < len(self.states):
            strand = keys[self.states[self._at].chosen]
        else:
            sleep = self.states[-1].asleep_after() if self.states else {}
            awake = [s for s in ready if key_of(s) not in sleep]
            if not awake:
                raise RedundantError
            strand = self._then.choose(awake, last)
            self.states.append(State(tuple(keys), key_of(strand), sleep=sleep))
        self._at += 1
        return strand

    def close(self) -> None:
        """Record the footprint of the last step."""
        if self._at:
            state = self.states[self._at - 1]
            state.footprint = state.tried[state.chosen] = self._told()


class Bounded:
    """Program order, with a few preemptions at seeded steps."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - schedules, not secrets
        self._left = 1 + seed % 4
        self._then = InOrder()

    def choose(self, ready: Sequence[Strand], last: Strand | None) -> Strand:
        if self._left and self._random.random() < 0.1:
            self._left -= 1
            return ready[self._random.randrange(len(ready))]
        return self._then.choose(ready, last)


class Late(Random):
    """Any ready strand, with remote stores that land as late as their fence allows."""


def _are_dependent(a: Footprint, b: Footprint) -> bool:
    """Whether two steps do not commute: they touch common bytes, and not only by adding."""
    return any(
        x.slice == y.slice and _needs_order(x.how, y.how) and meet(x.bytes, y.bytes)
        for x in a
        for y in b
    )


_READS = ("read", "wait", "match")
_ADDS = ("notify", "add")


def _needs_order(a: str, b: str) -> bool:
    return not ((a in _READS and b in _READS) or (a in _ADDS and b in _ADDS))


class Explorer:
    """Run a program under many schedules, each on fresh copies of its arguments."""

    def __init__(
        self,
        name: str,
        program: Program,
        arguments: Arguments,
        config: DistributedConfig | None,
        *,
        cores: Sequence[int] = (),
        covered: int = MAX_COVERED,
        seeded: int = 40,
        steps: int = MAX_STEPS,
        kept: KeptWindows | None = None,
        is_native: bool = False,
    ) -> None:
        static.check_text(program)
        self._program = program
        self._arguments = arguments
        entry = program.main
        pairs = zip(entry.params, entry.directions, strict=True)
        self._written = {p.name for p, how in pairs if how is not Direction.In}
        self._world = (config or DistributedConfig()).world
        self._cores = cores
        self._is_native = is_native
        self._kept = kept
        self._covered, self._seeded, self._steps = covered, seeded, steps
        self.result = Schedules(name, self._world)
        self._seen: set[tuple[object, ...]] = set()

    # One schedule

    def run(self, policy: Policy) -> tuple[list[UserError], World, HappensBefore]:
        """Run one execution; return its findings."""
        given: dict[str, Argument] = {
            n: a.copy() if isinstance(a, np.ndarray) and n in self._written else a
            for n, a in self._arguments.items()
        }
        bound = bind_arguments(self._program, given, execute=True)
        plan = plan_of(self._program, bound, self._world)
        if self._kept is not None:
            self._kept.copy_into(self._program.name, plan)
        watcher = HappensBefore()
        watcher.place([(a.name, a.nbytes) for a in plan.allocations])
        native = native_kernels(self._program) if self._is_native else None
        world = World(
            self._program,
            plan,
            policy,
            watcher=watcher,
            cores=self._cores,
            native=native,
            lands_late=isinstance(policy, Late),
        )
        if isinstance(policy, Guided):

            def take() -> Footprint:
                found, watcher.footprint = watcher.footprint, []
                return compact(found)

            policy.watch(take)
        found: list[UserError] = []
        try:
            world.run()
        except UserError as error:
            found.append(error)
        except RedundantError:
            self.result.tried -= 1
        if isinstance(policy, Guided):
            policy.close()
        self._steps -= world.steps
        self.result.tried += 1
        return [*found, *watcher.findings.values()], world, watcher

    def _note(self, found: Sequence[UserError], seed: str) -> None:
        for error in found:
            d = error.diagnostic
            key = (d.code, *sorted({(label.loc.file, label.loc.line) for label in d.labels}))
            if key not in self._seen:
                self._seen.add(key)
                self.result.findings.append((d, seed))

    # Many schedules

    def explore(self) -> Schedules:
        self._note(list(static.findings(self._program)), "")
        self.result.complete = self._cover(None)
        if not self.result.complete:
            for seed in range(self._seeded):
                if self._steps <= 0:
                    break
                kind, policy = policy_of_seed(seed)
                self._note(self.run(policy)[0], f"{kind}:{seed}")
        return self.result

    def replay(self, seed: str) -> list[UserError]:
        """Return the findings of the schedule with this seed."""
        kind, _, number = seed.partition(":")
        if not number.isdecimal() or kind not in ("covered", *_POLICIES):
            raise BadSeed(seed)
        if kind == "covered":
            return self._cover(int(number)) or []
        return self.run(_POLICIES[kind](int(number)))[0]

    def replayed(self, seed: str) -> Schedules:
        """Return the verdict on the schedule with this seed alone."""
        self._note(self.replay(seed), seed)
        self.result.tried = 1
        return self.result

    def _cover(self, until: int | None) -> Any:
        """Run partial-order reduction; return the findings of execution `until`, or whether all
        were covered.
        """
        prefix: list[State] = []
        number = 0
        complete = True
        reserved = self._steps // 2  # for seeded schedules
        while True:
            policy = Guided(prefix)
            found, world, _ = self.run(policy)
            complete = complete and not world.lacked_cores
            if until is None:
                self._note(found, f"covered:{number}")
            elif number == until:
                return found
            number += 1
            states = policy.states
            if len(states) > MAX_TRACE:
                return False if until is None else []
            pending = [
                (key_of(s), [_touch_of_wait(c) for c in s.request.conditions])
                for s in world.strands
                if s.request is not None
            ]
            _backtrack(states, pending)
            while states and not _untried(states[-1]):
                states.pop()
            if not states:
                return complete if until is None else []
            if number >= self._covered or self._steps <= reserved:
                return False if until is None else []
            last = states[-1]
            last.chosen = min(_untried(last))
            last.footprint = ()
            prefix = states


def _untried(state: State) -> set[Key]:
    return state.todo - set(state.tried) - set(state.sleep)


def _touch_of_wait(c: Condition) -> Touch:
    """Return the pending wait as the step it would become."""
    buffer = symmetric(c.cell)
    return Touch((buffer.name, buffer.index), c.cell.bytes, "match", c.expected)


def _backtrack(states: list[State], pending: Sequence[tuple[Key, Footprint]]) -> None:
    """Add backtracking points: strands whose step depends on an unordered earlier step."""
    exact = _Waits([s.footprint for s in states])
    order = _Order(states, pending, exact)
    while order.overtaken:
        exact.loose |= order.overtaken
        order = _Order(states, pending, exact)
    for state, keys in zip(states, order.todo):
        state.todo |= keys


class _Waits:
    """Waits that need every earlier signal: the signals are ordered before them, not raced with.

    A wait for at least N that ends when its cell is exactly N needs all previous additions,
    provided that all later additions come after it in every schedule. `loose` waits are the others:
    their order relative to a signal matters.
    """

    def __init__(self, footprints: Sequence[Footprint]) -> None:
        self.loose: set[int] = set()
        self.signals: dict[tuple[object, ...], list[int]] = {}
        values: dict[tuple[object, ...], int] = {}
        self._cells: list[list[tuple[object, ...]]] = []
        for j, footprint in enumerate(footprints):
            waits: list[tuple[object, ...]] = []
            for t in footprint:
                cell = (t.slice, t.bytes)
                if t.how == "notify":
                    values[cell] = values.get(cell, 0) + t.value
                    self.signals.setdefault(cell, []).append(j)
                elif t.how == "wait":
                    waits.append(cell)
                    if values.get(cell, 0) != t.value:
                        self.loose.add(j)
                elif t.how in ("match", "set"):
                    self.loose.add(j)
            self._cells.append(waits)
        setters = {(t.slice, t.bytes) for f in footprints for t in f if t.how in ("set", "write")}
        for j, waits in enumerate(self._cells):
            if setters.intersection(waits):
                self.loose.add(j)

    def needed(self, j: int) -> list[int]:
        """Return the steps that must precede step j: the signals that its waits count."""
        if j >= len(self._cells) or j in self.loose:
            return []
        return [i for cell in self._cells[j] for i in self.signals.get(cell, ()) if i < j]

    def later(self, j: int) -> list[int]:
        """Return the signals after step j to the cells that it waits for."""
        if j >= len(self._cells) or j in self.loose:
            return []
        return [i for cell in self._cells[j] for i in self.signals.get(cell, ()) if i > j]

    def footprint(self, j: int, whole: Footprint) -> Footprint:
        """Return the accesses that determine the dependences of a step: all but exact waits."""
        if j in self.loose or j >= len(self._cells):
            return whole
        return [t for t in whole if t.how != "wait"]


class _Order:
    """The happens-before order of one execution's steps, and which pairs to reverse.

    overtaken  exact waits that a later signal may precede
    """

    def __init__(
        self, states: Sequence[State], pending: Sequence[tuple[Key, Footprint]], waits: _Waits
    ) -> None:
        steps = [(s.chosen, waits.footprint(j, s.footprint)) for j, s in enumerate(states)]
        self.todo: list[set[Key]] = [set() for _ in states]
        ordered: list[set[int]] = []  # per step, the steps before it in every equivalent schedule
        latest: dict[Key, int] = {}
        for j, (key, footprint) in enumerate([*steps, *pending]):
            before: set[int] = set()
            for i in (*waits.needed(j), *([latest[key]] if key in latest else ())):
                before |= ordered[i] | {i}
            for i in range(min(j, len(steps)) - 1, -1, -1) if footprint else ():
                if i in before or not steps[i][1] or steps[i][0] == key:
                    continue
                if _are_dependent(steps[i][1], footprint):
                    enabled = states[i].enabled
                    self.todo[i].update([key] if key in enabled else enabled)
                    before |= ordered[i] | {i}
            ordered.append(before)
            if j < len(steps):
                latest[key] = j
        self.overtaken = {
            j
            for j in range(len(states))
            if any(j not in ordered[k] and steps[k][0] != steps[j][0] for k in waits.later(j))
        }


_POLICIES: dict[str, Callable[[int], Policy]] = {
    "random": Random,
    "bounded": Bounded,
    "late": Late,
}


def policy_of_seed(seed: int) -> tuple[str, Policy]:
    kind = ("random", "bounded", "late", "bounded")[seed % 4]
    return kind, _POLICIES[kind](seed)


def explore(
    name: str,
    program: Program,
    arguments: Arguments,
    config: DistributedConfig | None = None,
    **options: Any,
) -> Schedules:
    """Explore the schedules of a program."""
    return Explorer(name, program, arguments, config, **options).explore()
