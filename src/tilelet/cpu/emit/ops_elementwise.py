"""Elementwise ops: arithmetic, functions, bits, comparison, selection, broadcast, cast, constants.

Each is a table entry that maps the operands' C expressions to that of the result element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelet import dtypes
from tilelet.cpu.emit.elements import Element, element
from tilelet.cpu.emit.kernel import KernelEmitter, emits
from tilelet.cpu.emit.scalars import constant_of, saturate
from tilelet.cpu.emit.text import Dim, lesser
from tilelet.cpu.emit.tiles import EmittedTile, Node
from tilelet.cpu.plan.regions import define_elementwise
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.types import TileType
from tilelet.numerics.casts import MODES
from tilelet.ops.cast import mode_name
from tilelet.ops.clearing import cleared_operand
from tilelet.ops.selection import comparison
from tilelet.syntax.enums import CmpType

# --- valid regions -------------------------------------------------------------------------------


def spread(tile: EmittedTile, shape: Sequence[int]) -> tuple[Dim, ...]:
    """Return the region of an operand whose axes of extent 1 are broadcast to `shape`."""
    missing = len(shape) - len(tile.shape)
    region: list[Dim] = list(shape[:missing])
    for extent, v, wanted in zip(tile.shape, tile.valid, shape[missing:]):
        if extent == wanted:
            region.append(v)
        elif isinstance(v, int):
            region.append(wanted if v else 0)
        else:
            region.append(f"({v} ? {wanted} : 0)")
    return tuple(region)


def meet(
    k: KernelEmitter, shape: tuple[int, ...], operands: Sequence[EmittedTile]
) -> tuple[Dim, ...]:
    """Return the intersection of the operands' regions."""
    region: list[Dim] = list(shape)
    for tile in operands:
        region = [
            v if wanted == extent else wanted if v == extent else lesser(wanted, v)
            for wanted, v, extent in zip(region, spread(tile, shape), shape)
        ]
    return tuple(name_extent(k, v) for v in region)


def name_extent(k: KernelEmitter, v: Dim) -> Dim:
    """Return a region's extent as a number or a plain name."""
    return v if isinstance(v, int) or v.isidentifier() else k.variable("valid", v)


# --- operands ------------------------------------------------------------------------------------


def convert_tile(tile: EmittedTile, to: DType) -> EmittedTile:
    """Convert a tile to the element type of the result."""
    if tile.dtype is to or element(tile.dtype).memory == element(to).memory:
        return tile
    source = tile.dtype

    def make(operands: Sequence[str], _: str) -> str:
        return cast_text(operands[0], source, to, "rint")

    return EmittedTile(tile.shape, to, tile.valid, Node(make, (tile,)))


def constant_tile(shape: tuple[int, ...], dtype: DType, text: str) -> EmittedTile:
    return EmittedTile(shape, dtype, shape, Node(lambda _, __: text))


def operand(k: KernelEmitter, arg: Arg, shape: tuple[int, ...], dtype: DType) -> EmittedTile:
    """Return an argument as an operand of a loop over `shape` on elements of `dtype`."""
    number = constant_of(arg)
    if number is not None:
        return constant_tile(shape, dtype, element(dtype).constant(number))
    assert isinstance(arg, Value)
    if not isinstance(arg.type, TileType):
        text = k.variable("s", element(dtype).from_scalar(k.scalar(arg)), element(dtype).number)
        return constant_tile(shape, dtype, text)
    return convert_tile(k.stored(arg), dtype)


def tiles_of(op: Op, names: Sequence[str]) -> list[str]:
    """Return the parameters that are given tiles."""
    found: list[str] = []
    for name in names:
        arg = op.args[name]
        if isinstance(arg, Value) and isinstance(arg.type, TileType):
            found.append(name)
    return found


Make = Callable[..., str]


def elementwise(
    k: KernelEmitter, op: Op, names: Sequence[str], make: Make, dtype: DType | None = None
) -> None:
    """Return the result of `make(element type, *operands)`, with operands converted to `dtype`."""
    t = k.tile_type(op.result)
    work = dtype or t.dtype
    operands = [operand(k, op.args[n], t.shape, work) for n in names]
    region = meet(k, t.shape, [k.tile(op.args[n]) for n in tiles_of(op, names)])
    e = element(work)
    node = Node(lambda texts, _: make(e, *texts), tuple(operands), op.loc)
    k.result(op, EmittedTile(t.shape, t.dtype, region, node))


# --- arithmetic ----------------------------------------------------------------------------------


def _infix(symbol: str) -> Make:
    def make(e: Element, a: str, b: str) -> str:
        text = f"{a} {symbol} {b}"
        return e.rounded(text) if e.is_float else f"({e.number})({text})"

    return make


def _divide(e: Element, a: str, b: str) -> str:
    return e.rounded(f"{a} / {b}") if e.is_float else f"ts_div_{e.suffix}({a}, {b})"


def _function(name: str, *, is_exact: bool = False) -> Make:
    """Declare a function of floats and of every integer type.

    is_exact: results of narrow floats are representable, so no rounding is needed
    """

    def make(e: Element, *operands: str) -> str:
        suffix = "f32" if e.is_float else e.suffix
        text = f"ts_{name}_{suffix}({', '.join(operands)})"
        return e.rounded(text) if e.is_float and not is_exact else text

    return make


