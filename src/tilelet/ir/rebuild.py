"""Building new IR from old: substitution, cloning, op builders, and rewriting.

An op that is moved or gets other operands keeps its result `Value`s, so its uses stay valid. An op
that is *copied* gets new ones (`clone_*`): every Value has one definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace

from tilelet.diag.core import UNKNOWN, Loc
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Function, Op, Value, scalar_dtype, walk
from tilelet.ir.fold import fold_scalar
from tilelet.ir.spec import REGISTRY, Call, OpSpec, bind, expand
from tilelet.ir.types import INDEX, ScalarType, Type

ValueMap = MutableMapping[Value, Arg]
"""What each old Value is to be replaced by; Values that are not in it stay."""


# Substitution and cloning


def substitute(arg: Arg, mapping: Mapping[Value, Arg]) -> Arg:
    """Map the Values in `arg`; return the same object if none is mapped."""
    if isinstance(arg, Value):
        return mapping.get(arg, arg)
    if isinstance(arg, tuple):
        new = tuple([substitute(a, mapping) for a in arg])
        return arg if all(a is b for a, b in zip(arg, new)) else new
    return arg


def substitute_all(args: Iterable[Arg], mapping: Mapping[Value, Arg]) -> tuple[Arg, ...]:
    return tuple([substitute(a, mapping) for a in args])


def with_operands(op: Op, mapping: Mapping[Value, Arg]) -> Op:
    """Map the op's own arguments (not those of the ops in its blocks)."""
    if mapping.keys().isdisjoint(op.operands):
        return op
    args = {name: substitute(arg, mapping) for name, arg in op.args.items()}
    return Op(op.spec, args, op.results, op.blocks, op.loc)


def with_args(op: Op, **changes: Arg) -> Op:
    """Replace some arguments of `op`."""
    return Op(op.spec, {**op.args, **changes}, op.results, op.blocks, op.loc)


def fresh_value(value: Value, name: str | None = None) -> Value:
    """Return a new Value like `value`."""
    return Value(name or value.name, value.type, value.loc)


def clone_values(values: Iterable[Value], mapping: ValueMap) -> tuple[Value, ...]:
    """Return new Values for `values`, adding them to `mapping`."""
    copies: list[Value] = []
    for v in values:
        mapping[v] = copy = fresh_value(v)
        copies.append(copy)
    return tuple(copies)


def clone_op(op: Op, mapping: ValueMap) -> Op:
    """Copy an op with new results; map its operands, and add the results to `mapping`."""
    args = {name: substitute(arg, mapping) for name, arg in op.args.items()}
    blocks = tuple([clone_block(b, mapping) for b in op.blocks])
    return Op(op.spec, args, clone_values(op.results, mapping), blocks, op.loc)


def clone_ops(ops: Iterable[Op], mapping: ValueMap) -> list[Op]:
    return [clone_op(op, mapping) for op in ops]


def clone_block(block: Block, mapping: ValueMap) -> Block:
    params = clone_values(block.params, mapping)
    return Block(params, tuple(clone_ops(block.ops, mapping)))


# Definitions and free values of a block


def defined_values(block: Block) -> set[Value]:
    """Return every Value defined in `block` or in a nested block."""
    defined = set(block.params)
    for op in walk(block):
        defined.update(op.results)
        for inner in op.blocks:
            defined.update(inner.params)
    return defined


def free_values(block: Block) -> tuple[Value, ...]:
    """Return the Values that `block` uses but does not define, in order of first use."""
    defined = defined_values(block)
    free: dict[Value, None] = {}
    for op in walk(block):
        for v in op.operands:
            if v not in defined:
                free[v] = None
    return tuple(free)


# Building ops


def make_op(
    spec: OpSpec,
    args: Mapping[str, Arg],
    names: Sequence[str] = (),
    *,
    in_scope: bool = False,
    loc: Loc = UNKNOWN,
) -> Op:
    """Build a non-structural op; its result types come from its inference."""
    types = spec.infer(Call(spec.name, args, in_scope, loc))
    hints = names or (spec.name.rsplit(".", 1)[-1],) * len(types)
    results = tuple([Value(n, t, loc) for n, t in zip(hints, types)])
    return Op(spec, args, results, (), loc)


def yield_op(values: Iterable[Arg], loc: Loc = UNKNOWN) -> Op:
    return Op(structure.YIELD, {"values": tuple(values)}, loc=loc)


def return_op(values: Iterable[Arg], loc: Loc = UNKNOWN) -> Op:
    return Op(structure.RETURN, {"values": tuple(values)}, loc=loc)


def call_op(
    callee: str,
    operands: Iterable[Arg],
    results: Sequence[Value],
    loc: Loc = UNKNOWN,
    **options: Arg,
) -> Op:
    """Build a `call`; `options` are its optional arguments."""
    args: dict[str, Arg] = {
        "callee": callee,
        "operands": tuple(operands),
        **CALL_DEFAULTS,
        **options,
    }
    return Op(structure.CALL, args, tuple(results), (), loc)


