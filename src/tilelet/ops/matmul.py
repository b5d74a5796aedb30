"""Matrix products, computed by the cube.

Products are exact; each output element is accumulated over ascending k with one rounding per step,
in FP32 for floats and exactly in INT32 for INT8. The valid region has the rows of the left operand
and the columns of the right one; k runs over the valid part of both.
"""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import (
    AccumulatorMismatch,
    InnerDimMismatch,
    ShapeMismatch,
    WrongMemorySpace,
)
from tilelet.diag.catalogue.unsupported import UnsupportedKeyword
from tilelet.dtypes import BF16, BOOL, FP16, FP32, INT8, INT32, Array, DType
from tilelet.ir.core import scalar_dtype
from tilelet.ir.spec import Call, Engine, OpFields, Plane, Shape, Trait, op
from tilelet.ir.types import Mem, TileType
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Shaped

__all__ = [
    "batch_matmul",
    "gemv",
    "gemv_acc",
    "gemv_bias",
    "matmul",
    "matmul_acc",
    "matmul_bias",
]

_OPERANDS = (FP32, FP16, BF16, INT8)
_REACHABLE = {"lhs": (Mem.Left, Mem.Mat, Mem.Vec), "rhs": (Mem.Right, Mem.Mat, Mem.Vec)}


# --- types ---------------------------------------------------------------------------------------


def _product(call: Call) -> tuple[Shape, DType, Mem | None]:
    """Return the shape of the product, its accumulation type, and its memory."""
    lhs, rhs = infer.tile(call, "lhs"), infer.tile(call, "rhs")
    for param, operand in (("lhs", lhs), ("rhs", rhs)):
        infer.at_least_2d(call, param, operand)
        infer.check_dtype(call, param, operand.dtype, _OPERANDS, "cast it first")
        _check_space(call, param, operand)
    infer.same_dtype(call, "lhs", lhs.dtype, "rhs", rhs.dtype)
    a_trans, b_trans = _is_transposed(call, "a_trans"), _is_transposed(call, "b_trans")
    rows, inner = _swap_pair(lhs.shape[-2:], a_trans)
    other, columns = _swap_pair(rhs.shape[-2:], b_trans)
    if inner != other:
        flip = "a_trans" if "b_trans" in call.args and _would_fit(lhs, other, a_trans) else ""
        flip = "b_trans" if "b_trans" in call.args and _would_fit(rhs, inner, b_trans) else flip
        hint = f"is one of them stored transposed? `{flip}=True`" if flip else ""
        raise InnerDimMismatch(
            call.shown, call.at("lhs"), lhs.shape, inner, call.at("rhs"), rhs.shape, other, hint
        )
    shape = (*_batch(call, lhs, rhs), rows, columns)
    placed = Mem.Acc if lhs.space or rhs.space else None
    return shape, INT32 if lhs.dtype is INT8 else FP32, placed


def _is_transposed(call: Call, param: str) -> bool:
    return param in call.args and infer.flag(call, param)


def _swap_pair(pair: Shape, swap: bool) -> Shape:
    return pair[::-1] if swap else pair


def _would_fit(operand: TileType, inner: int, transposed: bool) -> bool:
    """Return whether the operand would have this inner dimension if transposed."""
    return not transposed and inner in operand.shape[-2:]


def _check_space(call: Call, param: str, operand: TileType) -> None:
    if operand.space is not None and operand.space not in _REACHABLE[param]:
        names = [space.name for space in _REACHABLE[param]]
        move = f"move it there: `pl.move(x, pl.Mem.{names[0]})`"
        raise WrongMemorySpace(
            call.at(param), call.shown, param, operand.space.name, names[:1], move
        )


def _batch(call: Call, lhs: TileType, rhs: TileType) -> Shape:
    try:
        return np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    except ValueError:
        raise ShapeMismatch(
            call.shown,
            call.at("lhs"),
            lhs.shape,
            call.at("rhs"),
            rhs.shape,
            "batch axes must be equal or 1",
        ) from None


def _infer_matmul(call: Call) -> infer.Types:
    shape, accumulated, placed = _product(call)
    if infer.flag(call, "c_matrix_nz"):
        why = "the result would be stored in fractal order"
        raise UnsupportedKeyword(call.at("c_matrix_nz"), call.shown, "c_matrix_nz", why)
    if call["out_dtype"] is None:
        # Placed tiles mean tile-level code, where the result has the accumulation type.
        own = accumulated if placed or accumulated is INT32 else infer.tile(call, "lhs").dtype
        return (TileType(shape, own, placed),)
    allowed = (INT32,) if accumulated is INT32 else (FP32, FP16, BF16)
    return (TileType(shape, infer.dtype(call, "out_dtype", allowed), placed),)


