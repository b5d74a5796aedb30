"""Simulate a kernel's steps on the in-order pipes of its cores.

Each pipe executes its steps in program order, one at a time. A step starts when its pipe is free,
the scalar unit has issued it, its inputs have been written, and the buffer it overwrites has been
read (multiple buffers let it run ahead by that many). Identical iterations are simulated until each
advances all pipes by the same time; the rest is multiplied.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tilelet.dataclasses import dataclass, field
from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.course import Course, Move, Rounds, course_of
from tilelet.device.kernel.step_costs import Moved, StepCosts
from tilelet.device.kernel.view import (
    Core,
    DeviceKernel,
    Loop,
    Pipe,
    Step,
    Transfer,
    Work,
    loops_in,
    walk_steps,
)
from tilelet.device.machine.description import DataPath, Machine
from tilelet.diag.core import Loc

PIPES = tuple((core, pipe) for core in Core for pipe in Pipe)


@dataclass(frozen=True)
class KernelCost:
    """The cost of one execution of a kernel on one machine.

    exec_us       from the kernel's start to its end, with everything in L2
    cold_us       the same if nothing that it reads is in L2
    store_us      additional time if nothing that it overwrites is, either
    busy_us       busy time of each pipe, by name: `{"AIC.CUBE": 1.2}`
    read, written bytes moved from and to each parameter, by position
    exchanged     bytes that AIC and AIV exchange through GM
    macs          multiply-adds of the cube, including padding
    guesses       loops and branches that depend on unavailable data, with the assumption for each
    l2_granules   granules requested from each slice of L2 that serves it
    span_us       start and end of each pipe of `busy_us`, from the kernel's start
    """

    exec_us: float
    cold_us: float
    store_us: float
    busy_us: Mapping[str, float]
    read: Mapping[int, int]
    written: Mapping[int, int]
    exchanged: int
    macs: int
    l2_granules: float = 0.0
    guesses: tuple[tuple[Loc, str], ...] = ()
    span_us: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )

    @property
    def guessed(self) -> bool:
        return bool(self.guesses)

    @property
    def read_bytes(self) -> int:
        return sum(self.read.values())

    @property
    def written_bytes(self) -> int:
        return sum(self.written.values())

    @property
    def bound(self) -> str:
        """The busiest pipe ("cube", "vector", "MTE", "scalar"), or "latency" if mostly idle."""
        name, busy = max(self.busy_us.items(), key=lambda item: item[1], default=("", 0.0))
        if busy < 0.5 * self.exec_us:
            return "latency"
        pipe = name.rsplit(".", 1)[-1]
        return {"CUBE": "cube", "VEC": "vector", "SCALAR": "scalar"}.get(pipe, "MTE")


class Levels(NamedTuple):
    """Whether an execution's reads miss L2, and whether its stores do."""

    cold: bool = False
    cold_stores: bool = False


HOT, COLD, ALL_COLD = Levels(), Levels(cold=True), Levels(cold=True, cold_stores=True)


@dataclass(frozen=True)
class Followed:
    """One execution on one machine: its end time and totals.

    times  see `Walk.times`, without those of tiles
    begin  start of each pipe that worked, by number
    """

    end: float
    times: Sequence[float]
    begin: Mapping[int, float]
    read: Mapping[int, float]
    written: Mapping[int, float]
    exchanged: float
    macs: float
    served: float

    def spans(self, start: float) -> dict[str, tuple[float, float]]:
        """Return the span of each pipe's steps; `start` is the time before the first step."""
        found: dict[str, tuple[float, float]] = {}
        for number, begin in sorted(self.begin.items()):
            core, pipe = PIPES[number]
            at = SCALAR + _CORE[core] if pipe is Pipe.SCALAR else number
            found[f"{core.value}.{pipe.value}"] = (start + begin, start + self.times[at])
        return found


Follower = Callable[[Course, Machine, Sequence[Levels]], Sequence[Followed]]
"""Simulates an execution once for each of several `Levels`."""


def follow_reference(course: Course, machine: Machine, levels: Sequence[Levels]) -> list[Followed]:
    """The reference implementation of a `Follower`."""
    walks = (Walk(course, machine, level) for level in levels)
    return [
        Followed(w.end, w.times[:TILES], w.begin, w.read, w.written, w.exchanged, w.macs, w.served)
        for w in walks
    ]