CALL_DEFAULTS: Mapping[str, Arg] = {
    "deps": (),
    "no_dep": (),
    "predicate": None,
    "count": None,
    "task_id": False,
    "options": (),
}


class Builder:
    """Collects ops in order; scalar arithmetic on constants is folded and emits nothing."""

    def __init__(self, loc: Loc = UNKNOWN, *, in_scope: bool = False) -> None:
        self.ops: list[Op] = []
        self.loc = loc
        self.in_scope = in_scope

    def inside(self, *, in_scope: bool | None = None) -> Builder:
        """Return a builder for a nested block."""
        return Builder(self.loc, in_scope=self.in_scope if in_scope is None else in_scope)

    def add(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def emit(self, name: str, *args: Arg, result: str = "", **named: Arg) -> Value:
        """Append the one-result op called `name`; `result` is the name hint."""
        spec = REGISTRY[name]
        names = (result,) if result else ()
        return self._emit(spec, bind(spec, *args, **named), names)

    def _emit(self, spec: OpSpec, args: Mapping[str, Arg], names: Sequence[str] = ()) -> Value:
        if spec.expands is not None:
            return expand(spec, args, self._emit)
        return self.add(make_op(spec, args, names, in_scope=self.in_scope, loc=self.loc)).result

    def scalar(self, name: str, *args: Arg, result: str = "") -> Arg:
        """Append the scalar op `scalar.<name>`, folded if possible."""
        spec = REGISTRY[f"scalar.{name}"]
        folded = fold_scalar(spec, args)
        return folded if folded is not None else self.emit(spec.name, *args, result=result)

    def block(self, values: Iterable[Arg], params: Iterable[Value] = ()) -> Block:
        """Return the ops so far as a block that yields `values`."""
        return Block(tuple(params), (*self.ops, yield_op(values, self.loc)))

    def undef(self, name: str, type_: Type) -> Value:
        value = Value(name, type_, self.loc)
        self.add(Op(structure.UNDEF, {}, (value,), (), self.loc))
        return value

    def loop(
        self,
        bounds: tuple[Arg, Arg, Arg],
        init: Sequence[Arg],
        index: Value,
        carried: Sequence[Value],
        body: Builder,
        yields: Sequence[Arg],
        kind: str = "range",
    ) -> tuple[Value, ...]:
        """Append a plain `for` with the ops of `body`; `index` and `carried` are its parameters."""
        start, stop, step = bounds
        args: dict[str, Arg] = {"start": start, "stop": stop, "step": step, "init": tuple(init)}
        args |= {"kind": kind, "chunk": None, "policy": "leading_full", "stage": None}
        results = tuple([fresh_value(c) for c in carried])
        block = body.block(yields, (index, *carried))
        self.add(Op(structure.FOR, args, results, (block,), self.loc))
        return results

    def branch(
        self,
        cond: Arg,
        then: tuple[Builder, Sequence[Arg]],
        otherwise: tuple[Builder, Sequence[Arg]],
    ) -> tuple[Value, ...]:
        """Append an `if`; each arm consists of its ops and the values it yields."""
        arms = tuple([builder.block(values) for builder, values in (then, otherwise)])
        results = tuple([result_like(v, self.loc) for v in then[1]])
        self.add(Op(structure.IF, {"cond": cond}, results, arms, self.loc))
        return results


def index_value(name: str, loc: Loc = UNKNOWN) -> Value:
    """Return a new loop index."""
    return Value(name, INDEX, loc)


def result_like(arg: Arg, loc: Loc = UNKNOWN) -> Value:
    """Return a new Value that can stand for `arg`."""
    if isinstance(arg, Value):
        return fresh_value(arg)
    dtype = scalar_dtype(arg)
    assert dtype is not None
    return Value("joined", ScalarType(dtype), loc)


# Rewriting


class Rewriter:
    """Rebuilds blocks op by op.

    Override `rewrite`: it gets each op with its operands already mapped and returns the
    replacement; the default descends into the op's blocks. Setting `self.mapping[old] = new`
    redirects all later uses of `old`.
    """

    def __init__(self, mapping: ValueMap | None = None) -> None:
        self.mapping: ValueMap = {} if mapping is None else mapping

    def rewrite(self, op: Op) -> Sequence[Op]:
        return (self.descend(op),)

    def descend(self, op: Op) -> Op:
        """Return `op` with its blocks rebuilt."""
        if not op.blocks:
            return op
        blocks = tuple([self.block(b) for b in op.blocks])
        return Op(op.spec, op.args, op.results, blocks, op.loc)

    def block(self, block: Block) -> Block:
        return Block(block.params, tuple(self.ops(block.ops)))

    def ops(self, ops: Iterable[Op]) -> list[Op]:
        done: list[Op] = []
        mapping = self.mapping
        for op in ops:
            done.extend(self.rewrite(with_operands(op, mapping) if mapping else op))
        return done

    def function(self, fn: Function) -> Function:
        return replace(fn, body=self.block(fn.body))
