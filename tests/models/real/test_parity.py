"""Our layers compared with the reference implementation, on the same weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.models.programs import every_engine
from tests.models.real.tiny import (
    BOUND,
    Sizes,
    Tiny,
    by_sequence,
    by_step,
    check,
    ordinary,
    references,
    relative,
    run_stack,
    tiny,
    tokens,
    torch,
    widened,
)

from tilelet.diag.catalogue.models import SequenceTooLong
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.published import rope_tables
from tilelet.models.qwen3.stack import LayerStack
from tilelet.models.qwen3.weights import load_layer

# One token, and lengths on and beside the tiles of 8 rows and 16 keys.
LENGTHS = (1, 15, 16, 17, 33)
SMALL: dict[str, Any] = {"row_tile": 8, "seq_tile": 16}
# BF16 rounds every hidden state to 8 bits, and layers amplify that. With weights whose layers add
# as much as they receive, the reference differs from itself in FP32 by up to 2 % (ours by 1 %).
BF16_GAIN = 0.3


def paged(batch: int, max_seq: int, page: int = 16) -> dict[str, Any]:
    """Sizes of a stack whose pages are assigned in random order, with some to spare."""
    pages = batch * -(-max_seq // page) + 3
    order = np.random.default_rng(5).permutation(pages)
    return {**SMALL, "page": page, "pages": pages, "free_pages": [int(p) for p in order]}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small are slower on several threads, especially on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("model", "engine", "steps"), [(ordinary, "cpu", 32), (tiny, "cpu", 32), (tiny, "interp", 9)]
)
def test_fp32_stack_through_prefill_and_many_steps(model: Any, engine: str, steps: int) -> None:
    reference, texts = model("float32"), tokens(LENGTHS, steps)
    max_seq = max(LENGTHS) + steps  # the last step fills the cache of the longest sequence
    stack = LayerStack.load(
        reference.directory, batch=len(LENGTHS), max_seq=max_seq, engine=engine, **SMALL
    )
    found = run_stack(stack, reference, texts, LENGTHS, steps)
    worst = by_sequence(found, references(reference, texts, LENGTHS), LENGTHS)
    assert len(worst) == len(LENGTHS) * (1 + steps)
    check(worst, BOUND["float32"])
    before = [cache.copy() for cache in (*stack.k_caches, *stack.v_caches)]
    with pytest.raises(
        SequenceTooLong, match=f"would have {max_seq + 1} positions, the cache holds {max_seq}"
    ):
        stack.decode(np.zeros((len(LENGTHS), 64), np.float32))
    for cache, kept in zip((*stack.k_caches, *stack.v_caches), before):
        assert np.array_equal(cache, kept)


def check_bf16(reference: Tiny, engine: str, steps: int = 32) -> None:
    """Near the reference in BF16 after every step, and nearer to its FP32 than it is itself."""
    texts = tokens(LENGTHS, steps)
    batch, max_seq = len(LENGTHS), 80
    stack = LayerStack.load(
        reference.directory, batch=batch, max_seq=max_seq, engine=engine, **paged(batch, max_seq)
    )
    found = run_stack(stack, reference, texts, LENGTHS, steps)
    theirs = references(reference, texts, LENGTHS)
    exact = references(widened(reference), texts, LENGTHS)
    check(by_step(found, theirs, LENGTHS, steps), BOUND["bfloat16"])
    check(by_sequence(found, exact, LENGTHS), BOUND["bfloat16"])
    for ours, other, truth in zip(found, theirs, exact):
        assert relative(ours, truth) < relative(other, truth), "the reference rounds more often"


@pytest.mark.parametrize(("engine", "steps"), [("cpu", 32), ("interp", 9)])
def test_bf16_stack_of_an_ordinary_model(engine: str, steps: int) -> None:
    check_bf16(ordinary("bfloat16", Sizes(layers=2)), engine, steps)


@pytest.mark.parametrize("seed", [1, 2])
def test_bf16_stack_of_a_deeper_ordinary_model(seed: int) -> None:
    check_bf16(ordinary("bfloat16", Sizes(layers=4), seed), "cpu")


@pytest.mark.optimized
def test_bf16_stack_with_peaked_attention() -> None:
    check_bf16(tiny("bfloat16", Sizes(layers=2), gain=BF16_GAIN), "cpu")


def test_bf16_errors_do_not_pile_up_over_many_layers() -> None:
    """After sixteen layers the reference in BF16 is more than 1 % from itself in FP32."""
    reference, lengths, steps = ordinary("bfloat16", Sizes(layers=16)), (17,), 8
    texts = tokens(lengths, steps)
    stack = LayerStack.load(reference.directory, batch=1, max_seq=32, engine="cpu", **SMALL)
    found = run_stack(stack, reference, texts, lengths, steps)
    exact = references(widened(reference), texts, lengths)
    check(by_sequence(found, exact, lengths), BOUND["bfloat16"])


@every_engine
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_layer_alone(engine: str, dtype: str) -> None:
    reference, length = tiny(dtype, gain=BF16_GAIN), 21
    (text,) = tokens([length], 4)
    layers = reference.hidden_states(text, length)
    config = Qwen3Config.read(reference.directory)
    for index in (1, 2):
        weights = load_layer(reference.directory, index, config)
        stack = LayerStack(config, [weights], batch=1, max_seq=32, engine=engine, **SMALL)
        given, wanted = layers[index - 1], layers[index]
        found = [stack.prefill(given[None, :length], [length])[0]]
        found += [stack.decode(given[None, position]) for position in range(length, len(text))]
        assert relative(np.concatenate(found), wanted) <= BOUND[dtype]


@every_engine
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(layers=2, head_dim=16),  # queries as wide as the hidden state
        Sizes(layers=2, heads=6, kv_heads=2, head_dim=16),  # three heads share
        Sizes(layers=1, heads=3, kv_heads=3, head_dim=16),  # nothing is shared
        Sizes(layers=1, heads=20, kv_heads=1, head_dim=8),  # more heads than 16 rows
        Sizes(layers=1, hidden=96, heads=4, kv_heads=2, head_dim=128, intermediate=160),
    ],
    ids=str,
)
def test_other_sizes(engine: str, sizes: Sizes) -> None:
    reference, lengths, steps = tiny("float32", sizes), (3, 18), 2
    texts = tokens(lengths, steps)
    stack = LayerStack.load(reference.directory, batch=2, max_seq=32, engine=engine)
    found = run_stack(stack, reference, texts, lengths, steps)
    check(by_sequence(found, references(reference, texts, lengths), lengths), BOUND["float32"])


TILES: list[dict[str, Any]] = [
    {"row_tile": 4, "query_tile": 2, "seq_tile": 8, "k_chunk": 16, "out_chunk": 16},
    {"row_tile": 6, "query_tile": 6, "seq_tile": 10, "k_chunk": 64, "stage": 1},
    {"row_tile": 32, "query_tile": 32, "seq_tile": 64, "out_chunk": 64},
]


@every_engine
@pytest.mark.parametrize("tiles", TILES, ids=["small", "odd", "large"])
def test_other_tiles(engine: str, tiles: dict[str, Any]) -> None:
    sizes = Sizes(layers=1)
    reference, lengths, steps = tiny("float32", sizes), (9, 1, 23, 8, 7, 12, 24), 2
    texts = tokens(lengths, steps)
    stack = LayerStack.load(reference.directory, batch=7, max_seq=27, engine=engine, **tiles)
    found = run_stack(stack, reference, texts, lengths, steps)
    check(by_sequence(found, references(reference, texts, lengths), lengths), BOUND["float32"])


@every_engine
def test_sequences_of_maximum_length(engine: str) -> None:
    reference, max_seq = tiny("float32", Sizes(layers=1)), 48
    lengths = (max_seq, max_seq - 1)
    texts = tokens(lengths, 0)
    stack = LayerStack.load(reference.directory, batch=2, max_seq=max_seq, engine=engine, **SMALL)
    found = run_stack(stack, reference, texts, lengths, 0)
    check(by_sequence(found, references(reference, texts, lengths), lengths), BOUND["float32"])
    with pytest.raises(SequenceTooLong, match="sequence 0 would have 49 positions"):
        stack.decode(np.zeros((2, 64), np.float32))
    assert list(stack.seq_lens) == [48, 47]


@every_engine
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_contiguous_and_paged_caches_agree_bit_for_bit(engine: str, dtype: str) -> None:
    reference, lengths, steps, max_seq = tiny(dtype, Sizes(layers=2)), (31, 16, 1), 3, 48
    texts = tokens(lengths, steps)
    stacks = [
        LayerStack.load(reference.directory, batch=3, max_seq=max_seq, engine=engine, **how)
        for how in (SMALL, paged(3, max_seq))
    ]
    flat, spread = (run_stack(s, reference, texts, lengths, steps) for s in stacks)
    for one, other in zip(flat, spread):
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))
    contiguous, pool = stacks
    table = pool.pages.table
    assert sorted(table[table >= 0]) != list(range((table >= 0).sum())), "pages are shuffled"
    caches = zip(contiguous.k_caches + contiguous.v_caches, pool.k_caches + pool.v_caches)
    for theirs, ours in caches:
        rows = theirs.reshape(3, 2, max_seq, -1)
        pages = ours.reshape(pool.shape.pages, 2, 16, -1)
        for b, n in enumerate(lengths):
            for position in range(n + steps):
                page = pages[table[b, position // 16]]
                assert np.array_equal(rows[b, :, position], page[:, position % 16])


def test_every_weight_matters() -> None:
    """The comparison notices each weight, so a program that ignored one would fail it."""
    reference, lengths, steps = tiny("float32", Sizes(layers=1)), (18,), 1
    texts = tokens(lengths, steps)
    config = Qwen3Config.read(reference.directory)
    weights = load_layer(reference.directory, 0, config)
    wanted = reference.hidden_states(texts[0], lengths[0])[-1]
    for name, array in weights.arrays().items():
        swapped = np.ones_like(array) if name.endswith("norm") else array[::-1].copy()
        changed = dataclasses.replace(weights, **{name: swapped})
        stack = LayerStack(config, [changed], batch=1, max_seq=32, **SMALL)
        found = run_stack(stack, reference, texts, lengths, steps)[0]
        assert relative(found[:18], wanted[:18]) > 1e3 * BOUND["float32"], name
        assert relative(found[18], wanted[18]) > 1e3 * BOUND["float32"], name


def test_rope_tables_are_those_of_the_reference_to_the_last_position() -> None:
    from transformers import Qwen3Config as TheirConfig
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    theirs = Qwen3RotaryEmbedding(
        TheirConfig(head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    )
    last = 40960
    positions = torch.arange(last)[None]
    wanted = theirs(torch.zeros(1, dtype=torch.float32), positions)
    for ours, table in zip(rope_tables(Qwen3Config.preset("0.6B"), last), wanted):
        assert ours.shape == (last, 128)
        assert ours.dtype == np.float32
        assert np.abs(ours - table[0].numpy()).max() < 1e-5