def kernel_cost(
    kernel: DeviceKernel,
    machine: Machine,
    signature: Signature | None = None,
    cold: tuple[float, float] | None = None,
    follow: Follower = follow_reference,
) -> KernelCost:
    """Return the cost of an execution, reusing `cold_times` if known."""
    course = course_of(kernel, signature or Signature())
    hot, *others = follow(course, machine, (HOT, *(() if cold else _cold_levels(kernel, machine))))
    cold_us, store_us = cold or _cold_us(machine, others)
    us = machine.us
    spans = hot.spans(machine.body.start_cycles)
    return KernelCost(
        exec_us=us(hot.end),
        cold_us=cold_us,
        store_us=store_us,
        busy_us={
            f"{core.value}.{pipe.value}": us(hot.times[BUSY + i])
            for i, (core, pipe) in enumerate(PIPES)
            if hot.times[BUSY + i]
        },
        read={p: round(v) for p, v in sorted(hot.read.items())},
        written={p: round(v) for p, v in sorted(hot.written.items())},
        exchanged=round(hot.exchanged),
        macs=round(hot.macs),
        l2_granules=hot.served,
        guesses=course.guesses,
        span_us={name: (us(begin), us(end)) for name, (begin, end) in spans.items()},
    )


def cold_times(
    kernel: DeviceKernel,
    machine: Machine,
    signature: Signature,
    follow: Follower = follow_reference,
) -> tuple[float, float]:
    """Return `cold_us` and `store_us` of one execution."""
    course = course_of(kernel, signature)
    return _cold_us(machine, follow(course, machine, _cold_levels(kernel, machine)))


def _cold_levels(kernel: DeviceKernel, machine: Machine) -> tuple[Levels, ...]:
    """Return the levels that `cold_times` simulates."""
    return (COLD, ALL_COLD) if stores_wait(kernel, machine) else (COLD,)


def _cold_us(machine: Machine, found: Sequence[Followed]) -> tuple[float, float]:
    cold = found[0].end
    return machine.us(cold), machine.us(found[1].end - cold) if len(found) > 1 else 0.0


def stores_wait(kernel: DeviceKernel, machine: Machine) -> bool:
    """Return whether stores take longer if they miss L2."""
    return any(_waits_for_memory(machine.paths[name]) for name in _stores(kernel))


def _waits_for_memory(path: DataPath) -> bool:
    return (path.cold_bytes_per_cycle, path.cold_latency_cycles) != (
        path.bytes_per_cycle,
        path.latency_cycles,
    )


@functools.lru_cache(maxsize=1024)
def _stores(kernel: DeviceKernel) -> frozenset[str]:
    """Return the paths along which the kernel stores into its parameters."""
    works = (step.work for step in kernel.walk())
    return frozenset(
        w.path for w in works if isinstance(w, Transfer) and w.writes_gm and w.param is not None
    )


# Layout of `Walk.times`: when each pipe is free, its busy time, when each core's scalar unit is
# free, when the last store ends; then for each buffer of each tile, when it has been written and
# when it may be overwritten.
BUSY = len(PIPES)
SCALAR = 2 * len(PIPES)
LAST = SCALAR + len(Core)
TILES = LAST + 1
_PIPE = {key: i for i, key in enumerate(PIPES)}
_CORE = {core: i for i, core in enumerate(Core)}
CORE_OF = tuple(_CORE[core] for core, _ in PIPES)
IS_VECTOR = tuple(pipe is Pipe.VEC for _, pipe in PIPES)
_NOBODY = -1
ALIKE = 1e-6
"""Tolerance in cycles for times that advance alike, because of rounding."""
NOT_CLOCKS = slice(BUSY, SCALAR)
SCALAR_UNITS = slice(SCALAR, SCALAR + len(Core))


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a step that is the same in all executions, as plain numbers.

    written  tiles that it writes, and whether each write goes to the next buffer
    """

    pipe: int
    core: int
    is_scalar: bool
    is_pop: bool
    reads: tuple[int, ...]
    written: tuple[tuple[int, bool], ...]


@functools.lru_cache(maxsize=1024)
def plans_of(kernel: DeviceKernel) -> list[Plan]:
    """Return the plans by position of the step."""
    plans: dict[int, Plan] = {}
    for step in kernel.walk():
        written = tuple(
            (tile, tile not in step.reads and kernel.tiles[tile].buffers > 1)
            for tile in step.writes
        )
        plans[step.position] = Plan(
            pipe=_PIPE[step.core, step.pipe],
            core=_CORE[step.core],
            is_scalar=step.pipe is Pipe.SCALAR,
            is_pop=step.what == "pop",
            reads=step.reads,
            written=written,
        )
    return [plans[position] for position in sorted(plans)]


@functools.lru_cache(maxsize=1024)
def periods_of(kernel: DeviceKernel) -> dict[int, int]:
    """Return, by identity of the loop, after how many iterations tiles reuse the same buffers."""
    return {
        id(loop): math.lcm(*{kernel.tiles[t].buffers for t in _tiles_in(loop)}, 1)
        for loop in loops_in(kernel.body)
    }


def first_of(kernel: DeviceKernel) -> tuple[list[int], int]:
    """Return the offset of each tile's times in `Walk.times`, and the total length."""
    first, size = list[int](), TILES
    for tile in kernel.tiles:
        first.append(size)
        size += 2 * tile.buffers
    return first, size


