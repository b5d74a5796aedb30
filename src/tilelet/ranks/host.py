"""Run a host function: determine what it dispatches to each rank, and which ranks share its
windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilelet import dtypes
from tilelet.analysis.aliases import Access, accesses
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.ranks import (
    BadCollective,
    BadDevice,
    BadDispatch,
    BadWindowBuffer,
    HostTooEarly,
)
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.interp import interpreter  # noqa: F401 - fills the table of lowerings
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.interp.movement import as_tuple
from tilelet.interp.state import State
from tilelet.interp.submit import CalleeSketch, flat_deps
from tilelet.ir.core import Direction, Op, Program
from tilelet.ir.views import CallView
from tilelet.ranks.collective_rules import check_collective
from tilelet.ranks.collectives import BODIES
from tilelet.ranks.memory import Allocation, Domain, MakeSlice, SymmetricBuffer, TemplateBuffer
from tilelet.tasks.window import Window, row_major


@dataclass(eq=False)
class Dispatch:
    """Work of one rank, as the host submits it.

    function   control program to run; "" for a collective or a callback
    operands   as the host sees them: views of window buffers have no memory yet
    op         the statement
    after      dispatches that it names as dependencies
    args       arguments of a collective, by name
    callback   name of the sub-worker, or None
    waits_for  positions of the dispatches that must finish first
    """

    rank: int
    function: str
    operands: tuple[Any, ...]
    directions: tuple[Direction, ...]
    op: Op
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    after: Sequence[Dispatch] = ()
    callback: str | None = None
    waits_for: list[int] = field(default_factory=list[int])

    @property
    def loc(self) -> Loc:
        return self.op.loc

    @property
    def windows(self) -> list[tuple[Window, Direction]]:
        pairs = zip(self.operands, self.directions)
        return [(v, d) for v, d in pairs if isinstance(v, Window)]

    @property
    def allocations(self) -> set[Allocation]:
        """Return the window buffers that the dispatch receives views of."""
        found = (w.buffer for w, _ in self.windows)
        return {b.allocation for b in found if isinstance(b, TemplateBuffer)}


@dataclass
class Plan:
    """The work that a host function gives to the ranks, in program order."""

    world: int
    dispatches: list[Dispatch] = field(default_factory=list[Dispatch])
    allocations: list[Allocation] = field(default_factory=list[Allocation])
    domains: list[Domain] = field(default_factory=list[Domain])

    def close(self, make: MakeSlice) -> None:
        """Determine the domains, allocate the windows, and order the dispatches."""
        for dispatch in self.dispatches:
            for allocation in dispatch.allocations:
                allocation.used.add(dispatch.rank)
        for allocation in self.allocations:
            if not allocation.used:
                raise BadWindowBuffer(
                    allocation.loc,
                    f"no dispatch gets a view of `{allocation.name}`",
                    "pass a `pld.window` of it to a dispatch, or remove it",
                )
            ranks = tuple(sorted(allocation.used))
            domain = next((d for d in self.domains if d.ranks == ranks), None)
            if domain is None:
                domain = Domain(len(self.domains), ranks)
                self.domains.append(domain)
            allocation.place(domain, make)
        for dispatch in self.dispatches:
            _check_one_domain(dispatch)
        self._order()

    def _order(self) -> None:
        """Order dispatches by shared tensors, and by the windows of their rank."""
        touched: dict[int, list[tuple[int, Window, bool]]] = {}
        last: dict[tuple[int, int], int] = {}
        position = {dispatch: i for i, dispatch in enumerate(self.dispatches)}
        for i, dispatch in enumerate(self.dispatches):
            found = [position[earlier] for earlier in dispatch.after]
            for window, direction in dispatch.windows:
                if isinstance(window.buffer, TemplateBuffer):
                    continue
                writes = direction is not Direction.In
                earlier = touched.setdefault(window.buffer.id, [])
                found += [
                    j for j, other, wrote in earlier if (writes or wrote) and window.overlaps(other)
                ]
                earlier.append((i, window, writes))
            for domain in {a.domain.number for a in dispatch.allocations}:
                before = last.get((domain, dispatch.rank))
                found += [] if before is None else [before]
                last[domain, dispatch.rank] = i
            dispatch.waits_for = sorted(set(found) - {i})


def _check_one_domain(dispatch: Dispatch) -> None:
    """Check that the operands of a collective belong to the same ranks, and suit their number."""
    if dispatch.function or dispatch.callback is not None:
        return
    op = dispatch.op
    first, *others = sorted(dispatch.allocations, key=lambda a: a.name)
    for other in others:
        if other.domain is not first.domain:
            sets = [f"`{a.name}` of ranks {list(a.domain.ranks)}" for a in (first, other)]
            problem = f"operands of different ranks: {' and '.join(sets)}"
            raise BadCollective(op.loc, op.name, problem, "dispatch views of both to all of them")
    check_collective(op, dispatch.args, len(first.domain.ranks), in_host=True)


class HostState(State):
    """State of a host function: its calls of control programs become dispatches."""

    def __init__(self, program: Program, world: int) -> None:
        super().__init__(
            program.functions, execute=True, poison=True, seed_valid=False, observer=_HostObserver()
        )
        self.plan = Plan(world)
        self.next_chip = 0


class _HostObserver:
    def lower(self, low: Lowering, op: Op) -> Step:
        if op.name == "call":
            return _dispatch(low, op)
        if op.name in BODIES:
            return _collective_step(low, op)
        step = low.plain_op(op)
        if op.spec.structural or op.name.startswith("pld."):
            return step
        touched = list(accesses(op, _state(low).functions))
        return _checked_access(low, op, step, touched) if touched else step


def _checked_access(low: Lowering, op: Op, step: Step, touched: Sequence[Access]) -> Step:
    """Return the step of an op that must not touch what dispatches before it use."""
    plan = _state(low).plan
    slots = [(low.slot(v), how is not Direction.In) for v, how in touched]
    at = low.get(as_tuple(op.args["indices"])) if op.name in ("read", "write") else None

    def checked(frame: Frame) -> None:
        for slot, writes in slots:
            window: Window = frame[slot]
            if at is not None:
                window = window.slice(at(frame), (1,) * len(window.shape))
            for dispatch in plan.dispatches:
                for used, direction in dispatch.windows:
                    if (writes or direction is not Direction.In) and window.overlaps(used):
                        raise HostTooEarly(op.loc, window.name, writes, dispatch.loc)
        step(frame)

    return checked


def _state(low: Lowering) -> HostState:
    assert isinstance(low.state, HostState)
    return low.state


@lowers("pld.world_size")
def lower_world_size(low: Lowering, op: Op) -> Step:
    result, state = low.result(op), _state(low)

    def step(frame: Frame) -> None:
        frame[result] = state.plan.world

    return step


@lowers("pld.alloc_window_buffer")
def lower_alloc(low: Lowering, op: Op) -> Step:
    size, dtype = op.args["size"], op.args["dtype"]
    item = dtype.itemsize if isinstance(dtype, DType) else 1
    extents, result, state = low.get(as_tuple(size)), low.result(op), _state(low)
    name, loc = op.result.name, op.loc

    def step(frame: Frame) -> None:
        nbytes = math.prod(extents(frame)) * item
        if nbytes < 1:
            raise BadWindowBuffer(loc, f"a window buffer of {nbytes} bytes")
        for other in state.plan.allocations:
            if other.name == name:
                problem = f"two window buffers are called `{name}`"
                raise BadWindowBuffer(loc, problem, "allocate each once, outside loops", other.loc)
        allocation = Allocation(name, nbytes, loc)
        state.plan.allocations.append(allocation)
        frame[result] = Window(TemplateBuffer(allocation), dtypes.UINT8, 0, (nbytes,), (1,))

    return step


@lowers("pld.window")
def lower_window(low: Lowering, op: Op) -> Step:
    buffer, shape = low.slot(op.args["buf"]), low.get(as_tuple(op.args["shape"]))
    dtype, result, loc = op.args["dtype"], low.result(op), op.loc
    assert isinstance(dtype, DType)

    def step(frame: Frame) -> None:
        whole: Window = frame[buffer]
        extents = tuple(shape(frame))
        need = math.prod(extents) * dtype.itemsize
        if need > whole.buffer.nbytes:
            problem = f"a view of {need} bytes of a window buffer of {whole.buffer.nbytes}"
            made = whole.buffer.made
            raise BadWindowBuffer(loc, problem, "allocate more; the size counts bytes", made)
        frame[result] = Window(whole.buffer, dtype, 0, extents, row_major(extents))

    return step


@lowers("pld.callback")
def lower_callback(low: Lowering, op: Op) -> Step:
    operands, state = low.get(op.args["operands"]), _state(low)
    name = op.args["name"]
    assert isinstance(name, str)

    def step(frame: Frame) -> None:
        given = operands(frame)
        state.plan.dispatches.append(
            Dispatch(-1, "", given, (Direction.InOut,) * len(given), op, callback=name)
        )

    return step


def _dispatch(low: Lowering, op: Op) -> Step:
    view, state = CallView(op), _state(low)
    callee = state.functions[view.callee]
    operands, results = low.get(view.operands), low.define(op.results)
    options: dict[Any, Any] = dict(op.args["options"] or ())  # type: ignore[arg-type]
    device = None if options.get("device") is None else low.slot(options["device"])
    directions = state.directions(callee)
    deps, has_id = low.get(view.deps), bool(op.args["task_id"])
    sketch = CalleeSketch(state, callee, view.data_results)

    def step(frame: Frame) -> None:
        plan = state.plan
        given = operands(frame)
        has_windows = any(
            isinstance(v, Window) and isinstance(v.buffer, TemplateBuffer) for v in given
        )
        if device is not None:
            rank = int(frame[device])
        elif has_windows:
            problem = f"`{callee.name}` gets windows and no `device=`"
            raise BadDispatch(op.loc, problem, "say which rank: `device=r`")
        else:
            rank = state.next_chip % plan.world
            state.next_chip += 1
        if not 0 <= rank < plan.world:
            raise BadDevice(op.loc, rank, plan.world)
        after = [plan.dispatches[d] for d in flat_deps(deps(frame))]
        values = sketch.run(given)
        frame[results] = (*values, len(plan.dispatches)) if has_id else values
        plan.dispatches.append(Dispatch(rank, callee.name, given, directions, op, after=after))

    return step


def _collective_step(low: Lowering, op: Op) -> Step:
    """Expand a host collective to one task on every rank of its data's domain."""
    state = _state(low)
    getters: dict[str, Callable[[Frame], object]] = {n: low.get(a) for n, a in op.args.items()}
    result, first, writes = low.result(op), op.spec.writes[0], op.spec.writes

    def step(frame: Frame) -> None:
        args = {name: get(frame) for name, get in getters.items()}
        if args["signal"] is None:
            args["signal"] = _own_signal(state.plan, op, args)
        names = [n for n, v in args.items() if isinstance(v, Window)]
        operands = tuple([args[n] for n in names])
        directions = tuple([Direction.InOut if n in writes else Direction.In for n in names])
        state.plan.dispatches.append(Dispatch(-1, "", operands, directions, op, args))
        frame[result] = args[first]

    return step


