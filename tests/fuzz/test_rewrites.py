"""Rewritings of generated programs are right, and wrong proofs would be detected."""

from __future__ import annotations

import textwrap

import pytest
from tests.fuzz import near_equal, racing, rewrites
from tests.fuzz.rewritable import HEAD, ROWS, WIDTH, Text, Version, inputs
from tests.fuzz.rewrites import REWRITES, Judge
from tests.fuzz.rounding import is_rounding

from tilelet.device.machine.description import load_machine
from tilelet.equivalence.proof import Equivalence, Proof
from tilelet.equivalence.trials import difference


def judged(first: int, count: int) -> Judge:
    judge = Judge(load_machine("a2a3"))
    for seed in range(first, first + count):
        judge.judge(seed)
    return judge


def test_rewritings_of_generated_programs() -> None:
    tally = judged(70_000, 40).tally
    assert tally.programs > 30
    assert tally.wrong == []
    kinds = {key.partition(": ")[2] for key in tally.outcomes}
    assert {"equal", "equal, and backwards", "equal, not ordered", "not proved", "tried"} <= kinds
    assert {"tune: equal", "export: equal"} <= tally.outcomes.keys()


def test_a_wrong_proof_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Equivalence, "proof", lambda *_: Proof(True))
    tally = judged(70_000, 25).tally
    assert {found.partition(":")[0] for _, found, _ in tally.wrong} >= {"fill", "tune"}


def test_a_wrong_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "is_ordered", lambda *_, **__: True)
    tally = judged(70_000, 25).tally
    assert {found.partition(": ")[2] for _, found, _ in tally.wrong} == {
        "wrong: proved, and differs backwards"
    }


def test_a_refused_program_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Text(70_000).program().replace("return z, w", "return z, v")
    monkeypatch.setattr(Text, "program", lambda _: text)
    (wrong,) = judged(70_000, 1).tally.wrong
    assert wrong[1] == "wrong: refused"


def test_nearly_equal_programs() -> None:
    judge = near_equal.Judge()
    for seed in range(60_000, 60_025):
        judge.judge(seed)
    tally = judge.tally
    assert tally.wrong == []
    assert tally.outcomes["equal"] > 20
    assert tally.outcomes["not shown equal"] > 20


def test_a_wrong_proof_of_a_nearly_equal_program_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Equivalence, "proof", lambda *_: Proof(True))
    judge = near_equal.Judge()
    for seed in range(60_000, 60_005):
        judge.judge(seed)
    tally = judge.tally
    assert len(tally.wrong) > 5


def test_races_against_a_log_of_every_access() -> None:
    judge = racing.Judge()
    for seed in range(50_000, 50_060):
        judge.judge(seed)
    tally = judge.tally
    assert tally.wrong == []
    assert tally.outcomes["race found"] > 10
    assert tally.outcomes["no race"] > 5


def test_a_race_that_the_check_misses_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilelet.checks.race.Races.findings", lambda _: [])
    judge = racing.Judge()
    for seed in range(50_000, 50_010):
        judge.judge(seed)
    tally = judge.tally
    assert "missed" in tally.outcomes


def test_a_seed_gives_the_same_program_again() -> None:
    assert Text(5).program() == Text(5).program()
    assert len({Text(seed).program() for seed in range(50)}) == 50


def test_the_generator_has_programs_for_every_rule() -> None:
    missing = {rule.name for rule in REWRITES}
    for seed in range(70_000, 70_400):
        subject = rewrites.quick_subject(Version(Text(seed).program()))
        missing -= {rule.name for rule, _ in rewrites.rewritings(subject)}
        if not missing:
            break
    assert not missing


def exp_of_exp(product: str) -> Version:
    """A program that amplifies the rounding of a sum of products."""
    start = f"pl.full([{ROWS}, {WIDTH}], dtype=pl.FP32, value=0.0)"
    lines = [f"acc = {start}", "for k in pl.range(2):", f"    acc = {product}"]
    lines.append(f"z[0:{ROWS}, :] = pl.exp(pl.exp(pl.mul(acc, 0.5)))")
    body = Text(0).scope(*lines) + "return z, w\n"
    return Version("import tilelet.language as pl\n\n\n" + HEAD + textwrap.indent(body, " " * 8))


def test_amplified_rounding_is_no_difference() -> None:
    part = f"k * {WIDTH // 2} : k * {WIDTH // 2} + {WIDTH // 2}"
    sides = f"x[0:{ROWS}, {part}], y[{part}, :]"
    before = exp_of_exp(f"pl.add(acc, pl.matmul({sides}))")
    after = exp_of_exp(f"pl.matmul_acc(acc, {sides})")
    wrong = exp_of_exp(f"pl.mul(pl.matmul_acc(acc, {sides}), 1.000001)")
    amplified = 0
    for seed in range(40):
        given = next(inputs(seed))
        old, new, other = (v.outputs(given) for v in (before, after, wrong))
        if difference([[old]], [[new]], rounding=True):
            amplified += 1
            assert is_rounding(before.program, after.program, given, (old, new))
        assert not is_rounding(before.program, wrong.program, given, (old, other))
    assert amplified
