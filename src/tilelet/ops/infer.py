"""Helpers for type inference of ops: reading arguments, and the common type rules.

Every function that reads an argument raises a catalogue error at the argument's span if the op does
not accept the argument.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from tilelet import dtypes
from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadAxis,
    BadChoice,
    ConstantOutOfRange,
    DTypeMismatch,
    DTypeNotAllowed,
    NonConstantShape,
    NotConstant,
    RankMismatch,
    ShapeMismatch,
    WrongMemorySpace,
    ZeroSizeDim,
)
from tilelet.diag.core import Loc
from tilelet.dtypes import BF16, FP16, FP32, DType
from tilelet.ir.core import Arg, Const, Value, scalar_dtype
from tilelet.ir.spec import Call
from tilelet.ir.types import (
    Dim,
    Mem,
    ScalarType,
    ShapedType,
    SymDim,
    TensorType,
    TileType,
    Type,
    shape_text,
    shapes_agree,
)

Types = tuple[Type, ...]

INTEGERS: tuple[DType, ...] = (
    dtypes.INT8, dtypes.INT16, dtypes.INT32, dtypes.INT64,
    dtypes.UINT8, dtypes.UINT16, dtypes.UINT32, dtypes.UINT64,
)  # fmt: skip
FLOATS: tuple[DType, ...] = (FP32, FP16, BF16)
NUMBERS: tuple[DType, ...] = (*FLOATS, *INTEGERS)
ORDERED: tuple[DType, ...] = (*NUMBERS, dtypes.BOOL)
BITS: tuple[DType, ...] = (*INTEGERS, dtypes.BOOL)

# INDEX is stored as INT64, and treated as such in data.
_STORED_AS = {dtypes.INDEX: dtypes.INT64}


# --- arguments -----------------------------------------------------------------------------------


def describe(arg: Arg) -> str:
    """Describe an argument in a message: its type, or its Python type."""
    if isinstance(arg, Value):
        return f"`{arg.type}`"
    if isinstance(arg, Const):
        return f"`{arg.value}` of {arg.dtype}"
    if isinstance(arg, DType):
        return f"the dtype `{arg}`"
    if isinstance(arg, tuple):
        return f"a list of {len(arg)}"
    if isinstance(arg, enum.Enum):
        return f"`{type(arg).__name__}.{arg.name}`"
    if isinstance(arg, str):
        return f"the text {arg!r}"
    return f"`{arg}`"


def is_scalar(arg: Arg) -> bool:
    """Return whether an argument is a number: Python's, a pinned constant, or a run-time scalar."""
    return scalar_dtype(arg) not in (None, dtypes.TASK_ID)


def bad(call: Call, param: str, expected: str, helps: Sequence[str] = ()) -> BadArgument:
    return BadArgument(call.at(param), call.shown, param, describe(call[param]), expected, helps)


def shaped_type(call: Call, param: str) -> ShapedType:
    """Return the type of a tensor or tile argument."""
    arg = call[param]
    if isinstance(arg, Value) and isinstance(arg.type, (TensorType, TileType)):
        return arg.type
    raise bad(call, param, "a tensor or tile")


def tensor(call: Call, param: str) -> TensorType:
    """Return the type of a tensor argument in global memory."""
    arg = call[param]
    if isinstance(arg, Value) and isinstance(arg.type, TensorType):
        return arg.type
    raise bad(call, param, "a tensor in global memory")


def tile(call: Call, param: str) -> TileType:
    """Return the type of an on-chip argument."""
    arg = call[param]
    if isinstance(arg, Value) and isinstance(arg.type, TileType):
        return arg.type
    helps: list[str] = []
    if isinstance(arg, Value) and isinstance(arg.type, ScalarType):
        ones = f"pl.full([1, 8], dtype=pl.{arg.type.dtype.name}, value=1.0)"
        helps = [f"compute on a tile that holds the scalar: `pl.mul({ones}, {arg.name})`"]
    raise bad(call, param, "a tensor or tile", helps)


def scratch(call: Call, param: str) -> None:
    """Check a scratch tile, which older code passes: any tile, or nothing."""
    if call[param] is not None:
        tile(call, param)


