"""A kernel's steps through the in-order pipes of its cores: how long one execution takes.

Each pipe does its steps in program order, one at a time. A step starts when its pipe is free, the
scalar unit has issued it, what it reads has been written, and what it overwrites has been read (a
tile with several buffers lets it run ahead by that many). Iterations that do the same are followed
until each advances all pipes by the same time; the rest of them is multiplied.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelet.device.kernel.control_path import ControlPath, Signature
from tilelet.device.kernel.costs import work_cycles
from tilelet.device.kernel.footprint import footprints
from tilelet.device.kernel.view import (
    Bind,
    Core,
    CubeWork,
    DeviceKernel,
    Loop,
    Node,
    Pipe,
    Step,
    Transfer,
    Work,
    walk_steps,
)
from tilelet.device.machine.description import DataPath, Machine
from tilelet.diag.core import Loc
from tilelet.ir.types import TensorType

PIPES = tuple((core, pipe) for core in Core for pipe in Pipe)
MAX_FOLLOWED = 4096
"""Iterations followed one by one, if they never settle."""


@dataclass(frozen=True)
class KernelCost:
    """What one execution of a kernel costs on one machine.

    exec_us       from the kernel's start to its end, everything it moves being in L2
    cold_us       the same if nothing that it reads is
    store_us      how much longer it takes if nothing that it overwrites is, either
    busy_us       how long each pipe works, by name: `{"AIC.CUBE": 1.2}`
    read, written bytes moved from and to each parameter, by position
    exchanged     bytes that AIC and AIV pass each other through GM
    macs          multiply-adds of the cube, padding included
    guesses       loops and branches that depend on data which was not at hand, and what is
                  assumed of each
    l2_granules   that it asks each slice of L2 for that serves it
    span_us       when each pipe of `busy_us` begins and ends, from the kernel's start
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
        """The busiest pipe, as "cube", "vector", "MTE" or "scalar"; "latency" if it idles a lot."""
        name, busy = max(self.busy_us.items(), key=lambda item: item[1], default=("", 0.0))
        if busy < 0.5 * self.exec_us:
            return "latency"
        pipe = name.rsplit(".", 1)[-1]
        return {"CUBE": "cube", "VEC": "vector", "SCALAR": "scalar"}.get(pipe, "MTE")


def kernel_cost(
    kernel: DeviceKernel,
    machine: Machine,
    signature: Signature | None = None,
    cold: tuple[float, float] | None = None,
) -> KernelCost:
    """Follow the kernel through its pipes; not without L2 if `cold_times` are known."""
    signature = signature or Signature()
    hot = Walk(kernel, machine, signature, cold=False)
    cold_us, store_us = cold or cold_times(kernel, machine, signature)
    us = machine.us
    read = {p: round(v) for p, v in sorted(hot.read.items())}
    written = {p: round(v) for p, v in sorted(hot.written.items())}
    return KernelCost(
        exec_us=us(hot.end),
        cold_us=cold_us,
        store_us=store_us,
        busy_us={
            f"{core.value}.{pipe.value}": us(hot.times[_BUSY + i])
            for i, (core, pipe) in enumerate(PIPES)
            if hot.times[_BUSY + i]
        },
        read=read,
        written=written,
        exchanged=round(hot.exchanged),
        macs=round(hot.macs),
        l2_granules=hot.served,
        guesses=tuple(hot.path.guesses.items()),
        span_us={name: (us(begin), us(end)) for name, (begin, end) in hot.spans().items()},
    )


def cold_times(kernel: DeviceKernel, machine: Machine, signature: Signature) -> tuple[float, float]:
    """Of one execution: `cold_us` and `store_us`."""
    cold = Walk(kernel, machine, signature, cold=True).end
    if not stores_wait(kernel, machine):
        return machine.us(cold), 0.0
    every = Walk(kernel, machine, signature, cold=True, cold_stores=True).end
    return machine.us(cold), machine.us(every - cold)


def stores_wait(kernel: DeviceKernel, machine: Machine) -> bool:
    """Whether its stores take longer into what is not in L2."""
    return any(_waits_for_memory(machine.paths[name]) for name in _stores(kernel))


def _waits_for_memory(path: DataPath) -> bool:
    return (path.cold_bytes_per_cycle, path.cold_latency_cycles) != (
        path.bytes_per_cycle,
        path.latency_cycles,
    )


