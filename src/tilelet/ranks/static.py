"""Static checks of programs with several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilelet.diag.catalogue.ranks import (
    BadDeferredWait,
    BadDevice,
    NotifiedTwice,
    RanksDeadlock,
    WrongPlace,
)
from tilelet.diag.core import UserError
from tilelet.ir.core import Block, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.spec import Engine
from tilelet.ir.types import DistributedType, TileType
from tilelet.ir.views import CallView, ForView
from tilelet.ranks.host import Plan
from tilelet.ranks.memory import Allocation, TemplateBuffer
from tilelet.syntax.ranks import WaitCmp
from tilelet.tasks.window import Window

# A kernel with deferred waits may also read and compute scalars.
_BESIDE_DEFERRED = ("pld.system.defer_wait", "pld.get_comm_ctx", "pld.rank", "pld.nranks")
_HOST_ONLY = ("pld.world_size", "pld.alloc_window_buffer", "pld.window", "pld.callback")


def check_text(program: Program) -> None:
    """Raise an error at the first statement that no rank could run."""
    _check_places(program)
    _check_devices(program)
    for kernel in program.kernels:
        _check_deferred(kernel)


def _check_devices(program: Program) -> None:
    """Check that a dispatch with windows names its rank by a constant or a loop variable."""
    host = program.main
    loops = {ForView(op).index for op in walk(host.body) if op.name == "for"}
    for op in walk(host.body):
        if op.name != "call":
            continue
        options: Any = op.args["options"] or ()
        rank = dict(options).get("device")
        has_windows = any(isinstance(v.type, DistributedType) for v in op.operands)
        if has_windows and isinstance(rank, Value) and rank not in loops:
            raise BadDevice(op.loc, rank.name)


def _check_deferred(kernel: Function) -> None:
    """Check that `defer_wait` stands alone: its task ends immediately and only registers
    conditions.
    """
    ops = list(walk(kernel.body))
    first = next((op for op in ops if op.name == "pld.system.defer_wait"), None)
    if first is None:
        return
    for op in ops:
        has_tiles = any(isinstance(v.type, TileType) for v in (*op.operands, *op.results))
        talks = op.name.startswith("pld.") and op.name not in _BESIDE_DEFERRED
        if not op.spec.structural and (has_tiles or talks or op.spec.writes):
            raise BadDeferredWait(op.loc, f"its kernel has `{op.name}`, too")


def _check_places(program: Program) -> None:
    """Raise an error at the first `pld` name used where it has no meaning."""
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore or function.kind is FunctionKind.Host:
            continue
        for op in walk(function.body):
            if not op.name.startswith("pld.") or op.name == "pld.get_comm_ctx":
                continue
            if op.name in ("pld.rank", "pld.nranks"):
                continue
            belongs = "the host function" if op.name in _HOST_ONLY else "a scope or a kernel"
            raise WrongPlace(op.loc, op.name, "a control program", belongs)


def findings(program: Program) -> Iterator[UserError]:
    """Return the findings that need no run."""
    for kernel in program.kernels:
        yield from _mixed(kernel)


def _mixed(kernel: Function) -> Iterator[UserError]:
    """Return notifies that both kinds of cores of a mixed kernel execute."""
    ops = list(walk(kernel.body))
    products = [op for op in ops if op.spec.engine is Engine.CUBE]
    if not products or not any(op.spec.engine is Engine.VEC for op in ops):
        return
    for op in ops:
        if op.name == "pld.system.notify" and not op.args["in_lane"]:
            yield NotifiedTwice(op.loc, kernel.name, products[0].loc)


_READS_ONLY = (
    "pld.get_comm_ctx",
    "pld.tile.remote_load",
    "pld.system.wait",
    "pld.system.defer_wait",
)
_WAITS = ("pld.system.wait", "pld.system.defer_wait")


def check_waits(program: Program, plan: Plan) -> None:
    """Raise an error if a wait is certain to be reached, and nothing writes to its buffer."""
    found = _Signals(program)
    for dispatch in plan.dispatches:
        if not dispatch.function:
            found.written |= dispatch.allocations
            continue
        function = program.functions[dispatch.function]
        given = {
            param: value.buffer.allocation
            for param, value in zip(function.params, dispatch.operands)
            if isinstance(value, Window) and isinstance(value.buffer, TemplateBuffer)
        }
        found.scan(function.body, given, is_sure=True)
    hopeless = [(a, op) for a, op in found.waits if a not in found.written]
    if hopeless:
        labels = [
            (op.loc, f"waits for {op.args['expected']}, and no statement notifies `{a.name}`")
            for a, op in dict.fromkeys(hopeless)
        ]
        raise RanksDeadlock(labels, [], ["notify it on the rank that waits, or remove the wait"])


class _Signals:
    """Which window buffers are written by any statement, and waits that are certain to be reached.

    A value whose buffer is not known counts as every buffer that its function has.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.written: set[Allocation] = set()
        self.waits: list[tuple[Allocation, Op]] = []

    def scan(self, block: Block, known: dict[Value, Allocation], *, is_sure: bool) -> None:
        for op in block.ops:
            if any(self._is_unknown(v, known) for v in op.operands):
                self.written |= set(known.values())
            bound = [known[v] for v in op.operands if v in known]
            if op.name == "call":
                self._call(op, known, is_sure)
            elif op.blocks:
                always = op.name == "for" and _runs(op)
                for inner in op.blocks:
                    self.scan(inner, known, is_sure=is_sure and always)
            elif op.name in _WAITS:
                if is_sure and bound and _needs_signal(op):
                    self.waits.append((bound[0], op))
            elif op.spec.writes or (op.name.startswith("pld.") and op.name not in _READS_ONLY):
                self.written |= set(bound)
            if bound and not op.blocks:
                known.update(dict.fromkeys(op.results, bound[0]))

    def _call(self, op: Op, known: Mapping[Value, Allocation], is_sure: bool) -> None:
        view = CallView(op)
        callee = self._program.functions[view.callee]
        pairs = zip(callee.params, view.operands)
        given = {p: known[v] for p, v in pairs if isinstance(v, Value) and v in known}
        has_predicate = op.args.get("predicate") is not None
        self.scan(callee.body, given, is_sure=is_sure and not has_predicate)

    @staticmethod
    def _is_unknown(value: Value, known: Mapping[Value, Allocation]) -> bool:
        return isinstance(value.type, DistributedType) and value not in known


def _runs(loop: Op) -> bool:
    """Whether a loop certainly has an iteration."""
    start, stop, step = ForView(loop).bounds
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)):
        return False
    return step != 0 and len(range(start, stop, step)) > 0


def _needs_signal(wait: Op) -> bool:
    """Whether a cell that is still zero does not satisfy a wait."""
    expected = wait.args["expected"]
    if not isinstance(expected, int):
        return False
    return expected > 0 if wait.args.get("cmp", WaitCmp.Ge) is WaitCmp.Ge else expected != 0
