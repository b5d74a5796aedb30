"""The control path of one execution of a kernel: trip counts, branches, sizes of transfers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilelet.analysis.scalars import ScalarValues
from tilelet.dataclasses import dataclass, field, replace
from tilelet.device.kernel.view import (
    Bind,
    Branch,
    DeviceKernel,
    Loop,
    Node,
    Step,
    Transfer,
    Work,
)
from tilelet.diag.core import Loc
from tilelet.ir.core import Op, Value, values_in
from tilelet.ir.fold import Number
from tilelet.tasks.control_points import ControlTrace

UNKNOWN_TRIPS = 1
"""Trip count assumed for a loop whose count is unknown."""


@dataclass(frozen=True, eq=False)
class Signature:
    """What an execution's cost depends on besides the kernel; compared by identity.

    scalars  values of scalar parameters by position; others are unknown
    strided  positions of tensor parameters whose rows have gaps between them
    valid    valid extents of some tensor parameters, which limit loads
    blocks   number of blocks of an spmd task; the cost is that of block `block`
    outcome  recorded outcomes of data-dependent control flow
    """

    scalars: Mapping[int, Number] = field(default_factory=dict[int, Number])
    strided: frozenset[int] = frozenset()
    valid: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    blocks: int = 1
    block: int = 0
    outcome: ControlTrace = ()


@dataclass(frozen=True, eq=False)
class ControlProgram:
    """The part of a kernel that decides its control path.

    body   its nodes, without steps of fixed size and scalars that decide nothing
    loops  the loop in `body` for each loop of the kernel, by identity
    needed scalars that decide something
    steady cached results of `is_steady`
    cuts   parts of transfers, by the transfer's identity and remaining size
    """

    body: tuple[Node, ...]
    loops: Mapping[int, Loop]
    needed: frozenset[Value]
    steady: dict[int, bool] = field(default_factory=dict[int, bool])
    cuts: dict[tuple[int, tuple[int, ...]], Transfer] = field(
        default_factory=dict[tuple[int, tuple[int, ...]], Transfer]
    )


@functools.lru_cache(maxsize=1024)
def control_program(
    kernel: DeviceKernel, recorded: frozenset[int], valid: frozenset[int]
) -> ControlProgram:
    """Keep the deciding part; the record decides the sites in `recorded`.

    valid  positions of parameters whose valid extent may limit loads
    """
    needed = _needed_scalars(kernel.body, recorded)
    loops: dict[int, Loop] = {}

    def kept(nodes: Sequence[Node]) -> Iterator[Node]:
        for node in nodes:
            if isinstance(node, Step):
                work = node.work
                if isinstance(work, Transfer) and (work.deciding or work.param in valid):
                    yield node
            elif isinstance(node, Bind):
                if any(r in needed for r in node.op.results):
                    yield node
            elif isinstance(node, Loop):
                carries = tuple(c for c in node.carries if c.param in needed or c.result in needed)
                loops[id(node)] = replace(node, body=tuple(kept(node.body)), carries=carries)
                yield loops[id(node)]
            else:
                yield replace(node, then=tuple(kept(node.then)), orelse=tuple(kept(node.orelse)))

    return ControlProgram(tuple(kept(kernel.body)), loops, needed)


def _needed_scalars(nodes: Sequence[Node], recorded: frozenset[int]) -> frozenset[Value]:
    """Return every scalar that an unrecorded decision depends on."""
    feeds: dict[Value, set[Value]] = {}
    deciding: set[Value] = set()
    for node in walk_nodes(nodes):
        if isinstance(node, Bind):
            for result in node.op.results:
                feeds.setdefault(result, set()).update(node.op.operands)
        elif isinstance(node, Loop):
            # The first index and the step matter even if the trip count is recorded.
            deciding.update(values_in((node.start, node.stop, node.step)))
            for carry in node.carries:
                sources = set(values_in((carry.init, carry.following)))
                feeds.setdefault(carry.param, set()).update(sources)
                feeds.setdefault(carry.result, set()).update(sources | {carry.param})
        elif isinstance(node, Branch):
            if node.site not in recorded:
                deciding.update(values_in((node.cond,)))
            for result, then, orelse in node.joins:
                feeds.setdefault(result, set()).update(values_in((then, orelse)))
        elif isinstance(node.work, Transfer):
            deciding.update(values_in(node.work.deciding))
    pending = list(deciding)
    while pending:
        for source in feeds.get(pending.pop(), ()):
            if source not in deciding:
                deciding.add(source)
                pending.append(source)
    return frozenset(deciding)


def walk_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield every node once, outer ones first."""
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from walk_nodes(node.body)
        elif isinstance(node, Branch):
            yield from walk_nodes(node.then)
            yield from walk_nodes(node.orelse)