def scalar(call: Call, param: str) -> DType:
    """Return the dtype of a number argument."""
    arg = call[param]
    found = scalar_dtype(arg)
    if found is None or found is dtypes.TASK_ID:
        raise bad(call, param, "a number")
    return found


def integer(call: Call, param: str) -> None:
    """Check that an argument is an integer, constant or not."""
    if not is_integer(call[param]):
        raise bad(call, param, "an integer")


def is_integer(arg: Arg) -> bool:
    found = scalar_dtype(arg)
    return found is not None and found.is_integer


def constant_of(arg: Arg) -> int | float | bool | None:
    """Return the value of a constant number; None for anything else."""
    if isinstance(arg, Const):
        return arg.value
    if isinstance(arg, (bool, int, float)):
        return arg
    return None


def name_of(call: Call, param: str) -> str:
    """Return the program's name for an operand."""
    arg = call[param]
    return arg.name if isinstance(arg, Value) else ""


def int_of(arg: Arg) -> int | None:
    """Return the value of a constant integer; None for anything else."""
    found = constant_of(arg)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def constant_int(call: Call, param: str, at_least: int | None = None) -> int:
    """Return a compile-time integer argument."""
    arg = call[param]
    found = int_of(arg)
    if found is None and isinstance(arg, Value) and is_integer(arg):
        raise NotConstant(call.at(param), call.shown, param)
    if found is None or (at_least is not None and found < at_least):
        limit = "" if at_least is None else f" of at least {at_least}"
        raise bad(call, param, f"a constant integer{limit}")
    return found


def flag(call: Call, param: str) -> bool:
    """Return a compile-time bool argument."""
    arg = call[param]
    if isinstance(arg, Value):
        raise NotConstant(call.at(param), call.shown, param)
    if not isinstance(arg, bool):
        raise bad(call, param, "True or False")
    return arg


def dtype(call: Call, param: str, allowed: Iterable[DType] | None = None) -> DType:
    """Return an element type given as an argument."""
    arg = call[param]
    if not isinstance(arg, DType):
        raise bad(call, param, "an element type such as `pl.FP32`")
    if allowed is not None and arg not in (choices := tuple(allowed)):
        raise BadChoice(call.at(param), call.shown, param, arg, choices)
    return arg


def check_dtype(
    call: Call, param: str, found: DType, allowed: Iterable[DType], hint: str = ""
) -> None:
    """Check that the op supports the element type of an operand."""
    choices = tuple(allowed)
    if _STORED_AS.get(found, found) not in choices:
        raise DTypeNotAllowed(call.at(param), call.shown, found, choices, hint)


def check_rank(call: Call, param: str, rank: int, expected: int) -> None:
    if rank != expected:
        raise RankMismatch(call.at(param), call.shown, f"`{param}`", rank, expected)


def at_least_2d(call: Call, param: str, t: ShapedType) -> None:
    if len(t.shape) < 2:
        raise RankMismatch(call.at(param), call.shown, f"`{param}`", len(t.shape), "2 or more")


def axis(call: Call, param: str, rank: int) -> int:
    """Return a constant axis argument, normalized to be non-negative."""
    found = constant_int(call, param)
    if not -rank <= found < rank:
        raise BadAxis(call.at(param), call.shown, found, rank)
    return found % rank


# --- shapes and offsets --------------------------------------------------------------------------


def as_tuple(arg: object) -> tuple[Any, ...]:
    """Return a list argument as a tuple; a bare entry counts as a list of one."""
    return cast("tuple[object, ...]", arg) if isinstance(arg, tuple) else (arg,)


def items(call: Call, param: str) -> tuple[Arg, ...]:
    """Return a list of integers (a bare integer counts as a list of one)."""
    entries: tuple[Arg, ...] = as_tuple(call[param])
    if not all(is_integer(e) for e in entries):
        raise bad(call, param, "a list of integers")
    return entries


