"""A product of rows quantized on the fly with INT8 weights, in blocks of the inner size."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

M, K, N, TILE, STEP, WIDTH = 32, 128, 64, 16, 64, 32


@pl.jit
def kernel(
    x: pl.Tensor[[M, K], pl.FP32],
    w: pl.Tensor[[K, N], pl.INT8],
    w_scale: pl.Tensor[[1, N], pl.FP32],
    bias: pl.Tensor[[1, N], pl.FP32],
    out: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
    codes = pl.create_tensor([M, K], dtype=pl.INT8)
    x_scale = pl.create_tensor([M, 1], dtype=pl.FP32)
    for r in pl.parallel(0, M, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="quantize"):
            tile = x[r : r + TILE, :]
            largest = pl.row_max(pl.maximum(tile, pl.neg(tile)))
            factor = pl.mul(pl.recip(largest), 127.0)
            scaled = pl.row_expand_mul(tile, factor)
            whole = pl.cast(scaled, pl.INT32, mode="rint")
            half = pl.cast(whole, pl.FP16, mode="round")
            codes[r : r + TILE, :] = pl.cast(half, pl.INT8, mode="trunc")
            x_scale[r : r + TILE, :] = pl.recip(factor)
    for r in pl.parallel(0, M, TILE):
        for n in pl.parallel(0, N, WIDTH):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="multiply"):
                acc = pl.full([TILE, WIDTH], dtype=pl.INT32, value=0)
                for k in pl.range(0, K, STEP):
                    a = codes[r : r + TILE, k : k + STEP]
                    b = w[k : k + STEP, n : n + WIDTH]
                    acc = pl.add(acc, pl.matmul(a, b, out_dtype=pl.INT32))
                wide = pl.cast(acc, pl.FP32)
                rows = pl.row_expand_mul(wide, x_scale[r : r + TILE, :])
                columns = pl.col_expand_mul(rows, w_scale[:, n : n + WIDTH])
                result = pl.col_expand_add(columns, bias[:, n : n + WIDTH])
                out[r : r + TILE, n : n + WIDTH] = result
    return out


def golden(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    scale = np.abs(x).max(axis=1, keepdims=True) / 127.0
    codes = np.rint(x / scale)
    product = codes @ tensors["w"].astype(np.float64)
    tensors["out"][:] = product * scale * tensors["w_scale"] + tensors["bias"]


def rng(seed: int):
    return np.random.default_rng(seed)


SPECS = [
    TensorSpec("x", [M, K], pl.FP32, lambda: rng(1).normal(size=(M, K))),
    TensorSpec("w", [K, N], pl.INT8, lambda: rng(2).integers(-127, 128, (K, N))),
    TensorSpec("w_scale", [1, N], pl.FP32, lambda: rng(3).uniform(0.001, 0.01, (1, N))),
    TensorSpec("bias", [1, N], pl.FP32, lambda: rng(4).normal(size=(1, N))),
    TensorSpec("out", [M, N], pl.FP32, is_output=True),
]
TOLERANCE = 1e-3
FAULTS = {
    "truncated": (
        'pl.cast(scaled, pl.INT32, mode="rint")',
        'pl.cast(scaled, pl.INT32, mode="trunc")',
    ),
    "largest without sign": ("pl.row_max(pl.maximum(tile, pl.neg(tile)))", "pl.row_max(tile)"),
    "factor for scale": ("= pl.recip(factor)", "= factor"),
    "scale of the first rows": ("x_scale[r : r + TILE, :])", "x_scale[0:TILE, :])"),
    "scale of other columns": ("w_scale[:, n : n + WIDTH]", "w_scale[:, 0:WIDTH]"),
    "bias before the scale": (
        """pl.col_expand_mul(rows, w_scale[:, n : n + WIDTH])
                result = pl.col_expand_add(columns, bias[:, n : n + WIDTH])""",
        """pl.col_expand_add(rows, bias[:, n : n + WIDTH])
                result = pl.col_expand_mul(columns, w_scale[:, n : n + WIDTH])""",
    ),
    "wrong range": ("pl.recip(largest), 127.0)", "pl.recip(largest), 63.0)"),
    "lost block": ("pl.range(0, K, STEP)", "pl.range(STEP, K, STEP)"),
}