def _infer_plain(call: Call) -> infer.Types:
    shape, accumulated, placed = _product(call)
    own = accumulated if placed or accumulated is INT32 else infer.tile(call, "lhs").dtype
    return (TileType(shape, own, placed),)


def _infer_acc(call: Call) -> infer.Types:
    shape, accumulated, placed = _product(call)
    acc = infer.tile(call, "acc")
    if acc.space not in (None, Mem.Acc, Mem.Vec):
        raise WrongMemorySpace(
            call.at("acc"),
            call.shown,
            "acc",
            acc.space.name,
            ["Acc"],
            "pass the result of `pl.matmul`",
        )
    wanted = TileType(shape, accumulated)
    if acc.shape != shape or acc.dtype is not accumulated:
        raise AccumulatorMismatch(
            call.at("acc"), call.shown, infer.expects(acc), infer.expects(wanted)
        )
    condition = call.args.get("init_cond")
    if condition is not None and scalar_dtype(condition) is not BOOL:
        raise infer.bad(call, "init_cond", "a BOOL scalar such as `k == 0`")
    return (TileType(shape, accumulated, acc.space or placed),)


def _infer_bias(call: Call) -> infer.Types:
    shape, accumulated, placed = _product(call)
    bias = infer.tile(call, "bias")
    infer.same_dtype(
        call, "bias", bias.dtype, "lhs", accumulated, f"the bias must be {accumulated}"
    )
    wanted = (*(1 for _ in shape[:-1]), shape[-1])
    if bias.shape != wanted:
        why = f"`bias` must have shape `[{', '.join(map(str, wanted))}]`"
        raise ShapeMismatch(call.shown, call.at("bias"), bias.shape, call.at("rhs"), shape, why)
    return (TileType(shape, accumulated, placed),)


def _one_row(infer_product: Callable[[Call], infer.Types]) -> Callable[[Call], infer.Types]:
    """Return `infer` for a product with a one-row left operand."""

    def infer_types(call: Call) -> infer.Types:
        lhs = infer.tile(call, "lhs")
        infer.check_rank(call, "lhs", len(lhs.shape), 2)
        if lhs.shape[0] != 1:
            raise ShapeMismatch(
                call.shown,
                call.at("lhs"),
                lhs.shape,
                call.at("rhs"),
                infer.tile(call, "rhs").shape,
                "`lhs` must be one row `[1, K]`",
            )
        return infer_product(call)

    return infer_types


# --- references ----------------------------------------------------------------------------------


def _multiply(
    lhs: Array, rhs: Array, a_trans: bool = False, b_trans: bool = False, acc: Array | None = None
) -> Array:
    """Multiply the valid parts; k runs over the valid part of both operands."""
    a = np.swapaxes(lhs, -1, -2) if a_trans else lhs
    b = np.swapaxes(rhs, -1, -2) if b_trans else rhs
    inner = min(a.shape[-1], b.shape[-2])
    return numerics.matmul(a[..., :inner], b[..., :inner, :], acc)


def _matmul(
    lhs: Array,
    rhs: Array,
    out_dtype: DType | None,
    a_trans: bool,
    b_trans: bool,
    c_matrix_nz: bool,
    result_type: TileType,
) -> Array:
    product = _multiply(lhs, rhs, a_trans, b_trans)
    return product.astype(result_type.dtype.numpy, copy=False)


def _plain_product(lhs: Array, rhs: Array, result_type: TileType) -> Array:
    return _multiply(lhs, rhs).astype(result_type.dtype.numpy, copy=False)


def _accumulate(
    acc: Array,
    lhs: Array,
    rhs: Array,
    a_trans: bool = False,
    b_trans: bool = False,
    init_cond: bool | None = None,
) -> Array:
    if init_cond:
        return _multiply(lhs, rhs, a_trans, b_trans)
    rows = min(acc.shape[-2], lhs.shape[-1 if a_trans else -2])
    columns = min(acc.shape[-1], rhs.shape[-2 if b_trans else -1])
    lhs = lhs[..., :rows] if a_trans else lhs[..., :rows, :]
    rhs = rhs[..., :columns, :] if b_trans else rhs[..., :columns]
    return _multiply(lhs, rhs, a_trans, b_trans, acc[..., :rows, :columns])


def _with_bias(lhs: Array, rhs: Array, bias: Array) -> Array:
    start = np.zeros((*lhs.shape[:-1], rhs.shape[-1]), bias.dtype)
    columns = min(bias.shape[-1], rhs.shape[-1])
    start[..., :columns] = bias[..., :columns]
    return _multiply(lhs, rhs, acc=start)


_CUBE: OpFields = {"engine": Engine.CUBE, "plane": Plane.SCOPE, "cut_to_valid": True}


