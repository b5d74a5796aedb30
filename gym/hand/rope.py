"""Rotary position embedding by halves; each token has its own row of the cosine and sine tables.

`rotated` is a helper whose text is spliced into the kernel at each call. A helper that is one
expression has no names of its own, which public parsers would not keep apart from the kernel's.
"""

# A helper gets the types of what it is called with.
# pyright: basic

import argparse
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

TOKENS, HEADS, HEAD_DIM = 16, 4, 64
HALF = HEAD_DIM // 2


@pl.inline
def rotated(along, across, turn):
    return pl.add(pl.mul(along, turn), across)


@pl.program
class Rope:
    @pl.function(type=pl.FunctionType.Opaque)
    def rope(
        self,
        x: pl.Tensor[[TOKENS, HEADS * HEAD_DIM], pl.FP32],
        cos: pl.Tensor[[TOKENS, HALF], pl.FP32],
        sin: pl.Tensor[[TOKENS, HALF], pl.FP32],
        out: pl.Out[pl.Tensor[[TOKENS, HEADS * HEAD_DIM], pl.FP32]],
    ) -> pl.Tensor[[TOKENS, HEADS * HEAD_DIM], pl.FP32]:
        for h in pl.parallel(HEADS):
            left = h * HEAD_DIM
            middle = left + HALF
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="rope_head"):
                lo = x[:, left : left + HALF]
                hi = x[:, middle : middle + HALF]
                out[:, left : left + HALF] = rotated(lo, pl.neg(pl.mul(hi, sin)), cos)
                out[:, middle : middle + HALF] = rotated(hi, pl.mul(lo, sin), cos)
        return out


def golden(tensors: dict[str, Any]):
    # A rotation is a product of complex numbers: independent of how the kernel writes it.
    x = tensors["x"].astype(np.float64).reshape(TOKENS, HEADS, 2, HALF)
    turn = (tensors["cos"].astype(np.float64) + 1j * tensors["sin"])[:, None, :]
    turned = (x[:, :, 0] + 1j * x[:, :, 1]) * turn
    stacked: Any = np.stack([turned.real, turned.imag], axis=2)
    tensors["out"][:] = stacked.reshape(TOKENS, HEADS * HEAD_DIM)


ANGLES = np.outer(np.arange(TOKENS), 10000.0 ** (-np.arange(HALF) / HALF))
WIDTH = HEADS * HEAD_DIM
SPECS = [
    TensorSpec(
        "x", [TOKENS, WIDTH], pl.FP32, lambda: np.random.default_rng(1).normal(size=(TOKENS, WIDTH))
    ),
    TensorSpec("cos", [TOKENS, HALF], pl.FP32, lambda: np.cos(ANGLES)),
    TensorSpec("sin", [TOKENS, HALF], pl.FP32, lambda: np.sin(ANGLES)),
    TensorSpec("out", [TOKENS, WIDTH], pl.FP32, is_output=True),
]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3sim")
    parser.add_argument("-d", "--device", type=int, default=0)
    args = parser.parse_args()
    config = {"platform": args.platform, "device_id": args.device}
    result = run(Rope, SPECS, golden_fn=golden, runtime_cfg=config, rtol=1e-5, atol=1e-5)
    print(result)
    raise SystemExit(not result.passed)
