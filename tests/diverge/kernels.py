"""Kernels with one mistake each, and the text of the wrong line."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLS, TILE = 64, 32, 16


def normal(seed: int, *shape: int, scale: float = 1.0, low: float | None = None):
    def make() -> Any:
        numbers = scale * np.random.default_rng(seed).normal(size=shape)
        return numbers if low is None else np.abs(numbers) + low

    return make


def x_and_out(dtype: Any = pl.FP32) -> list[TensorSpec]:
    return [
        TensorSpec("x", [ROWS, COLS], dtype, normal(1, ROWS, COLS)),
        TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
    ]


X = pl.Tensor[[ROWS, COLS], pl.FP32]
OUT = pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]]


@pl.jit
def wrong_offset(x: X, out: OUT):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
            last = pl.min(r + TILE, ROWS - TILE)
            block = pl.slice(x, [TILE, COLS], [last, 0])  # wrong
            out = pl.assemble(out, pl.mul(block, 2.0), [r, 0])
    return out


@pl.jit
def partly_unwritten(x: X, out: OUT):
    for r in pl.parallel(0, ROWS - TILE, TILE):  # wrong
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
            block = pl.slice(x, [TILE, COLS], [r, 0])
            out = pl.assemble(out, pl.mul(block, 2.0), [r, 0])
    return out


def twice(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = 2.0 * tensors["x"]


def line_of(function: Any, mark: str = "# wrong") -> int:
    """Return the number of the kernel's line that contains `mark`."""
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    return first + next(i for i, line in enumerate(lines) if mark in line)


# One mistake each. `GOLDENS` has the golden and the inputs of each, `line_of` the wrong line.

SEQ, DIM = 48, 32


