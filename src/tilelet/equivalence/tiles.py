"""Terms of the results of tile ops: elementwise, along an axis, or as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelet import dtypes
from tilelet.dataclasses import dataclass
from tilelet.equivalence import rings
from tilelet.equivalence.memory import Extent, mask_invalid
from tilelet.equivalence.terms import (
    Symbol,
    Terms,
    combine,
    constant,
    digest,
    grid,
    has_symbol,
    symbol,
    tag,
)
from tilelet.ir.core import Op, Value, scalar_dtype
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType

UNDEFINED = tag("undefined")
"""The term of unwritten memory."""


@dataclass(frozen=True)
class TermTile:
    """An on-chip value; elements outside the valid region are zero."""

    terms: Terms
    valid: tuple[Extent, ...]

    @property
    def is_full(self) -> bool:
        return self.valid == self.terms.shape

    @property
    def is_known(self) -> bool:
        return not any(isinstance(v, Symbol) for v in self.valid)


Args = Mapping[str, Any]


def compute(op: Op, args: Args, *, rounding: bool) -> tuple[list[Any], bool]:
    """Return the results of an op with a reference, and whether it is modelled in detail."""
    types = [r.type for r in op.results]
    if len(types) != 1 or not isinstance(types[0], TileType):
        return _opaque(op, args), False
    shape = types[0].shape
    tiles = {name: a for name, a in args.items() if isinstance(a, TermTile)}
    known = all(t.is_known for t in tiles.values())
    numbers = [a for a in args.values() if not isinstance(a, TermTile)]
    found: Terms | None = None
    traits = op.spec.traits
    if not known:
        found = _unknown_region(op, args, tiles, shape)
    elif op.name == "full":
        found = np.full(shape, constant(args["value"], args["dtype"]), np.uint64)
    elif Trait.ELEMENTWISE in traits:
        found = _elementwise(op, args, tiles, shape, rounding=rounding)
    elif op.spec.moves and set(tiles) <= set(op.spec.moves) and not has_symbol(numbers):
        found = _move(op, args, tiles, shape)
    elif Trait.GEMM in traits:
        found = _product(op, args, tiles, rounding=rounding)
    elif op.spec.reduces is not None and tiles["x"].is_full:
        axis = op.spec.reduces % tiles["x"].terms.ndim
        others = [digest(t.terms)[()] for name, t in tiles.items() if name != "x"]
        found = combine(_head(op, args), digest(tiles["x"].terms, (axis,)), *others)
        found = found.reshape(shape) if found.size == math.prod(shape) else None
    if found is None or found.shape != shape:
        return _opaque(op, args), False
    if rounding:
        found = found % rings.MODULUS
    valid = _valid_region(op, args, tiles, shape)
    return [TermTile(mask_invalid(found, valid) if valid != shape else found, valid)], True


def _head(op: Op, args: Args) -> np.uint64:
    """Hash an op with its types, numbers and options."""
    types = [
        a.type if isinstance(a.type, TileType) else scalar_dtype(a)
        for a in op.args.values()
        if isinstance(a, Value)
    ]
    names = [t.dtype.name if isinstance(t, TileType) else str(t) for t in types]
    results = [r.type.dtype.name for r in op.results]
    plain = [(name, a) for name, a in args.items() if not isinstance(a, TermTile)]
    return tag(op.name, tuple(names), tuple(results), tuple(plain))


def _regions(tiles: Mapping[str, TermTile]) -> tuple[object, ...]:
    return tuple((name, t.terms.shape, t.valid) for name, t in tiles.items())


def _valid_region(
    op: Op, args: Args, tiles: Mapping[str, TermTile], shape: Sequence[int]
) -> tuple[Extent, ...]:
    rule = op.spec.valid
    if rule is None:
        return tuple(shape)
    numbers = [a for a in args.values() if not isinstance(a, TermTile)]
    if all(t.is_known for t in tiles.values()) and not has_symbol(numbers):
        operands = {name: (t.terms.shape, t.valid) for name, t in tiles.items()}
        return tuple(rule(operands, tuple(shape), args))  # type: ignore[arg-type]
    same = {t.valid for t in tiles.values()}
    if Trait.KEEPS_VALID in op.spec.traits and len(same) == 1:
        (valid,) = same
        if all(t.terms.shape == tuple(shape) for t in tiles.values()):
            return valid
    head = _head(op, args)
    return tuple(symbol("extent", head, _regions(tiles), axis) for axis in range(len(shape)))


def _elementwise(
    op: Op, args: Args, tiles: Mapping[str, TermTile], shape: tuple[int, ...], *, rounding: bool
) -> Terms | None:
    try:
        operands = [np.broadcast_to(t.terms, shape) for t in tiles.values()]
    except ValueError:
        return None
    if rounding and _is_fp32(op) and len(operands) == 2:
        if op.name == "add":
            return rings.add(*operands)
        if op.name == "sub":
            return rings.subtract(*operands)
    parts: list[Any] = list(operands)
    if op.spec.takes_valid or op.name == "set_validshape":
        parts += [tag(_regions(tiles)), grid(shape)]
    return np.broadcast_to(combine(_head(op, args), *parts), shape)


def _is_fp32(op: Op) -> bool:
    values = [a for a in op.args.values() if isinstance(a, Value)]
    types = [v.type for v in (*values, *op.results)]
    return all(isinstance(t, TileType) and t.dtype is dtypes.FP32 for t in types)


def _unknown_region(
    op: Op, args: Args, tiles: Mapping[str, TermTile], shape: tuple[int, ...]
) -> Terms | None:
    """Return the result of an elementwise op on operands with data-dependent valid regions."""
    if Trait.ELEMENTWISE not in op.spec.traits:
        return None
    try:
        operands = [np.broadcast_to(t.terms, shape) for t in tiles.values()]
    except ValueError:
        return None
    return combine(_head(op, args), tag(_regions(tiles)), grid(shape), *operands)


def _move(
    op: Op, args: Args, tiles: Mapping[str, TermTile], shape: tuple[int, ...]
) -> Terms | None:
    """Move elements with the op's own reference."""
    assert op.spec.reference is not None
    types = [a.type for a in op.args.values() if isinstance(a, Value)]
    kinds = {t.dtype for t in (*types, op.result.type) if isinstance(t, (TileType, TensorType))}
    if len(kinds) > 1 or op.spec.cut_to_valid or args.get("pad_value") is not None:
        return None  # elements change
    arrays = {name: a.terms if isinstance(a, TermTile) else a for name, a in args.items()}
    if op.spec.takes_valid:
        arrays["valid"] = {name: t.valid for name, t in tiles.items()}
    if op.spec.takes_result_type:
        return None
    made: Terms = op.spec.reference(**arrays)
    return made if made.dtype == np.uint64 and made.shape == shape else None


