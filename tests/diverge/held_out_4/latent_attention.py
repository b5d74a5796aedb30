"""Decoding with latent attention: keys and values are products of one short cached row."""

from typing import Any

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec

BATCH, HEADS, NOPE, ROPE, RANK, DV, PAGE, PAGES, POOL = 2, 4, 16, 16, 32, 16, 16, 3, 8
HALF, SCALE, LONGEST = ROPE // 2, (NOPE + ROPE) ** -0.5, PAGE * PAGES


@pl.jit
def kernel(
    q: pl.Tensor[[BATCH * HEADS, NOPE + ROPE], pl.FP32],
    key_up: pl.Tensor[[HEADS * NOPE, RANK], pl.FP32],
    value_up: pl.Tensor[[HEADS * RANK, DV], pl.FP32],
    latent: pl.Tensor[[POOL * PAGE, RANK], pl.BF16],
    rotated: pl.Tensor[[POOL * PAGE, ROPE], pl.BF16],
    cos: pl.Tensor[[LONGEST, HALF], pl.FP32],
    sin: pl.Tensor[[LONGEST, HALF], pl.FP32],
    table: pl.Tensor[[BATCH, PAGES], pl.INT32],
    lengths: pl.Tensor[[BATCH], pl.INT32],
    out: pl.Out[pl.Tensor[[BATCH * HEADS, DV], pl.FP32]],
):
    absorbed = pl.create_tensor([BATCH * HEADS, RANK], dtype=pl.FP32)
    turned = pl.create_tensor([BATCH * HEADS, ROPE], dtype=pl.FP32)
    context = pl.create_tensor([BATCH * HEADS, RANK], dtype=pl.FP32)
    for b in pl.parallel(BATCH):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="absorb"):
            position = pl.read(lengths, [b]) - 1
            c = pl.slice(cos, [1, HALF], [position, 0])
            s = pl.slice(sin, [1, HALF], [position, 0])
            for h in pl.range(HEADS):
                row = b * HEADS + h
                plain = pl.slice(q, [1, NOPE], [row, 0])
                up = pl.slice(key_up, [NOPE, RANK], [h * NOPE, 0])
                absorbed[row : row + 1, :] = pl.matmul(plain, up, out_dtype=pl.FP32)
                lo = pl.slice(q, [1, HALF], [row, NOPE])
                hi = pl.slice(q, [1, HALF], [row, NOPE + HALF])
                turned[row : row + 1, 0:HALF] = pl.sub(pl.mul(lo, c), pl.mul(hi, s))
                turned[row : row + 1, HALF:ROPE] = pl.add(pl.mul(hi, c), pl.mul(lo, s))
    for b in pl.parallel(BATCH):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="attend"):
            length = pl.read(lengths, [b])
            first = b * HEADS
            ql = absorbed[first : first + HEADS, :]
            qr = turned[first : first + HEADS, :]
            top = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=-1e30), [HEADS, 1])
            mass = pl.reshape(pl.full([1, HEADS], dtype=pl.FP32, value=0.0), [HEADS, 1])
            acc = pl.full([HEADS, RANK], dtype=pl.FP32, value=0.0)
            for i in pl.range((length + PAGE - 1) // PAGE):
                page = pl.read(table, [b, i])
                left = pl.min(PAGE, length - i * PAGE)
                rows = pl.cast(pl.slice(latent, [PAGE, RANK], [page * PAGE, 0]), pl.FP32)
                turns = pl.cast(pl.slice(rotated, [PAGE, ROPE], [page * PAGE, 0]), pl.FP32)
                plain_part = pl.matmul(ql, rows, b_trans=True, out_dtype=pl.FP32)
                turned_part = pl.matmul(qr, turns, b_trans=True, out_dtype=pl.FP32)
                scores = pl.mul(pl.add(plain_part, turned_part), SCALE)
                scores = pl.set_validshape(scores, HEADS, left)
                scores = pl.fillpad(scores, pad_value=pl.PadValue.min)
                higher = pl.maximum(top, pl.row_max(scores))
                fade = pl.exp(pl.sub(top, higher))
                p = pl.exp(pl.row_expand_sub(scores, higher))
                mass = pl.add(pl.mul(mass, fade), pl.row_sum(p))
                product = pl.matmul(p, rows, out_dtype=pl.FP32)
                acc = pl.add(pl.row_expand_mul(acc, fade), product)
                top = higher
            context[first : first + HEADS, :] = pl.row_expand_div(acc, mass)
    for b in pl.parallel(BATCH):
        for h in pl.parallel(HEADS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="expand"):
                row = b * HEADS + h
                w = pl.slice(value_up, [RANK, DV], [h * RANK, 0])
                out[row : row + 1, :] = pl.matmul(context[row : row + 1, :], w, out_dtype=pl.FP32)
    return out


def golden(tensors: dict[str, Any]) -> None:
    q = tensors["q"].astype(np.float64).reshape(BATCH, HEADS, NOPE + ROPE)
    key_up = tensors["key_up"].astype(np.float64).reshape(HEADS, NOPE, RANK)
    value_up = tensors["value_up"].astype(np.float64).reshape(HEADS, RANK, DV)
    latent = tensors["latent"].astype(np.float64).reshape(POOL, PAGE, RANK)
    rotated = tensors["rotated"].astype(np.float64).reshape(POOL, PAGE, ROPE)
    out = tensors["out"].reshape(BATCH, HEADS, DV)
    for b in range(BATCH):
        n = int(tensors["lengths"][b])
        rows = latent[tensors["table"][b]].reshape(-1, RANK)[:n]
        key_rope = rotated[tensors["table"][b]].reshape(-1, ROPE)[:n]
        cos, sin = tensors["cos"][n - 1], tensors["sin"][n - 1]
        for h in range(HEADS):
            first, second = q[b, h, NOPE : NOPE + HALF], q[b, h, NOPE + HALF :]
            query_rope = np.concatenate([first * cos - second * sin, second * cos + first * sin])
            query = np.concatenate([q[b, h, :NOPE], query_rope])
            keys = np.concatenate([rows @ key_up[h].T, key_rope], axis=1)
            values = rows @ value_up[h]
            scores = keys @ query / np.sqrt(NOPE + ROPE)
            weights = np.exp(scores - scores.max())
            out[b, h] = weights @ values / weights.sum()


RNG = np.random.default_rng


def normal(seed: int, scale: float, *shape: int):
    return lambda: RNG(seed).normal(0, scale, shape)


def angles() -> np.ndarray:
    return np.arange(LONGEST)[:, None] * 100.0 ** (-np.arange(HALF) / HALF)


SPECS = [
    TensorSpec("q", [BATCH * HEADS, NOPE + ROPE], pl.FP32, normal(1, 1.2, 8, 32)),
    TensorSpec("key_up", [HEADS * NOPE, RANK], pl.FP32, normal(2, 0.4, HEADS * NOPE, RANK)),
    TensorSpec("value_up", [HEADS * RANK, DV], pl.FP32, normal(3, 0.3, HEADS * RANK, DV)),
    TensorSpec("latent", [POOL * PAGE, RANK], pl.BF16, normal(4, 0.8, POOL * PAGE, RANK)),
    TensorSpec("rotated", [POOL * PAGE, ROPE], pl.BF16, normal(5, 1.0, POOL * PAGE, ROPE)),
    TensorSpec("cos", [LONGEST, HALF], pl.FP32, lambda: np.cos(angles())),
    TensorSpec("sin", [LONGEST, HALF], pl.FP32, lambda: np.sin(angles())),
    TensorSpec(
        "table", [BATCH, PAGES], pl.INT32, RNG(6).permutation(POOL)[:6].reshape(BATCH, PAGES)
    ),
    TensorSpec("lengths", [BATCH], pl.INT32, np.array([27, 45])),
    TensorSpec("out", [BATCH * HEADS, DV], pl.FP32, is_output=True),
]
TOLERANCE = 2e-4
FAULTS = {
    "position one too far": (
        "position = pl.read(lengths, [b]) - 1",
        "position = pl.read(lengths, [b])",
    ),
    "key product of the first head": (
        "up = pl.slice(key_up, [NOPE, RANK], [h * NOPE, 0])",
        "up = pl.slice(key_up, [NOPE, RANK], [0, 0])",
    ),
    "rotated part not added": (
        "pl.mul(pl.add(plain_part, turned_part), SCALE)",
        "pl.mul(plain_part, SCALE)",
    ),
    "scale of the plain part alone": (
        "scores = pl.mul(pl.add(plain_part, turned_part), SCALE)",
        "scores = pl.add(pl.mul(plain_part, SCALE), turned_part)",
    ),
    "halves the wrong way round": (
        "hi = pl.slice(q, [1, HALF], [row, NOPE + HALF])",
        "hi = pl.slice(q, [1, HALF], [row, NOPE])",
    ),
    "rotated rows by page number": (
        "turns = pl.cast(pl.slice(rotated, [PAGE, ROPE], [page * PAGE, 0]), pl.FP32)",
        "turns = pl.cast(pl.slice(rotated, [PAGE, ROPE], [i * PAGE, 0]), pl.FP32)",
    ),
    "zeros for the masked tail": ("pl.PadValue.min", "pl.PadValue.zero"),
    "narrow weights": (
        "product = pl.matmul(p, rows, out_dtype=pl.FP32)",
        "product = pl.matmul(pl.cast(pl.cast(p, pl.INT8), pl.FP32), rows, out_dtype=pl.FP32)",
    ),
    "sum not faded": (
        "mass = pl.add(pl.mul(mass, fade), pl.row_sum(p))",
        "mass = pl.add(mass, pl.row_sum(p))",
    ),
    "value product by batch": (
        "w = pl.slice(value_up, [RANK, DV], [h * RANK, 0])",
        "w = pl.slice(value_up, [RANK, DV], [b * RANK, 0])",
    ),
}