def _own_signal(plan: Plan, op: Op, args: Mapping[str, Any]) -> Window:
    """Allocate the signal that an all-reduce without one uses alone."""
    if args["mode"] == "ring":
        raise BadCollective(op.loc, op.name, "a ring without a signal", "pass a signal window")
    shape = (plan.world, args["core_num"])
    name = f"signal {len(plan.allocations)} of `{args['target'].name}`"
    allocation = Allocation(name, 4 * math.prod(shape), op.loc)
    plan.allocations.append(allocation)
    return Window(TemplateBuffer(allocation), dtypes.INT32, 0, shape, row_major(shape))


def plan_of(
    program: Program, arguments: Sequence[object], world: int, make: MakeSlice = SymmetricBuffer
) -> Plan:
    """Run the host function of a program without executing anything on a rank."""
    state = HostState(program, world)
    state.code(program.entry).run(arguments)
    plan = state.plan
    plan.dispatches = _on_every_rank(plan)
    plan.close(make)
    return plan


def _on_every_rank(plan: Plan) -> list[Dispatch]:
    """Expand each collective to one dispatch per rank that has its data."""
    used: dict[Allocation, set[int]] = {}
    for dispatch in plan.dispatches:
        for allocation in dispatch.allocations:
            used.setdefault(allocation, set()).update([dispatch.rank] if dispatch.rank >= 0 else [])
    found: list[Dispatch] = []
    for d in plan.dispatches:
        if d.rank >= 0 or d.callback is not None:
            found.append(d)
            continue
        target = d.args[d.op.spec.writes[0]].buffer.allocation
        data = used.get(target) or set(range(plan.world))
        found += [Dispatch(r, "", d.operands, d.directions, d.op, d.args) for r in sorted(data)]
    return found