def _product(op: Op, args: Args, tiles: Mapping[str, TermTile], *, rounding: bool) -> Terms | None:
    """Return a matrix product, whose elements depend on a row and a column."""
    if isinstance(args.get("init_cond"), Symbol) or not all(t.is_full for t in tiles.values()):
        return None
    left, right = tiles["lhs"].terms, tiles["rhs"].terms
    left = np.swapaxes(left, -1, -2) if args.get("a_trans") else left
    right = np.swapaxes(right, -1, -2) if args.get("b_trans") else right
    acc = None if args.get("init_cond") else tiles.get("acc")
    result = op.result.type
    assert isinstance(result, TileType)
    if rounding and result.dtype is dtypes.FP32:
        made = rings.matmul(left, right)
        return made if acc is None else rings.add(acc.terms, made)
    rows = digest(left, (left.ndim - 1,))
    columns = digest(right, (right.ndim - 2,))
    plain = {n: a for n, a in args.items() if n not in ("a_trans", "b_trans", "init_cond")}
    parts = [] if acc is None else [acc.terms]
    return combine(_head(op, plain), rows, columns, *parts)


def _opaque(op: Op, args: Args) -> list[object]:
    """Return opaque results, identified by their operands."""
    tiles = {name: a for name, a in args.items() if isinstance(a, TermTile)}
    whole = tag(
        _head(op, args), _regions(tiles), tuple(digest(t.terms)[()] for t in tiles.values())
    )
    made: list[object] = []
    for k, result in enumerate(op.results):
        if isinstance(result.type, (TileType, TensorType)):
            shape: tuple[int, ...] = result.type.shape  # type: ignore[assignment]
            valid = _valid_region(op, args, tiles, shape)
            terms = combine(tag(whole, k), grid(shape))
            made.append(TermTile(mask_invalid(terms, valid) if valid != shape else terms, valid))
        else:
            made.append(symbol(whole, k))
    return made
