"""Fold constants, resolve constant branches, and remove dead values.

Ops that write memory, calls and scopes are kept: only values are removed, never effects. Ops that
may fail (an index or window out of range, a division by zero) are kept, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilelet.analysis.aliases import has_effect
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Const, Function, Op, Program, Value, scalar_dtype
from tilelet.ir.fold import fold_dim, fold_scalar, number_of
from tilelet.ir.rebuild import Rewriter, substitute_all, with_args, with_operands
from tilelet.ir.spec import Trait
from tilelet.ir.sweep import Sweep, pick
from tilelet.ir.types import ScalarType, TensorType, TileType, Type
from tilelet.ir.views import ForView, ScopeView, yielded_values
from tilelet.ops.infer import int_of


def simplify(program: Program) -> Program:
    """Simplify every function."""
    return program.with_functions(
        {name: _simplify_function(fn) for name, fn in program.functions.items()}
    )


def _simplify_function(fn: Function) -> Function:
    return _Sweep().function(_Fold().function(fn))


class _Fold(Rewriter):
    """Forward pass: constants, constant branches, loops that do not run, pass-through values."""

    def ops(self, ops: Iterable[Op]) -> list[Op]:
        return [new for op in ops for new in self.rewrite(self._with_operands(op))]

    def _with_operands(self, op: Op) -> Op:
        """Keep the dtype of a folded operand; a plain number would take its neighbor's."""
        mapped = with_operands(op, self.mapping)
        if mapped is op or Trait.SCALAR not in op.spec.traits:
            return mapped
        args = dict(mapped.args)
        for name, old in op.args.items():
            if not isinstance(old, Value) or isinstance(args[name], (Value, Const)):
                continue
            dtype, number = scalar_dtype(old), number_of(args[name])
            others = (scalar_dtype(a) for n, a in args.items() if n != name)
            if (
                dtype is not None
                and number is not None
                and any(d not in (None, dtype) for d in others)
            ):
                args[name] = Const(number, dtype)
        return with_args(mapped, **args)

    def rewrite(self, op: Op) -> Sequence[Op]:
        if op.spec is structure.FOR:
            return self._for(op)
        if op.spec is structure.IF:
            return self._if(op)
        if op.spec is structure.SCOPE and not ScopeView(op).in_core:
            return (self._without_passed_on(self.descend(op)),)
        if not op.spec.structural:
            folded = fold_scalar(op.spec, tuple(op.args.values()))
            if folded is None:
                folded = fold_dim(op)
            if folded is not None:
                self.mapping[op.result] = folded
                return ()
        return (self.descend(op),)

    def _for(self, op: Op) -> Sequence[Op]:
        loop = ForView(op)
        if loop.trip_count == 0:
            self.mapping.update(zip(op.results, loop.init))
            return ()
        passed = [c is v for c, v in zip(loop.carried, yielded_values(loop.body))]
        if any(passed):
            for same, carried, result, init in zip(passed, loop.carried, op.results, loop.init):
                if same:
                    self.mapping[carried] = self.mapping[result] = init
            op = _keep_carried(op, [not same for same in passed])
        done = ForView(self.descend(op))
        if any(c is v for c, v in zip(done.carried, yielded_values(done.body))):
            return self._for(done.op)  # folding turned a branch in the body into a pass-through
        return (done.op,)

    def _if(self, op: Op) -> Sequence[Op]:
        cond = op.args["cond"]
        if isinstance(cond, Value):
            return (self._same_either_way(self.descend(op)),)
        truth = cond.value if isinstance(cond, Const) else cond
        block = op.blocks[0 if truth else 1]
        ops = self.ops(block.ops[:-1])
        self.mapping.update(zip(op.results, substitute_all(yielded_values(block), self.mapping)))
        return ops

    def _without_passed_on(self, scope: Op) -> Op:
        """Remove the results of a control scope that it only passes through."""
        body = scope.blocks[0]
        made = {result for op in body.ops for result in op.results}
        own = [value in made for value in yielded_values(body)]
        if all(own):
            return scope
        for result, value, is_own in zip(scope.results, yielded_values(body), own):
            if not is_own:
                self.mapping[result] = value
        ops = (*body.ops[:-1], with_args(body.terminator, values=pick(yielded_values(body), own)))
        return replace(scope, results=pick(scope.results, own), blocks=(Block(body.params, ops),))

    def _same_either_way(self, branch: Op) -> Op:
        """Remove the results of a branch that are the same in both arms."""
        then, other = (yielded_values(block) for block in branch.blocks)
        differ = [not _is_same(a, b) for a, b in zip(then, other)]
        if all(differ):
            return branch
        for result, value, differs in zip(branch.results, then, differ):
            if not differs:
                self.mapping[result] = value
        blocks = [
            Block(b.params, (*b.ops[:-1], with_args(b.terminator, values=pick(values, differ))))
            for b, values in zip(branch.blocks, (then, other))
        ]
        return replace(branch, results=pick(branch.results, differ), blocks=tuple(blocks))


