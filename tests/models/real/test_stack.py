"""The stack rejects bad arguments before it writes anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.real.files import config, tensors, write_model

import tilelet.language as pl
from tilelet.diag import UserError
from tilelet.diag.catalogue import models
from tilelet.models.qwen3.reference import Array
from tilelet.models.qwen3.stack import LayerStack
from tilelet.models.qwen3.weights import load_layer

BATCH, MAX_SEQ, HIDDEN = 3, 16, 32


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    scale = {n: a if a.ndim == 1 else a / a.shape[1] ** 0.5 for n, a in tensors().items()}
    return write_model(tmp_path, scale)


def stack_of(directory: Path, **options: Any) -> LayerStack:
    sizes = {"batch": BATCH, "max_seq": MAX_SEQ, "row_tile": 4, "seq_tile": 4, **options}
    return LayerStack.load(directory, **sizes)


def hidden(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def state(stack: LayerStack) -> list[Any]:
    caches = [a.tobytes() for a in (*stack.k_caches, *stack.v_caches)]
    return [*caches, list(stack.seq_lens), stack.pages.table.tolist(), list(stack.pages.free)]


def refuse(
    stack: LayerStack, act: Callable[[LayerStack], object], error: type[UserError], text: str
) -> None:
    before = state(stack)
    with pytest.raises(error, match=text):
        act(stack)
    assert state(stack) == before


LENGTHS: list[tuple[list[Any], type[UserError], str]] = [
    ([4, 0, 1], models.BadSequenceLength, r"`seq_lens\[1\]` is 0; it must be at least 1"),
    ([4, 2, -3], models.BadSequenceLength, r"`seq_lens\[2\]` is -3"),
    ([4, 17, 1], models.SequenceTooLong, "sequence 1 would have 17 positions, the cache holds 16"),
    (
        [13, 1, 1],
        models.SequenceTooLong,
        "sequence 0 would have 13 .* the prefill program takes 12",
    ),
    ([12, 1, 1], models.SequenceTooLong, "sequence 0 would have 12 .* the hidden states have 10"),
    ([2**31, 1, 1], models.SequenceTooLong, "2147483648 positions"),
    ([2**32 + 1, 1, 1], models.SequenceTooLong, "4294967297 positions"),
    ([4, 1], models.WrongStackInput, r"`seq_lens` is `int64 \[2\]`, .* `integers \[3\]`"),
    ([4, 1, 1.5], models.WrongStackInput, "float64"),
]


@pytest.mark.parametrize(("lengths", "error", "text"), LENGTHS)
def test_lengths_that_prefill_refuses(
    directory: Path, lengths: list[Any], error: type[UserError], text: str
) -> None:
    stack = stack_of(directory, tokens=12)
    stack.prefill(hidden(BATCH, 5, HIDDEN), [5, 1, 2])
    refuse(stack, lambda s: s.prefill(hidden(BATCH, 10, HIDDEN), lengths), error, text)


def test_decode_steps_that_are_refused(directory: Path) -> None:
    stack = stack_of(directory)
    row = hidden(BATCH, HIDDEN)
    refuse(stack, lambda s: s.decode(row), models.WrongStep, "prefill the batch first")
    stack.prefill(hidden(BATCH, MAX_SEQ, HIDDEN), [15, 3, 7])
    refuse(stack, lambda s: s.decode(row, [16, 0, 8]), models.BadSequenceLength, "is 0")
    refuse(stack, lambda s: s.decode(row, [16, 4, -8]), models.BadSequenceLength, "is -8")
    refuse(stack, lambda s: s.decode(row, [17, 4, 8]), models.SequenceTooLong, "cache holds 16")
    refuse(stack, lambda s: s.decode(row, [16, 3, 8]), models.WrongStep, "step has length 4")
    refuse(stack, lambda s: s.decode(row, [16, 5, 8]), models.WrongStep, "holds 3 positions")
    stack.decode(row, [16, 4, 8])
    assert list(stack.seq_lens) == [16, 4, 8]
    refuse(stack, lambda s: s.decode(row), models.SequenceTooLong, "17 positions")


@pytest.mark.parametrize(
    "given",
    [
        hidden(BATCH, 4, HIDDEN, dtype=np.float64),
        hidden(BATCH, 4, HIDDEN, dtype=np.float16),
        hidden(BATCH + 1, 4, HIDDEN),
        hidden(BATCH, 4, HIDDEN + 1),
        hidden(BATCH, HIDDEN),
    ],
    ids=lambda a: f"{a.dtype} {a.shape}",
)
def test_hidden_states_that_do_not_fit(directory: Path, given: Array) -> None:
    stack = stack_of(directory)
    refuse(stack, lambda s: s.prefill(given, [1, 1, 1]), models.WrongStackInput, "`hidden` is")
    stack.prefill(hidden(BATCH, 1, HIDDEN), [1, 1, 1])
    row = given[:, 0] if given.ndim == 3 else given[:, None]
    refuse(stack, lambda s: s.decode(row), models.WrongStackInput, "the stack takes `float32")


def test_pages_run_out_and_come_back(directory: Path) -> None:
    stack = stack_of(directory, page=4, pages=5)
    refuse(
        stack,
        lambda s: s.prefill(hidden(BATCH, 8, HIDDEN), [8, 8, 5]),
        models.NoFreePages,
        "6 pages of the cache needed, 5 free",
    )
    first = stack.prefill(hidden(BATCH, 8, HIDDEN), [8, 4, 4])
    row = hidden(BATCH, HIDDEN)
    refuse(stack, lambda s: s.decode(row), models.NoFreePages, "3 pages .* 1 free")
    stack.prefill(hidden(BATCH, 8, HIDDEN)[::-1], [3, 4, 8])
    again = stack.prefill(hidden(BATCH, 8, HIDDEN), [8, 4, 4])
    assert np.array_equal(first, again), "what was there before is forgotten"


def test_rows_past_the_end_of_a_sequence_do_not_matter(directory: Path) -> None:
    given = hidden(BATCH, 8, HIDDEN)
    lengths = [8, 3, 5]
    stack = stack_of(directory)
    wanted = stack.prefill(given, lengths)
    for b, n in enumerate(lengths):
        given[b, n:] = np.nan
    for cache in (*stack.k_caches, *stack.v_caches):
        cache[:] = np.nan
    found = stack.prefill(given, lengths)
    assert np.array_equal(found, wanted)
    assert np.isfinite(stack.decode(hidden(BATCH, HIDDEN))).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"wq": np.zeros((32, 32), np.float32)}, r"`wq` of layer 1 is `float32 \[32, 32\]`"),
        ({"wo": np.zeros((64, 32), np.float16)}, r"needs `float32 \[64, 32\]`"),
        ({"q_norm": np.zeros((16,), np.float32)}, r"needs `float32 \[1, 16\]`"),
    ],
)
def test_weights_of_another_model(directory: Path, change: dict[str, Array], text: str) -> None:
    good = load_layer(directory, 0)
    layers = [good, dataclasses.replace(good, **change)]
    with pytest.raises(models.WeightsMismatch, match=text):
        LayerStack(config(), layers, batch=1, max_seq=8)


def test_weights_in_another_dtype_than_the_programs(directory: Path) -> None:
    with pytest.raises(models.WeightsMismatch, match=r"`wq` of layer 0 is `float32 .* `bfloat16"):
        LayerStack(config(), [load_layer(directory, 0)], batch=1, max_seq=8, dtype=pl.BF16)


@pytest.mark.parametrize("free", [[0, 0], [3], [-1]])
def test_pages_that_are_not_there(directory: Path, free: list[int]) -> None:
    with pytest.raises(models.BadTile, match="`free_pages`"):
        stack_of(directory, free_pages=free)


@pytest.mark.parametrize(("dtype", "bound"), [(pl.FP16, 2e-3), (pl.BF16, 1e-2)])
def test_narrow_programs_are_near_the_wide_one(directory: Path, dtype: Any, bound: float) -> None:
    lengths, given = [7, 1, 4], hidden(BATCH, 8, HIDDEN)
    wide, narrow = stack_of(directory), stack_of(directory, dtype=dtype)
    wanted = wide.prefill(given, lengths)
    found = narrow.prefill(given.astype(dtype.numpy), lengths).astype(np.float64)
    for b, n in enumerate(lengths):
        off = np.linalg.norm(found[b, :n] - wanted[b, :n]) / np.linalg.norm(wanted[b, :n])
        assert off < bound
    row = hidden(BATCH, HIDDEN)
    wanted, found = wide.decode(row), narrow.decode(row.astype(dtype.numpy)).astype(np.float64)
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < bound


def test_a_torch_tensor_is_called_what_it_is(directory: Path) -> None:
    given = torch.zeros(BATCH, 4, HIDDEN)
    stack = stack_of(directory)
    with pytest.raises(models.WrongStackInput) as caught:
        stack.prefill(given, [1, 1, 1])  # type: ignore[arg-type]
    message = str(caught.value)
    assert f"`hidden` is `a torch.Tensor [{BATCH}, 4, {HIDDEN}]`" in message
    assert f"the stack takes `a NumPy array float32 [{BATCH}, 4, {HIDDEN}]`" in message
    assert "help: convert it: `hidden.float().numpy().astype(float32)`" in message
