"""Proofs for all sizes, and bounds: what isl shows, what it cannot, and an oracle that counts."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from tests.checks.programs import subject_of

import tilelet.language as pl
from tilelet.checks import memory, polyhedra, race
from tilelet.checks.findings import Status
from tilelet.checks.prove import prove_bounds, prove_order
from tilelet.checks.race import Races


@pytest.fixture(autouse=True)
def _needs_isl() -> None:
    pytest.importorskip("islpy")


def proof_of(kernel):
    races = Races(subject_of(kernel), "2026-07")
    return prove_order(races.subject.program, races.stream)


def stepping(step: int, rows: int, kind: str = "parallel"):
    loop = getattr(pl, kind)

    @pl.jit
    def steps(x: pl.Tensor[[256, 64], pl.FP32], out: pl.Out[pl.Tensor[[256, 64], pl.FP32]]):
        for i in loop(8):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i * step : i * step + rows, :] = pl.exp(x[i * step : i * step + rows, :])
        return out

    return steps


def test_iterations_that_are_apart_for_any_trip_count() -> None:
    assert proof_of(stepping(16, 16)).holds
    assert proof_of(stepping(24, 16)).holds
    part = race.check(subject_of(stepping(16, 16)))
    assert part.status is Status.PROVED


def test_iterations_that_meet_give_a_counter_example() -> None:
    proof = proof_of(stepping(8, 16))
    assert not proof.holds
    assert "may both touch `out[" in proof.why
    assert "i = " in proof.why


def test_blocks_of_a_task() -> None:
    @pl.jit
    def blocks(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        for b in pl.spmd(4):
            out[b * 16 : b * 16 + 16, :] = pl.exp(x[b * 16 : b * 16 + 16, :])
        return out

    assert proof_of(blocks).holds


def test_what_is_not_affine_is_said() -> None:
    @pl.jit
    def table(
        x: pl.Tensor[[64, 64], pl.FP32],
        rows: pl.Tensor[[4], pl.INT32],
        out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
    ):
        for i in pl.parallel(4):
            row = pl.read(rows, [i])
            with pl.at(level=pl.Level.CORE_GROUP):
                out[row : row + 16, :] = pl.exp(x[row : row + 16, :])
        return out

    given = {"rows": np.arange(0, 64, 16).astype(np.int32)}
    part = race.check(subject_of(table, given))
    assert part.status is Status.THIS_RUN
    assert any("not proved for all sizes" in remark for remark in part.remarks)


def test_without_isl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilelet.checks.prove.isl", lambda: None)
    part = race.check(subject_of(stepping(16, 16)))
    assert part.status is Status.THIS_RUN
    assert "pip install 'tilelet[prove]'" in part.remarks[-1]
    assert memory.check(subject_of(stepping(16, 16))).status is Status.THIS_RUN


def test_a_buffer_of_each_iteration_is_its_own() -> None:
    @pl.jit
    def scratch(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        for i in pl.parallel(4):
            t = pl.create_tensor([16, 64], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                t[:, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i * 16 : i * 16 + 16, :] = pl.add(t[:, :], 1.0)
        return out

    assert proof_of(scratch).holds


def test_proofs_agree_with_counting() -> None:
    """Random steps and sizes: isl's answer is that of trying all iterations."""
    rnd = random.Random(0)
    for _ in range(12):
        step, rows = rnd.choice([4, 8, 12, 16, 24]), rnd.choice([4, 8, 16])
        spans = [set(range(i * step, i * step + rows)) for i in range(40)]
        apart = all(not a & b for a, b in itertools.combinations(spans, 2))
        assert proof_of(stepping(step, rows)).holds == apart, (step, rows)


# --- bounds


def test_bounds_are_proved_or_found() -> None:
    part = memory.check(subject_of(stepping(16, 16)))
    assert part.status is Status.PROVED

    @pl.jit
    def beyond(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        for i in pl.parallel(4):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[i * 16 : i * 16 + 16, :] = pl.exp(x[i * 20 : i * 20 + 16, :])
        return out

    (found,) = memory.check(subject_of(beyond)).findings
    assert found.code == "E1130"
    assert found.places[0].task == 3


def test_bounds_agree_with_counting() -> None:
    rnd = random.Random(1)
    seen = set()
    for _ in range(12):
        step, rows = rnd.choice([8, 16, 31, 33, 40]), rnd.choice([8, 16, 32])
        inside = all(i * step + rows <= 256 for i in range(8))
        shown, count, _ = prove_bounds(subject_program(step, rows))
        assert (shown == count) == inside, (step, rows)
        seen.add(inside)
    assert seen == {False, True}


def subject_program(step: int, rows: int):
    from tilelet.passes.pipeline import run_passes

    return run_passes(stepping(step, rows).specialize())


def test_accesses_of_every_statement() -> None:
    found = polyhedra.Accesses.of(subject_program(16, 16))
    assert sorted((a.root.name, a.writes) for a in found.found) == [("out", True), ("x", False)]
    assert not found.gaps
