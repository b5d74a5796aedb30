"""K and V projections in one scope: the rows of `x` are loaded once and used for both.

Each task makes one block of K and the same block of V; apart, the two would read `x` twice.
"""

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

TOKENS, HIDDEN, WIDTH = 16, 512, 256
K_CHUNK, OUT_CHUNK = 256, 64


@pl.program
class KVProjection:
    @pl.function(type=pl.FunctionType.Opaque)
    def project(
        self,
        x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16],
        wk: pl.Tensor[[HIDDEN, WIDTH], pl.BF16],
        wv: pl.Tensor[[HIDDEN, WIDTH], pl.BF16],
        k: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
        v: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
    ) -> tuple[pl.Tensor[[TOKENS, WIDTH], pl.FP32], pl.Tensor[[TOKENS, WIDTH], pl.FP32]]:
        for ob in pl.range(WIDTH // OUT_CHUNK):
            c0 = ob * OUT_CHUNK
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="kv_block"):
                x_chunk = pl.slice(x, [TOKENS, K_CHUNK], [0, 0])
                wk_chunk = pl.slice(wk, [K_CHUNK, OUT_CHUNK], [0, c0])
                wv_chunk = pl.slice(wv, [K_CHUNK, OUT_CHUNK], [0, c0])
                k_acc = pl.matmul(x_chunk, wk_chunk, out_dtype=pl.FP32)
                v_acc = pl.matmul(x_chunk, wv_chunk, out_dtype=pl.FP32)
                for kb in pl.range(1, HIDDEN // K_CHUNK):
                    k0 = kb * K_CHUNK
                    x_chunk = pl.slice(x, [TOKENS, K_CHUNK], [0, k0])
                    wk_chunk = pl.slice(wk, [K_CHUNK, OUT_CHUNK], [k0, c0])
                    wv_chunk = pl.slice(wv, [K_CHUNK, OUT_CHUNK], [k0, c0])
                    k_acc = pl.matmul_acc(k_acc, x_chunk, wk_chunk)
                    v_acc = pl.matmul_acc(v_acc, x_chunk, wv_chunk)
            # Outside the scope its results become windows of the outputs: nothing is copied.
            k = pl.assemble(k, k_acc, [0, c0])
            v = pl.assemble(v, v_acc, [0, c0])
        return k, v


def golden(tensors: dict[str, Any]):
    x = tensors["x"].astype(np.float64)
    tensors["k"][:] = x @ tensors["wk"].astype(np.float64)
    tensors["v"][:] = x @ tensors["wv"].astype(np.float64)


def normal(seed: int, rows: int, cols: int):
    return lambda: np.random.default_rng(seed).normal(size=(rows, cols))


SPECS = [
    TensorSpec("x", [TOKENS, HIDDEN], pl.BF16, normal(1, TOKENS, HIDDEN)),
    TensorSpec("wk", [HIDDEN, WIDTH], pl.BF16, normal(2, HIDDEN, WIDTH)),
    TensorSpec("wv", [HIDDEN, WIDTH], pl.BF16, normal(3, HIDDEN, WIDTH)),
    TensorSpec("k", [TOKENS, WIDTH], pl.FP32, is_output=True),
    TensorSpec("v", [TOKENS, WIDTH], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run(KVProjection, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-3, atol=1e-3)
    print(result)
    raise SystemExit(not result.passed)
