"""One step of k-means: distances by a product, the nearest center, and the new means."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

POINTS, DIM, CENTERS, TILE = 48, 32, 16, 16
MOMENTUM = 0.9


@pl.jit
def kernel(
    points: pl.Tensor[[POINTS, DIM], pl.FP32],
    centers: pl.Tensor[[CENTERS, DIM], pl.FP32],
    numbers: pl.Tensor[[1, CENTERS], pl.FP32],
    counts: pl.InOut[pl.Tensor[[CENTERS, 1], pl.FP32]],
    sums: pl.InOut[pl.Tensor[[CENTERS, DIM], pl.FP32]],
    chosen: pl.Out[pl.Tensor[[POINTS, DIM], pl.FP32]],
    moved: pl.Out[pl.Tensor[[CENTERS, DIM], pl.FP32]],
):
    hot = pl.create_tensor([POINTS, CENTERS], dtype=pl.FP32)
    for r in pl.parallel(0, POINTS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="assign"):
            x = points[r : r + TILE, :]
            c = centers[:, :]
            cross = pl.matmul(x, c, b_trans=True, out_dtype=pl.FP32)
            norms = pl.reshape(pl.row_sum(pl.mul(c, c)), [1, CENTERS])
            own = pl.row_sum(pl.mul(x, x))
            far = pl.col_expand_add(pl.mul(cross, -2.0), norms)
            far = pl.row_expand_add(far, own)
            least = pl.row_min(far)
            above = pl.row_expand_sub(far, least)
            near = pl.cmp(above, 0.0, cmp_type="le")
            ones = pl.full([TILE, CENTERS], dtype=pl.FP32, value=1.0)
            mine = pl.sel(near, ones, pl.full([TILE, CENTERS], dtype=pl.FP32, value=0.0))
            hot[r : r + TILE, :] = mine
            chosen[r : r + TILE, :] = pl.matmul(mine, c, out_dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="update"):
        total = pl.full([CENTERS, DIM], dtype=pl.FP32, value=0.0)
        members = pl.full([1, CENTERS], dtype=pl.FP32, value=0.0)
        for r in pl.range(0, POINTS, TILE):
            one_hot = hot[r : r + TILE, :]
            x_tile = points[r : r + TILE, :]
            part = pl.matmul(one_hot, x_tile, a_trans=True, out_dtype=pl.FP32)
            total = pl.add(total, part)
            members = pl.add(members, pl.col_sum(one_hot))
        number = pl.reshape(members, [CENTERS, 1])
        count = pl.add(pl.mul(counts[:, :], MOMENTUM), pl.mul(number, 1 - MOMENTUM))
        summed = pl.add(pl.mul(sums[:, :], MOMENTUM), pl.mul(total, 1 - MOMENTUM))
        counts[:, :] = count
        sums[:, :] = summed
        whole = pl.col_sum(count)
        smooth = pl.add(count, 1e-2)
        rest = pl.recip(pl.add(whole, 1e-2 * CENTERS))
        share = pl.mul(smooth, pl.read(rest, [0, 0]))
        size = pl.mul(share, pl.read(whole, [0, 0]))
        moved[:, :] = pl.row_expand_div(summed, size)
    return counts, sums, chosen, moved


def golden(tensors: dict[str, Any]) -> None:
    x, c = tensors["points"].astype(np.float64), tensors["centers"].astype(np.float64)
    distances = np.linalg.norm(x[:, None, :] - c[None, :, :], axis=2)
    nearest = distances.argmin(axis=1)
    tensors["chosen"][:] = c[nearest]
    count = np.bincount(nearest, minlength=CENTERS)[:, None].astype(np.float64)
    total = np.zeros((CENTERS, DIM))
    np.add.at(total, nearest, x)
    count = tensors["counts"] * MOMENTUM + count * (1 - MOMENTUM)
    total = tensors["sums"] * MOMENTUM + total * (1 - MOMENTUM)
    tensors["counts"][:], tensors["sums"][:] = count, total
    n = count.sum()
    tensors["moved"][:] = total / ((count + 1e-2) / (n + CENTERS * 1e-2) * n)


RNG = np.random.default_rng
SPECS = [
    TensorSpec("points", [POINTS, DIM], pl.FP32, lambda: RNG(1).normal(0, 1, (POINTS, DIM))),
    TensorSpec("centers", [CENTERS, DIM], pl.FP32, lambda: RNG(2).normal(0, 1, (CENTERS, DIM))),
    TensorSpec("numbers", [1, CENTERS], pl.FP32, np.arange(CENTERS, dtype=np.float32)[None]),
    TensorSpec(
        "counts", [CENTERS, 1], pl.FP32, lambda: RNG(3).uniform(1, 5, (16, 1)), is_output=True
    ),
    TensorSpec(
        "sums", [CENTERS, DIM], pl.FP32, lambda: RNG(4).normal(0, 2, (16, DIM)), is_output=True
    ),
    TensorSpec("chosen", [POINTS, DIM], pl.FP32, is_output=True),
    TensorSpec("moved", [CENTERS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "cross term once": ("pl.mul(cross, -2.0)", "pl.mul(cross, -1.0)"),
    "farthest center": (
        """least = pl.row_min(far)
            above = pl.row_expand_sub(far, least)
            near = pl.cmp(above, 0.0, cmp_type="le")""",
        """least = pl.row_max(far)
            above = pl.row_expand_sub(far, least)
            near = pl.cmp(above, 0.0, cmp_type="ge")""",
    ),
    "nearest inverted": ('cmp_type="le"', 'cmp_type="gt"'),
    "norms not squared": (
        "norms = pl.reshape(pl.row_sum(pl.mul(c, c)), [1, CENTERS])",
        "norms = pl.reshape(pl.row_sum(c), [1, CENTERS])",
    ),
    "first points only": (
        "one_hot = hot[r : r + TILE, :]",
        "one_hot = hot[0:TILE, :]",
    ),
    "members overwritten": (
        "members = pl.add(members, pl.col_sum(one_hot))",
        "members = pl.col_sum(one_hot)",
    ),
    "momentum for both": (
        "pl.mul(total, 1 - MOMENTUM)",
        "pl.mul(total, MOMENTUM)",
    ),
    "raw number of members": (
        "smooth = pl.add(count, 1e-2)",
        "smooth = pl.add(number, 1e-2)",
    ),
    "points chosen": (
        "chosen[r : r + TILE, :] = pl.matmul(mine, c, out_dtype=pl.FP32)",
        "chosen[r : r + TILE, :] = pl.matmul(mine, x, out_dtype=pl.FP32)",
    ),
    "sum not smoothed": (
        "moved[:, :] = pl.row_expand_div(summed, size)",
        "moved[:, :] = pl.row_expand_div(total, size)",
    ),
}
