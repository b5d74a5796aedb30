"""The mathematics of a Qwen3 layer in NumPy, in double.

Written from the formulas, not from the kernels. Values are rounded to BF16 only where the layer
stores BF16 in global memory.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Columns of a weight widened to double at a time: a whole weight of the real model is gigabytes.
_COLUMNS = 2048


def double(x: Array) -> Array:
    return np.asarray(x).astype(np.float64)


def bf16(x: Array) -> Array:
    """`x` rounded to BF16, as double."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def matmul(x: Array, w: Array) -> Array:
    """`x @ w` in double, whatever the dtype of `w`."""
    out = np.empty((x.shape[0], w.shape[1]))
    for start in range(0, w.shape[1], _COLUMNS):
        block = slice(start, start + _COLUMNS)
        out[:, block] = x @ double(w[:, block])
    return out


def rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * double(weight)


def silu(x: Array) -> Array:
    return x / (1.0 + np.exp(-x))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """RoPE by halves on the last axis of `x`."""
    half = x.shape[-1] // 2
    swapped = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * double(cos) + swapped * double(sin)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Softmax attention of query rows `q` over the rows of `k` and `v`."""
    scores = q @ k.T / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def rope_tables(max_seq: int, head_dim: int, theta: float = 1e6) -> tuple[Array, Array]:
    """Cosine and sine `[max_seq, head_dim]`, each frequency in both halves."""
    frequency = theta ** (-np.arange(0, head_dim, 2) / head_dim)
    angle = np.outer(np.arange(max_seq), np.concatenate([frequency, frequency]))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
