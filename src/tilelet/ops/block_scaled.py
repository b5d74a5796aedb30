"""Block-scaled (MX) formats: 32 elements along k share one scale, a power of two (FP8E8M0).

In memory, scales have the layout that the cube of A5 expects: that of a parameter
`pl.Tensor[[M, K // 32], pl.FP8E8M0, pl.MX_A_ZZ]` (or `pl.MX_B_NN` of `[K // 32, N]`) or of
`pl.tensor.view(x, shape, layout=pl.MX_A_ZZ)`. `pl.load` of either returns them by row and column.
`pl.quant_mx` produces them in that layout.
"""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import BadChoice, InnerDimMismatch, ShapeMismatch
from tilelet.diag.catalogue.windows import IndexOutOfRange
from tilelet.dtypes import BF16, FP4, FP8E4M3FN, FP8E8M0, FP16, FP32, Array, DType
from tilelet.ir.spec import (
    Call,
    Cost,
    Engine,
    OpFields,
    Plane,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import Mem, TileType
from tilelet.numerics.block_scaled import GROUP, quantize
from tilelet.numerics.casts import widen
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Ints, Shaped
from tilelet.ops.broadcast import row_expand_mul, row_expand_sub
from tilelet.ops.cast import cast
from tilelet.ops.families import VECTOR
from tilelet.ops.valid import Args, Operands
from tilelet.syntax.enums import TensorLayout

if TYPE_CHECKING:
    from tilelet.syntax.types import Tensor, Tile

__all__ = [
    "load_scale", "matmul_mx", "matmul_mx_acc", "matmul_mx_bias", "mx_quant", "quant_mx",
    "tdequant", "tget_scale_addr", "tquant",
]  # fmt: skip

_BLOCK, _PAIR = 16, 2  # of the layouts: rows or columns per block, adjacent groups
LAYOUTS = ("MX_A_ZZ", "MX_B_NN")

_CUBE: OpFields = {
    "engine": Engine.CUBE,
    "plane": Plane.SCOPE,
    "cut_to_valid": True,
    "era": "HEAD",
}


# --- scales in memory ----------------------------------------------------------------------------


def unpack_scales(scales: Array, layout: str) -> Array:
    """Convert scales from an MX layout to row and column order."""
    rows, columns = scales.shape
    if layout == "MX_A_ZZ":
        blocks = scales.reshape(rows // _BLOCK, columns // _PAIR, _BLOCK, _PAIR)
        return blocks.transpose(0, 2, 1, 3).reshape(rows, columns)
    blocks = scales.reshape(columns // _BLOCK, rows // _PAIR, _BLOCK, _PAIR)
    return blocks.transpose(1, 3, 0, 2).reshape(rows, columns)


def pack_scales(scales: Array, layout: str) -> Array:
    """Convert scales from row and column order to an MX layout."""
    rows, columns = scales.shape
    if layout == "MX_A_ZZ":
        blocks = scales.reshape(rows // _BLOCK, _BLOCK, columns // _PAIR, _PAIR)
        return blocks.transpose(0, 2, 1, 3).reshape(rows, columns)
    blocks = scales.reshape(rows // _PAIR, _PAIR, columns // _BLOCK, _BLOCK)
    return blocks.transpose(2, 0, 3, 1).reshape(rows, columns)


def _infer_load(call: Call) -> infer.Types:
    tensor = infer.tensor(call, "tensor")
    infer.check_rank(call, "tensor", len(tensor.shape), 2)
    layout = call["layout"]
    if layout not in LAYOUTS:
        raise BadChoice(call.at("layout"), call.shown, "layout", layout, LAYOUTS)
    along = (_BLOCK, _PAIR) if layout == "MX_A_ZZ" else (_PAIR, _BLOCK)
    if any(isinstance(d, int) and d % n for d, n in zip(tensor.shape, along)):
        wanted = f"a multiple of {along[0]} rows and {along[1]} columns"
        raise infer.bad(call, "tensor", wanted)
    shape = infer.constant_shape(call, "shapes")
    starts = [infer.int_of(o) for o in infer.items(call, "offsets")]
    for axis, (start, size, extent) in enumerate(zip(starts, shape, tensor.shape)):
        if start is None:
            raise infer.bad(call, "offsets", "constants")
        if isinstance(extent, int) and not 0 <= start <= extent - size:
            raise IndexOutOfRange(call.at("offsets"), axis, start, extent, call["tensor"].name)
    return (TileType(shape, tensor.dtype, call["target_memory"]),)


def _load_scale(
    tensor: Array,
    offsets: tuple[int, ...],
    shapes: tuple[int, ...],
    target_memory: Mem,
    layout: str,
) -> Array:
    window = tuple(slice(o, o + n) for o, n in zip(offsets, shapes))
    return unpack_scales(tensor, layout)[window].copy()


def _whole_region(_: Operands, result_shape: Shape, __: Args) -> Valid:
    return result_shape


@op(
    infer=_infer_load,
    reference=_load_scale,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    on_chip=(),
    valid=_whole_region,
    era="HEAD",
    traits=Trait.LOAD | Trait.BY_INDEX,
)
def load_scale(
    tensor: Tensor,
    offsets: Ints,
    shapes: Ints,
    target_memory: Mem = Mem.Mat,
    layout: str = "MX_A_ZZ",
) -> Tile:
    """Load a window of scales stored in an MX layout, as `pl.load` of such a parameter does.

    tensor: `[M, K / 32]` in layout "MX_A_ZZ", or `[K / 32, N]` in "MX_B_NN"
    offsets, shapes: the window, by row and column
    target_memory: where the result goes
    result: a tile of the tensor's dtype

    Example: `s = pl.load_scale(a_scale, [0, 0], [64, 4], layout="MX_A_ZZ")`
    """
    ...


# --- quantization --------------------------------------------------------------------------------


def _infer_quant(call: Call) -> infer.Types:
    x, layout = infer.tile(call, "src"), call["layout"]
    infer.check_rank(call, "src", len(x.shape), 2)
    if not isinstance(layout, TensorLayout) or layout.name not in LAYOUTS:
        choices = tuple(TensorLayout[name] for name in LAYOUTS)
        raise BadChoice(call.at("layout"), call.shown, "layout", layout, choices)
    to = infer.dtype(call, "dtype", (FP8E4M3FN, FP4))
    infer.check_dtype(call, "src", x.dtype, (FP32, FP16, BF16) if to is FP8E4M3FN else (FP16, BF16))
    is_left = layout is TensorLayout.MX_A_ZZ
    (rows, inner), along = x.shape, _BLOCK if is_left else GROUP
    if rows % along or inner % (_PAIR * GROUP):
        wanted = f"a multiple of {along} rows and {_PAIR * GROUP} columns"
        raise infer.bad(call, "src", wanted)
    shape, scales = (rows, inner), (rows, inner // GROUP)
    space = infer.vector_space(call, "src")
    if not is_left:
        shape, scales = shape[::-1], scales[::-1]
    return (TileType(shape, to, space), TileType(scales, FP8E8M0, space))


def _quant_mx(src: Array, layout: TensorLayout, dtype: DType) -> tuple[Array, Array]:
    data, scales = quantize(src, dtype)
    if layout is TensorLayout.MX_B_NN:
        data, scales = data.T.copy(), scales.T
    return data, pack_scales(scales, layout.name)


@op(
    infer=_infer_quant,
    reference=_quant_mx,
    family=VECTOR,
    valid=_whole_region,
    era="HEAD",
    cost=Cost.ROW_REDUCE,
)
def quant_mx(src: Shaped, *, layout: TensorLayout, dtype: DType = FP8E4M3FN) -> Shaped:
    """Quantize in groups of 32 along k, each with a scale, for `pl.matmul_mx`.

    The scale is the power of two that maps the largest exponent of a group to that of `dtype`;
    values out of the range of `dtype` saturate. Computed in FP32.

    src: `[M, K]` for `pl.MX_A_ZZ` (M a multiple of 16), `[N, K]` for `pl.MX_B_NN` (N of 32), K a
        multiple of 64; FP32, FP16 or BF16. Elements outside its valid region count as zero
    layout: that of the left or the right operand
    dtype: FP8E4M3FN, or FP4 for FP16 and BF16
    result: two tiles: the elements, `[M, K]` or `[K, N]`, and the FP8E8M0 scales, `[M, K / 32]` or
        `[K / 32, N]`, in that layout: store them, and load them through a parameter or
        `pl.tensor.view` of that layout

    Example: `q, scale = pl.quant_mx(x, layout=pl.MX_A_ZZ)`
    """
    ...


_MODES = {
    "mxfp8_e4m3": FP8E4M3FN,
    "mxfp8": FP8E4M3FN,
    "mxfp4": FP4,
    "mxfp4_e2m1": FP4,
}


def _infer_tquant(call: Call) -> infer.Types:
    x, mode = infer.tile(call, "src"), call["mode"]
    infer.check_rank(call, "src", len(x.shape), 2)
    if mode not in _MODES:
        raise BadChoice(call.at("mode"), call.shown, "mode", mode, tuple(_MODES))
    to = _MODES[mode]
    infer.check_dtype(call, "src", x.dtype, (FP32, FP16, BF16) if to is FP8E4M3FN else (FP16, BF16))
    rows, inner = x.shape
    if inner % GROUP:
        raise infer.bad(call, "src", f"a multiple of {GROUP} columns")
    space = infer.vector_space(call, "src")
    return (TileType(x.shape, to, space), TileType((rows, inner // GROUP), FP8E8M0, space))


def _tquant(src: Array, mode: str) -> tuple[Array, Array]:
    return quantize(src, _MODES[mode])


@op(
    infer=_infer_tquant,
    reference=_tquant,
    family=VECTOR,
    valid=_whole_region,
    era="HEAD",
    cost=Cost.ROW_REDUCE,
)
def tquant(src: Shaped, *, mode: str = "mxfp8_e4m3") -> Shaped:
    """`pl.quant_mx` with the scales in row order: the spelling of July 2026, also `pl.mx_quant`.

    src: `[M, K]`, K a multiple of 32; FP32, FP16 or BF16. Elements outside its valid region count
        as zero
    mode: "mxfp8_e4m3" (also "mxfp8"), or "mxfp4" (also "mxfp4_e2m1") for FP16 and BF16
    result: two tiles: the elements `[M, K]`, and the FP8E8M0 scales `[M, K / 32]`

    Example: `q, scale = pl.tquant(x)`
    """
    ...


mx_quant = tquant


@composition(era="HEAD")
def tdequant(src: Shaped, scale: Shaped, offset: Shaped) -> Shaped:
    """`(src - offset) * scale`, row by row, in FP32.

    src: `[M, N]` of an integer type; scale, offset: `[M, 1]` FP32
    result: `[M, N]` FP32

    Example: `x = pl.tdequant(q, scale, zero)`
    """
    return row_expand_mul(row_expand_sub(cast(src, FP32), offset), scale)


@composition(engine=Engine.NONE, era="HEAD")
def tget_scale_addr(dst_scale: Shaped, src: Shaped) -> Shaped:
    """`dst_scale`: on a device it binds scales to the operand they belong to.

    dst_scale: scales; src: the elements that they scale
    result: dst_scale

    Example: `scale = pl.tget_scale_addr(scale, x)`
    """
    return dst_scale


# --- products ------------------------------------------------------------------------------------


def _product(call: Call) -> TileType:
    lhs, rhs = infer.tile(call, "lhs"), infer.tile(call, "rhs")
    for param, data in (("lhs", lhs), ("rhs", rhs)):
        infer.check_rank(call, param, len(data.shape), 2)
        infer.check_dtype(call, param, data.dtype, (FP8E4M3FN,), "cast it first")
    (rows, inner), (other, columns) = lhs.shape, rhs.shape
    if inner != other:
        raise InnerDimMismatch(
            call.shown, call.at("lhs"), lhs.shape, inner, call.at("rhs"), rhs.shape, other, ""
        )
    wanted = {"lhs_scale": (rows, inner // GROUP), "rhs_scale": (inner // GROUP, columns)}
    for param, shape in wanted.items():
        scale = infer.tile(call, param)
        infer.check_dtype(call, param, scale.dtype, (FP8E8M0,))
        if scale.shape != shape or inner % GROUP:
            why = f"one scale for {GROUP} elements along k: `[{shape[0]}, {shape[1]}]`"
            of = param.removesuffix("_scale")
            raise ShapeMismatch(
                call.shown,
                call.at(param),
                scale.shape,
                call.at(of),
                infer.tile(call, of).shape,
                why,
            )
    return TileType((rows, columns), FP32, Mem.Acc if lhs.space or rhs.space else None)


def _infer_plain(call: Call) -> infer.Types:
    return (_product(call),)


def _infer_acc(call: Call) -> infer.Types:
    product, acc = _product(call), infer.tile(call, "acc")
    infer.check_dtype(call, "acc", acc.dtype, (FP32,))
    infer.same_shape(call, "acc", acc, "lhs", product)
    return (TileType(product.shape, FP32, acc.space or product.space),)


def _infer_bias(call: Call) -> infer.Types:
    product, bias = _product(call), infer.tile(call, "bias")
    infer.check_dtype(call, "bias", bias.dtype, (FP32,))
    if bias.shape != (1, product.shape[1]):
        why = f"`bias` must have shape `[1, {product.shape[1]}]`"
        raise ShapeMismatch(
            call.shown, call.at("bias"), bias.shape, call.at("rhs"), product.shape, why
        )
    return (product,)


def _apply_scales(data: Array, scale: Array, axis: int) -> Array:
    repeated = np.repeat(widen(scale), GROUP, axis=axis)
    return widen(data) * repeated[: data.shape[0], : data.shape[1]]


def _matmul_mx(
    lhs: Array,
    lhs_scale: Array,
    rhs: Array,
    rhs_scale: Array,
    acc: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Scale the elements in FP32 and multiply as `pl.matmul` does."""
    a, b = _apply_scales(lhs, lhs_scale, 1), _apply_scales(rhs, rhs_scale, 0)
    inner = min(a.shape[1], b.shape[0])
    if bias is not None:
        acc = np.repeat(bias[:, : b.shape[1]], a.shape[0], axis=0)
    return numerics.matmul(a[:, :inner], b[:inner], acc)


@op(infer=_infer_plain, reference=_matmul_mx, valid=valid.product, family=_CUBE)
def matmul_mx(lhs: Shaped, lhs_scale: Shaped, rhs: Shaped, rhs_scale: Shaped) -> Shaped:
    """Matrix product of block-scaled operands.

    lhs: `[M, K]` FP8E4M3FN, K a multiple of 32; rhs: `[K, N]`. FP4 is cast to FP8E4M3FN first
    lhs_scale: `[M, K / 32]` FP8E8M0; rhs_scale: `[K / 32, N]`
    result: `[M, N]` FP32: the product of the elements, each times its scale in FP32

    Example: `acc = pl.matmul_mx(a, a_scale, b, b_scale)`
    """
    ...


@op(infer=_infer_acc, reference=_matmul_mx, valid=valid.accumulated, family=_CUBE)
def matmul_mx_acc(
    acc: Shaped, lhs: Shaped, lhs_scale: Shaped, rhs: Shaped, rhs_scale: Shaped
) -> Shaped:
    """`pl.matmul_mx` added to an accumulator.

    acc: `[M, N]` FP32; lhs, lhs_scale, rhs, rhs_scale: as in `pl.matmul_mx`
    result: acc's shape and dtype

    Example: `acc = pl.matmul_mx_acc(acc, a, a_scale, b, b_scale)`
    """
    ...


@op(infer=_infer_bias, reference=_matmul_mx, valid=valid.product, family=_CUBE)
def matmul_mx_bias(
    lhs: Shaped, lhs_scale: Shaped, rhs: Shaped, rhs_scale: Shaped, bias: Shaped
) -> Shaped:
    """`pl.matmul_mx` plus a bias row.

    bias: `[1, N]` FP32; lhs, lhs_scale, rhs, rhs_scale: as in `pl.matmul_mx`
    result: `[M, N]` FP32

    Example: `y = pl.matmul_mx_bias(a, a_scale, b, b_scale, bias)`
    """
    ...
