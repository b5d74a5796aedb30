"""The experts of a mixture-of-experts layer: as many rows for each as the router gave it.

Rows are sorted by expert; `first` says where those of each expert begin. The control program reads
the counts, so the number of tasks depends on the data; the last tile of an expert is ragged.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

EXPERTS, TOKENS, HIDDEN, INTER, TILE = 4, 96, 128, 64, 16


@pl.jit
def experts(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16],
    first: pl.Tensor[[EXPERTS + 1], pl.INT32],
    gate_up: pl.Tensor[[EXPERTS * HIDDEN, 2 * INTER], pl.BF16],
    down: pl.Tensor[[EXPERTS * INTER, HIDDEN], pl.BF16],
    out: pl.Out[pl.Tensor[[TOKENS, HIDDEN], pl.FP32]],
):
    for e in pl.range(EXPERTS):
        begin = pl.read(first, [e])
        end = pl.read(first, [e + 1])
        for r in pl.range(begin, end, TILE):
            rows = pl.min(TILE, end - r)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="expert"):
                tile = pl.slice(x, [TILE, HIDDEN], [r, 0], valid_shape=[rows, HIDDEN])
                weight = pl.slice(gate_up, [HIDDEN, 2 * INTER], [e * HIDDEN, 0])
                both = pl.matmul(tile, weight, out_dtype=pl.FP32)
                gate = pl.slice(both, [TILE, INTER], [0, 0])
                up = pl.slice(both, [TILE, INTER], [0, INTER])
                sigmoid = pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0))
                act = pl.cast(pl.mul(pl.mul(gate, sigmoid), up), pl.BF16, mode="rint")
                last = pl.slice(down, [INTER, HIDDEN], [e * INTER, 0])
                out[r : r + TILE, :] = pl.matmul(act, last, out_dtype=pl.FP32)
    return out


def golden(tensors: dict[str, Any]):
    x, gate_up, down = (tensors[n].astype(np.float64) for n in ("x", "gate_up", "down"))
    for e, (begin, end) in enumerate(zip(tensors["first"], tensors["first"][1:])):
        both = x[begin:end] @ gate_up[e * HIDDEN : (e + 1) * HIDDEN]
        gate, up = both[:, :INTER], both[:, INTER:]
        act = gate / (1 + np.exp(-gate)) * up
        tensors["out"][begin:end] = act @ down[e * INTER : (e + 1) * INTER]


def normal(seed: int, *shape: int):
    return lambda: np.random.default_rng(seed).normal(0, 0.2, shape)


SPECS = [
    TensorSpec("x", [TOKENS, HIDDEN], pl.BF16, normal(1, TOKENS, HIDDEN)),
    TensorSpec("first", [EXPERTS + 1], pl.INT32, np.array([0, 37, 37, 60, 96])),
    TensorSpec("gate_up", [EXPERTS * HIDDEN, 2 * INTER], pl.BF16, normal(2, 512, 128)),
    TensorSpec("down", [EXPERTS * INTER, HIDDEN], pl.BF16, normal(3, 256, 128)),
    TensorSpec("out", [TOKENS, HIDDEN], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run_jit(experts, SPECS, golden_fn=golden, runtime_cfg=config, rtol=2e-2, atol=2e-2)
    print(result)
    raise SystemExit(not result.passed)
