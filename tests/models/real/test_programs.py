"""The programs of the real layer: sizes, tasks, text, and memory that they must not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels import run
from tests.models.real.files import config

import tilelet.language as pl
from tilelet.device import load_machine, machine_names
from tilelet.device.memory.limits import program_findings
from tilelet.diag.catalogue.models import BadTile
from tilelet.ir.core import Program
from tilelet.ir.printer import print_program
from tilelet.models.qwen3.architecture import architecture_of
from tilelet.models.qwen3.config import PRESETS, Qwen3Config
from tilelet.models.qwen3.published import LayerShape, build_decode, build_prefill, rope_tables
from tilelet.models.qwen3.weights import layer_shapes
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import compile_program

BUILD = {"decode": build_decode, "prefill": build_prefill}
SENTINEL = 77.0


def small(**changes: Any) -> LayerShape:
    sizes = {"dtype": pl.FP32, "row_tile": 4, "seq_tile": 4, "page": 8, "pages": 5, **changes}
    return LayerShape(config(), 2, 16, **sizes)


def arguments(s: LayerShape, which: str, lengths: list[int]) -> dict[str, Any]:
    """Return arguments; outputs and caches hold a sentinel, rows past the lengths are NaN."""
    rng, c = np.random.default_rng(2), s.config
    hidden = rng.standard_normal((s.batch, s.tokens, c.hidden_size)).astype(np.float32)
    for b, n in enumerate(lengths):
        hidden[b, n:] = np.nan
    rows = hidden.reshape(-1, c.hidden_size) if which == "prefill" else hidden[:, 0].copy()
    cos, sin = rope_tables(c, s.max_seq)
    cache = (s.cache_rows, c.head_dim)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) / 6
        for name, shape in layer_shapes(c).items()
    }
    return {
        "states": rows,
        "seq_lens": np.array(lengths, np.int32),
        "starts": np.array([0 if which == "prefill" else n - 1 for n in lengths], np.int32),
        "block_table": np.array([[4, 2], [0, 3]], np.int32),
        "rope_cos": cos,
        "rope_sin": sin,
        "k_cache": np.full(cache, SENTINEL, np.float32),
        "v_cache": np.full(cache, SENTINEL, np.float32),
        **weights,
    }


def rows_of(lengths: list[int], first: list[int]) -> list[int]:
    """Return the cache rows of positions `first[b]` to `lengths[b]`: pages of 8, two heads."""
    table = [[4, 2], [0, 3]]
    return sorted(
        (table[b][p // 8] * 2 + head) * 8 + p % 8
        for b, n in enumerate(lengths)
        for p in range(first[b], n)
        for head in range(2)
    )


def test_prefill_writes_its_sequences_and_nothing_else() -> None:
    s, lengths = small(tokens=13), [13, 6]
    found = run(build_prefill(s), **arguments(s, "prefill", lengths))
    given = arguments(s, "prefill", lengths)["states"].reshape(2, 13, -1)
    out = found["states"].reshape(2, 13, -1)
    for b, n in enumerate(lengths):
        assert np.isfinite(out[b, :n]).all()
        assert (out[b, :n] != given[b, :n]).any(axis=1).all()
        assert np.isnan(out[b, n:]).all()
    for name in ("k_cache", "v_cache"):
        written = np.flatnonzero((found[name] != SENTINEL).any(axis=1))
        assert list(written) == rows_of(lengths, [0, 0])
        assert np.isfinite(found[name]).all()


def test_decode_writes_one_position_of_each_sequence() -> None:
    s, lengths = small(), [16, 7]
    found = run(build_decode(s), **arguments(s, "decode", lengths))
    assert np.isfinite(found["states"]).all()
    assert (found["states"] != arguments(s, "decode", lengths)["states"]).any(axis=1).all()
    for name in ("k_cache", "v_cache"):
        written = np.flatnonzero((found[name] != SENTINEL).any(axis=1))
        assert list(written) == rows_of(lengths, [15, 6])


def test_layers_in_one_call_are_layers_one_after_the_other() -> None:
    """Prefill in two parts, too: the second continues the first."""
    lengths, layers = [13, 10], 3
    s = small(tokens=8)
    stacked = arguments(small(tokens=8, layers=layers), "prefill", lengths)
    rng = np.random.default_rng(4)
    for name, (rows, columns) in layer_shapes(s.config).items():
        stacked[name] = (rng.standard_normal((layers * rows, columns)) / 6).astype(np.float32)
    for name in ("k_cache", "v_cache"):
        stacked[name] = np.zeros((layers * s.cache_rows, s.config.head_dim), np.float32)
    single = {name: array.copy() for name, array in stacked.items()}
    for starts, ends in (([0, 0], [8, 8]), ([8, 8], lengths)):
        stacked["starts"] = single["starts"] = np.array(starts, np.int32)
        stacked["seq_lens"] = single["seq_lens"] = np.array(ends, np.int32)
        hidden = rng.standard_normal(stacked["states"].shape).astype(np.float32)
        stacked = run(
            build_prefill(small(tokens=8, layers=layers)), **{**stacked, "states": hidden}
        )
        for layer in range(layers):
            part = {
                name: array[layer * len(array) // layers : (layer + 1) * len(array) // layers]
                for name, array in single.items()
                if name in ("k_cache", "v_cache", *layer_shapes(s.config))
            }
            found = run(build_prefill(s), **{**single, **part, "states": hidden})
            hidden = found["states"]
            for name in ("k_cache", "v_cache"):
                part[name][:] = found[name]
        for b in range(2):
            rows = slice(8 * b, 8 * b + ends[b] - starts[b])
            assert np.array_equal(stacked["states"][rows], hidden[rows])
    for name in ("k_cache", "v_cache"):
        assert np.array_equal(stacked[name], single[name])


@pytest.mark.parametrize("which", BUILD)
@pytest.mark.parametrize("int8", [False, True])
def test_matrices_in_blocks_give_the_same(which: str, int8: bool) -> None:
    """Equal bits: only the columns' place differs."""
    lengths = [13, 6] if which == "prefill" else [16, 7]
    sizes = {"tokens": 13, "layers": 2, "int8": int8, "out_chunk": 8}
    plain, blocked = (small(**sizes, blocked=b) for b in (False, True))
    given = arguments(plain, which, lengths)
    for name in ("k_cache", "v_cache"):
        given[name] = np.tile(given[name], (2, 1))
    of_blocks = dict(given)
    for s, into in ((plain, given), (blocked, of_blocks)):
        architecture = architecture_of(s.config, int8=int8, columns=8 if s.blocked else 0)
        rng = np.random.default_rng(6)
        for name, array in architecture.arrays_of(0).items():
            stored = [rng.standard_normal(array.stored).astype(np.float32) / 6 for _ in range(2)]
            rows, columns = array.shape
            into[name] = np.empty((2 * rows, columns), array.element(pl.FP32).numpy)
            for layer, matrix in enumerate(stored):
                array.fill(into[name][layer * rows : (layer + 1) * rows], [matrix])
    assert of_blocks["w_gate"].shape != given["w_gate"].shape
    wanted = run(BUILD[which](plain), **given)
    found = run(BUILD[which](blocked), **of_blocks)
    for name in ("states", "k_cache", "v_cache"):
        assert np.array_equal(found[name], wanted[name], equal_nan=True)


