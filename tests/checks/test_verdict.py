"""Which checks are run, and what the verdict says about them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.checks.programs import subject_of
from tests.checks.test_race import atomic_blocks

import tilelet
import tilelet.language as pl
from tilelet.checks.findings import Status
from tilelet.checks.registry import CHECKS, chosen_checks
from tilelet.checks.verdict import MAX_NAMED, verdict_on
from tilelet.diag.catalogue.checks import UnknownCheck

X = pl.Tensor[[8, 128], pl.FP32]
ACC = pl.Out[pl.Tensor[[8, 128], pl.FP32]]


def test_a_check_that_cannot_be_made_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: object) -> None:
        raise UnknownCheck("what", [])

    monkeypatch.setattr("tilelet.checks.init.check", fails)
    verdict = verdict_on(subject_of(atomic_blocks), chosen_checks(["init", "capacity"]))
    assert [p.status for p in verdict.parts] == [Status.NOT_CHECKED, Status.PROVED]
    assert verdict.parts[0].summary == "no check `what`"


def test_checks_are_chosen_by_name() -> None:
    assert [c.name for c in chosen_checks(["limits", "capacity"])] == ["capacity", "limits"]
    assert chosen_checks([]) == [c for c in CHECKS.values() if not c.opt_in]
    with pytest.raises(UnknownCheck, match="no check `limit`"):
        chosen_checks(["limit"])


@pl.jit
def many_tasks(x: X, acc: ACC):
    for i in pl.parallel(8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="row"):
            acc[i : i + 1, :] = pl.add(x[i : i + 1, :], 1.0)
    return acc


@pl.jit
def many_racing(x: X, acc: ACC):
    for _ in pl.parallel(8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="row"):
            acc[0:1, :] = pl.add(x[0:1, :], acc[0:1, :])
    return acc


def test_of_very_many_tasks_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that needs a whole run claims nothing; other proofs and findings stay."""
    monkeypatch.setattr("tilelet.checks.verdict.MAX_TASKS", 3)
    parts = {p.check: p for p in tilelet.check(many_tasks).parts}
    assert parts["init"].status is Status.NOT_CHECKED
    assert parts["init"].summary == "more than 3 tasks: choose smaller sizes"
    assert parts["memory"].status is Status.PROVED
    assert parts["race"].status is Status.PROVED
    told = r"the first 3 tasks of more under the rules of \d{4}-\d\d"
    assert re.fullmatch(told, parts["race"].summary)
    assert parts["limits"].summary.startswith("the first 3 tasks of more; ")
    found = tilelet.check(many_racing, only=["race"])
    assert [f.code for f in found.findings] == ["E1103"]
    monkeypatch.setattr("tilelet.checks.verdict.MAX_TASKS", 8)
    assert {p.check: p for p in tilelet.check(many_tasks).parts}["init"].status is Status.THIS_RUN


@pl.jit
def narrow_columns(x: pl.Tensor[[40, 128], pl.FP32], out: pl.Out[pl.Tensor[[40, 128], pl.FP32]]):
    for r in pl.range(0, 40, 5):
        with pl.at(level=pl.Level.CORE_GROUP):
            rows = x[r : r + 5, :]
            most = pl.row_max(rows)
            least = pl.row_min(rows)
            shifted = pl.row_expand_sub(rows, most)
            out[r : r + 5, :] = pl.row_expand_mul(shifted, least)
    return out


def test_findings_of_one_cause_are_one_finding() -> None:
    (finding,) = verdict_on(subject_of(narrow_columns), chosen_checks(["alignment"])).findings
    assert finding.message == "column `most` [5, 1] FP32 has 20 bytes, not a multiple of 32"
    assert "1 more finding of the same cause:" in finding.diagnostic.notes[-1]
    assert "column `least` [5, 1] FP32" in finding.diagnostic.notes[-1]


@pl.jit
def two_tensors(
    x: pl.Tensor[[16, 128], pl.FP32],
    a: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
    b: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="make"):
            a[:, :] = pl.exp(x[:, :])
            b[:, :] = pl.neg(x[:, :])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="take"):
            out[:, :] = pl.add(a[:, :], b[:, :])
    return a, b, out


def test_one_missing_dependency_is_one_race() -> None:
    (finding,) = verdict_on(subject_of(two_tensors), chosen_checks(["race"])).findings
    assert "race on `a`" in finding.message
    assert "race on `b`" in finding.diagnostic.notes[-1]


N = pl.dynamic("N")


@pl.jit
def any_rows(x: pl.Tensor[[N, 128], pl.FP32], out: pl.Out[pl.Tensor[[N, 128], pl.FP32]]):
    for r in pl.parallel(0, N, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            rows = pl.slice(x, [16, 128], [r, 0], valid_shape=[pl.min(N - r, 16), 128])
            out[r : r + 16, :] = pl.exp(rows)
    return out


@pl.jit
def rows_of_a_table(
    x: pl.Tensor[[64, 128], pl.FP32],
    table: pl.Tensor[[4], pl.INT32],
    count: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
):
    for i in pl.range(pl.read(count, [0])):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [i])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


@pl.jit
def rows_of_a_sum(
    x: pl.Tensor[[64, 128], pl.FP32],
    first: pl.Tensor[[1, 16], pl.INT32],
    unused: pl.Tensor[[1, 16], pl.INT32],
    out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
):
    table = pl.create_tensor([1, 16], dtype=pl.INT32)
    more = pl.create_tensor([1, 16], dtype=pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP):
        more[:, :] = pl.add(unused[:, :], 1)
    with pl.at(level=pl.Level.CORE_GROUP):
        table[:, :] = pl.mul(first[:, :], 16)
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [0, i])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


def test_inputs_from_which_a_task_computes_places_are_named() -> None:
    x, first = np.zeros((64, 128), np.float32), np.arange(16, dtype=np.int32).reshape(1, 16)
    parts = {p.check: p for p in tilelet.check(rows_of_a_sum, x, first, first, x.copy()).parts}
    assert parts["init"].not_looked_at == "for other values of `first`"


def test_many_inputs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{i}" for i in range(MAX_NAMED + 2)]
    monkeypatch.setattr("tilelet.checks.verdict.deciding_inputs", lambda _: names)
    x, first = np.zeros((64, 128), np.float32), np.arange(16, dtype=np.int32).reshape(1, 16)
    parts = {p.check: p for p in tilelet.check(rows_of_a_sum, x, first, first, x.copy()).parts}
    assert parts["init"].not_looked_at.endswith("`n4`, `n5` or 2 more")


def test_answers_name_the_sizes_and_inputs_that_they_cover() -> None:
    x = np.zeros((64, 128), np.float32)
    parts = {p.check: p for p in tilelet.check(any_rows, x, x.copy()).parts}
    assert parts["race"].status is Status.PROVED
    assert parts["race"].text.endswith("; for all `N`")
    table, count = np.arange(0, 64, 16, dtype=np.int32), np.array([4], np.int32)
    verdict = tilelet.check(rows_of_a_table, x, table, count, x.copy())
    parts = {p.check: p for p in verdict.parts}
    assert parts["init"].status is Status.THIS_RUN
    assert parts["init"].text.endswith("; not for other values of `table` or `count`")
    assert verdict.unchecked["init"] == "for other values of `table` or `count`"
    assert parts["capacity"].not_looked_at == ""