@functools.lru_cache(maxsize=1024)
def _stores(kernel: DeviceKernel) -> frozenset[str]:
    """Paths along which it stores into its parameters."""
    works = (step.work for step in kernel.walk())
    return frozenset(
        w.path for w in works if isinstance(w, Transfer) and w.writes_gm and w.param is not None
    )


# Layout of `Walk.times`: when each pipe is free, how long it has worked, when each core's scalar
# unit is free, when the last store ends; then, for each buffer of each tile, when it has been
# written and when it may be overwritten.
_BUSY = len(PIPES)
_SCALAR = 2 * len(PIPES)
_LAST = _SCALAR + len(Core)
_TILES = _LAST + 1
_PIPE = {key: i for i, key in enumerate(PIPES)}
_CORE = {core: i for i, core in enumerate(Core)}
_CORE_OF = tuple(_CORE[core] for core, _ in PIPES)
_IS_VECTOR = tuple(pipe is Pipe.VEC for _, pipe in PIPES)
_NOBODY = -1
NOT_CLOCKS = slice(_BUSY, _SCALAR)
SCALAR_UNITS = slice(_SCALAR, _SCALAR + len(Core))


@dataclass(frozen=True, slots=True)
class _Plan:
    """Of a step, what does not change from one execution to the next, as plain numbers.

    written  tiles that it writes, and whether each time into their next buffer
    """

    pipe: int
    core: int
    is_scalar: bool
    is_pop: bool
    reads: tuple[int, ...]
    written: tuple[tuple[int, bool], ...]


@functools.lru_cache(maxsize=1024)
def _plans(kernel: DeviceKernel) -> list[_Plan]:
    """By position of the step."""
    plans: dict[int, _Plan] = {}
    for step in kernel.walk():
        written = tuple(
            (tile, tile not in step.reads and kernel.tiles[tile].buffers > 1)
            for tile in step.writes
        )
        plans[step.position] = _Plan(
            pipe=_PIPE[step.core, step.pipe],
            core=_CORE[step.core],
            is_scalar=step.pipe is Pipe.SCALAR,
            is_pop=step.what == "pop",
            reads=step.reads,
            written=written,
        )
    return [plans[position] for position in sorted(plans)]


@functools.lru_cache(maxsize=1024)
def _columns(kernel: DeviceKernel) -> dict[int, int]:
    """By parameter: bytes of a row that one execution reads, all its loops together."""
    found: dict[int, int] = {}
    for touched in footprints(kernel):
        tensor = kernel.function.params[touched.param].type
        if touched.extents and not touched.writes and isinstance(tensor, TensorType):
            last = touched.extents[-1]
            found[touched.param] = (last.high - last.low) * tensor.dtype.itemsize
    return found


