"""Replace `x = assemble(x, part, offset)` in the control program by making `part` a window of `x`.

If the change is unobservable, the `create_tensor` of `part` becomes a `slice` of `x` at its first
use and the assemble is removed. It is observable if something reads the window of `x` while `part`
is being filled, or writes either of them while both are still in use; if the buffer is not a local
one that is created once per assemble; or if a task zeroes `part` by arithmetic, which works for
uninitialized memory but not for arbitrary contents. Then a task copies, and a note says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilelet.analysis.affine import constant_difference
from tilelet.analysis.aliases import Aliases, accesses, is_repeatable, is_tensor
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.cautions import AssembleCopies
from tilelet.diag.core import Diagnostic
from tilelet.ir import structure
from tilelet.ir.core import (
    Arg,
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
    walk,
)
from tilelet.ir.rebuild import Builder, Rewriter, defined_values
from tilelet.ir.types import TensorType
from tilelet.ir.views import CallView
from tilelet.ops.clearing import cleared_operand
from tilelet.passes.copy_kernel import emit_copy


def alias_windows(program: Program) -> Program:
    """Alias or copy every assemble of the control program."""
    functions = dict(program.functions)
    notes: list[Diagnostic] = []
    for fn in program.functions.values():
        if fn.kind is not FunctionKind.InCore:
            plan = _Plan(fn, functions)
            plan.block(fn.body)
            functions[fn.name] = _Apply(plan, functions, notes).function(fn)
    return replace(program, functions=functions, cautions=(*program.cautions, *notes))


def _is_assemble(op: Op) -> bool:
    return op.name == "assemble"


# Analysis


class _NoAliasError(Exception):
    """The reason why an assemble must copy."""


@dataclass(frozen=True)
class _Window:
    """A buffer that becomes a window: `part` in `target` at `offset`."""

    part: Value
    target: Value
    offset: tuple[Arg, ...]
    shape: tuple[Arg, ...]  # padded to the rank of the target
    assemble: Op
    create: Op


@dataclass(frozen=True)
class _Footprint:
    """The memory accesses of one op, including the ops inside it."""

    accesses: tuple[tuple[Op, Value, Direction], ...]  # op, root, direction
    mentions: frozenset[Value]  # every root that an operand may refer to


@dataclass
class _BlockPlan:
    """Planned changes to the ops of one block, by position."""

    windows: dict[int, list[_Window]]  # windows to create before a position
    hoisted: dict[int, int]  # position of an op -> position to hoist it to


class _Plan:
    """The decisions for one function."""

    def __init__(self, fn: Function, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self.aliases = Aliases(fn.body, functions)
        self.blocks: dict[Block, _BlockPlan] = {}
        self.made: dict[Value, _Window] = {}  # keyed by part
        self.gone: set[Value] = set()  # results of assembles that become aliases
        self.copied: dict[Value, tuple[str, bool]] = {}  # of copying assembles: reason, overlapping

    def block(self, block: Block) -> None:
        """Decide every assemble in `block`, in program order."""
        if not any(_is_assemble(op) for op in walk(block)):
            return
        inside: _BlockAnalysis | None = None
        for at, op in enumerate(block.ops):
            if _is_assemble(op):
                inside = inside or _BlockAnalysis(self, block)
                try:
                    inside.alias(at)
                except _NoAliasError as why:
                    self.copied[op.result] = str(why), self._overlaps(op)
            for inner in op.blocks:
                self.block(inner)

    def _overlaps(self, assemble: Op) -> bool:
        target, source = assemble.args["target"], assemble.args["source"]
        assert is_tensor(target)
        assert is_tensor(source)
        return not self.aliases.roots(target).isdisjoint(self.aliases.roots(source))

    def footprint(self, op: Op) -> _Footprint:
        found: list[tuple[Op, Value, Direction]] = []
        mentions: set[Value] = set()
        for inner in _with_inner(op):
            for v in inner.operands:
                if is_tensor(v):
                    mentions |= self.aliases.roots(v)
            for v, how in accesses(inner, self._functions):
                found.extend((inner, root, how) for root in self.aliases.roots(v))
        return _Footprint(tuple(found), frozenset(mentions))

    def parts_of(self, root: Value) -> set[Value]:
        """Return `root` and every buffer that became a window of it, at any depth."""
        family = {root}
        for part, window in reversed(self.made.items()):  # containing buffers are decided later
            if not family.isdisjoint(self.aliases.roots(window.target)):
                family.add(part)
        return family

    def clears(self, call: Op) -> bool:
        """Return whether a task zeroes memory by arithmetic, possibly memory never written."""
        if call.spec is not structure.CALL:
            return False
        body = self._functions[CallView(call).callee].body
        return any(cleared_operand(op) is not None or self.clears(op) for op in walk(body))

    def stores_last(self, call: CallView, root: Value) -> bool:
        """Return whether the callee finishes all its reads before it writes `root`."""
        fn = self._functions[call.callee]
        written = [
            p
            for p, operand in zip(fn.params, call.operands)
            if isinstance(operand, Value) and is_tensor(operand)
            and root in self.aliases.roots(operand)
        ]  # fmt: skip
        inside = Aliases(fn.body, self._functions)
        started = False
        for op in fn.body.ops:
            touched = [(v, how) for o in _with_inner(op) for v, how in accesses(o, self._functions)]
            reads = any(how is not Direction.Out for _, how in touched)
            writes = any(
                how is not Direction.In and not inside.roots(v).isdisjoint(written)
                for v, how in touched
            )
            if reads and (started or writes):
                return False
            started = started or writes
        return True


def _with_inner(op: Op) -> Iterator[Op]:
    yield op
    for block in op.blocks:
        yield from walk(block)


class _BlockAnalysis:
    """Analysis of the assembles directly in one block."""

    def __init__(self, plan: _Plan, block: Block) -> None:
        self._plan = plan
        self._aliases = plan.aliases
        self._block = block
        self._footprints = [plan.footprint(op) for op in block.ops]
        self._place = {r: i for i, op in enumerate(block.ops) for r in op.results}
        self._nested = {v for op in block.ops for inner in op.blocks for v in defined_values(inner)}

    def alias(self, at: int) -> None:
        """Turn the assemble at this position into an alias, or raise the reason why not."""
        op = self._block.ops[at]
        target, source = op.args["target"], op.args["source"]
        assert isinstance(target, Value)
        part, create = self._local_buffer(source)
        window = _Window(part, target, *_placement(op, create), op, create)
        family = self._plan.parts_of(part)
        after_create = range(self._place[part] + 1, at)
        first = next(
            (i for i in after_create if not family.isdisjoint(self._footprints[i].mentions)), at
        )
        self._check_filling(window, family, first, at)
        self._check_undefined(family, first, at)
        self._check_later_uses(window, family, at)
        window = replace(window, target=self._earlier_name(target, first))
        hoist = self._ops_to_hoist(window.offset, first)
        plan = self._plan.blocks.setdefault(self._block, _BlockPlan({}, {}))
        plan.windows.setdefault(first, []).append(window)
        for i in hoist:
            plan.hoisted[i] = min(first, plan.hoisted.get(i, first))
        self._plan.made[part] = window
        self._plan.gone.add(op.result)

    def _local_buffer(self, source: Arg) -> tuple[Value, Op]:
        part = self._aliases.whole(source) if isinstance(source, Value) else None
        create = self._aliases.definition.get(part) if part else None
        if part is None or create is None or create.name != "create_tensor":
            raise _NoAliasError("the source is not a whole tensor created in this function")
        if part not in self._place:
            raise _NoAliasError("the source is not created as often as it is assembled")
        if part in self._plan.made:
            raise _NoAliasError("the source is assembled more than once")
        if create.args.get("init_value") is not None or create.args.get("manual_dep"):
            raise _NoAliasError("the source is created with options that a window does not have")
        return part, create

    def _check_filling(self, window: _Window, family: set[Value], first: int, at: int) -> None:
        """Check that nothing else accesses the window between its first use and the assemble."""
        target = self._aliases.roots(window.target)
        for i in range(first, at):
            for op, root, how in self._footprints[i].accesses:
                if root in family or not self._plan.gone.isdisjoint(op.results):
                    continue
                if root in target:
                    call = self._block.ops[i]
                    if (
                        i == first
                        and how is Direction.In
                        and call.spec is structure.CALL
                        and self._plan.stores_last(CallView(call), window.part)
                    ):
                        continue
                    raise _NoAliasError("the target is used while the source is being filled")
                other = self._plan.made.get(root)
                if other and not self._apart(window, other):
                    raise _NoAliasError("another part of the target is filled at the same time")

    def _check_undefined(self, family: set[Value], first: int, at: int) -> None:
        """Check that no task zeroes by arithmetic memory that aliasing makes initialized."""
        for i in range(first, at):
            for op, root, how in self._footprints[i].accesses:
                if root in family and how is not Direction.Out and self._plan.clears(op):
                    raise _NoAliasError("the source may be zeroed by arithmetic (`x * 0`)")

    def _apart(self, a: _Window, b: _Window) -> bool:
        """Return whether two windows certainly do not overlap."""
        ends = [self._aliases.end(w.target) for w in (a, b)]
        if self._aliases.roots(a.target).isdisjoint(self._aliases.roots(b.target)):
            return True
        if ends[0] is None or ends[0] is not ends[1]:
            return False
        for x, y, x_size, y_size in zip(a.offset, b.offset, a.shape, b.shape):
            gap = constant_difference(x, y, self._aliases.definition)
            if gap is None or not isinstance(x_size, int) or not isinstance(y_size, int):
                continue
            if gap >= y_size or -gap >= x_size:
                return True
        return False

    def _check_later_uses(self, window: _Window, family: set[Value], at: int) -> None:
        """Check that neither `part` nor the target is written while `part` is still read later."""
        later = range(at + 1, len(self._block.ops))
        uses = [i for i in later if not family.isdisjoint(self._footprints[i].mentions)]
        if not uses:
            return
        if self._block.ops[uses[-1]].spec.terminator:
            raise _NoAliasError("the source is still needed after this block")
        shared = family | self._aliases.roots(window.target)
        for i in range(at + 1, uses[-1] + 1):
            for _, root, how in self._footprints[i].accesses:
                if how is not Direction.In and root in shared:
                    raise _NoAliasError("the source is used again after it is assembled")

    def _earlier_name(self, value: Value, first: int) -> Value:
        """Return a name of the same window as `value` that is visible before position `first`."""
        if self._aliases.end(value) is not None:
            for name in self._aliases.names(value):
                if name not in self._nested and self._place.get(name, -1) < first:
                    return name
        elif self._place.get(value, -1) < first:
            return value
        raise _NoAliasError("the target does not exist yet when the source is filled")

    def _ops_to_hoist(self, offset: Sequence[Arg], first: int) -> list[int]:
        """Return the positions at or after `first` of the ops that compute the offset."""
        needed: set[int] = set()
        pending = [v for v in offset if isinstance(v, Value)]
        while pending:
            i = self._place.get(pending.pop(), -1)
            if i < first or i in needed:
                continue
            op = self._block.ops[i]
            written = {
                root
                for j in range(first, i)
                for _, root, how in self._footprints[j].accesses
                if how is not Direction.In
            }
            if not is_repeatable(op, written, self._aliases):
                raise _NoAliasError("the offset is not known yet when the source is filled")
            needed.add(i)
            pending.extend(op.operands)
        return sorted(needed)


def _placement(op: Op, create: Op) -> tuple[tuple[Arg, ...], tuple[Arg, ...]]:
    """Return offset and shape of the window, padded to the rank of the target."""
    target, offset = op.args["target"], op.args["offset"]
    shape = create.args["shape"]
    assert isinstance(target, Value)
    assert isinstance(target.type, TensorType)
    assert isinstance(offset, tuple)
    assert isinstance(shape, tuple)
    if create.args["dtype"] is not target.type.dtype:
        raise _NoAliasError("the source has a different element type than the target")
    extra = len(target.type.shape) - len(shape)
    if extra < 0 and any(d != 1 for d in shape[:-extra]):
        raise _NoAliasError("the source has more axes than the target")
    return offset, (1,) * extra + shape[max(0, -extra) :]


# Rewrite


class _Apply(Rewriter):
    def __init__(
        self, plan: _Plan, functions: dict[str, Function], notes: list[Diagnostic]
    ) -> None:
        super().__init__()
        self._plan = plan
        self._functions = functions
        self._notes = notes

    def block(self, block: Block) -> Block:
        plan = self._plan.blocks.get(block)
        if plan is None:
            return super().block(block)
        before: dict[int, list[Op]] = {}
        for source, to in sorted(plan.hoisted.items()):
            before.setdefault(to, []).append(block.ops[source])
        for at, windows in plan.windows.items():
            # Containing windows were decided later but must be created earlier.
            before.setdefault(at, []).extend(op for w in reversed(windows) for op in _window_ops(w))
        ops: list[Op] = []
        for i, op in enumerate(block.ops):
            ops.extend(before.get(i, ()))
            if i not in plan.hoisted:
                ops.append(op)
        return super().block(Block(block.params, tuple(ops)))

    def rewrite(self, op: Op) -> Sequence[Op]:
        if op.name == "create_tensor" and op.result in self._plan.made:
            return ()
        if _is_assemble(op):
            if op.result in self._plan.gone:
                self.mapping[op.result] = op.args["target"]
                return ()
            return self._copy(op)
        return (self.descend(op),)

    def _copy(self, op: Op) -> Sequence[Op]:
        why, overlapping = self._plan.copied[op.result]
        self._notes.append(AssembleCopies(op.loc, why).diagnostic)
        b = Builder(op.loc)
        self.mapping[op.result] = emit_copy(b, op, self._functions, overlapping=overlapping)
        return b.ops


def _window_ops(window: _Window) -> list[Op]:
    """Return the slice of the target that replaces the part's `create_tensor`."""
    b = Builder(window.assemble.loc)
    part = window.part
    place = (window.target, window.shape, window.offset)
    # Keep the range check of the assemble, even if the producer writes only part of the window.
    view = b.emit("slice", *place, valid_shape=window.shape, result=part.name)
    shape = window.create.args["shape"]
    if shape != window.shape:
        b.emit("reshape", view, shape, result=part.name)
    # The part keeps its Value, so its uses stay valid.
    b.ops[-1] = replace(b.ops[-1], results=(part,))
    return b.ops
