"""Decode with split contexts: the whole-context results, whatever the batch and the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels import task_counts
from tests.models.real.files import config
from tests.models.real.test_programs import arguments, small

from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import Array
from tilelet.models.qwen3.published import LayerShape, build_decode
from tilelet.runtime import RunConfig, compile_program

LENGTHS = [13, 4]  # four parts of four positions, and one


def filled(s: LayerShape, lengths: list[int]) -> dict[str, Any]:
    """Arguments of decode with caches that hold keys and values before the new position."""
    given = arguments(s, "decode", lengths)
    rng = np.random.default_rng(3)
    for name in ("k_cache", "v_cache"):
        given[name][:] = rng.standard_normal(s.cache_rows * s.config.head_dim).reshape(
            s.cache_rows, s.config.head_dim
        )
    return given


def states(s: LayerShape, lengths: list[int], engine: str = "cpu") -> Array:
    return decoded(s, filled(s, lengths), engine)


def decoded(s: LayerShape, given: dict[str, Any], engine: str = "cpu") -> Array:
    """Return the hidden states after the layer, which is run on copies of its arguments."""
    own = {name: array.copy() for name, array in given.items()}
    compile_program(build_decode(s)).run_tasks(own, RunConfig(engine=engine))
    return own["states"]


def test_a_split_context_gives_the_result_of_a_whole_one() -> None:
    whole, split = (states(small(context_part=part), LENGTHS) for part in (0, 4))
    assert np.allclose(whole[0], split[0], rtol=0, atol=2e-5)
    assert not np.array_equal(whole[0], split[0])  # it was split
    assert np.array_equal(whole[1], split[1])  # one part: no split operation


def test_parts_of_several_tiles() -> None:
    whole, split = (states(small(context_part=part), [16, 9]) for part in (0, 8))
    assert np.allclose(whole, split, rtol=0, atol=2e-5)


def test_padded_groups_of_queries() -> None:
    padded, plain = (states(small(context_part=4, cube_rows=rows), LENGTHS) for rows in (16, 1))
    assert np.array_equal(padded, plain)


def test_threads_and_schedules_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    s = small(context_part=4)
    wanted = states(s, LENGTHS)
    # The engines' exponentials differ in the last place.
    assert np.allclose(states(s, LENGTHS, engine="interp"), wanted, rtol=0, atol=1e-6)
    for threads, seed in ((1, ""), (2, ""), (3, "1"), (5, "2")):
        monkeypatch.setenv("TILELET_THREADS", str(threads))
        monkeypatch.setenv("TILELET_SCHEDULE_SEED", seed)
        assert np.array_equal(states(s, LENGTHS), wanted)


def test_a_sequence_has_the_same_bits_alone_and_in_a_batch() -> None:
    """Results must not depend on other sequences, nor on the number of their parts."""
    both = small(context_part=4)
    alone = LayerShape(
        config(), 1, 16, dtype=both.dtype, row_tile=1, seq_tile=4, page=8, pages=5, context_part=4
    )
    given = filled(both, LENGTHS)
    first = {name: given[name][:1] for name in ("states", "seq_lens", "starts", "block_table")}
    rest = {name: array for name, array in given.items() if name not in first}
    assert np.array_equal(decoded(alone, {**first, **rest})[0], decoded(both, given)[0])


def test_every_part_is_a_task() -> None:
    s = small(context_part=4)
    counts = task_counts(build_decode(s), filled(s, LENGTHS))
    heads = s.config.kv_heads
    assert counts["decode_attention_part"] == heads * (4 + 1)
    assert counts["combine_parts"] == heads * 2


def test_parts_are_whole_tiles() -> None:
    with pytest.raises(BadTile, match="context_part"):
        small(context_part=6)