class _Sweep(Sweep):
    """Removes all values that nothing reads."""

    def op(self, op: Op) -> Op | None:
        if op.spec in (structure.FOR, structure.WHILE):
            return self._loop(op)
        if op.spec in (structure.IF, structure.SCOPE):
            return super().op(op)
        needed = op.spec is structure.CALL or has_effect(op) or _may_fail(op)
        return op if needed or any(r in self.read for r in op.results) else None

    def branch(self, op: Op) -> Op | None:
        left = super().branch(op)
        assert left is not None
        return None if not left.results and all(map(_is_empty, left.blocks)) else left

    def scope(self, op: Op) -> Op | None:
        left = super().scope(op)
        assert left is not None
        needed = left.results or ScopeView(left).in_core or not _is_empty(left.blocks[0])
        return left if needed else None

    def _loop(self, op: Op) -> Op | None:
        """Keep a carried value if the result is read or the next iteration reads it."""
        first = 1 if op.spec is structure.FOR else 0
        wanted = [r in self.read for r in op.results]
        while True:
            blocks = [self.block(op.blocks[-1], wanted)]
            if op.spec is structure.WHILE:
                blocks.insert(0, self.block(op.blocks[0], [True]))
            again = [
                w or any(b.params[first + i] in self.read for b in blocks)
                for i, w in enumerate(wanted)
            ]
            if again == wanted:
                break
            wanted = again
        if op.spec is structure.FOR and not any(wanted) and _is_empty(blocks[0]):
            return None
        return _keep_carried(replace(op, blocks=tuple(blocks)), wanted, yields_done=True)


def _may_fail(op: Op) -> bool:
    """Return whether a pure op may fail; such an op is kept even if its result is not read."""
    if Trait.CHECKED in op.spec.traits:
        # Constant operands were checked against constant extents when the op was built.
        return any(_is_known_later(v.type) for v in op.operands)
    return op.name in ("scalar.floordiv", "scalar.mod") and int_of(op.args["rhs"]) in (None, 0)


def _is_known_later(type_: Type) -> bool:
    """Return whether a value, or an extent of its type, is known only at run time."""
    if isinstance(type_, TensorType | TileType):
        return not all(isinstance(extent, int) for extent in type_.shape)
    return isinstance(type_, ScalarType)


def _is_same(a: Arg, b: Arg) -> bool:
    """Return whether two arguments are the same value or equal constants."""
    if isinstance(a, Value) or isinstance(b, Value):
        return a is b
    return type(a) is type(b) and repr(a) == repr(b)  # 0.0 == -0.0, but not the same


def _is_empty(block: Block) -> bool:
    return len(block.ops) == 1


def _keep_carried(loop: Op, wanted: Sequence[bool], *, yields_done: bool = False) -> Op:
    """Return `loop` with only the wanted carried values."""
    if all(wanted):
        return loop
    first = 1 if loop.spec is structure.FOR else 0
    blocks: list[Block] = []
    for block in loop.blocks:
        params = (*block.params[:first], *pick(block.params[first:], wanted))
        ops = block.ops
        if not yields_done and block is loop.blocks[-1]:
            ops = (
                *ops[:-1],
                with_args(block.terminator, values=pick(yielded_values(block), wanted)),
            )
        blocks.append(Block(params, ops))
    init = loop.args["init"]
    assert isinstance(init, tuple)
    return replace(
        with_args(loop, init=pick(init, wanted)),
        results=pick(loop.results, wanted),
        blocks=tuple(blocks),
    )