_TWO: dict[str, Make] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _divide,
    "rem": _function("rem"),
    "fmod": _function("fmod"),
    "maximum": _function("max", is_exact=True),
    "minimum": _function("min", is_exact=True),
    "and_": _infix("&"),
    "or_": _infix("|"),
    "xor": _infix("^"),
    "shl": _function("shl"),
    "shr": _function("shr"),
}
# Aliases.
_SAME = {
    "adds": "add", "subs": "sub", "muls": "mul", "divs": "div", "rems": "rem", "fmods": "fmod",
    "maximums": "maximum", "minimums": "minimum",
    "ands": "and_", "ors": "or_", "xors": "xor", "shls": "shl", "shrs": "shr",
}  # fmt: skip
_EXPANDED: dict[str, Make] = {
    "add": _TWO["add"],
    "sub": _TWO["sub"],
    "mul": _TWO["mul"],
    "div": _TWO["div"],
    "max": _TWO["maximum"],
    "min": _TWO["minimum"],
}


@emits(*_TWO, *_SAME)
def emit_two(k: KernelEmitter, op: Op) -> None:
    make, cleared = _TWO[_SAME.get(op.name, op.name)], cleared_operand(op)
    if cleared and element(k.tile_type(op.result).dtype).is_float:
        make = _clear_undefined(make, 0 if cleared == "lhs" else 1)
    elementwise(k, op, ("lhs", "rhs"), make)


def _clear_undefined(make: Make, at: int) -> Make:
    def cleared(e: Element, *operands: str) -> str:
        return f"ts_zero_if_undefined({operands[at]}, {make(e, *operands)})"

    return cleared


@emits(*(f"row_expand_{n}" for n in _EXPANDED), *(f"col_expand_{n}" for n in _EXPANDED))
def emit_expanded(k: KernelEmitter, op: Op) -> None:
    axis, _, name = op.name.split("_")
    elementwise(k, op, ("x", f"{axis}_vec"), _EXPANDED[name])


def _negate(e: Element, x: str) -> str:
    return f"-{x}" if e.is_float else f"ts_neg_{e.suffix}({x})"


def _invert(e: Element, x: str) -> str:
    return f"!{x}" if e.dtype is dtypes.BOOL else f"({e.number})~{x}"


def _reciprocal(e: Element, x: str) -> str:
    return e.rounded(f"1.0f / {x}")


_ONE: dict[str, Make] = {
    "neg": _negate,
    "abs": _function("abs", is_exact=True),
    "relu": _function("relu", is_exact=True),
    "exp": _function("exp"),
    "log": _function("log"),
    "sin": _function("sin"),
    "cos": _function("cos"),
    "sqrt": _function("sqrt"),
    "rsqrt": _function("rsqrt"),
    "recip": _reciprocal,
    "not_": _invert,
}


@emits(*_ONE)
def emit_one(k: KernelEmitter, op: Op) -> None:
    # Functions of integers return FP32: the operand is first converted with `rint`.
    elementwise(k, op, ("x",), _ONE[op.name])


def _leaky(e: Element, x: str, slope: str) -> str:
    return f"{x} > 0.0f ? {x} : {e.rounded(f'{x} * {slope}')}"


@emits("lrelu", "prelu")
def emit_leaky(k: KernelEmitter, op: Op) -> None:
    elementwise(k, op, ("x", "slope"), _leaky)


define_elementwise([*_TWO, *_SAME, "cmp", "cmps"], lambda _: ("lhs", "rhs"))
define_elementwise(list(_ONE), lambda _: ("x",))
define_elementwise(["lrelu", "prelu"], lambda _: ("x", "slope"))
define_elementwise(["sel"], lambda _: ("mask", "lhs", "rhs"))
define_elementwise(["sels"], lambda _: ("mask", "x", "scalar"))
for _axis in ("row", "col"):
    define_elementwise(
        [f"{_axis}_expand_{n}" for n in _EXPANDED], lambda name: ("x", f"{name[:3]}_vec")
    )


# --- comparison and selection --------------------------------------------------------------------

_SYMBOLS = {
    CmpType.EQ: "==",
    CmpType.NE: "!=",
    CmpType.LT: "<",
    CmpType.LE: "<=",
    CmpType.GT: ">",
    CmpType.GE: ">=",
}


