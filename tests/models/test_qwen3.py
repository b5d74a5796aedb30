"""The Qwen3 programs: published task counts at full size, right results at reduced size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.ir.core import walk
from tilelet.ir.printer import print_program
from tilelet.models.qwen3 import decode, scope1, scope2, scope3
from tilelet.models.qwen3.script import Model, main
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import compile_program

# Two batch tiles, several blocks on every axis, remainders in every chunk loop.
SMALL = {
    "batch": 8,
    "hidden": 256,
    "kv_heads": 2,
    "head_dim": 32,
    "intermediate": 384,
    "max_seq": 64,
    "batch_tile": 4,
    "k_chunk": 64,
    "q_out_chunk": 32,
    "kv_out_chunk": 32,
    "mlp_out_chunk": 32,
    "seq_tile": 16,
    "q_head_batch": 2,
    "q_head_pad": 4,
}
ALL = [
    (model.MODEL, variant)
    for model in (scope1, scope2, scope3, decode)
    for variant in model.MODEL.variants
]
every_program = pytest.mark.parametrize(
    ("model", "variant"), ALL, ids=[f"{m.name}-{v}" for m, v in ALL]
)


def tasks(program: Any) -> int:
    return sum(compile_program(program).task_counts({}).values())


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


@pytest.mark.parametrize(("variant", "count"), [("per_block", 161), ("chunked", 37)])
def test_scope1_has_the_published_number_of_tasks(variant: str, count: int) -> None:
    assert tasks(scope1.build_scope1(variant, hidden=8192)) == count


@every_program
def test_reduced_size_passes_its_golden(
    model: Model, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = model.run(variant, **SMALL)
    assert result.passed, result.error
    assert result.validated


@every_program
def test_printed_program_parses_to_the_same_text_after_every_pass(
    model: Model, variant: str
) -> None:
    stages = [model.build(variant, **SMALL)]
    run_passes(stages[0], after=lambda _, after: stages.append(after))
    for stage in stages:
        text = print_program(stage)
        assert print_program(pl.parse(text)) == text


def test_the_golden_notices_the_wrong_rmsnorm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = decode.MODEL.run("baseline", switches={"rmsnorm_fault": True}, **SMALL)
    assert not result.passed
    assert "out" in str(result.error)


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
    with pytest.raises(ValueError, match="hidden 300 is not a positive multiple of k_chunk 128"):
        DecodeShape(hidden=300)
    with pytest.raises(ValueError, match="q_per_kv 4 is not a positive multiple of q_head_batch 8"):
        _ = DecodeShape(hidden=512, head_dim=64, kv_heads=2).q_groups


def test_inputs_are_the_same_in_every_run_and_attention_is_peaked() -> None:
    shape = DecodeShape(**SMALL)
    tensors: dict[str, Any] = {}
    for spec in scope2.specs(shape):
        first = spec.init_value() if callable(spec.init_value) else np.zeros(spec.shape)
        again = spec.init_value() if callable(spec.init_value) else np.zeros(spec.shape)
        assert np.array_equal(first, again)
        tensors[spec.name] = first
    rows = slice(0, shape.max_seq)  # sequence 0 has a full cache
    scores = tensors["q_proj"][0, : shape.head_dim] @ tensors["k_cache"][rows].T
    weights = np.exp(scores / shape.head_dim**0.5)
    assert weights.max() / weights.sum() > 3 / shape.max_seq