@pl.jit
def padding_read(
    scores: pl.Tensor[[TILE, SEQ], pl.FP32],
    out: pl.Out[pl.Tensor[[TILE, SEQ], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
        known = pl.slice(scores, [TILE, SEQ], [0, 0], valid_shape=[TILE, 40])
        padded = pl.fillpad(known, pad_value=pl.PadValue.zero)  # wrong
        top = pl.row_max(padded)
        e = pl.exp(pl.row_expand_sub(padded, top))
        out = pl.assemble(out, pl.row_expand_div(e, pl.row_sum(e)), [0, 0])
    return out


def softmax_of_forty(tensors: dict[str, Any]) -> None:
    scores = tensors["scores"].astype(np.float64)
    scores[:, 40:] = -np.inf
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    tensors["out"][:] = e / e.sum(axis=1, keepdims=True)


@pl.jit
def wrong_cast(x: X, out: pl.Out[pl.Tensor[[ROWS, COLS], pl.BF16]]):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="narrow"):
            block = pl.mul(pl.slice(x, [TILE, COLS], [r, 0]), 2.0)
            narrow = pl.cast(block, pl.BF16, mode="trunc")  # wrong
            out = pl.assemble(out, narrow, [r, 0])
    return out


@pl.jit
def missing_scale(
    q: pl.Tensor[[TILE, DIM], pl.FP32],
    k: pl.Tensor[[SEQ, DIM], pl.FP32],
    v: pl.Tensor[[SEQ, DIM], pl.FP32],
    out: pl.Out[pl.Tensor[[TILE, DIM], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="attention"):
        scores = pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32)  # wrong
        e = pl.exp(pl.row_expand_sub(scores, pl.row_max(scores)))
        p = pl.row_expand_div(e, pl.row_sum(e))
        out = pl.assemble(out, pl.matmul(p, v, out_dtype=pl.FP32), [0, 0])
    return out


def attention(tensors: dict[str, Any]) -> None:
    q, k, v = (tensors[n].astype(np.float64) for n in "qkv")
    scores = q @ k.T / np.sqrt(DIM)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    tensors["out"][:] = e / e.sum(axis=1, keepdims=True) @ v


@pl.jit
def recip_for_rsqrt(x: X, out: OUT):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rmsnorm"):
            block = pl.slice(x, [TILE, COLS], [r, 0])
            mean = pl.mul(pl.row_sum(pl.mul(block, block)), 1.0 / COLS)
            inverse = pl.recip(pl.add(mean, 1e-6))  # wrong
            out = pl.assemble(out, pl.row_expand_mul(block, inverse), [r, 0])
    return out


def rmsnorm(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    tensors["out"][:] = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6)


@pl.jit
def swapped_operands(x: X, y: X, out: OUT):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="difference"):
            left = pl.exp(pl.slice(x, [TILE, COLS], [r, 0]))
            right = pl.slice(y, [TILE, COLS], [r, 0])
            out = pl.assemble(out, pl.exp(pl.sub(right, left)), [r, 0])  # wrong
    return out


def difference(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = np.exp(np.exp(tensors["x"]) - tensors["y"])


@pl.jit
def stale_row(
    fresh: pl.Tensor[[1, DIM], pl.FP32],
    query: pl.Tensor[[1, DIM], pl.FP32],
    cache: pl.InOut[pl.Tensor[[SEQ, DIM], pl.FP32]],
    out: pl.Out[pl.Tensor[[1, SEQ], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="append"):
        cache = pl.assemble(cache, pl.mul(fresh, 0.5), [SEQ - 2, 0])  # wrong
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scores"):
        out = pl.assemble(out, pl.matmul(query, cache, b_trans=True, out_dtype=pl.FP32), [0, 0])
    return out


def scores_with_the_new_row(tensors: dict[str, Any]) -> None:
    cache = tensors["cache"].astype(np.float64)
    cache[SEQ - 1] = 0.5 * tensors["fresh"][0]
    tensors["out"][:] = tensors["query"] @ cache.T


@pl.jit
def unwritten_scratch(x: X, out: OUT):
    scratch = pl.create_tensor([ROWS, COLS], dtype=pl.FP32)
    for r in pl.parallel(0, ROWS - TILE, TILE):  # wrong
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="square"):
            block = pl.slice(x, [TILE, COLS], [r, 0])
            scratch = pl.assemble(scratch, pl.mul(block, block), [r, 0])
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy"):
            square = pl.slice(scratch, [TILE, COLS], [r, 0])
            out = pl.assemble(out, pl.add(square, 1.0), [r, 0])
    return out


def square_plus_one(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = tensors["x"] ** 2 + 1.0


@pl.jit
def lost_accumulation(
    a: pl.Tensor[[TILE, 128], pl.BF16],
    b: pl.Tensor[[128, DIM], pl.BF16],
    out: pl.Out[pl.Tensor[[TILE, DIM], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
        acc = pl.matmul(a[:, 0:32], b[0:32, :], out_dtype=pl.FP32)
        for k in pl.range(32, 128, 32):
            acc = pl.matmul(a[:, k : k + 32], b[k : k + 32, :], out_dtype=pl.FP32)  # wrong
        out = pl.assemble(out, acc, [0, 0])
    return out


def product(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = tensors["a"].astype(np.float64) @ tensors["b"].astype(np.float64)


@pl.jit
def missing_mean(x: X, w: pl.Tensor[[COLS, COLS], pl.FP32], out: OUT):
    """Two rows at a time; almost all of the output is the residual."""
    for r in pl.parallel(0, ROWS, 2):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="norm_and_project"):
            total = pl.full([1, 2], dtype=pl.FP32, value=0.0)
            for k in pl.range(0, COLS, 16):
                part = pl.slice(x, [2, 16], [r, k])
                total = pl.add(total, pl.reshape(pl.row_sum(pl.mul(part, part)), [1, 2]))  # wrong
            inverse = pl.reshape(pl.rsqrt(pl.add(total, 0.05)), [2, 1])
            rows = pl.slice(x, [2, COLS], [r, 0])
            normed = pl.row_expand_mul(rows, inverse)
            out = pl.assemble(out, pl.add(rows, pl.matmul(normed, w, out_dtype=pl.FP32)), [r, 0])
    return out


def normed_and_projected(tensors: dict[str, Any]) -> None:
    x = tensors["x"].astype(np.float64)
    normed = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 0.05)
    tensors["out"][:] = x + normed @ tensors["w"]


TEMPERATURE = np.array(0.37)


@pl.jit
def missing_temperature(
    q: pl.Tensor[[TILE, DIM], pl.FP32],
    k: pl.Tensor[[SEQ, DIM], pl.FP32],
    v: pl.Tensor[[SEQ, DIM], pl.FP32],
    out: pl.Out[pl.Tensor[[TILE, DIM], pl.FP32]],
):
    """A factor that the golden does not contain, lost after a round trip through memory."""
    raw = pl.create_tensor([TILE, SEQ], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scores"):
        raw = pl.assemble(raw, pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32), [0, 0])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
        scores = pl.slice(raw, [TILE, SEQ], [0, 0])  # wrong
        e = pl.exp(pl.row_expand_sub(scores, pl.row_max(scores)))
        p = pl.row_expand_div(e, pl.row_sum(e))
        out = pl.assemble(out, pl.matmul(p, v, out_dtype=pl.FP32), [0, 0])
    return out


def warm_attention(tensors: dict[str, Any]) -> None:
    q, k, v = (tensors[n].astype(np.float64) for n in "qkv")
    scores = q @ k.T * TEMPERATURE
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    tensors["out"][:] = e / e.sum(axis=1, keepdims=True) @ v


@pl.jit
def forgotten_index(x: X, y: X, out: OUT):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="difference"):
            left = pl.exp(pl.slice(x, [TILE, COLS], [r, 0]))
            right = pl.slice(y, [TILE, COLS], [0, 0])  # wrong
            out = pl.assemble(out, pl.exp(pl.sub(left, right)), [r, 0])
    return out


@pl.jit
def one_key_short(
    scores: pl.Tensor[[TILE, SEQ], pl.FP32],
    out: pl.Out[pl.Tensor[[TILE, SEQ], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
        known = pl.slice(scores, [TILE, SEQ], [0, 0], valid_shape=[TILE, 39])  # wrong
        padded = pl.fillpad(known, pad_value=pl.PadValue.min)
        e = pl.exp(pl.row_expand_sub(padded, pl.row_max(padded)))
        out = pl.assemble(out, pl.row_expand_div(e, pl.row_sum(e)), [0, 0])
    return out


@pl.jit
def lost_rescale(
    q: pl.Tensor[[TILE, DIM], pl.FP32],
    k: pl.Tensor[[SEQ, DIM], pl.FP32],
    v: pl.Tensor[[SEQ, DIM], pl.FP32],
    out: pl.Out[pl.Tensor[[TILE, DIM], pl.FP32]],
):
    """Softmax block by block: the sum is rescaled with the new maximum, the output is not."""
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="attention"):
        top = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=-1e30), [TILE, 1])
        total = pl.reshape(pl.full([1, TILE], dtype=pl.FP32, value=0.0), [TILE, 1])
        acc = pl.full([TILE, DIM], dtype=pl.FP32, value=0.0)
        for s in pl.range(0, SEQ, 16):
            raw = pl.matmul(q, k[s : s + 16, :], b_trans=True, out_dtype=pl.FP32)
            scores = pl.mul(raw, DIM**-0.5)
            higher = pl.maximum(top, pl.row_max(scores))
            less = pl.exp(pl.sub(top, higher))
            p = pl.exp(pl.row_expand_sub(scores, higher))
            total = pl.add(pl.mul(total, less), pl.row_sum(p))
            acc = pl.add(acc, pl.matmul(p, v[s : s + 16, :], out_dtype=pl.FP32))  # wrong
            top = higher
        out = pl.assemble(out, pl.row_expand_div(acc, total), [0, 0])
    return out


@pl.jit
def one_iteration_short(
    a: pl.Tensor[[TILE, 128], pl.BF16],
    b: pl.Tensor[[128, DIM], pl.BF16],
    out: pl.Out[pl.Tensor[[TILE, DIM], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
        acc = pl.matmul(a[:, 0:32], b[0:32, :], out_dtype=pl.FP32)
        for k in pl.range(32, 96, 32):  # wrong
            acc = pl.matmul_acc(acc, a[:, k : k + 32], b[k : k + 32, :])
        out = pl.assemble(out, acc, [0, 0])
    return out


CHUNK = ROWS // 4


@pl.jit
def wrong_index(x: X, y: X, out: OUT):
    for half in pl.range(2):
        for c in pl.range(2):
            row = half * (ROWS // 2) + c * CHUNK
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="difference"):
                left = pl.exp(pl.slice(x, [CHUNK, COLS], [row, 0]))
                right = pl.slice(y, [CHUNK, COLS], [half * (ROWS // 2), 0])  # wrong
                out = pl.assemble(out, pl.exp(pl.sub(left, right)), [row, 0])
    return out


@pl.jit
def no_decay(x: X, out: OUT):
    state = pl.create_tensor([CHUNK, COLS], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="clear"):
        state = pl.assemble(state, pl.full([CHUNK, COLS], dtype=pl.FP32, value=0.0), [0, 0])
    for c in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="update"):
            old = pl.slice(state, [CHUNK, COLS], [0, 0])  # wrong
            new = pl.add(old, pl.exp(pl.slice(x, [CHUNK, COLS], [c * CHUNK, 0])))
            state = pl.assemble(state, new, [0, 0])
            out = pl.assemble(out, new, [c * CHUNK, 0])
    return out


def decaying_sum(tensors: dict[str, Any]) -> None:
    state = np.zeros((CHUNK, COLS))
    for c in range(4):
        rows = slice(c * CHUNK, (c + 1) * CHUNK)
        state = 0.9 * state + np.exp(tensors["x"][rows])
        tensors["out"][rows] = state


def attention_specs() -> list[TensorSpec]:
    return [
        TensorSpec("q", [TILE, DIM], pl.FP32, normal(1, TILE, DIM)),
        TensorSpec("k", [SEQ, DIM], pl.FP32, normal(2, SEQ, DIM)),
        TensorSpec("v", [SEQ, DIM], pl.FP32, normal(3, SEQ, DIM)),
        TensorSpec("out", [TILE, DIM], pl.FP32, is_output=True),
    ]


def product_specs() -> list[TensorSpec]:
    return [
        TensorSpec("a", [TILE, 128], pl.BF16, normal(8, TILE, 128)),
        TensorSpec("b", [128, DIM], pl.BF16, normal(9, 128, DIM)),
        TensorSpec("out", [TILE, DIM], pl.FP32, is_output=True),
    ]


def cases() -> dict[str, tuple[Any, Any, list[TensorSpec], str]]:
    """Return kernel, golden, specs and kind of mistake, by name."""
    out = TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True)
    x, y = (
        TensorSpec(name, [ROWS, COLS], pl.FP32, normal(seed, ROWS, COLS, scale=0.5))
        for name, seed in (("x", 1), ("y", 2))
    )
    return {
        "wrong offset": (wrong_offset, twice, x_and_out(), "wrong offset"),
        "partly unwritten": (partly_unwritten, twice, x_and_out(), "wrong loop bounds"),
        "unwritten scratch": (unwritten_scratch, square_plus_one, x_and_out(), "wrong loop bounds"),
        "padding read": (
            padding_read,
            softmax_of_forty,
            [
                TensorSpec("scores", [TILE, SEQ], pl.FP32, normal(4, TILE, SEQ)),
                TensorSpec("out", [TILE, SEQ], pl.FP32, is_output=True),
            ],
            "padding read",
        ),
        "wrong cast": (
            wrong_cast,
            twice,
            [x, TensorSpec("out", [ROWS, COLS], pl.BF16, is_output=True)],
            "rounding mode",
        ),
        "missing scale": (missing_scale, attention, attention_specs(), "missing scale"),
        "missing mean": (
            missing_mean,
            normed_and_projected,
            [x, TensorSpec("w", [COLS, COLS], pl.FP32, normal(3, COLS, COLS, scale=0.01)), out],
            "missing scale",
        ),
        "missing temperature": (
            missing_temperature,
            warm_attention,
            attention_specs(),
            "missing scale",
        ),
        "recip for rsqrt": (recip_for_rsqrt, rmsnorm, x_and_out(), "wrong op"),
        "swapped operands": (swapped_operands, difference, [x, y, out], "wrong operand"),
        "forgotten index": (forgotten_index, difference, [x, y, out], "wrong offset"),
        "one key short": (
            one_key_short,
            softmax_of_forty,
            [
                TensorSpec("scores", [TILE, SEQ], pl.FP32, normal(4, TILE, SEQ)),
                TensorSpec("out", [TILE, SEQ], pl.FP32, is_output=True),
            ],
            "wrong valid region",
        ),
        "lost rescale": (lost_rescale, attention, attention_specs(), "missing op"),
        "stale row": (
            stale_row,
            scores_with_the_new_row,
            [
                TensorSpec("fresh", [1, DIM], pl.FP32, normal(5, 1, DIM)),
                TensorSpec("query", [1, DIM], pl.FP32, normal(6, 1, DIM)),
                TensorSpec("cache", [SEQ, DIM], pl.FP32, normal(7, SEQ, DIM)),
                TensorSpec("out", [1, SEQ], pl.FP32, is_output=True),
            ],
            "wrong offset",
        ),
        "lost accumulation": (lost_accumulation, product, product_specs(), "lost accumulation"),
        "one iteration short": (one_iteration_short, product, product_specs(), "wrong loop bounds"),
        "wrong index": (wrong_index, difference, [x, y, out], "wrong offset"),
        "no decay": (no_decay, decaying_sum, x_and_out(), "missing scale"),
    }