@op(
    infer=_infer_matmul,
    reference=_matmul,
    valid=valid.product,
    takes_result_type=True,
    traits=Trait.GEMM,
    family=_CUBE,
)
def matmul(
    lhs: Shaped,
    rhs: Shaped,
    out_dtype: DType | None = None,
    a_trans: bool = False,
    b_trans: bool = False,
    c_matrix_nz: bool = False,
) -> Shaped:
    """Matrix product.

    lhs: `[M, K]`, or stored as `[K, M]` with a_trans; rhs: `[K, N]`, or `[N, K]` with b_trans.
        Both FP32, FP16, BF16 or INT8. Leading batch axes broadcast
    out_dtype: dtype of the result; default the operands' own, INT32 for INT8, and FP32 for tiles
        with explicit placement
    a_trans, b_trans: whether an operand is stored transposed (free on the device)
    c_matrix_nz: not supported
    result: `[M, N]`, accumulated in FP32 (INT32) and rounded to nearest even at the end

    Example: `acc = pl.matmul(x, w, out_dtype=pl.FP32)`
    """
    ...


@op(
    infer=_infer_acc,
    reference=_accumulate,
    valid=valid.accumulated,
    traits=Trait.GEMM,
    replaces="acc",
    family=_CUBE,
)
def matmul_acc(
    acc: Shaped,
    lhs: Shaped,
    rhs: Shaped,
    a_trans: bool = False,
    b_trans: bool = False,
    init_cond: bool | None = None,
) -> Shaped:
    """Matrix product added to an accumulator: `acc + lhs @ rhs`, continued over k.

    acc: `[M, N]` FP32 for float operands, INT32 for INT8
    lhs, rhs, a_trans, b_trans: as in `pl.matmul`
    init_cond: if given and true, `acc` is not read and the result is the product alone
    result: a new value of acc's shape and dtype; splitting K over calls does not change the result

    Example: `acc = pl.matmul_acc(acc, x, w, init_cond=k == 0)`
    """
    ...


@op(infer=_infer_bias, reference=_with_bias, valid=valid.product, family=_CUBE)
def matmul_bias(lhs: Shaped, rhs: Shaped, bias: Shaped) -> Shaped:
    """Matrix product plus a bias row: `bias + lhs @ rhs`.

    lhs: `[M, K]`; rhs: `[K, N]`; bias: `[1, N]`, FP32 for float operands, INT32 for INT8
    result: `[M, N]` of the bias's dtype

    Example: `y = pl.matmul_bias(x, w, b)`
    """
    ...


@op(
    infer=_one_row(_infer_plain),
    reference=_plain_product,
    valid=valid.product,
    takes_result_type=True,
    traits=Trait.ONE_ROW,
    family=_CUBE,
)
def gemv(lhs: Shaped, rhs: Shaped) -> Shaped:
    """One row times a matrix.

    lhs: `[1, K]`; rhs: `[K, N]`; dtypes as in `pl.matmul`
    result: `[1, N]`; its dtype as in `pl.matmul` without out_dtype

    Example: `y = pl.gemv(x, w)`
    """
    ...


@op(
    infer=_one_row(_infer_acc),
    reference=_accumulate,
    valid=valid.accumulated,
    traits=Trait.ONE_ROW,
    replaces="acc",
    family=_CUBE,
)
def gemv_acc(acc: Shaped, lhs: Shaped, rhs: Shaped) -> Shaped:
    """One row times a matrix, added to an accumulator.

    acc: `[1, N]` FP32 (INT32 for INT8); lhs: `[1, K]`; rhs: `[K, N]`
    result: a new value of acc's shape and dtype

    Example: `acc = pl.gemv_acc(acc, x, w)`
    """
    ...


@op(
    infer=_one_row(_infer_bias),
    reference=_with_bias,
    valid=valid.product,
    traits=Trait.ONE_ROW,
    family=_CUBE,
)
def gemv_bias(lhs: Shaped, rhs: Shaped, bias: Shaped) -> Shaped:
    """One row times a matrix, plus a bias row.

    lhs: `[1, K]`; rhs: `[K, N]`; bias: `[1, N]` FP32 (INT32 for INT8)
    result: `[1, N]` of the bias's dtype

    Example: `y = pl.gemv_bias(x, w, b)`
    """
    ...


@op(
    infer=_infer_plain,
    reference=_plain_product,
    valid=valid.product,
    takes_result_type=True,
    family=_CUBE,
)
def batch_matmul(lhs: Shaped, rhs: Shaped) -> Shaped:
    """Matrix products over leading batch axes, which broadcast.

    lhs: `[..., M, K]`; rhs: `[..., K, N]`; dtypes as in `pl.matmul`
    result: `[..., M, N]`; its dtype as in `pl.matmul` without out_dtype

    Example: `scores = pl.batch_matmul(q, k)`
    """
    ...
