"""Scalar arithmetic in C, as `ops/scalar.py` defines it.

Integers are 64 bits wide and wrapped to their type after each op; floats are doubles rounded to
their type after each op, as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelet import dtypes
from tilelet.cpu.emit.elements import element, scalar_type
from tilelet.cpu.emit.text import double_text, int_text
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Const, Op, Value, scalar_dtype
from tilelet.ir.types import ScalarType


def constant_text(value: float | bool) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return double_text(value) if isinstance(value, float) else int_text(value)


def constant_of(arg: Arg) -> int | float | bool | None:
    """Return the value of a constant argument, or None."""
    if isinstance(arg, Const):
        return arg.value
    return arg if isinstance(arg, (bool, int, float)) else None


def constant_sizes(arg: Arg) -> tuple[int, ...]:
    """Return the extents of a tile, which are constants of any magnitude."""
    numbers = [constant_of(a) for a in (arg if isinstance(arg, tuple) else (arg,))]
    return tuple(n for n in numbers if isinstance(n, int))


def as_type(number: str, dtype: DType) -> str:
    """Convert a C expression to `dtype`: integers wrap, floats round."""
    if dtype is dtypes.BOOL:
        return f"(({number}) != 0)"
    if dtype is dtypes.FP32:
        return f"(double)(float)({number})"
    if dtype.is_float:
        return f"(double){element(dtype).rounded(f'(float)({number})')}"
    return element(dtype).wrapped(number)


def _wrapping_op(symbol: str) -> Callable[[str, str, DType, str], str]:
    def emit(a: str, b: str, result: DType, _: str) -> str:
        if result.is_float:
            return as_type(f"{_as_double(a)} {symbol} {_as_double(b)}", result)
        return as_type(f"(uint64_t)({a}) {symbol} (uint64_t)({b})", result)

    return emit


def _as_double(number: str) -> str:
    return f"(double)({number})"


def _compare(symbol: str) -> Callable[[str, str, DType, str], str]:
    def emit(a: str, b: str, _: DType, common: str) -> str:
        return f"({common}({a}) {symbol} {common}({b}))"

    return emit


def _extreme(symbol: str) -> Callable[[str, str, DType, str], str]:
    def emit(a: str, b: str, result: DType, common: str) -> str:
        chosen = f"{_compare(symbol)(b, a, result, common)} ? ({b}) : ({a})"
        if result.is_float:
            chosen = f"({a}) != ({a}) ? ({a}) : ({b}) != ({b}) ? ({b}) : {chosen}"
        return as_type(chosen, result)

    return emit


def _shift(symbol: str) -> Callable[[str, str, DType, str], str]:
    def emit(a: str, b: str, result: DType, _: str) -> str:
        beyond = "0" if symbol == "<<" else f"(({a}) < 0 ? -1 : 0)"
        left = f"(uint64_t)({a})" if symbol == "<<" else f"({a})"
        return as_type(f"({b}) >= 0 && ({b}) < 64 ? {left} {symbol} ({b}) : {beyond}", result)

    return emit


def _logical(symbol: str) -> Callable[[str, str, DType, str], str]:
    def emit(a: str, b: str, _: DType, __: str) -> str:
        return f"(({a}) {symbol} ({b}))"

    return emit


def _true_division(a: str, b: str, result: DType, _: str) -> str:
    return as_type(f"(double)((float)({a}) / (float)({b}))", result)


BINARY: dict[str, Callable[[str, str, DType, str], str]] = {
    "scalar.add": _wrapping_op("+"),
    "scalar.sub": _wrapping_op("-"),
    "scalar.mul": _wrapping_op("*"),
    "scalar.eq": _compare("=="),
    "scalar.ne": _compare("!="),
    "scalar.lt": _compare("<"),
    "scalar.le": _compare("<="),
    "scalar.gt": _compare(">"),
    "scalar.ge": _compare(">="),
    "scalar.min": _extreme("<"),
    "scalar.max": _extreme(">"),
    "scalar.and": _logical("&"),
    "scalar.or": _logical("|"),
    "scalar.shl": _shift("<<"),
    "scalar.shr": _shift(">>"),
    "scalar.truediv": _true_division,
}

UNARY: dict[str, Callable[[str, DType], str]] = {
    "scalar.neg": lambda x, d: as_type(f"-({x})" if d.is_float else f"0 - (uint64_t)({x})", d),
    "scalar.pos": lambda x, d: as_type(f"{x}", d),
    "scalar.invert": lambda x, d: as_type(f"~(uint64_t)({x})", d),
    "scalar.not": lambda x, _: f"(!({x}))",
}

DIVISIONS = {"scalar.floordiv": "tl_divide", "scalar.mod": "tl_remainder"}


def common_cast(lhs: Arg, rhs: Arg) -> str:
    """Return a cast to the C type that represents both operands, where C would choose another."""
    operands = [(scalar_dtype(a), constant_of(a)) for a in (lhs, rhs)]
    floats = [dtype is not None and dtype.is_float for dtype, _ in operands]
    if any(floats):
        return "" if all(floats) else "(double)"
    wide = [
        dtype is dtypes.UINT64 or (isinstance(number, int) and number >= 1 << 63)
        for dtype, number in operands
    ]
    natural = [isinstance(number, int) and number >= 0 for _, number in operands]
    is_mixed = any(wide) and not all(w or n for w, n in zip(wide, natural))
    return "(__int128)" if is_mixed else ""


def scalar_expression(op: Op, text: Callable[[Arg], str]) -> str:
    """Return the C expression of a scalar op other than integer division."""
    assert isinstance(op.result.type, ScalarType)
    dtype = op.result.type.dtype
    if op.name in BINARY:
        lhs, rhs = op.args["lhs"], op.args["rhs"]
        return BINARY[op.name](text(lhs), text(rhs), dtype, common_cast(lhs, rhs))
    if op.name in UNARY:
        return UNARY[op.name](text(op.args["x"]), dtype)
    return cast_expression(text(op.args["x"]), scalar_dtype(op.args["x"]) or dtype, dtype)


def division_expression(op: Op, text: Callable[[Arg], str]) -> str:
    """Return `//` or `%` of integers; the divisor is known to be nonzero."""
    assert isinstance(op.result.type, ScalarType)
    lhs, rhs = op.args["lhs"], op.args["rhs"]
    common = common_cast(lhs, rhs)
    if common or dtypes.UINT64 in (scalar_dtype(lhs), scalar_dtype(rhs)):
        symbol = "/" if op.name == "scalar.floordiv" else "%"
        number = f"{common}({text(lhs)}) {symbol} {common}({text(rhs)})"
    else:
        number = f"{DIVISIONS[op.name]}({text(lhs)}, {text(rhs)})"
    return as_type(number, op.result.type.dtype)


def cast_expression(x: str, source: DType, target: DType) -> str:
    """Return `pl.cast` of a scalar in the default mode."""
    if target is dtypes.BOOL:
        return f"(({x}) != 0)"
    into = element(target)
    if source.is_float:
        if target.is_float:
            return f"(double){into.rounded(f'(float)({x})', 'TL_ROUND')}"
        return f"ts_f32_to_{into.suffix}((float)({x}), TL_ROUND)"
    widened = "ts_u64_to_f32" if source is dtypes.UINT64 else "ts_i64_to_f32"
    if target is dtypes.FP32:
        return f"(double){widened}({x}, TL_ROUND)"
    if target.is_float:
        # Round to odd first, which keeps the second rounding correct.
        return f"(double){into.rounded(f'{widened}({x}, TL_ODD)', 'TL_ROUND')}"
    return saturate(x, source, target)


def saturate(x: str, source: DType, target: DType) -> str:
    """Clamp an integer expression of type `source` to the range of `target`."""
    lowest, highest = source.limits
    low, high = target.limits
    number = f"({x})"
    if low > lowest:
        number = f"({number} < {int_text(low)} ? {int_text(low)} : {number})"
    if high < highest:
        number = f"({number} > {int_text(high)} ? {int_text(high)} : {number})"
    return f"({element(target).number}){number}"


def declared_type(v: Value) -> str:
    """Return the C type of a scalar value."""
    assert isinstance(v.type, ScalarType)
    return scalar_type(v.type.dtype)