class ControlPath:
    """Scalars and decisions of an execution as it passes through its nodes.

    reached  how often each site has been reached
    guesses  unknown outcomes, with the assumption for each
    """

    def __init__(self, kernel: DeviceKernel, signature: Signature) -> None:
        given = {
            p: signature.scalars[i]
            for i, p in enumerate(kernel.function.params)
            if i in signature.scalars
        }
        self.numbers = ScalarValues(given, signature.block, signature.blocks)
        self.reached: dict[int, int] = {}
        self.guesses: dict[Loc, str] = {}
        self._outcome = {site: (times, values) for site, times, values in signature.outcome}
        self._valid = signature.valid
        self.program = control_program(kernel, frozenset(self._outcome), frozenset(signature.valid))

    # Decisions

    def _recorded(self, site: int | None) -> int | None:
        """Return the recorded outcome of this visit to a site."""
        if site is None or site not in self._outcome:
            return None
        times, values = self._outcome[site]
        now = self.reached.get(site, 0)
        self.reached[site] = now + 1
        return values[min(now, times - 1) * len(values) // times]

    def takes(self, branch: Branch) -> bool:
        """Return whether the condition holds."""
        cond = self._recorded(branch.site)
        if cond is None:
            cond = self.numbers.get(branch.cond)
        if cond is None:
            taken = bool(branch.then)
            self.guesses[branch.loc] = f"the {'first' if taken else 'second'} branch is taken"
            return taken
        return bool(cond)

    def join(self, branch: Branch, taken: bool) -> None:
        """Bind the scalar results of a branch."""
        for result, then, orelse in branch.joins:
            self.numbers.values[result] = self.numbers.get(then if taken else orelse)

    def trips(self, loop: Loop) -> tuple[int, Number, Number]:
        """Return the number of iterations, first index, and step."""
        bounds = (loop.start, loop.stop, loop.step)
        start, stop, step = (self.numbers.get(a) for a in bounds)
        count = self._recorded(loop.site)
        if count is not None:
            return count, start or 0, step or 1
        if start is None or stop is None or not step:
            self.guesses[loop.loc] = "one iteration is assumed"
            return UNKNOWN_TRIPS, start or 0, step or 1
        return max(0, math.ceil((stop - start) / step)), start, step

    def sized(self, work: Work) -> Work:
        """Return a transfer, limited to the valid part."""
        if not isinstance(work, Transfer) or not work.shape:
            return work
        if not work.extents and not work.limits and work.param not in self._valid:
            return work
        extents = list(work.shape)
        for axis, given in enumerate(work.extents):
            value = self.numbers.get(given)
            if value is not None:
                extents[axis] = max(0, min(extents[axis], int(value)))
        limits = work.limits
        if not limits and work.param is not None and not work.writes_gm:
            limits = self._valid.get(work.param, ())
        if limits and len(limits) == len(work.offset) == len(extents):
            for axis, (limit, offset) in enumerate(zip(limits, work.offset)):
                start = self.numbers.get(offset)
                if start is not None:
                    extents[axis] = max(0, min(extents[axis], limit - int(start)))
        key = id(work), tuple(extents)
        found = self.program.cuts.get(key)
        if found is None:
            found = self.program.cuts[key] = work.cut(key[1])
        return found

    # Loops

    def bind(self, op: Op) -> None:
        """Evaluate a scalar op, if it decides anything."""
        if any(r in self.program.needed for r in op.results):
            self.numbers.bind(op)

    def steady(self, loop: Loop) -> bool:
        """Return `is_steady`, cached per loop."""
        known = self.program.steady
        if id(loop) not in known:
            known[id(loop)] = is_steady(loop)
        return known[id(loop)]

    def deciding_part(self, loop: Loop) -> Loop:
        """Return the part of a kernel's loop that is in `program`."""
        return self.program.loops.get(id(loop), loop)

    def enter(self, loop: Loop) -> None:
        for carry in loop.carries:
            self.numbers.values[carry.param] = self.numbers.get(carry.init)

    def iterate(self, loop: Loop, index: Number) -> None:
        if loop.index is not None:
            self.numbers.values[loop.index] = index

    def hand_on(self, loop: Loop) -> None:
        following = [self.numbers.get(carry.following) for carry in loop.carries]
        for carry, value in zip(loop.carries, following):
            self.numbers.values[carry.param] = value

    def leave(self, loop: Loop) -> None:
        for carry in loop.carries:
            self.numbers.values[carry.result] = self.numbers.get(carry.param)

    def skip(self, loop: Loop, count: int, index: Number, stride: Number) -> None:
        """Skip iterations whose time is known, updating only carried values."""
        loop = self.deciding_part(loop)
        if loop.carries or not self.steady(loop):
            for i in range(count):
                self.iterate(loop, index + i * stride)
                self.follow(loop.body)
                self.hand_on(loop)

    def runs(
        self, loop: Loop, followed: int, count: int, index: Number, stride: Number
    ) -> list[int]:
        """Return the ends of runs of identical iterations among the first `followed` of `count`.

        If all are identical, there is one run.
        """
        loop = self.deciding_part(loop)
        if count == 0 or self.steady(loop):
            return [count]
        before = dict(self.numbers.values), dict(self.reached), dict(self.guesses)
        ends: list[int] = []
        last: list[object] | None = None
        for i in range(followed):
            trace: list[object] = []
            self.iterate(loop, index + i * stride)
            self.follow(loop.body, trace)
            self.hand_on(loop)
            if trace != last and i:
                ends.append(i)
            last = trace
        self.numbers.values, self.reached, self.guesses = before
        return [*ends, followed]

    def skip_rest(self, before: Mapping[int, int], factor: float) -> None:
        """Extrapolate the rest of a loop from its beginning."""
        for site, now in self.reached.items():
            then = before.get(site, 0)
            self.reached[site] = then + round((now - then) * factor)

    def follow(self, nodes: Sequence[Node], trace: list[object] | None = None) -> None:
        """Visit nodes without their steps; `trace` receives all decisions."""
        for node in nodes:
            if isinstance(node, Bind):
                self.numbers.bind(node.op)
            elif isinstance(node, Branch):
                taken = self.takes(node)
                if trace is not None:
                    trace.append(taken)
                self.follow(node.then if taken else node.orelse, trace)
                self.join(node, taken)
            elif isinstance(node, Loop):
                self._follow_loop(node, trace)
            elif trace is not None:
                work = self.sized(node.work)
                if isinstance(work, Transfer) and work is not node.work:
                    trace.append((node.position, work.cut_to))

    def _follow_loop(self, loop: Loop, trace: list[object] | None) -> None:
        count, index, stride = self.trips(loop)
        if trace is not None:
            trace.append(count)
        self.enter(loop)
        # If all iterations are identical and nothing is carried, one represents all.
        alike = self.steady(loop) and not loop.carries
        for i in range(min(count, 1) if alike else count):
            self.iterate(loop, index + i * stride)
            self.follow(loop.body, trace)
            self.hand_on(loop)
        self.leave(loop)


def control_path_of(kernel: DeviceKernel, signature: Signature) -> tuple[Any, ...]:
    """Return all decisions of an execution; executions with equal control paths cost the same."""
    trace: list[object] = []
    path = ControlPath(kernel, signature)
    path.follow(path.program.body, trace)
    return tuple(trace)


def is_steady(loop: Loop) -> bool:
    """Return whether all iterations are identical: independent of the index and of data."""
    varying: set[Value] = {c.param for c in loop.carries}
    if loop.index is not None:
        varying.add(loop.index)
    return not _varies(loop.body, varying)


def _varies(nodes: Sequence[Node], varying: set[Value]) -> bool:
    for node in nodes:
        if isinstance(node, Bind):
            if node.op.name == "read" or any(v in varying for v in node.op.operands):
                varying.update(node.op.results)
        elif isinstance(node, Branch):
            if node.site is not None or _uses(node.cond, varying):
                return True
            if _varies(node.then, varying) or _varies(node.orelse, varying):
                return True
            varying.update(r for r, a, b in node.joins if _uses((a, b), varying))
        elif isinstance(node, Loop):
            if node.site is not None or _uses((node.start, node.stop, node.step), varying):
                return True
            inner = varying | {c.param for c in node.carries if _uses(c.init, varying)}
            if _varies(node.body, inner):
                return True
            varying.update(c.result for c in node.carries)
        elif _sized_by(node, varying):
            return True
    return False


def _sized_by(step: Step, varying: set[Value]) -> bool:
    return isinstance(step.work, Transfer) and _uses(step.work.deciding, varying)


def _uses(arg: Any, varying: set[Value]) -> bool:
    return any(v in varying for v in values_in((arg,)))