def constant_shape(call: Call, param: str) -> tuple[int, ...]:
    """Return a shape of compile-time constants, as tiles have."""
    entries = items(call, param)
    shape: list[int] = []
    for i, entry in enumerate(entries):
        extent = int_of(entry)
        if extent is None:
            raise NonConstantShape(call.at(param), call.shown, i)
        shape.append(extent)
    check_positive(call, param, shape)
    return tuple(shape)


def dims(call: Call, param: str) -> tuple[Dim, ...]:
    """Return a shape; run-time extents become symbols named after their scalars."""
    shape: list[Dim] = []
    for entry in items(call, param):
        extent = int_of(entry)
        if extent is None:
            assert isinstance(entry, Value)
            shape.append(SymDim(entry.name))
        else:
            shape.append(extent)
    check_positive(call, param, shape)
    return tuple(shape)


def result_shape(call: Call, param: str) -> tuple[Dim, ...]:
    """Return the shape argument of a result: constant inside a scope."""
    return constant_shape(call, param) if call.in_scope else dims(call, param)


def check_positive(call: Call, param: str, shape: Sequence[Dim]) -> None:
    if not shape:
        raise RankMismatch(call.at(param), call.shown, f"`{param}`", 0, "1 or more")
    for i, extent in enumerate(shape):
        if isinstance(extent, int) and extent < 1:
            raise ZeroSizeDim(call.at(param), f"shape of `{call.shown}`", shape, i)


def count_of(shape: Sequence[Dim]) -> int | None:
    """Return the number of elements, or None if it is known only at run time."""
    extents = [d for d in shape if isinstance(d, int)]
    return math.prod(extents) if len(extents) == len(shape) else None


# --- common type rules ---------------------------------------------------------------------------


def vector_space(call: Call, *params: str) -> Mem | None:
    """Return the memory of a vector op's result, checking that its tiles are accessible."""
    result: Mem | None = None
    for param in params:
        arg = call[param]
        if not (isinstance(arg, Value) and isinstance(arg.type, TileType)):
            continue
        space = arg.type.space
        if space not in (None, Mem.Vec, Mem.Acc):
            raise WrongMemorySpace(
                call.at(param),
                call.shown,
                param,
                space.name,
                ["Vec"],
                "move it there: `pl.move(x, pl.Mem.Vec)`",
            )
        result = Mem.Vec if space else result
    return result


def broadcast(call: Call, lhs: str, a: TileType, rhs: str, b: TileType) -> tuple[int, ...]:
    """Broadcast equal shapes, or `[M, N]` with `[M, 1]`, `[1, N]` or `[1, 1]` (rule N9)."""
    for wide, narrow in ((a.shape, b.shape), (b.shape, a.shape)):
        if stretches(narrow, wide):
            return wide
    raise ShapeMismatch(
        call.shown,
        call.at(lhs),
        a.shape,
        call.at(rhs),
        b.shape,
        "shapes must be equal, or `[M, N]` with `[M, 1]`, `[1, N]` or `[1, 1]`",
    )


def stretches(narrow: Sequence[int], wide: Sequence[int]) -> bool:
    """Return whether `narrow` equals `wide` except for a 1 in one of the last two axes.

    A single row, `[1, 1, N]`, may have extent 1 in every axis but the last; a single element has 1
    in all axes.
    """
    differ = [i for i, (n, w) in enumerate(zip(narrow, wide)) if n != w]
    if len(narrow) != len(wide):
        return False
    if not differ:
        return True
    rank = len(wide)
    if narrow[-1] in (1, wide[-1]) and all(n == 1 for n in narrow[:-1]):
        return True
    return rank >= 2 and len(differ) == 1 and differ[0] >= rank - 2 and narrow[differ[0]] == 1


def fitting_scalar(call: Call, param: str, other: str, element: DType) -> None:
    """Check that a number combined with a tile of `element` is representable in it."""
    found = scalar(call, param)
    if element.is_float or not found.is_float:
        check_range(call, param, element)
        return
    value = constant_of(call[param])
    if value is None or not float(value).is_integer():
        raise DTypeMismatch(
            call.shown,
            call.at(other),
            element,
            call.at(param),
            found if value is None else value,
            f"the number would become {element}; cast the tile first: `pl.cast(..., pl.FP32)`",
        )
    check_range(call, param, element)


