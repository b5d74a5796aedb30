"""Edits of one op, used both to repair a program and to mutate it.

An `Edit` replaces an op by other ops, or its result by an operand. Edits keep the types of results,
so that nothing else in the program has to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tilelet.analysis.aliases import is_tensor
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.core import Loc, UserError
from tilelet.ir.core import Arg, Const, Function, Op, Program, Value
from tilelet.ir.rebuild import Rewriter, make_op, substitute, with_operands
from tilelet.ir.spec import REGISTRY, Call, OpSpec, Trait, bind
from tilelet.ir.types import BOOL, ScalarType, TensorType, TileType
from tilelet.numerics import MODES
from tilelet.ops.padding import pad_kind


@dataclass(frozen=True, eq=False)
class Edit:
    """A change of one op, or of two.

    ops       the replacement; the last of them defines the results
    alias     without `ops`: the value that replaces the result
    kind      the class of the change: "swapped operands", "cast mode", ...
    text      the change in words, in terms of the source
    cost      how unlikely it is as the explanation of a mistake, from 1
    old, new  the source text that changes; with an empty `old`, `{}` in `new` is the whole op
    also      a second edit in the same function
    place     where the change belongs, if not at the op: the assignment of a carried variable
    effect    a value and the expression that replaces all its uses, if that is all that changes;
              edits of one effect are equivalent
    lowered   the program with the edit, if it is one of the source; `op` is then only near it
    """

    op: Op
    kind: str
    text: str
    ops: tuple[Op, ...] = ()
    alias: Value | None = None
    cost: int = 1
    old: str = ""
    new: str = ""
    also: Edit | None = None
    place: Loc | None = None
    effect: tuple[Value, str] | None = None
    lowered: Callable[[], Program] | None = None

    @property
    def loc(self) -> Loc:
        return self.place or self.op.loc

    @property
    def parts(self) -> tuple[Edit, ...]:
        return (self,) if self.also is None else (self, *self.also.parts)


def replaced_scalars(edit: Edit) -> list[Value]:
    """Return the scalars that an edit replaces by an expression, which may contain them."""
    if len(edit.ops) == 1 or any(op.args == edit.op.args for op in edit.ops):
        return []
    kept = {v for op in edit.ops[-1:] for v in op.operands}
    return [v for v in edit.op.operands if v not in kept and isinstance(v.type, ScalarType)]


def apply_edit(program: Program, edit: Edit) -> Program:
    """Apply the edit to the program."""
    if edit.lowered is not None:
        return edit.lowered()
    functions = {name: edited_function(f, edit) for name, f in program.functions.items()}
    return program.with_functions(functions)


def edited_function(function: Function, edit: Edit) -> Function:
    """Apply the edit to the function that contains its op."""
    return _Applying(edit).function(function)


class _Applying(Rewriter):
    def __init__(self, edit: Edit) -> None:
        super().__init__()
        self._edit = edit

    def rewrite(self, op: Op) -> Sequence[Op]:
        # Mapping the operands of an op builds a new op with the same results.
        edit = next(
            (
                e
                for e in self._edit.parts
                if e.op is op or (op.results and e.op.results is op.results)
            ),
            None,
        )
        if edit is None:
            return (self.descend(op),)
        if edit.alias is not None:
            self.mapping[op.result] = substitute(edit.alias, self.mapping)
            return ()
        return [self.descend(with_operands(new, self.mapping)) for new in edit.ops]


# Building the ops of an edit


def rebuild_op(op: Op, /, **changes: Arg) -> Op | None:
    """Rebuild the op with some arguments changed and the same results, or return None."""
    return replace_op(op, op.spec, {**op.args, **changes})


def replace_op(op: Op, made: OpSpec, args: Mapping[str, Arg]) -> Op | None:
    """Build another op that defines the results of `op`; None if their types differ.

    Integer scalars may differ in width: an INT32 from memory and an index are added in the source.
    """
    try:
        types = made.infer(Call(made.name, args, _in_scope(op), op.loc))
    except UserError:
        return None
    wanted = tuple(r.type for r in op.results)
    is_same = types == wanted or all(map(_is_integer, (*types, *wanted)))
    if not made.structural and not is_same:
        return None
    return Op(made, args, op.results, op.blocks, op.loc)


def _is_integer(type_: object) -> bool:
    return isinstance(type_, ScalarType) and not type_.dtype.is_float and type_ != BOOL


def _in_scope(op: Op) -> bool:
    return any(isinstance(r.type, TileType) for r in op.results) or any(
        isinstance(v.type, TileType) for v in op.operands
    )


def _append_op(op: Op, name: str, **args: Arg) -> tuple[Op, ...] | None:
    """Return the op followed by another one on its result (`x` in `args`, or its first operand)."""
    middle = Value(op.result.name, op.result.type, op.result.loc)
    first = replace(op, results=(middle,))
    spec = REGISTRY[name]
    bound = bind(spec, middle, **args)
    last = replace_op(op, spec, bound)
    return None if last is None else (first, last)


def is_float_tile(value: object) -> bool:
    type_ = value.type if isinstance(value, Value) else None
    return is_number_tile(value) and isinstance(type_, TileType) and type_.dtype.is_float


def is_number_tile(value: object) -> bool:
    """Return whether a value is a tile of numbers that are computed with."""
    type_ = value.type if isinstance(value, Value) else None
    return isinstance(type_, TileType) and type_.dtype.bits >= 16


def unary_specs() -> list[OpSpec]:
    """Return the elementwise ops with one tile operand."""
    return [
        spec
        for spec in REGISTRY.values()
        if Trait.ARITHMETIC in spec.traits
        and Trait.ELEMENTWISE in spec.traits
        and _required_params(spec) == ["x"]
    ]


def _required_params(spec: OpSpec) -> list[str]:
    parameters = spec.signature.parameters.values()
    return [p.name for p in parameters if p.default is p.empty]


# Kinds of edits


def swap_operands(op: Op) -> Iterator[Edit]:
    """Swap two operands of one type."""
    names = [n for n, a in op.args.items() if isinstance(a, Value)]
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            a, b = op.args[first], op.args[second]
            if a is b or not isinstance(a, Value) or not isinstance(b, Value):
                continue
            if a.type != b.type or not isinstance(a.type, TileType):
                continue
            made = rebuild_op(op, **{first: b, second: a})
            if made is not None:
                text = f"swap `{first}` and `{second}` of `pl.{op.name}`"
                yield Edit(op, "swapped operands", text, (made,))


_RARE = frozenset({"cmp", "rem", "rems", "fmod", "fmods", "sin", "cos", "row_prod", "col_prod"})
"""Ops that are rarely confused with others."""


def _same_name(spec: OpSpec, other: OpSpec) -> bool:
    """Return whether one op is the scalar or partial form of the other."""
    stems = [
        s.name.removeprefix("part_").removesuffix("s").removesuffix("imum") for s in (spec, other)
    ]
    return stems[0] == stems[1] or spec.name.startswith("part_") or spec.name.endswith("s")


def other_ops(op: Op) -> Iterator[Edit]:
    """Replace by another elementwise op or reduction with the same operands."""
    kind = op.spec.traits & (Trait.ELEMENTWISE | Trait.FOLD)
    if "cmp_type" in op.args:
        return  # a mask, not a number
    if Trait.ARITHMETIC not in op.spec.traits or not kind or not is_number_tile(op.results[0]):
        return
    wanted = _required_params(op.spec)
    for spec in REGISTRY.values():
        same = Trait.ARITHMETIC in spec.traits and kind in spec.traits
        if (
            spec is op.spec
            or not same
            or spec.expands is not None
            or _required_params(spec) != wanted
        ):
            continue
        if spec.reduces != op.spec.reduces or spec.name in _RARE or _same_name(spec, op.spec):
            continue
        made = replace_op(op, spec, bind(spec, **{n: op.args[n] for n in wanted}))
        if made is not None:
            text = f"`pl.{spec.name}` instead of `pl.{op.name}`"
            yield Edit(op, "other op", text, (made,), old=op.name, new=spec.name)


def other_limits(op: Op, numbers: Iterable[float]) -> Iterator[Edit]:
    """Limit a tile from the other side, by a number: `maximum(x, -1)` for `minimum(x, 1)`."""
    other = {"minimum": "maximum", "maximum": "minimum"}.get(op.name)
    old = op.args.get("rhs")
    if other is None or not isinstance(old, float):
        return
    for new in dict.fromkeys((-old, 0.0, *numbers)):
        made = replace_op(op, REGISTRY[other], {**op.args, "rhs": new})
        if made is not None:
            text = f"`pl.{other}` with {new:.6g} instead of `pl.{op.name}` with {old:.6g}"
            yield Edit(op, "other op", text, (made,), cost=2)


def cast_modes(op: Op, modes: Iterable[str] = MODES) -> Iterator[Edit]:
    """Use another rounding mode."""
    if "mode" not in op.args or "target_type" not in op.args:
        return
    for mode in modes:
        if mode not in (op.args["mode"], "none"):
            made = rebuild_op(op, mode=mode)
            if made is not None:
                yield Edit(
                    op, "cast mode", f'`mode="{mode}"`', (made,), old=str(op.args["mode"]), new=mode
                )


def pads(op: Op) -> Iterator[Edit]:
    """Use another value outside the valid region."""
    old = op.args.get("pad_value")
    if old is None:
        return
    for number, name in ((0.0, "zero"), (-math.inf, "min"), (math.inf, "max")):
        if pad_kind(number) is pad_kind(old):
            continue
        made = rebuild_op(op, pad_value=number)
        if made is not None:
            yield Edit(op, "pad value", f"`pad_value=pl.PadValue.{name}`", (made,))


def window_parts(op: Op) -> tuple[str, tuple[Arg, ...], tuple[int, ...]] | None:
    """Return an op's offset parameter, its offset, and the extents of its window."""
    for param in ("offset", "offsets"):
        offset = op.args.get(param)
        if not isinstance(offset, tuple):
            continue
        source = op.args.get("source") or op.args.get("tile")
        shape = op.args.get("shape") or op.args.get("shapes")
        if isinstance(source, Value) and isinstance(source.type, TileType | TensorType):
            shape = tuple(source.type.shape)  # type: ignore[assignment]
        if isinstance(shape, tuple) and len(shape) == len(offset):
            extents = [n if isinstance(n, int) else 1 for n in shape]
            return param, offset, tuple(extents)
    return None