class Walk:
    """One execution, followed step by step; `times` is the state of all pipes and tiles.

    A time is a number, or an array with one for each of several machines (`Together`): `later` is
    the later one of two, and times are replaced, never changed.
    """

    times: list[Any]

    def __init__(
        self,
        kernel: DeviceKernel,
        machine: Machine,
        signature: Signature,
        *,
        cold: bool,
        cold_stores: bool = False,
        later: Callable[[Any, Any], Any] = max,
    ) -> None:
        self.later = later
        self.machine = machine
        self.cold = cold
        self.cold_stores = cold_stores
        self.signature = signature
        self.kernel = kernel
        self.issue, self.sync, self.across, start = self.constants()
        self.first: list[int] = []
        size = _TILES
        for tile in kernel.tiles:
            self.first.append(size)
            size += 2 * tile.buffers
        self.times = [start * 0.0] * size
        self.current = [0] * len(kernel.tiles)
        self.writer = [_NOBODY] * len(kernel.tiles)
        self.begin: dict[int, Any] = {}
        self.plans = _plans(kernel)
        self.depth = [tile.buffers for tile in kernel.tiles]
        self.read: dict[int, float] = {}
        self.written: dict[int, float] = {}
        self.exchanged = 0.0
        self.macs = 0.0
        self.served = 0.0
        self.pipelined = 0
        self.path = ControlPath(kernel, signature)
        self._costs: dict[tuple[int, tuple[int, ...]], tuple[Any, Any]] = {}
        self.nodes(kernel.body)
        self.end = start + self.reached

    def constants(self) -> tuple[Any, Any, Any, Any]:
        """Of the machine: issue, wait for another pipe, for another core, start of a kernel."""
        body = self.machine.body
        return body.issue_cycles, body.sync_cycles, body.exchange_cycles, body.start_cycles

    def spans(self) -> dict[str, tuple[float, float]]:
        """From a pipe's first step to the end of its last one."""
        found: dict[str, tuple[float, float]] = {}
        for number, begin in self.begin.items():
            core, pipe = PIPES[number]
            at = _SCALAR + _CORE[core] if pipe is Pipe.SCALAR else _PIPE[core, pipe]
            ends = self.machine.body.start_cycles + self.times[at]
            found[f"{core.value}.{pipe.value}"] = (self.machine.body.start_cycles + begin, ends)
        return found

    @property
    def reached(self) -> Any:
        """When the last of what was followed so far ends, from the first instruction."""
        return functools.reduce(self.later, self.times[: len(PIPES)], self.times[_LAST])

    def worked(self, step: Step) -> tuple[float, float]:
        """How long the step's pipe has worked so far, and when it is free."""
        pipe = _PIPE[step.core, step.pipe]
        is_scalar = step.pipe is Pipe.SCALAR
        return self.times[_BUSY + pipe], self.times[
            _SCALAR + _CORE[step.core] if is_scalar else pipe
        ]

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Step):
                self.step(node)
            elif isinstance(node, Bind):
                self.path.bind(node.op)
            elif isinstance(node, Loop):
                self.loop(node)
            else:
                taken = self.path.takes(node)
                self.nodes(node.then if taken else node.orelse)
                self.path.join(node, taken)

    def step(self, step: Step) -> None:
        plan = self.plans[step.position]
        if plan.is_scalar:
            self.scalar_step(step, plan)
            return
        times, first, current = self.times, self.first, self.current
        unit, pipe = _SCALAR + plan.core, plan.pipe
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
        work = self.path.sized(step.work)
        busy, latency = self.cost(step, work)
        if pipe not in self.begin:
            self.begin[pipe] = start
        end = start + busy
        # In a pipelined loop the loads of the next iteration are issued before a tile from the
        # other core is waited for.
        times[pipe] = free + busy if plan.is_pop and self.pipelined else end
        times[_BUSY + pipe] = times[_BUSY + pipe] + busy
        for tile in plan.reads:
            at = first[tile] + 2 * current[tile] + 1
            times[at] = later(times[at], end + self.sync)
        done = end + latency
        for tile, _ in plan.written:
            times[first[tile] + 2 * current[tile]] = done
            self.writer[tile] = pipe
        if not plan.written:
            times[_LAST] = later(times[_LAST], done)
        self.count(step, work)

    def scalar_step(self, step: Step, plan: _Plan) -> None:
        """The scalar unit waits for what it reads, and everything it issues later waits for it."""
        times, unit = self.times, _SCALAR + plan.core
        start = times[unit]
        for tile in plan.reads:
            at = self.first[tile] + 2 * self.current[tile]
            start = self.later(start, times[at] + self.wait(self.writer[tile], plan.pipe))
        busy, _ = self.cost(step, step.work)
        self.begin.setdefault(plan.pipe, start)
        end = start + busy
        times[unit] = end
        times[_BUSY + plan.pipe] = times[_BUSY + plan.pipe] + busy
        for tile, _ in plan.written:
            times[self.first[tile] + 2 * self.current[tile]] = end
            self.writer[tile] = plan.pipe
        times[_LAST] = self.later(times[_LAST], end)

    def wait(self, writer: int, reader: int) -> Any:
        """How long a pipe waits for another's result besides; both by number in `PIPES`."""
        if writer == _NOBODY or (writer == reader and not _IS_VECTOR[reader]):
            return 0.0
        return self.sync if _CORE_OF[writer] == _CORE_OF[reader] else self.across

    def cost(self, step: Step, work: Work) -> tuple[Any, Any]:
        # A cut transfer is told from others of its step by what is left of it.
        key = (step.position, work.cut_to if isinstance(work, Transfer) else ())
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self.cycles(work)
        return found

    def cycles(self, work: Work) -> tuple[Any, Any]:
        return self.cycles_on(work, self.machine, self.cold, self.cold_stores)

    def cycles_on(
        self, work: Work, machine: Machine, cold: bool, cold_stores: bool
    ) -> tuple[float, float]:
        strided = isinstance(work, Transfer) and work.param in self.signature.strided
        return work_cycles(
            work,
            machine,
            cold=cold,
            cold_stores=cold_stores,
            dense=not strided,
            sharers=self.sharers(work) if isinstance(work, Transfer) else 1,
        )

    def sharers(self, work: Transfer) -> int:
        """Cores that take their own parts of the lines that a transfer reads, all at once.

        Blocks of one task do: they start together. Tasks start one after the other, and are then
        some rows apart.
        """
        if not work.own_columns or work.writes_gm or work.param is None:
            return 1
        width = _columns(self.kernel).get(work.param, 0)
        cores = self.machine.gm.l2_line // width if width else 1
        return max(1, min(cores, self.signature.blocks))

    def count(self, step: Step, work: Work) -> None:
        if isinstance(work, CubeWork):
            self.macs += work.m * work.k * work.n
        elif isinstance(work, Transfer):
            if work.param is None:
                if work.writes_gm:
                    self.exchanged += work.nbytes
                return
            lanes = self.kernel.lanes if step.core is Core.AIV else 1
            self.served += self.requests(work) * lanes
            into = self.written if work.writes_gm else self.read
            into[work.param] = into.get(work.param, 0.0) + work.nbytes * lanes

    def requests(self, work: Transfer) -> float:
        """Granules that it asks each slice for, if together with others."""
        gm = self.machine.gm
        dense = work.dense_if_whole and work.param not in self.signature.strided
        rows, run = (1, work.nbytes) if dense else (work.rows, work.row_bytes)
        together = 1.0 if work.same_lines or not work.slices else gm.lockstep
        return together * rows * -(-run // gm.granule) / (work.slices or gm.l2_slices)

    # Loops

    def loop(self, loop: Loop) -> None:
        path = self.path
        count, index, stride = path.trips(loop)
        path.enter(loop)
        self.pipelined += loop.stages > 1
        period = math.lcm(*{self.kernel.tiles[t].buffers for t in _tiles_in(loop)}, 1)
        history: list[list[Any]] = []
        done = 0
        reached = dict(path.reached)
        ends = path.runs(loop, min(count, MAX_FOLLOWED), count, index, stride)
        while done < count:
            if not ends:
                self.skip_rest(done, count)
                path.skip_rest(reached, count / done)
                break
            if done >= ends[0]:
                # From here on iterations do something else.
                ends.pop(0)
                history.clear()
                continue
            if (done % period) == 0 and ends[0] - done > period:
                history.append(self.snapshot())
                if len(history) > 2:
                    history.pop(0)
                    skipped = self.skip(history, (ends[0] - done - 1) // period) * period
                    path.skip(loop, skipped, index, stride)
                    done += skipped
                    index += skipped * stride
            path.iterate(loop, index)
            self.nodes(loop.body)
            path.hand_on(loop)
            done += 1
            index += stride
        self.pipelined -= loop.stages > 1
        path.leave(loop)

    def snapshot(self) -> list[Any]:
        extra = [self.exchanged, self.macs, self.served]
        extra += [v for _, v in sorted(self.read.items())]
        extra += [v for _, v in sorted(self.written.items())]
        return [*self.times, *extra]

    def skip(self, history: list[list[Any]], blocks: int) -> int:
        """If the last two blocks of iterations advanced all times alike, jump over `blocks` more.

        Times that no iteration touches stand still. Returns the number of blocks skipped.
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
        """Whether all times have advanced alike."""
        clocks = {
            round(d, 6)
            for i, d in enumerate(moved[: len(self.times)])
            if d and not _BUSY <= i < _SCALAR
        }
        scalar_units = [moved[_SCALAR + i] for i in range(len(Core))]
        # The scalar unit may run ahead at a pace of its own without anyone waiting for it.
        clocks -= {round(d, 6) for d in scalar_units if round(d, 6) < max(clocks, default=0)}
        return len(clocks) <= 1

    def count_again(self, counts: list[float], blocks: int) -> None:
        """What iterations that are not followed move and compute."""
        self.exchanged += counts[0] * blocks
        self.macs += counts[1] * blocks
        self.served += counts[2] * blocks
        for i, key in enumerate(sorted(self.read)):
            self.read[key] += counts[3 + i] * blocks
        for i, key in enumerate(sorted(self.written)):
            self.written[key] += counts[3 + len(self.read) + i] * blocks

    def skip_rest(self, done: int, count: int) -> None:
        """Iterations that differ from each other: the rest takes its share of what was seen."""
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
