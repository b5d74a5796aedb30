"""Advice for shipped programs: every fault they were written with, at its line."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath

import pytest

from tilelet.advice.advisor import Advisor
from tilelet.advice.programs import ExportedPrograms, Setting
from tilelet.advice.proof import examine
from tilelet.advice.rules import RULES
from tilelet.device.machine.description import load_machine
from tilelet.diag.core import Loc
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

SETTING = Setting(load_machine("a2a3"), None, RecordingOptions(platform="a2a3", quiet=True))
LAYER = ("--hidden", "2048", "--kv-heads", "2", "--intermediate", "1024", "--max-seq", "512")
SCOPE3 = ("--hidden", "512", "--intermediate", "1024")


def exported(name: str, *arguments: str) -> ExportedPrograms:
    return ExportedPrograms.of(Target(name, arguments), SETTING)


@cache
def found(name: str, *arguments: str) -> list[tuple[str, str, str]]:
    """Return rule, file and line text of every finding; nothing is proved yet."""
    programs = exported(name, *arguments)
    attempt = examine(programs, programs.text, SETTING)
    assert attempt.subject is not None, attempt.why
    places: list[tuple[str, str, str]] = []
    for rule in RULES:
        for advice in rule.find(attempt.subject):
            loc = programs.origin(advice.loc or Loc("", 0))
            line = linecache.getline(loc.file, loc.line).strip()
            places.append((rule.name, PurePath(loc.file).name, line))
    return places


def assert_found(faults: Sequence[tuple[str, str, str]], name: str, *arguments: str) -> None:
    every = found(name, *arguments)
    for rule, file, text in faults:
        same = [line for r, f, line in every if (r, f) == (rule, file)]
        assert any(text in line for line in same), (rule, text, same)


def test_faults_of_the_decode_layer() -> None:
    """Every fault of the published analysis that is visible in the source is found."""
    assert_found(
        [
            ("fill", "decode.py", "for ob in pl.range(blocks)"),
            ("shared-operand", "decode.py", "with pl.incore()"),
            ("stale-constant", "decode.py", "BATCH_TILE=4"),
            ("round-trip", "attention.py", "with pl.incore()"),
            ("discarded-rows", "attention.py", "pl.matmul("),
            ("added-product", "decode.py", "total = pl.add(total, product)"),
            ("added-product", "decode.py", "pl.add(so_far, down_part)"),
            ("shared-operand", "scope3.py", "with pl.incore()"),
            ("sum-in-memory", "decode.py", "for db in pl.parallel(0, HIDDEN_BLOCKS, chunk=4)"),
            ("crossing-tensor", "decode.py", "for ob in pl.range(Q_BLOCKS)"),
            ("no-pipeline", "decode.py", "for kb in pl.range(k_blocks)"),
        ],
        "qwen3/decode",
        "--variant",
        "baseline",
        *LAYER,
    )


def test_a_norm_without_its_root_in_the_decode_layer() -> None:
    right = found("qwen3/decode", "--variant", "baseline", *LAYER)
    assert not [place for place in right if place[0] == "missing-root"]
    wrong = found("qwen3/decode", "--variant", "baseline", "--rmsnorm-fault", *LAYER)
    assert [place for place in wrong if place[0] == "missing-root"]


def test_faults_of_scope_3() -> None:
    assert_found(
        [
            ("fill", "blocks.py", "for ob in pl.parallel(0, blocks"),
            ("round-trip", "scope3.py", "with pl.incore()"),
            ("shared-operand", "scope3.py", "with pl.incore()"),
            ("added-product", "scope3.py", "pl.add(so_far, down_part)"),
            ("sum-in-memory", "scope3.py", "with pl.incore()"),
            ("explicit-scope", "scope3.py", "pl.incore()"),
        ],
        "qwen3/scope3",
        "--variant",
        "baseline",
        *SCOPE3,
    )


def test_faults_of_scope_1_and_scope_2() -> None:
    assert_found(
        [
            ("sequential-loop", "scope1.py", "for ob in pl.range(Q_BLOCKS)"),
            ("shared-operand", "scope1.py", "with pl.incore()"),
            ("no-pipeline", "blocks.py", "for kb in pl.range(1, k_blocks)"),
            ("short-rows", "blocks.py", "pl.slice(w, [k_chunk, out_chunk]"),
        ],
        "qwen3/scope1",
        *("--variant", "per_block", "--hidden", "1024", "--kv-heads", "1"),
    )
    assert_found(
        [
            ("round-trip", "attention.py", "with pl.incore()"),
            ("discarded-rows", "attention.py", "raw = pl.matmul("),
            ("discarded-rows", "attention.py", "pl.matmul(exp_padded"),
            ("orchestrator", "attention.py", "with pl.incore()"),
        ],
        "qwen3/scope2",
        *("--variant", "staged", "--hidden", "2048", "--kv-heads", "2", "--max-seq", "256"),
    )


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("qwen3/scope1", "exchanged"),
        ("qwen3/scope2", "padding_free"),
        ("qwen3/scope3", "tuned"),
        ("qwen3/decode", "optimised"),
    ],
)
def test_rewritings_of_good_programs_improve_them(name: str, variant: str, thorough: bool) -> None:
    if not thorough:
        pytest.skip("takes minutes")
    target = Target(name, ("--variant", variant))
    programs = ExportedPrograms.of(target, SETTING)
    report = Advisor(target, SETTING, programs=programs).advise()
    for finding in report.findings:
        if finding.text is not None and not finding.rule.is_about_text:
            costs = examine(programs, finding.text, SETTING).costs
            assert costs is not None
            assert costs.us < report.before.us


@pytest.mark.parametrize(
    ("name", "variant", "sizes", "least"),
    [
        ("qwen3/scope3", "baseline", SCOPE3, 3.0),
        ("qwen3/scope3", "baseline", (), 10.0),
        ("qwen3/decode", "baseline", (), 8.0),
    ],
)
def test_fix_alone(
    name: str, variant: str, sizes: tuple[str, ...], least: float, thorough: bool
) -> None:
    """Results are compared after every step; the final text still runs."""
    if not thorough:
        pytest.skip("takes minutes")
    target = Target(name, ("--variant", variant, *sizes))
    programs = ExportedPrograms.of(target, SETTING)
    report = Advisor(target, SETTING, programs=programs, unproved=True).fix()
    assert report.before.us > least * report.after.us
    assert examine(programs, report.text, SETTING).costs == report.after
