"""Decode attention over INT8 pages, each with a scale per head, split along the context."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

BATCH, KV, GROUP, DIM, PAGE, PAGES, SPLITS = 2, 2, 16, 32, 32, 6, 2
HEADS, POOL, PER = KV * GROUP, BATCH * PAGES + 1, PAGES // SPLITS
SCALE, PARTS = DIM**-0.5, BATCH * KV * SPLITS


@pl.jit
def kernel(
    q: pl.Tensor[[BATCH * HEADS, DIM], pl.FP32],
    keys: pl.Tensor[[POOL * KV * PAGE, DIM], pl.INT8],
    values: pl.Tensor[[POOL * KV * PAGE, DIM], pl.INT8],
    key_scale: pl.Tensor[[POOL, KV], pl.FP32],
    value_scale: pl.Tensor[[POOL, KV], pl.FP32],
    table: pl.Tensor[[BATCH, PAGES], pl.INT32],
    lengths: pl.Tensor[[BATCH], pl.INT32],
    out: pl.Out[pl.Tensor[[BATCH * HEADS, DIM], pl.FP32]],
):
    partial = pl.create_tensor([PARTS * GROUP, DIM], dtype=pl.FP32)
    sums = pl.create_tensor([PARTS * GROUP, 1], dtype=pl.FP32)
    tops = pl.create_tensor([PARTS * GROUP, 1], dtype=pl.FP32)
    for b in pl.parallel(BATCH):
        for g in pl.parallel(KV):
            for s in pl.parallel(SPLITS):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="attend"):
                    length = pl.read(lengths, [b])
                    first = b * HEADS + g * GROUP
                    query = pl.slice(q, [GROUP, DIM], [first, 0])
                    acc = pl.full([GROUP, DIM], dtype=pl.FP32, value=0.0)
                    mass = pl.reshape(pl.full([1, GROUP], dtype=pl.FP32, value=0.0), [GROUP, 1])
                    top = pl.reshape(pl.full([1, GROUP], dtype=pl.FP32, value=-1e30), [GROUP, 1])
                    pages = (length + PAGE - 1) // PAGE
                    end = pl.min(pages, (s + 1) * PER)
                    for i in pl.range(s * PER, end):
                        page = pl.read(table, [b, i])
                        row = (page * KV + g) * PAGE
                        codes = pl.cast(pl.slice(keys, [PAGE, DIM], [row, 0]), pl.FP16)
                        step = pl.read(key_scale, [page, g])
                        raw = pl.matmul(query, pl.cast(codes, pl.FP32), b_trans=True)
                        scores = pl.mul(raw, step * SCALE)
                        left = pl.min(PAGE, length - i * PAGE)
                        known = pl.tensor.set_validshape(scores, GROUP, left)
                        scores = pl.fillpad(known, pad_value=pl.PadValue.min)
                        higher = pl.maximum(top, pl.row_max(scores))
                        fade = pl.exp(pl.sub(top, higher))
                        p = pl.exp(pl.row_expand_sub(scores, higher))
                        mass = pl.add(pl.mul(mass, fade), pl.row_sum(p))
                        levels = pl.cast(pl.slice(values, [PAGE, DIM], [row, 0]), pl.FP16)
                        product = pl.matmul(p, pl.cast(levels, pl.FP32), out_dtype=pl.FP32)
                        unit = pl.read(value_scale, [page, g])
                        acc = pl.add(pl.row_expand_mul(acc, fade), pl.mul(product, unit))
                        top = higher
                    part = ((b * KV + g) * SPLITS + s) * GROUP
                    partial[part : part + GROUP, :] = acc
                    sums[part : part + GROUP, :] = mass
                    tops[part : part + GROUP, :] = top
    for b in pl.parallel(BATCH):
        for g in pl.parallel(KV):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="merge"):
                start = (b * KV + g) * SPLITS * GROUP
                best = tops[start : start + GROUP, :]
                for s in pl.range(1, SPLITS):
                    there = start + s * GROUP
                    best = pl.maximum(best, tops[there : there + GROUP, :])
                whole = pl.full([GROUP, DIM], dtype=pl.FP32, value=0.0)
                norm = pl.reshape(pl.full([1, GROUP], dtype=pl.FP32, value=0.0), [GROUP, 1])
                for s in pl.range(SPLITS):
                    at = start + s * GROUP
                    weight = pl.exp(pl.sub(tops[at : at + GROUP, :], best))
                    norm = pl.add(norm, pl.mul(sums[at : at + GROUP, :], weight))
                    whole = pl.add(whole, pl.row_expand_mul(partial[at : at + GROUP, :], weight))
                head = b * HEADS + g * GROUP
                out[head : head + GROUP, :] = pl.row_expand_div(whole, norm)
    return out


def golden(tensors: dict[str, Any]) -> None:
    def cache(name: str) -> np.ndarray:
        codes = tensors[name + "s"].astype(np.float64).reshape(POOL, KV, PAGE, DIM)
        return codes * tensors[name + "_scale"].astype(np.float64)[:, :, None, None]

    keys, values = cache("key"), cache("value")
    q = tensors["q"].astype(np.float64).reshape(BATCH, KV, GROUP, DIM)
    out = tensors["out"].reshape(BATCH, KV, GROUP, DIM)
    for b in range(BATCH):
        n = int(tensors["lengths"][b])
        for g in range(KV):
            k = keys[tensors["table"][b], g].reshape(-1, DIM)[:n]
            v = values[tensors["table"][b], g].reshape(-1, DIM)[:n]
            p = np.exp(q[b, g] @ k.T / np.sqrt(DIM))
            out[b, g] = p @ v / p.sum(axis=-1, keepdims=True)


RNG = np.random.default_rng
ROWS, PLACES = BATCH * HEADS, POOL * KV * PAGE
SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.FP32, lambda: RNG(1).normal(0, 1.2, (ROWS, DIM))),
    TensorSpec("keys", [PLACES, DIM], pl.INT8, lambda: RNG(2).integers(-127, 128, (PLACES, DIM))),
    TensorSpec("values", [PLACES, DIM], pl.INT8, lambda: RNG(3).integers(-127, 128, (PLACES, DIM))),
    TensorSpec("key_scale", [POOL, KV], pl.FP32, lambda: RNG(4).uniform(0.005, 0.02, (POOL, KV))),
    TensorSpec("value_scale", [POOL, KV], pl.FP32, lambda: RNG(5).uniform(0.005, 0.02, (POOL, KV))),
    TensorSpec(
        "table", [BATCH, PAGES], pl.INT32, RNG(6).permutation(POOL)[:-1].reshape(BATCH, PAGES)
    ),
    TensorSpec("lengths", [BATCH], pl.INT32, np.array([120, 173])),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]
TOLERANCE = 1e-4
FAULTS = {
    "scale of the first page": (
        "step = pl.read(key_scale, [page, g])",
        "step = pl.read(key_scale, [0, g])",
    ),
    "key scale for values": (
        "unit = pl.read(value_scale, [page, g])",
        "unit = pl.read(key_scale, [page, g])",
    ),
    "values of the other head": (
        "levels = pl.cast(pl.slice(values, [PAGE, DIM], [row, 0]), pl.FP16)",
        "levels = pl.cast(pl.slice(values, [PAGE, DIM], [page * KV * PAGE, 0]), pl.FP16)",
    ),
    "no masked tail": (
        "left = pl.min(PAGE, length - i * PAGE)",
        "left = pl.min(PAGE, PAGE - i * 0)",
    ),
    "last page lost": ("pages = (length + PAGE - 1) // PAGE", "pages = length // PAGE"),
    "sums not weighted": (
        "norm = pl.add(norm, pl.mul(sums[at : at + GROUP, :], weight))",
        "norm = pl.add(norm, sums[at : at + GROUP, :])",
    ),
    "stale maximum": (
        "p = pl.exp(pl.row_expand_sub(scores, higher))",
        "p = pl.exp(pl.row_expand_sub(scores, top))",
    ),
    "part without its head": (
        "part = ((b * KV + g) * SPLITS + s) * GROUP",
        "part = ((b * KV + 0) * SPLITS + s) * GROUP",
    ),
}
