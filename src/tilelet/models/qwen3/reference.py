"""The mathematics of a Qwen3 layer in NumPy, in double precision.

Written from the formulas, not from the kernels. Values are rounded to BF16 only where the layer
stores BF16 in global memory.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np

from tilelet.dtypes import Array

# Block of a weight that is widened to double at a time: it fits into a cache, whereas a whole
# weight of the real model would take gigabytes.
_ROWS, _COLUMNS = 512, 1024


def double(x: Array) -> Array:
    """Convert `x` to double; BF16 is widened as the upper half of FP32, which is much faster."""
    if x.dtype.itemsize == 2:
        x = (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


def bf16(x: Array) -> Array:
    """Round `x` to BF16, to nearest with ties to even, as double."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def matmul(x: Array, w: Array) -> Array:
    """Return `x @ w` in double, whatever the dtype of `w`, with stripes of `w` on threads."""
    stripes = [w[:, n0 : n0 + _COLUMNS] for n0 in range(0, w.shape[1], _COLUMNS)]
    if len(stripes) == 1:
        return _times_stripe(x, w)
    with ThreadPoolExecutor(min(len(stripes), os.cpu_count() or 1)) as pool:
        return np.concatenate(list(pool.map(_times_stripe, repeat(x), stripes)), axis=1)


def _times_stripe(x: Array, w: Array) -> Array:
    out = np.zeros((x.shape[0], w.shape[1]))
    for k0 in range(0, w.shape[0], _ROWS):
        rows = slice(k0, k0 + _ROWS)
        out += x[:, rows] @ double(w[rows])
    return out


def rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * double(weight)


def silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Apply RoPE by halves on the last axis of `x`."""
    half = x.shape[-1] // 2
    swapped = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * double(cos) + swapped * double(sin)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Return softmax attention of query rows `q` over the rows of `k` and `v`."""
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def rope_tables(max_seq: int, head_dim: int, theta: float = 1e6) -> tuple[Array, Array]:
    """Return cosine and sine `[max_seq, head_dim]`, each frequency in both halves."""
    frequency = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.outer(np.arange(max_seq), np.concatenate([frequency, frequency]))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
