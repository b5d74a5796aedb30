"""Grades of faults in the text of kernels: no innocent statement is blamed."""

from __future__ import annotations

import pytest
from tests.diverge.score import HERE, Score, case_of, load, scores

from tilelet.divergence.answer import Answer
from tilelet.divergence.scoped_edits import Visible
from tilelet.ir.core import walk

BUDGET = 20.0


def one(name: str) -> tuple[Score, Answer]:
    (found,) = scores("programs", name, BUDGET)
    return found


@pytest.mark.parametrize(
    "name", ["int8: lost block", "int8: scale of other columns", "int8: truncated"]
)
def test_a_statement_is_repaired_if_no_other_can_be_changed(name: str) -> None:
    score, answer = one(name)
    assert (score.grade, score.has_fault, score.innocent) == ("repaired", True, False)
    assert answer.divergence is not None
    (repair,) = answer.divergence.repairs
    assert repair.trials == 2
    assert answer.diagnostics[0].code == "E1151"


@pytest.mark.parametrize("name", ["int8: factor for scale", "swiglu: lost accumulation"])
def test_statements_that_can_be_changed_alike_are_candidates(name: str) -> None:
    """`up = u` has no op of its own: it is listed beside the statement that computes `u`."""
    score, answer = one(name)
    assert (score.grade, score.has_fault, score.size) == ("bounded", True, 2)
    assert answer.diagnostics[0].code == "E1158"
    assert answer.divergence is not None
    assert answer.divergence.statement is None


def test_a_spent_budget_blames_nothing() -> None:
    (found,) = scores("programs", "int8: lost block", 1.0)
    score, answer = found
    assert score.grade != "repaired"
    assert answer.divergence is not None
    assert not answer.divergence.is_complete
    assert "larger --budget" in str(answer)


def test_after_a_loop_a_variable_has_the_value_that_the_loop_leaves() -> None:
    text = (HERE / "held_out" / "cross_entropy.py").read_text(encoding="utf-8")
    program = case_of(load("cross_entropy", text)).program
    (kernel,) = program.kernels
    ops = list(walk(kernel.body))
    loop, log = (next(op for op in ops if op.name == name) for name in ("for", "log"))
    visible = Visible(kernel.body, kernel.params)
    peaks = [v for v in visible.tiles(log) if v.name == "peak"]
    assert len(peaks) == 1
    assert peaks[0] in loop.results
