"""Cross entropy with smoothed labels and its gradient, over blocks of the vocabulary."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, HIDDEN, VOCAB, BLOCK, TILE = 32, 32, 112, 32, 16
SMOOTH = 0.1


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
    head: pl.Tensor[[VOCAB, HIDDEN], pl.FP32],
    labels: pl.Tensor[[ROWS], pl.INT32],
    weights: pl.Tensor[[ROWS, 1], pl.FP32],
    loss: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
    grad: pl.Out[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
):
    logits = pl.create_tensor([ROWS, VOCAB], dtype=pl.FP32)
    totals = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="forward"):
            rows = x[r : r + TILE, :]
            top = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=-1e30), [TILE, 1])
            mass = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            flat = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
            for c in pl.range(0, VOCAB, BLOCK):
                count = pl.min(BLOCK, VOCAB - c)
                w = pl.slice(head, [BLOCK, HIDDEN], [c, 0], valid_shape=[count, HIDDEN])
                z = pl.matmul(rows, w, b_trans=True, out_dtype=pl.FP32)
                z = pl.set_validshape(z, TILE, count)
                logits = pl.assemble(logits, z, [r, c])
                flat = pl.add(flat, pl.row_sum(z))
                shown = pl.fillpad(z, pad_value=pl.PadValue.min)
                best = pl.maximum(top, pl.row_max(shown))
                e = pl.exp(pl.row_expand_sub(shown, best))
                mass = pl.add(pl.mul(mass, pl.exp(pl.sub(top, best))), pl.row_sum(e))
                top = best
            total = pl.add(pl.log(mass), top)
            totals[r : r + TILE, :] = total
            spread = pl.sub(total, pl.mul(flat, 1.0 / VOCAB))
            loss[r : r + TILE, :] = pl.mul(spread, SMOOTH)
    for r in pl.parallel(ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="label"):
            label = pl.read(labels, [r])
            z_label = pl.read(logits, [r, label])
            hard = pl.sub(totals[r : r + 1, :], z_label)
            both = pl.add(loss[r : r + 1, :], pl.mul(hard, 1 - SMOOTH))
            loss[r : r + 1, :] = pl.mul(both, weights[r : r + 1, :])
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="backward"):
            acc = pl.full([TILE, HIDDEN], dtype=pl.FP32, value=0.0)
            log_sum = totals[r : r + TILE, :]
            for c in pl.range(0, VOCAB, BLOCK):
                count = pl.min(BLOCK, VOCAB - c)
                here = pl.slice(logits, [TILE, BLOCK], [r, c], valid_shape=[TILE, count])
                p = pl.exp(pl.row_expand_sub(here, log_sum))
                p = pl.sub(p, SMOOTH / VOCAB)
                w = pl.slice(head, [BLOCK, HIDDEN], [c, 0], valid_shape=[count, HIDDEN])
                acc = pl.add(acc, pl.matmul(p, w, out_dtype=pl.FP32))
            for i in pl.range(TILE):
                target = pl.read(labels, [r + i])
                row = pl.mul(head[target : target + 1, :], 1 - SMOOTH)
                changed = pl.sub(acc[i : i + 1, :], row)
                share = pl.read(weights, [r + i, 0])
                grad[r + i : r + i + 1, :] = pl.mul(changed, share)
    return loss, grad


def golden(tensors: dict[str, Any]) -> None:
    x, head, weights = (tensors[n].astype(np.float64) for n in ("x", "head", "weights"))
    labels = tensors["labels"].astype(int)
    z = x @ head.T
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)
    target = np.full((ROWS, VOCAB), SMOOTH / VOCAB)
    target[np.arange(ROWS), labels] += 1 - SMOOTH
    tensors["loss"][:] = -(target * np.log(p)).sum(axis=1, keepdims=True) * weights
    tensors["grad"][:] = ((p - target) * weights) @ head


RNG = np.random.default_rng
SPECS = [
    TensorSpec("x", [ROWS, HIDDEN], pl.FP32, lambda: RNG(1).normal(0, 1, (ROWS, HIDDEN))),
    TensorSpec("head", [VOCAB, HIDDEN], pl.FP32, lambda: RNG(2).normal(0, 0.4, (VOCAB, HIDDEN))),
    TensorSpec("labels", [ROWS], pl.INT32, RNG(3).integers(0, VOCAB, ROWS)),
    TensorSpec("weights", [ROWS, 1], pl.FP32, lambda: RNG(4).uniform(0.2, 1.8, (ROWS, 1))),
    TensorSpec("loss", [ROWS, 1], pl.FP32, is_output=True),
    TensorSpec("grad", [ROWS, HIDDEN], pl.FP32, is_output=True),
]
TOLERANCE = 5e-4
FAULTS = {
    "block instead of vocabulary": (
        "spread = pl.sub(total, pl.mul(flat, 1.0 / VOCAB))",
        "spread = pl.sub(total, pl.mul(flat, 1.0 / BLOCK))",
    ),
    "padding counted": ("pad_value=pl.PadValue.min", "pad_value=pl.PadValue.zero"),
    "sum without the maximum": (
        "total = pl.add(pl.log(mass), top)",
        "total = pl.log(mass)",
    ),
    "mass not rescaled": (
        "mass = pl.add(pl.mul(mass, pl.exp(pl.sub(top, best))), pl.row_sum(e))",
        "mass = pl.add(mass, pl.row_sum(e))",
    ),
    "label of the first rows": (
        "target = pl.read(labels, [r + i])",
        "target = pl.read(labels, [i])",
    ),
    "label not smoothed": (
        "both = pl.add(loss[r : r + 1, :], pl.mul(hard, 1 - SMOOTH))",
        "both = pl.add(loss[r : r + 1, :], hard)",
    ),
    "smoothing not subtracted": ("p = pl.sub(p, SMOOTH / VOCAB)", "p = pl.sub(p, 0.0)"),
    "loss not weighted": (
        "loss[r : r + 1, :] = pl.mul(both, weights[r : r + 1, :])",
        "loss[r : r + 1, :] = both",
    ),
    "last block lost": (
        """            log_sum = totals[r : r + TILE, :]
            for c in pl.range(0, VOCAB, BLOCK):""",
        """            log_sum = totals[r : r + TILE, :]
            for c in pl.range(0, VOCAB - BLOCK, BLOCK):""",
    ),
    "gradient subtracted the other way": (
        "changed = pl.sub(acc[i : i + 1, :], row)",
        "changed = pl.sub(row, acc[i : i + 1, :])",
    ),
}