def offsets(op: Op, deltas: Mapping[int, Sequence[int]] | None = None) -> Iterator[Edit]:
    """Move the window by its own extent, half of it, or 1, on each axis."""
    found = window_parts(op)
    if found is None:
        return
    param, offset, extents = found
    for axis, extent in enumerate(extents):
        steps = {extent: 1, 1: 1, extent // 2: 2, 2 * extent: 2, extent // 4: 3}
        wanted = deltas.get(axis, ()) if deltas is not None else _both_ways(steps)
        for delta in wanted:
            start, before = shift_offset(offset[axis], delta, op.loc)
            if start is None or delta == 0:
                continue
            moved = (*offset[:axis], start, *offset[axis + 1 :])
            made = rebuild_op(op, **{param: moved})
            if made is not None:
                text = f"offset {'+' if delta > 0 else '-'} {abs(delta)} on axis {axis}"
                yield Edit(op, "offset", text, (*before, made), cost=steps.get(abs(delta), 1))


def _both_ways(steps: Iterable[int]) -> list[int]:
    return [sign * n for n in steps if n > 0 for sign in (-1, 1)]


def shift_offset(offset: Arg, delta: int, loc: Loc) -> tuple[Arg | None, tuple[Op, ...]]:
    """Return `offset + delta` and its ops; None if it is certainly negative."""
    if isinstance(offset, bool | str | float):
        return None, ()
    if isinstance(offset, int):
        return (offset + delta, ()) if offset + delta >= 0 else (None, ())
    if isinstance(offset, Const):
        return None, ()
    if isinstance(offset, Value) and isinstance(offset.type, ScalarType):
        spec = REGISTRY["scalar.add"]
        made = make_op(spec, bind(spec, offset, delta), loc=loc)
        return made.result, (made,)
    return None, ()


def drop_op(op: Op) -> Iterator[Edit]:
    """Remove the op: its result becomes an operand of the same type."""
    if not op.results or op.spec.structural:
        return
    first = op.args.get(op.spec.writes[0]) if op.spec.writes else None
    candidates = [first] if first is not None else list(op.args.values())
    for operand in candidates:
        if isinstance(operand, Value) and operand.type == op.result.type:
            what = "store" if is_tensor(op.result) else f"`pl.{op.name}`"
            yield Edit(op, "dropped", f"remove the {what}", alias=operand)
            return


def add_accumulation(op: Op, carried: Iterable[Value]) -> Iterator[Edit]:
    """Accumulate the result of an op into a loop-carried value."""
    if not op.results or not is_number_tile(op.results[0]):
        return
    for value in carried:
        if value.type != op.results[0].type or value in op.operands:
            continue
        if Trait.GEMM in op.spec.traits and "acc" not in op.args:
            spec = REGISTRY["matmul_acc"]
            kept = {n: op.args[n] for n in ("lhs", "rhs", "a_trans", "b_trans") if n in op.args}
            made = replace_op(op, spec, bind(spec, acc=value, **kept))
            if made is not None:
                yield Edit(op, "accumulation", f"accumulate into `{value.name}`", (made,))
        ops = _append_op(op, "add", rhs=value)
        if ops is not None:
            yield Edit(op, "accumulation", f"add `{value.name}` to it", ops, cost=2)


def remove_accumulation(op: Op) -> Iterator[Edit]:
    """Remove the accumulation from a product or a sum."""
    acc = op.args.get("acc")
    if isinstance(acc, Value) and Trait.GEMM in op.spec.traits and op.results:
        spec = REGISTRY["matmul"]
        kept = {n: op.args[n] for n in ("lhs", "rhs", "a_trans", "b_trans") if n in op.args}
        type_ = op.result.type
        assert isinstance(type_, TileType)
        made = replace_op(op, spec, bind(spec, out_dtype=type_.dtype, **kept))
        if made is not None:
            text = f"without accumulating into `{acc.name}`"
            yield Edit(op, "accumulation", text, (made,), cost=2)
    lhs, rhs = op.args.get("lhs"), op.args.get("rhs")
    if op.name == "add" and isinstance(lhs, Value) and isinstance(rhs, Value):
        for kept, other in ((lhs, rhs), (rhs, lhs)):
            if kept.type == op.result.type:
                text = f"without `{other.name}`"
                yield Edit(op, "accumulation", text, alias=kept, cost=2)


def scale_result(op: Op, factors: Iterable[float], kind: str = "scale") -> Iterator[Edit]:
    """Multiply the result by a number."""
    if len(op.results) != 1 or not is_float_tile(op.results[0]):
        return
    for factor in factors:
        ops = _append_op(op, "mul", rhs=float(factor))
        if ops is not None:
            text = f"multiply the result by {factor:.6g}"
            yield Edit(op, kind, text, ops, cost=3, new=f"pl.mul({{}}, {factor:.6g})")


_LIKELY_INTEGERS = (0, 1, 4, 7, 8, 15, 16, 127, 128, 255)
"""Shifts, masks and zero points."""


def constants(op: Op, factors: Iterable[float], numbers: Iterable[float] = ()) -> Iterator[Edit]:
    """Change a number among the arguments of an elementwise op, or the value of a constant tile: to
    a multiple, to one of `numbers`, or, for an integer, to a neighbor or a likely one.
    """
    if Trait.ELEMENTWISE not in op.spec.traits and op.name != "full":
        return
    for name, old in op.args.items():
        others: Iterable[float] = ()
        if isinstance(old, float):
            scaled = (-old, 1.0 / old, *(old * f for f in factors)) if old else (-1.0,)
            others = (*numbers, 1.0, 0.0, *scaled)
        elif type(old) is int and name in ("lhs", "rhs", "value"):
            others = (old + 1, old - 1, 2 * old, old // 2, *_LIKELY_INTEGERS)
        else:
            continue
        for new in dict.fromkeys(others):
            made = rebuild_op(op, **{name: type(old)(new)})
            if made is not None and new != old:
                text = f"{new:.6g} instead of {old:.6g}"
                yield Edit(op, "constant", text, (made,), None, 2, f"{old}", f"{new:.6g}")


def flags(op: Op) -> Iterator[Edit]:
    """Transpose a matrix operand, or stop transposing it."""
    for name in ("a_trans", "b_trans"):
        if isinstance(op.args.get(name), bool):
            made = rebuild_op(op, **{name: not op.args[name]})
            if made is not None:
                yield Edit(op, "transposed operand", f"`{name}={not op.args[name]}`", (made,))