@pytest.mark.parametrize("which", BUILD)
def test_printed_program_parses_to_the_same_text_after_every_pass(which: str) -> None:
    stages: list[Program] = [BUILD[which](small())]
    run_passes(stages[0], after=lambda _, after: stages.append(after))
    for stage in stages:
        text = print_program(stage)
        assert print_program(pl.parse(text)) == text


@pytest.mark.parametrize("name", PRESETS)
def test_published_sizes_compile_and_count_their_tasks(name: str) -> None:
    c, batch, length = Qwen3Config.preset(name), 16, 40
    s = LayerShape(c, batch, 256, tokens=64)
    lengths = {"seq_lens": np.full(batch, length, np.int32), "starts": np.zeros(batch, np.int32)}
    lengths["block_table"] = np.arange(batch, dtype=np.int32)[:, None]
    blocks = 2 * c.hidden_size // s.out_chunk + c.intermediate_size // s.out_chunk
    per_tile = 2 + c.heads + c.kv_heads + blocks  # two norms, heads, blocks of the projections
    decode = compile_program(build_decode(s)).task_counts(lengths)
    assert sum(decode.values()) == per_tile + 1 + batch * c.kv_heads
    prefill = compile_program(build_prefill(s)).task_counts(lengths)
    tiles = batch * -(-length // s.row_tile)
    attention = s.row_tile // s.query_tile * c.kv_heads
    assert sum(prefill.values()) == tiles * (per_tile + attention)
    assert s.query_tile * c.q_per_kv % 16 == 0, "whole cube rows"


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("page", [0, 128], ids=["contiguous", "paged"])
@pytest.mark.parametrize("which", BUILD)
def test_published_sizes_fit_on_every_machine(name: str, page: int, which: str) -> None:
    s = LayerShape(Qwen3Config.preset(name), 16, 4096, page=page)
    program = run_passes(BUILD[which](s))
    for machine in machine_names():
        findings = program_findings(program, load_machine(machine))
        assert not findings, "\n\n".join(map(str, findings))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"k_chunk": 24}, "`k_chunk` is 24; it must be a divisor of `hidden_size`, 32"),
        ({"k_chunk": 32}, "a divisor of `intermediate_size`, 48"),
        ({"out_chunk": 5}, "`out_chunk` is 5"),
        ({"out_chunk": -16}, "`out_chunk` is -16"),
        ({"query_tile": 3}, "`query_tile` is 3; it must be a divisor of `row_tile`, 4"),
        ({"query_tile": 1}, "`query_tile` is 1; it must be at least 2"),
        ({"seq_tile": 1}, "`seq_tile` is 1"),
        ({"seq_tile": 6}, "`seq_tile` is 6; it must be a divisor of `page`, 8"),
        ({"row_tile": 16, "query_tile": 4}, "`row_tile` is 16; it must be a divisor of `page`, 8"),
        ({"tokens": 17}, "`tokens` is 17; it must be at most `max_seq`, 16"),
        ({"pages": -1}, "`pages` is -1"),
        ({"stage": 0}, "`stage` is 0"),
    ],
)
def test_tiles_that_do_not_fit(sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(BadTile, match=text):
        small(**sizes)


def test_a_contiguous_cache_needs_no_tiles_that_divide_it() -> None:
    s = LayerShape(config(), 2, 37)
    assert (s.page, s.pages, s.table_width, s.tokens) == (37, 2, 1, 37)
    assert s.cache_rows == 2 * 2 * 37
