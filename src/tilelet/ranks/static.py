"""Static checks of programs with several ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilelet.diag.catalogue.ranks import (
    BadCollective,
    BadDeferredWait,
    BadDevice,
    NotifiedTwice,
    RanksDeadlock,
    WrongShard,
)
from tilelet.diag.core import UserError
from tilelet.ir.core import Block, Function, Op, Program, Value, walk
from tilelet.ir.spec import Engine
from tilelet.ir.types import DistributedType, TileType
from tilelet.ir.views import CallView, ForView
from tilelet.ranks.host import Plan
from tilelet.ranks.memory import Allocation, TemplateBuffer
from tilelet.syntax.ranks import WaitCmp
from tilelet.tasks.window import Window

# A kernel with deferred waits may also read and compute scalars.
_BESIDE_DEFERRED = ("pld.system.defer_wait", "pld.get_comm_ctx", "pld.rank", "pld.nranks")


def check_text(program: Program) -> None:
    """Raise an error at the first statement that no rank could run."""
    _check_devices(program)
    _check_repeated(program.main.body, in_loop=False)
    _check_deferred(program)


def _check_devices(program: Program) -> None:
    """Check that a dispatch with windows names its rank by a constant or the variable of a loop
    over known ranks.
    """
    host = program.main
    ops = list(walk(host.body))
    worlds = {op.result for op in ops if op.name == "pld.world_size"}
    loops = {ForView(op).index: op for op in ops if op.name == "for"}
    for op in ops:
        if op.name != "call":
            continue
        options: Any = op.args["options"] or ()
        rank = dict(options).get("device")
        has_windows = any(isinstance(v.type, DistributedType) for v in op.operands)
        if not has_windows or not isinstance(rank, Value):
            continue
        if rank not in loops:
            raise BadDevice(op.loc, rank.name)
        start, stop, step = ForView(loops[rank]).bounds
        is_constant = isinstance(start, int) and isinstance(stop, int)
        if step != 1 or not (is_constant or (start == 0 and stop in worlds)):
            raise BadDevice(op.loc, rank.name, ranks_of=loops[rank].loc)


def _check_repeated(block: Block, *, in_loop: bool) -> None:
    """Check that collectives of the host that may not be repeated are in no loop."""
    for op in block.ops:
        if in_loop and op.name == "pld.tensor.all_to_all_v":
            raise BadCollective(
                op.loc, op.name, "in a loop of the host function", "call it in a kernel"
            )
        if in_loop and op.name == "pld.tensor.allreduce" and op.args["signal"] is None:
            problem = "without a signal in a loop of the host function"
            raise BadCollective(op.loc, op.name, problem, "pass a signal window")
        for inner in op.blocks:
            _check_repeated(inner, in_loop=in_loop or op.name in ("for", "while"))


def _check_deferred(program: Program) -> None:
    """Check that `defer_wait` stands alone: its task ends immediately and only registers
    conditions.
    """
    deferring: set[str] = set()
    for kernel in program.kernels:
        ops = list(walk(kernel.body))
        waits = [op for op in ops if op.name == "pld.system.defer_wait"]
        if not waits:
            continue
        deferring.add(kernel.name)
        for op in ops:
            has_tiles = any(isinstance(v.type, TileType) for v in (*op.operands, *op.results))
            talks = op.name.startswith("pld.") and op.name not in _BESIDE_DEFERRED
            if not op.spec.structural and (has_tiles or talks or op.spec.writes):
                raise BadDeferredWait(op.loc, f"its kernel has `{op.name}`, too")
        for op in _from_first_registration(kernel.body):
            if op.name == "read":
                raise BadDeferredWait(op.loc, "an element is read between its conditions")
        for op in waits:
            if op.args["signal"] not in kernel.params:
                raise BadDeferredWait(op.loc, "its signal is a part of a window")
    for function in program.functions.values():
        for op in walk(function.body):
            if op.name == "call" and CallView(op).callee in deferring:
                _check_deferring_call(op)


def _from_first_registration(body: Block) -> Iterator[Op]:
    """Yield the ops of a kernel from the statement on that registers its first condition."""
    has_begun = False
    for op in body.ops:
        inner = [op, *(o for block in op.blocks for o in walk(block))]
        has_begun = has_begun or any(o.name == "pld.system.defer_wait" for o in inner)
        if has_begun:
            yield from inner


def _check_deferring_call(op: Op) -> None:
    options: Any = op.args["options"] or ()
    if op.args.get("predicate") is not None:
        raise BadDeferredWait(op.loc, "its task has a predicate")
    if op.args["count"] is not None:
        raise BadDeferredWait(op.loc, "its task has several blocks")
    if dict(options).get("allow_early_resolve"):
        raise BadDeferredWait(op.loc, "its task may resolve early")


def findings(program: Program) -> Iterator[UserError]:
    """Return the findings that need no run."""
    for kernel in program.kernels:
        yield from _mixed_notifies(kernel)


def _mixed_notifies(kernel: Function) -> Iterator[UserError]:
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


def check_shards(
    program: Program,
    arguments: Sequence[object],
    plan: Plan,
    resident: Mapping[str, Sequence[int]],
) -> None:
    """Raise an error if a dispatch takes a resident shard of another rank."""
    stacks = {
        value.buffer.id: (value, param.name, resident[param.name])
        for param, value in zip(program.main.params, arguments)
        if param.name in resident and isinstance(value, Window)
    }
    for dispatch in plan.dispatches if stacks else ():
        for operand, _ in dispatch.windows:
            stack, name, owners = stacks.get(operand.buffer.id, (None, "", ()))
            if stack is None or dispatch.rank < 0:
                continue
            shard = (operand.offset - stack.offset) // stack.strides[0]
            if len(operand.shape) < len(stack.shape) and owners[shard] != dispatch.rank:
                raise WrongShard(dispatch.loc, name, shard, owners[shard], dispatch.rank)


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
