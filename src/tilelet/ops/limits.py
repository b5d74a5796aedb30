"""Forms of ops that public compilers do not support, for use in op definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilelet.dtypes import INT32, UINT32
from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import REGISTRY, Limit
from tilelet.ir.types import ScalarType, TensorType, TileType, Type

# Row alignment of tiles in bytes.
_ROW = 32

MadeBy = Callable[[Arg], str]


def _shape(x: object) -> tuple[object, ...]:
    found = x.type if isinstance(x, Value) else x
    return found.shape if isinstance(found, (TensorType, TileType)) else ()


def _is_column(_: Mapping[str, Arg], result: Type, __: MadeBy) -> bool:
    shape = _shape(result)
    if len(shape) != 2 or not isinstance(result, (TensorType, TileType)):
        return False
    return shape[1] == 1 and shape[0] != 1 and result.dtype.itemsize < _ROW


def _as_reshaped_row(spelled: str, texts: Mapping[str, str]) -> str | None:
    shape = texts["shape"].strip()
    rows, comma, columns = shape[1:-1].partition(",")
    if shape[0] != "[" or not comma or columns.strip() != "1":
        return None
    rest = ", ".join(f"{name}={text}" for name, text in texts.items() if name != "shape")
    language = spelled.partition(".")[0]
    return f"{language}.reshape({spelled}([1, {rows}], {rest}), [{rows}, 1])"


COLUMN = Limit(
    "rows of a tile must be a multiple of 32 bytes, but those of `[R, 1]` have one element",
    "`pl.reshape(pl.full([1, R], ...), [R, 1])`",
    _is_column,
    _as_reshaped_row,
)


def _is_same_dtype(args: Mapping[str, Arg], result: Type, _: MadeBy) -> bool:
    x = args.get("x")
    shaped = (TensorType, TileType)
    if not isinstance(x, Value) or not isinstance(x.type, shaped):
        return False
    return isinstance(result, shaped) and x.type.dtype is result.dtype


SAME_DTYPE = Limit(
    "the tile already has this dtype, and there is no such conversion",
    "remove the cast",
    _is_same_dtype,
    lambda _, texts: texts["x"],
)


def _has_row_at(at: str, other: str) -> Callable[[Mapping[str, Arg], Type, MadeBy], bool]:
    def applies(args: Mapping[str, Arg], _: Type, __: MadeBy) -> bool:
        row, tile = _shape(args.get(at)), _shape(args.get(other))
        if len(row) < 2 or len(tile) < 2 or row[-1] != tile[-1]:
            return False
        return row[-2] == 1 and tile[-2] != 1

    return applies


def _as_column_form(spelled: str, texts: Mapping[str, str]) -> str | None:
    language, _, name = spelled.rpartition(".")
    form = f"col_expand_{name}"
    return f"{language}.{form}({texts['lhs']}, {texts['rhs']})" if form in REGISTRY else None


def _as_column_form_swapped(spelled: str, texts: Mapping[str, str]) -> str | None:
    """Swap the operands so that the row comes second; only for commutative ops."""
    is_symmetric = spelled.rpartition(".")[2] in ("add", "mul")
    swapped = {"lhs": texts["rhs"], "rhs": texts["lhs"]}
    return _as_column_form(spelled, swapped) if is_symmetric else None


_SHAPES = "operands of different shapes are not broadcast, except a column `[M, 1]`"
_EXPAND = "`pl.col_expand_add` and the like, which take a row `[1, N]` as second operand"
ROW_OPERANDS = (
    Limit(_SHAPES, _EXPAND, _has_row_at("rhs", "lhs"), _as_column_form),
    Limit(_SHAPES, _EXPAND, _has_row_at("lhs", "rhs"), _as_column_form_swapped),
)


def _starts_with_number(args: Mapping[str, Arg], _: Type, __: MadeBy) -> bool:
    return bool(_shape(args.get("rhs"))) and not _shape(args.get("lhs"))


def _tensor_first(spelled: str, texts: Mapping[str, str]) -> str | None:
    """Rewrite with the tensor first, if the result is the same number with the same rounding."""
    language, _, name = spelled.rpartition(".")
    number, tensor = texts["lhs"], texts["rhs"]
    if name in ("add", "mul", "maximum", "minimum"):
        return f"{spelled}({tensor}, {number})"
    if name == "sub":
        return f"{language}.add({language}.neg({tensor}), {number})"
    is_reciprocal = name == "div" and number.strip() in ("1", "1.0", "1.")
    return f"{language}.recip({tensor})" if is_reciprocal else None


NUMBER_FIRST = Limit(
    "the first operand must be a tensor or tile",
    "the tensor first; `pl.add(pl.neg(x), c)` for c - x, `pl.recip(x)` for 1 / x",
    _starts_with_number,
    _tensor_first,
)


def _folds_into_filled(args: Mapping[str, Arg], result: Type, made_by: MadeBy) -> bool:
    shape = _shape(result)
    if len(shape) != 2 or shape[1] != 1 or shape[0] == 1:
        return False
    first, second = made_by(args.get("lhs")), made_by(args.get("rhs"))
    is_fold = first in REGISTRY and REGISTRY[first].reduces == -1
    return is_fold and second == "full"


def _starts_at_index(args: Mapping[str, Arg], result: Type, _: MadeBy) -> bool:
    start = args.get("start")
    if not isinstance(start, Value) or not isinstance(start.type, ScalarType):
        return False
    return isinstance(result, (TensorType, TileType)) and start.type.dtype is not result.dtype


RAMP_START = Limit(
    "a computed start must have the dtype of the result",
    "`pl.cast(start, pl.INT32)`",
    _starts_at_index,
)


def _extent_as_read(args: Mapping[str, Arg], _: Type, made_by: MadeBy) -> bool:
    extents = [args.get(name) for name in ("rows", "cols")]
    return any(
        isinstance(e, Value)
        and isinstance(e.type, ScalarType)
        and e.type.dtype in (INT32, UINT32)
        and made_by(e) == "read"
        for e in extents
    )


REGION_EXTENT = Limit(
    "an extent read from a tensor keeps its dtype, and must be an index or 64 bits wide",
    "`pl.cast(extent, pl.INDEX)`",
    _extent_as_read,
)


FILLED_COLUMN = Limit(
    "for two columns `[R, 1]`, one from a reduction and one from `pl.full`, the layout of the "
    "first is used for both",
    "swap the operands",
    _folds_into_filled,
    lambda spelled, texts: f"{spelled}({texts['rhs']}, {texts['lhs']})",
)
