"""Decode attention over a paged cache with grouped queries."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

BATCH, KV_HEADS, GROUP, DIM, PAGE, PAGES = 3, 2, 16, 32, 32, 4
HEADS, POOL, SCALE = KV_HEADS * GROUP, BATCH * PAGES, DIM**-0.5


@pl.jit
def kernel(
    q: pl.Tensor[[BATCH * HEADS, DIM], pl.FP32],
    keys: pl.Tensor[[POOL * KV_HEADS * PAGE, DIM], pl.FP32],
    values: pl.Tensor[[POOL * KV_HEADS * PAGE, DIM], pl.FP32],
    table: pl.Tensor[[BATCH, PAGES], pl.INT32],
    lengths: pl.Tensor[[BATCH], pl.INT32],
    out: pl.Out[pl.Tensor[[BATCH * HEADS, DIM], pl.FP32]],
):
    for b in pl.parallel(BATCH):
        for g in pl.parallel(KV_HEADS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="decode"):
                length = pl.read(lengths, [b])
                first = b * HEADS + g * GROUP
                query = pl.mul(q[first : first + GROUP, :], SCALE)
                acc = pl.full([GROUP, DIM], dtype=pl.FP32, value=0.0)
                total = pl.reshape(pl.full([1, GROUP], dtype=pl.FP32, value=0.0), [GROUP, 1])
                top = pl.reshape(pl.full([1, GROUP], dtype=pl.FP32, value=-1e30), [GROUP, 1])
                for i in pl.range((length + PAGE - 1) // PAGE):
                    page = pl.read(table, [b, i])
                    row = (page * KV_HEADS + g) * PAGE
                    left = pl.min(PAGE, length - i * PAGE)
                    k = pl.slice(keys, [PAGE, DIM], [row, 0], valid_shape=[left, DIM])
                    v = pl.slice(values, [PAGE, DIM], [row, 0], valid_shape=[left, DIM])
                    v = pl.fillpad(v)
                    raw = pl.matmul(query, k, b_trans=True, out_dtype=pl.FP32)
                    known = pl.tensor.set_validshape(raw, GROUP, left)
                    scores = pl.fillpad(known, pad_value=pl.PadValue.min)
                    top_new = pl.maximum(top, pl.row_max(scores))
                    decay = pl.exp(pl.sub(top, top_new))
                    p = pl.exp(pl.row_expand_sub(scores, top_new))
                    total = pl.add(pl.mul(total, decay), pl.row_sum(p))
                    acc = pl.row_expand_mul(acc, decay)
                    acc = pl.add(acc, pl.matmul(p, v, out_dtype=pl.FP32))
                    top = top_new
                out[first : first + GROUP, :] = pl.row_expand_div(acc, total)
    return out


def golden(tensors: dict[str, Any]) -> None:
    shape = (POOL, KV_HEADS, PAGE, DIM)
    keys, values = (tensors[n].astype(np.float64).reshape(shape) for n in ("keys", "values"))
    q = tensors["q"].astype(np.float64).reshape(BATCH, KV_HEADS, GROUP, DIM)
    out = tensors["out"].reshape(BATCH, KV_HEADS, GROUP, DIM)
    for b in range(BATCH):
        n = int(tensors["lengths"][b])
        for h in range(KV_HEADS):
            k = keys[tensors["table"][b], h].reshape(-1, DIM)[:n]
            v = values[tensors["table"][b], h].reshape(-1, DIM)[:n]
            scores = q[b, h] @ k.T / np.sqrt(DIM)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[b, h] = weights @ v


RNG = np.random.default_rng
ROWS, PLACES = BATCH * HEADS, POOL * KV_HEADS * PAGE
SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.FP32, lambda: RNG(1).normal(0, 1.5, (ROWS, DIM))),
    TensorSpec("keys", [PLACES, DIM], pl.FP32, lambda: RNG(2).normal(0, 1.5, (PLACES, DIM))),
    TensorSpec("values", [PLACES, DIM], pl.FP32, lambda: RNG(3).normal(0, 1.5, (PLACES, DIM))),
    TensorSpec("table", [BATCH, PAGES], pl.INT32, RNG(4).permutation(POOL).reshape(BATCH, -1)),
    TensorSpec("lengths", [BATCH], pl.INT32, np.array([20, 64, 90])),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "stale maximum": ("pl.row_expand_sub(scores, top_new)", "pl.row_expand_sub(scores, top)"),
    "maximum not carried": ("top = top_new", "top = pl.row_max(scores)"),
    "page bound": ("(length + PAGE - 1) // PAGE", "length // PAGE"),
    "stale page": ("pl.read(table, [b, i])", "pl.read(table, [b, 0])"),
    "swapped indices": ("pl.read(table, [b, i])", "pl.read(table, [i, b])"),
    "wrong head": ("(page * KV_HEADS + g) * PAGE", "(page * KV_HEADS + 0) * PAGE"),
    "no tail mask": (
        "pl.tensor.set_validshape(raw, GROUP, left)",
        "pl.tensor.set_validshape(raw, GROUP, PAGE)",
    ),
    "pad value": ("pad_value=pl.PadValue.min", "pad_value=pl.PadValue.zero"),
    "tail length": ("length - i * PAGE", "length - i * PAGE - 1"),
    "rescale missing": ("pl.mul(total, decay)", "total"),
    "decay inverted": ("pl.sub(top, top_new)", "pl.sub(top_new, top)"),
    "scale twice": ("b_trans=True, out_dtype=pl.FP32)", "b_trans=True, out_dtype=pl.FP32) * SCALE"),
    "query row": ("first = b * HEADS + g * GROUP", "first = b * HEADS + g"),
}