def check_range(call: Call, param: str, element: DType) -> None:
    """Check that a constant is representable in an integer `element`."""
    value = constant_of(call[param])
    if value is None or not element.is_integer:
        return
    check_constant(value, element, call.at(param))


def check_constant(value: float | bool, element: DType, loc: Loc) -> None:
    """Check that a number is representable in the integer type `element`."""
    lowest, highest = element.limits
    is_whole = isinstance(value, int) or value.is_integer()  # infinities are not
    if not (is_whole and lowest <= value <= highest):
        raise ConstantOutOfRange(loc, value, element, lowest, highest)


def binary(
    call: Call, lhs: str = "lhs", rhs: str = "rhs", allowed: Iterable[DType] = NUMBERS
) -> TileType:
    """Return the result type of an elementwise op on two tiles, or a tile and a number."""
    choices = tuple(allowed)
    left_is_number, right_is_number = is_scalar(call[lhs]), is_scalar(call[rhs])
    space = vector_space(call, lhs, rhs)
    if left_is_number and not right_is_number:
        lhs, rhs = rhs, lhs
        right_is_number = True
    a = tile(call, lhs)
    check_dtype(call, lhs, a.dtype, choices)
    if right_is_number:
        fitting_scalar(call, rhs, lhs, a.dtype)
        return TileType(a.shape, a.dtype, space)
    b = tile(call, rhs)
    check_dtype(call, rhs, b.dtype, choices)
    shape = broadcast(call, lhs, a, rhs, b)
    return TileType(shape, dtypes.promote(a.dtype, b.dtype), space)


def infer_binary(allowed: Iterable[DType] = NUMBERS, *scratches: str) -> Callable[[Call], Types]:
    """Return `infer` for an op with operands `lhs` and `rhs`."""
    choices = tuple(allowed)

    def infer(call: Call) -> Types:
        for param in scratches:
            scratch(call, param)
        return (binary(call, allowed=choices),)

    return infer


def infer_with_number(
    allowed: Iterable[DType] = NUMBERS, *scratches: str
) -> Callable[[Call], Types]:
    """Return `infer` for an op of a tile `lhs` and a number `rhs`."""
    choices = tuple(allowed)

    def infer(call: Call) -> Types:
        scalar(call, "rhs")
        tile(call, "lhs")
        for param in scratches:
            scratch(call, param)
        return (binary(call, allowed=choices),)

    return infer


def infer_unary(
    allowed: Iterable[DType] = NUMBERS, to_float: bool = False
) -> Callable[[Call], Types]:
    """Return `infer` for an elementwise op of `x`; with `to_float`, integers give FP32."""
    choices = tuple(allowed)

    def infer(call: Call) -> Types:
        x = tile(call, "x")
        check_dtype(call, "x", x.dtype, choices)
        if "high_precision" in call.args:
            flag(call, "high_precision")
        space = vector_space(call, "x")
        return (TileType(x.shape, FP32 if to_float and x.dtype.is_integer else x.dtype, space),)

    return infer


def same_shape(call: Call, lhs: str, a: ShapedType, rhs: str, b: ShapedType, why: str = "") -> None:
    """Check that two operands have the same shape."""
    if not shapes_agree(a.shape, b.shape):
        raise ShapeMismatch(call.shown, call.at(lhs), a.shape, call.at(rhs), b.shape, why)


def same_dtype(call: Call, lhs: str, a: DType, rhs: str, b: DType, hint: str = "") -> None:
    """Check that two operands have the same element type."""
    if _STORED_AS.get(a, a) is not _STORED_AS.get(b, b):
        raise DTypeMismatch(call.shown, call.at(lhs), a, call.at(rhs), b, hint)


def expects(t: ShapedType) -> str:
    """Format shape and dtype for a message."""
    return f"{shape_text(t.shape)} {t.dtype}"


def scalar_type(element: DType) -> ScalarType:
    """Return the type of one element read from a tensor."""
    return ScalarType(element)
