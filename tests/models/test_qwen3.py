"""The Qwen3 programs: published task counts at full size, right results at reduced size."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.programs import SMALL, every_program, sizes_of

import tilelet.language as pl
from tilelet.diag.catalogue.models import BadTile
from tilelet.diag.core import UserErrors
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import walk
from tilelet.ir.printer import print_program
from tilelet.models import registry
from tilelet.models.qwen3 import decode, prefill, scope1, scope2, scope3
from tilelet.models.qwen3.script import main
from tilelet.models.qwen3.shapes import DecodeShape, PrefillShape
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import compile_program
from tilelet.runtime.data.inputs import initial_array


def tasks(program: Any, seq_lens: list[int] | None = None) -> int:
    given = {} if seq_lens is None else {"seq_lens": np.array(seq_lens, np.int32)}
    return sum(compile_program(program).task_counts(given).values())


@pytest.mark.parametrize(
    ("variant", "hidden", "count"),
    [
        ("baseline", 5120, 10 + 160 + 1 + 1200 + 400 * 40 * 2 + 40),
        ("baseline", 8192, 16 + 256 + 1 + 1200 + 400 * 64 * 2 + 64),
        ("refactored", 5120, 10 + 160 + 1 + 50 + 1200 + 80),
        ("refactored", 8192, 16 + 256 + 1 + 50 + 1200 + 128),
    ],
)
def test_scope3_has_the_published_number_of_tasks(variant: str, hidden: int, count: int) -> None:
    assert count in (33411, 52737, 1501, 1651)
    assert tasks(scope3.build_scope3(variant, hidden=hidden)) == count


@pytest.mark.parametrize(
    ("variant", "count"),
    [
        ("per_block", 161),
        ("chunked", 37),
        ("split_accumulation", 1 + 2 * 128 + 2 * 16),
        ("wide", 2 + 32 + 4),
        ("exchanged", 2 + 16 + 4),
    ],
)
def test_scope1_has_the_number_of_tasks_it_says(variant: str, count: int) -> None:
    assert str(count) in str(scope1.__doc__)
    assert tasks(scope1.build_scope1(variant, hidden=8192)) == count


def test_scope2_has_as_many_tasks_as_sequences_and_heads_unless_it_is_staged() -> None:
    lengths = [4096] * 8 + [1] * 8
    assert tasks(scope2.build_scope2("fused"), lengths) == 16 * 8
    assert tasks(scope2.build_scope2("padding_free"), lengths) == 16 * 8 // 2
    staged = 16 * 8 * (1 + 3) + 8 * 8 * 4 * (64 + 1)
    assert tasks(scope2.build_scope2("staged"), lengths) == staged


def test_tuned_scope3_has_the_number_of_tasks_it_says() -> None:
    count = 2 * 32 + 2 + 100 + 2 * 32 + 16
    assert f"= {count}" in str(scope3.__doc__)
    assert tasks(scope3.build_scope3("tuned")) == count


@pytest.mark.parametrize(
    ("variant", "count"), [("optimised", 22 + 64 + 246), ("fused_qk_rope", 3 + 8 + 64 + 128 + 246)]
)
def test_fast_decode_layers_have_the_number_of_tasks_they_say(variant: str, count: int) -> None:
    assert f"{count} tasks" in str(decode.__doc__)
    assert tasks(decode.build_decode(variant), [4096] * 16) == count


def test_prefill_reads_each_weight_once_per_span() -> None:
    sizes = {"batch": 1, "max_seq": 1024}
    one = compile_program(prefill.build_prefill("tuned", **sizes))
    counts = one.task_counts({"seq_lens": np.array([513], np.int32)})
    # Two spans; the second has one tile of one token.
    assert counts["gate_up_silu"] == 200 * (4 + 1)
    assert counts["causal_attention"] == 8 * (64 + 1)


@every_program
@pytest.mark.parametrize(
    ("engine", "platform"), [("interp", "a2a3sim"), ("cpu", "a2a3sim"), ("cpu", "a5sim")]
)
def test_reduced_size_passes_its_golden(
    name: str, platform: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, variant = registry.resolve(name)
    config = {"platform": platform, "engine": engine}
    result = model.run(variant, runtime_cfg=config, **sizes_of(name, SMALL))
    assert result.passed, result.error
    assert result.validated


@every_program
def test_every_output_is_compared(name: str) -> None:
    model, variant = registry.resolve(name)
    sizes = sizes_of(name, SMALL)
    program = compile_program(model.build(variant, **sizes))
    specs = model.specs(model.shape_for(variant, **sizes))
    written = {p.name for p in program.parameters if p.is_written}
    assert written == {spec.name for spec in specs if spec.is_output}


@every_program
def test_printed_program_parses_to_the_same_text_after_every_pass(name: str) -> None:
    model, variant = registry.resolve(name)
    stages = [model.build(variant, **sizes_of(name, SMALL))]
    run_passes(stages[0], after=lambda _, after: stages.append(after))
    for stage in stages:
        text = print_program(stage)
        assert print_program(pl.parse(text)) == text


def test_the_golden_notices_the_wrong_rmsnorm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = decode.MODEL.run("baseline", switches={"rmsnorm_fault": True}, **SMALL)
    assert result.validated
    assert not result.passed
    assert "out" in str(result.error)


def test_only_the_baseline_has_the_wrong_rmsnorm() -> None:
    with pytest.raises(TypeError, match="rmsnorm_fault"):
        decode.build_decode("optimised", rmsnorm_fault=True)


def test_fused_qk_rope_wants_one_head_per_block() -> None:
    sizes = {**SMALL, "kv_out_chunk": 64}
    with pytest.raises(UserErrors, match="a K/V block must be one head"):
        decode.build_decode("fused_qk_rope", **sizes)


def test_padding_of_a_prefill_is_never_touched() -> None:
    """No results, cache rows or reads after the last token of a sequence."""
    name = "qwen3/prefill:tuned"
    for variant in prefill.MODEL.variants:
        name = f"qwen3/prefill:{variant}"
        sizes = sizes_of(name, SMALL)
        shape = prefill.MODEL.shape_for(variant, **sizes)
        arrays = {s.name: np.array(initial_array(s, zero=False)) for s in prefill.specs(shape)}
        lengths = arrays["seq_lens"]
        caches = ("k_cache", "v_cache")
        heads = {
            c: arrays[c].reshape(shape.batch, shape.kv_heads, shape.max_seq, -1) for c in caches
        }
        for b, length in enumerate(lengths):
            arrays["hidden_states"][b, length:] = np.nan
            for cache in caches:
                heads[cache][b, :, length:] = np.nan
        Interpreter().run(run_passes(prefill.build_prefill(variant, **sizes)), arrays)
        for b, length in enumerate(lengths):
            assert np.isfinite(arrays["out"][b, :length].astype(np.float32)).all()
            assert not arrays["out"][b, length:].any()
            for cache in caches:
                assert np.isfinite(heads[cache][b, :, :length].astype(np.float32)).all()
                assert np.isnan(heads[cache][b, :, length:].astype(np.float32)).all()


def test_decode_is_one_large_program() -> None:
    program = decode.build_decode()
    ops = sum(1 for fn in program.functions.values() for _ in walk(fn.body))
    assert 300 < ops < 1200


def test_every_size_is_an_option_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = [text for k, v in SMALL.items() for text in (f"--{k.replace('_', '-')}", str(v))]
    assert main(scope1.MODEL, ["--variant", "chunked", "-p", "a5sim", *sizes]) == 0
    assert "PASS" in capsys.readouterr().out


def test_tiles_must_divide_what_they_cut() -> None:
    with pytest.raises(BadTile, match="is 300; it must be a positive multiple of `k_chunk`, 128"):
        DecodeShape(hidden=300)
    with pytest.raises(BadTile, match="is 4; it must be a positive multiple of `q_head_batch`, 8"):
        _ = DecodeShape(hidden=512, head_dim=64, kv_heads=2).q_groups
    with pytest.raises(BadTile, match="is 256; it must be a positive multiple of `sum_chunk`, 96"):
        scope3.build_scope3("tuned", **{**SMALL, "sum_chunk": 96})
    with pytest.raises(BadTile, match="is 384; it must be 5 times a multiple of `k_chunk`, 64"):
        scope3.build_scope3("tuned", **{**SMALL, "down_split": 5})
    with pytest.raises(BadTile, match="`tok_tile` is 17; it must be from 1 to `tok_rows`, 16"):
        PrefillShape(tok_tile=17)
    with pytest.raises(BadTile, match="`kv_heads` is 1; it must be a multiple of 2"):
        scope2.build_scope2("padding_free", **{**SMALL, "kv_heads": 1})


def initial(model: Any, **sizes: int) -> dict[str, Any]:
    shape = model.shape_for(model.default, **sizes)
    return {s.name: np.asarray(initial_array(s, zero=False)) for s in model.specs(shape)}


@pytest.mark.parametrize("name", list(registry.models()))
def test_inputs_are_the_same_in_every_run(name: str) -> None:
    model, _ = registry.find(name)
    sizes = sizes_of(name, SMALL)
    first, again = initial(model, **sizes), initial(model, **sizes)
    for tensor, array in first.items():
        assert np.array_equal(array, again[tensor])


def test_attention_is_peaked_and_in_some_heads_overflows_without_its_maximum() -> None:
    shape = DecodeShape(**SMALL)
    tensors = initial(scope2.MODEL, **SMALL)
    keys = tensors["k_cache"][: shape.max_seq].astype(np.float64)  # sequence 0 has a full cache
    hot, usual = tensors["q_proj"][0, : 2 * shape.head_dim].reshape(2, -1) @ keys.T
    weights = np.exp(usual / shape.head_dim**0.5)
    assert weights.max() / weights.sum() > 3 / shape.max_seq
    assert hot.max() / shape.head_dim**0.5 > np.log(np.finfo(np.float32).max)


def test_inputs_are_not_neutral() -> None:
    tensors = initial(decode.MODEL, **SMALL)
    for norm in ("input_rms_weight", "post_rms_weight"):
        assert np.abs(tensors[norm] - 1).mean() > 0.2
    angles = np.arctan2(tensors["rope_sin"][1], tensors["rope_cos"][1])
    half = SMALL["head_dim"] // 2
    np.testing.assert_allclose(angles[:half], 1e6 ** (-np.arange(half) / half), rtol=1e-4)
    assert {1, SMALL["seq_tile"], SMALL["seq_tile"] + 1, SMALL["max_seq"]} <= set(
        tensors["seq_lens"].tolist()
    )


def test_programs_are_found_by_name() -> None:
    assert registry.resolve("qwen3/scope3:tuned") == (scope3.MODEL, "tuned")
    assert registry.resolve("qwen3/decode") == (decode.MODEL, "baseline")
    assert registry.find("qwen3/scope1", "wide") == (scope1.MODEL, "wide")
    for model in registry.models().values():
        assert "\n" not in model.about
        assert all(v.about and "\n" not in v.about for v in model.variants.values())


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(registry.UnknownModelError, match="did you mean `qwen3/scope3`") as info:
        registry.resolve("qwen3/scop3:tuned")
    assert (info.value.what, info.value.name) == ("program", "qwen3/scop3")
    with pytest.raises(
        registry.UnknownModelError, match="no variant `fast`: there are april, tuned"
    ):
        registry.resolve("qwen3/prefill:fast")


def test_sizes_of_all_programs_are_options_with_plain_types() -> None:
    for model in registry.models().values():
        for field in dataclasses.fields(model.shape_for(model.default)):
            assert field.type in ("int", "float")
