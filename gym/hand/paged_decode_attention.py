"""Decode attention over a paged cache; a block table says where each page of a sequence lies.

The last page may be partly full: `valid_shape` loads what is there, `fillpad` adds minus infinity.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

BATCH, HEADS, DIM, PAGE, PAGES = 4, 16, 64, 64, 4
POOL, SCALE = BATCH * PAGES, DIM**-0.5


@pl.jit
def attention(
    q: pl.Tensor[[BATCH * HEADS, DIM], pl.BF16],
    k_pool: pl.Tensor[[POOL * PAGE, DIM], pl.BF16],
    v_pool: pl.Tensor[[POOL * PAGE, DIM], pl.BF16],
    block_table: pl.Tensor[[BATCH, PAGES], pl.INT32],
    seq_lens: pl.Tensor[[BATCH], pl.INT32],
    out: pl.Out[pl.Tensor[[BATCH * HEADS, DIM], pl.FP32]],
):
    for b in pl.parallel(BATCH):
        length = pl.read(seq_lens, [b])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="paged_decode"):
            query = q[b * HEADS : (b + 1) * HEADS, :]
            oi = pl.full([HEADS, DIM], dtype=pl.FP32, value=0.0)
            li = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=0.0), [HEADS, 1])
            mi = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=-1e30), [HEADS, 1])
            for i in pl.range((length + PAGE - 1) // PAGE):
                row = pl.read(block_table, [b, i]) * PAGE
                used = pl.min(PAGE, length - i * PAGE)
                v = pl.fillpad(pl.slice(v_pool, [PAGE, DIM], [row, 0], valid_shape=[used, DIM]))
                k = pl.slice(k_pool, [PAGE, DIM], [row, 0], valid_shape=[used, DIM])
                raw = pl.matmul(query, k, b_trans=True, out_dtype=pl.FP32)
                known = pl.tensor.set_validshape(pl.mul(raw, SCALE), HEADS, used)
                scores = pl.fillpad(known, pad_value=pl.PadValue.min)
                mi_new = pl.maximum(mi, pl.row_max(scores))
                alpha = pl.exp(pl.sub(mi, mi_new))
                p = pl.cast(pl.exp(pl.row_expand_sub(scores, mi_new)), pl.BF16, mode="rint")
                li = pl.add(pl.mul(li, alpha), pl.row_sum(pl.cast(p, pl.FP32)))
                oi = pl.add(pl.row_expand_mul(oi, alpha), pl.matmul(p, v, out_dtype=pl.FP32))
                mi = mi_new
            out[b * HEADS : (b + 1) * HEADS, :] = pl.row_expand_div(oi, li)
    return out


def golden(tensors: dict[str, Any]):
    q, k, v = (tensors[n].astype(np.float64) for n in ("q", "k_pool", "v_pool"))
    for b in range(BATCH):
        rows = np.add.outer(tensors["block_table"][b] * PAGE, np.arange(PAGE)).ravel()
        rows, mine = rows[: tensors["seq_lens"][b]], slice(b * HEADS, (b + 1) * HEADS)
        p = np.exp(q[mine] @ k[rows].T * SCALE)
        tensors["out"][mine] = p / p.sum(axis=1, keepdims=True) @ v[rows]


RNG, ROWS, PLACES = np.random.default_rng, BATCH * HEADS, POOL * PAGE
SPECS = [
    TensorSpec("q", [ROWS, DIM], pl.BF16, lambda: RNG(1).normal(0, 1.5, (ROWS, DIM))),
    TensorSpec("k_pool", [PLACES, DIM], pl.BF16, lambda: RNG(2).normal(0, 1.5, (PLACES, DIM))),
    TensorSpec("v_pool", [PLACES, DIM], pl.BF16, lambda: RNG(3).normal(0, 1.5, (PLACES, DIM))),
    TensorSpec("block_table", [BATCH, PAGES], pl.INT32, np.arange(POOL)[::-1].reshape(BATCH, -1)),
    TensorSpec("seq_lens", [BATCH], pl.INT32, np.array([1, 64, 65, 250])),
    TensorSpec("out", [ROWS, DIM], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(attention, SPECS, golden_fn=golden, runtime_cfg=config, rtol=5e-3, atol=5e-3)
    print(result)
    raise SystemExit(not result.passed)