@emits("cmp", "cmps")
def emit_cmp(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    kinds: list[DType] = [op.args[n].type.dtype for n in tiles_of(op, ("lhs", "rhs"))]  # type: ignore[union-attr]
    work = kinds[0] if len(kinds) == 1 else dtypes.promote(*kinds)
    symbol = _SYMBOLS[comparison(op.args["cmp_type"])]  # type: ignore[arg-type]
    number = element(t.dtype).number

    def compared(_: Element, a: str, b: str) -> str:
        return f"({number})({a} {symbol} {b})"

    elementwise(k, op, ("lhs", "rhs"), compared, work)


@emits("sel", "sels")
def emit_sel(k: KernelEmitter, op: Op) -> None:
    chosen = ("lhs", "rhs") if op.name == "sel" else ("x", "scalar")
    t = k.tile_type(op.result)
    mask = k.stored(op.args["mask"])
    operands = [mask, *(operand(k, op.args[n], t.shape, t.dtype) for n in chosen)]
    given = [mask, *(k.tile(op.args[n]) for n in tiles_of(op, chosen))]

    def make(texts: Sequence[str], _: str) -> str:
        return f"{texts[0]} != 0 ? {texts[1]} : {texts[2]}"

    region = meet(k, t.shape, given)
    k.result(op, EmittedTile(t.shape, t.dtype, region, Node(make, tuple(operands), op.loc)))


# --- casts ---------------------------------------------------------------------------------------


def _mode(mode: str, meaning_of_none: str) -> str:
    return f"TL_{(meaning_of_none if mode == 'none' else mode).upper()}"


def cast_text(x: str, source: DType, to: DType, mode: str) -> str:
    """Convert `x`, a number of type `source`, to `to` by the rules of `numerics/casts.py`."""
    assert mode in MODES
    into = element(to)
    if to is dtypes.BOOL:
        return f"({x} != 0)"
    if source.is_float:
        if to.is_float:
            return into.rounded(x, _mode(mode, "rint"))
        return f"ts_f32_to_{into.suffix}({x}, {_mode(mode, 'trunc')})"
    if not to.is_float:
        return saturate(x, source, to)
    rounding = _mode(mode, "rint")
    exact = (
        source is dtypes.BOOL or source.bits <= 16 or (to is dtypes.FP32 and rounding == "TL_RINT")
    )
    if exact:
        return into.rounded(f"(float){x}", rounding)
    wide = "ts_i32_to_f32" if source.bits <= 32 else "ts_i64_to_f32"
    wide = wide if source.is_signed else "ts_u64_to_f32"
    if to is dtypes.FP32:
        return f"{wide}({x}, {rounding})"
    # Round to odd first, which keeps the second rounding correct.
    return into.rounded(f"{wide}({x}, TL_ODD)", rounding)


@emits("cast")
def emit_cast(k: KernelEmitter, op: Op) -> None:
    x = k.tile(op.args["x"])
    t = k.tile_type(op.result)
    mode = mode_name(op.args["mode"])  # type: ignore[arg-type]
    source = x.dtype

    def make(texts: Sequence[str], _: str) -> str:
        return cast_text(texts[0], source, t.dtype, mode)

    k.result(op, EmittedTile(t.shape, t.dtype, x.valid, Node(make, (x,), op.loc)))


# --- constants and stretched vectors -------------------------------------------------------------


@emits("full")
def emit_full(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    number = constant_of(op.args["value"])
    assert number is not None
    k.result(op, constant_tile(t.shape, t.dtype, element(t.dtype).constant(number)))


@emits("arange")
def emit_ramp(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    start, c_type = k.scalar(op.args["start"]), element(t.dtype).number
    sign = "-" if op.args["descending"] else "+"

    def make(_: Sequence[str], index: str) -> str:
        return f"({c_type})((uint64_t)({start}) {sign} (uint64_t)({index}))"

    k.result(op, EmittedTile(t.shape, t.dtype, t.shape, Node(make, (), op.loc, uses_index=True)))


def _emit_expand(
    k: KernelEmitter, op: Op, source: EmittedTile, given: Sequence[EmittedTile]
) -> None:
    t = k.tile_type(op.result)
    region = meet(k, t.shape, given)
    node = Node(lambda texts, _: texts[0], (source,), op.loc)
    k.result(op, EmittedTile(t.shape, t.dtype, region, node))


@emits("col_expand")
def emit_col_expand(k: KernelEmitter, op: Op) -> None:
    vector = k.stored(op.args["col_vec"])
    _emit_expand(k, op, vector, [k.tile(op.args["target"]), vector])


@emits("row_expand")
def emit_row_expand(k: KernelEmitter, op: Op) -> None:
    if op.args["row_vec"] is not None:
        vector = k.stored(op.args["row_vec"])
        _emit_expand(k, op, vector, [k.tile(op.args["target"]), vector])
        return
    whole = k.stored(op.args["target"])
    column = EmittedTile(
        (*whole.shape[:-1], 1),
        whole.dtype,
        (*whole.valid[:-1], lesser(whole.valid[-1], 1)),
        whole.form,
    )
    _emit_expand(k, op, column, [column])


@emits("expand_clone")
def emit_expand_clone(k: KernelEmitter, op: Op) -> None:
    source = k.stored(op.args["src"])
    _emit_expand(k, op, source, [source])


@emits("expands")
def emit_expands(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    filled = operand(k, op.args["scalar"], t.shape, t.dtype)
    k.result(op, EmittedTile(t.shape, t.dtype, k.tile(op.args["target"]).valid, filled.form))


@emits("move")
def emit_move(k: KernelEmitter, op: Op) -> None:
    """Return the same value: the CPU does not distinguish on-chip memories."""
    k.result(op, k.tile(op.args["tile"]))