def key_of(move: Move) -> tuple[int, tuple[int, ...]]:
    """Return a key that is equal for moves of a kernel with equal cost."""
    work = move.work
    return move.step.position, work.cut_to if isinstance(work, Transfer) else ()


class Walk:
    """One execution, simulated step by step; `times` is the state of all pipes and tiles.

    A time is a number, or an array with one entry per machine (`Together`): `later` returns the
    maximum, and times are replaced, never modified.
    """

    times: list[Any]

    def __init__(
        self,
        course: Course,
        machine: Machine,
        levels: Levels = HOT,
        later: Callable[[Any, Any], object] = max,
    ) -> None:
        self.later = later
        self.machine = machine
        self.levels = levels
        kernel = self.kernel = course.kernel
        self.costs = StepCosts(kernel, machine, course.signature)
        self.issue, self.sync, self.across, start = self.constants()
        self.first, size = first_of(kernel)
        self.times = [start * 0.0] * size
        self.current = [0] * len(kernel.tiles)
        self.writer = [_NOBODY] * len(kernel.tiles)
        self.begin: dict[int, Any] = {}
        self.plans = plans_of(kernel)
        self.periods = periods_of(kernel)
        self.depth = [tile.buffers for tile in kernel.tiles]
        self.read: dict[int, float] = {}
        self.written: dict[int, float] = {}
        self.exchanged = 0.0
        self.macs = 0.0
        self.served = 0.0
        self.pipelined = 0
        self._known: dict[tuple[int, tuple[int, ...]], tuple[object, object]] = {}
        self.moves(course.body)
        self.end = start + self.reached

    def constants(self) -> tuple[Any, Any, Any, Any]:
        """Return the machine's costs: issue, waiting for a pipe, for a core, start of a kernel."""
        body = self.machine.body
        return body.issue_cycles, body.sync_cycles, body.exchange_cycles, body.start_cycles

    @property
    def reached(self) -> Any:
        """Return when the last of the steps so far ends, from the first instruction."""
        return functools.reduce(self.later, self.times[: len(PIPES)], self.times[LAST])

    def worked(self, step: Step) -> tuple[float, float]:
        """Return the busy time of the step's pipe so far, and when it is free."""
        pipe = _PIPE[step.core, step.pipe]
        is_scalar = step.pipe is Pipe.SCALAR
        return self.times[BUSY + pipe], self.times[SCALAR + _CORE[step.core] if is_scalar else pipe]

    def moves(self, moves: Sequence[Move | Rounds]) -> None:
        for move in moves:
            if isinstance(move, Move):
                self.step(move)
            else:
                self.loop(move)

    def step(self, move: Move) -> None:
        plan = self.plans[move.step.position]
        if plan.is_scalar:
            self.scalar_step(move, plan)
            return
        times, first, current = self.times, self.first, self.current
        unit, pipe = SCALAR + plan.core, plan.pipe
        later = self.later
        times[unit] = times[unit] + self.issue
        free = start = later(times[unit], times[pipe])
        for tile in plan.reads:
            ready = times[first[tile] + 2 * current[tile]] + self.wait(self.writer[tile], pipe)
            start = later(start, ready)
        for tile, is_next in plan.written:
            if is_next:
                current[tile] = (current[tile] + 1) % self.depth[tile]
            at = first[tile] + 2 * current[tile]
            start = later(start, later(times[at], times[at + 1]))
        busy, latency = self.cost(move)
        if pipe not in self.begin:
            self.begin[pipe] = start
        end = start + busy
        # In a pipelined loop the loads of the next iteration are issued before waiting for a tile
        # from the other core.
        times[pipe] = free + busy if plan.is_pop and self.pipelined else end
        times[BUSY + pipe] = times[BUSY + pipe] + busy
        for tile in plan.reads:
            at = first[tile] + 2 * current[tile] + 1
            times[at] = later(times[at], end + self.sync)
        done = end + latency
        for tile, _ in plan.written:
            times[first[tile] + 2 * current[tile]] = done
            self.writer[tile] = pipe
        if not plan.written:
            times[LAST] = later(times[LAST], done)
        self.count(self.costs.moved(move.step, move.work))

    def scalar_step(self, move: Move, plan: Plan) -> None:
        """Run a scalar step: it waits for its inputs, and everything issued later waits for it."""
        times, unit = self.times, SCALAR + plan.core
        start = times[unit]
        for tile in plan.reads:
            at = self.first[tile] + 2 * self.current[tile]
            start = self.later(start, times[at] + self.wait(self.writer[tile], plan.pipe))
        busy, _ = self.cost(move)
        self.begin.setdefault(plan.pipe, start)
        end = start + busy
        times[unit] = end
        times[BUSY + plan.pipe] = times[BUSY + plan.pipe] + busy
        for tile, _ in plan.written:
            times[self.first[tile] + 2 * self.current[tile]] = end
            self.writer[tile] = plan.pipe
        times[LAST] = self.later(times[LAST], end)

    def wait(self, writer: int, reader: int) -> Any:
        """Return the additional wait of a pipe for another's result; both by index in `PIPES`."""
        if writer == _NOBODY or (writer == reader and not IS_VECTOR[reader]):
            return 0.0
        return self.sync if CORE_OF[writer] == CORE_OF[reader] else self.across

    def cost(self, move: Move) -> tuple[Any, Any]:
        # A shortened transfer is keyed by its remaining size.
        key = key_of(move)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.cycles(move.work)
        return found

    def cycles(self, work: Work) -> tuple[Any, Any]:
        return self.costs.cycles(work, *self.levels)

    def count(self, moved: Moved) -> None:
        self.exchanged += moved.exchanged
        self.macs += moved.macs
        self.served += moved.served
        if moved.param is not None:
            into = self.written if moved.writes else self.read
            into[moved.param] = into.get(moved.param, 0.0) + moved.nbytes

    # Loops

    def loop(self, rounds: Rounds) -> None:
        self.pipelined += rounds.loop.stages > 1
        period = self.periods[id(rounds.loop)]
        done = 0
        for run in rounds.runs:
            # From here on iterations differ from those before.
            history: list[list[object]] = []
            while done < run.end:
                if (done % period) == 0 and run.end - done > period:
                    history.append(self.snapshot())
                    if len(history) > 2:
                        history.pop(0)
                        done += self.skip(history, (run.end - done - 1) // period) * period
                self.moves(run.body)
                done += 1
        if done < rounds.count:
            self.skip_rest(done, rounds.count)
        self.pipelined -= rounds.loop.stages > 1

    def snapshot(self) -> list[Any]:
        extra = [self.exchanged, self.macs, self.served]
        extra += [v for _, v in sorted(self.read.items())]
        extra += [v for _, v in sorted(self.written.items())]
        return [*self.times, *extra]

    def skip(self, history: list[list[Any]], blocks: int) -> int:
        """Skip `blocks` more if the last two blocks of iterations advanced all times alike.

        Times that no iteration changes stay. Returns the number of blocks skipped.
        """
        before, after = history
        if len(before) != len(after) or blocks < 1:
            return 0
        moved = [b - a for a, b in zip(before, after)]
        if not self.settled(moved):
            return 0
        self.times = [t + d * blocks for t, d in zip(self.times, moved)]
        self.count_again(moved[len(self.times) :], blocks)
        return blocks

    def settled(self, moved: list[Any]) -> bool:
        """Return whether all times that advance do so alike.

        The scalar unit may run ahead at its own pace as long as nothing waits for it.
        """
        clocks = moved[:BUSY] + moved[SCALAR : len(self.times)]
        pace = max(clocks)
        paces = [pace, *moved[SCALAR_UNITS]]
        return all(d == 0.0 or any(abs(d - p) <= ALIKE for p in paces) for d in clocks)

    def count_again(self, counts: list[float], blocks: int) -> None:
        """Add the traffic and work of iterations that are not simulated."""
        self.exchanged += counts[0] * blocks
        self.macs += counts[1] * blocks
        self.served += counts[2] * blocks
        for i, key in enumerate(sorted(self.read)):
            self.read[key] += counts[3 + i] * blocks
        for i, key in enumerate(sorted(self.written)):
            self.written[key] += counts[3 + len(self.read) + i] * blocks

    def skip_rest(self, done: int, count: int) -> None:
        """Extrapolate the remaining iterations of a loop whose iterations differ."""
        factor = count / done
        self.times = [t * factor for t in self.times]
        self.exchanged *= factor
        self.macs *= factor
        self.served *= factor
        for totals in (self.read, self.written):
            for key in totals:
                totals[key] *= factor


def _tiles_in(loop: Loop) -> Iterator[int]:
    for step in walk_steps(loop.body):
        yield from step.reads
        yield from step.writes
