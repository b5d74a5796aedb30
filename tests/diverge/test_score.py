"""Grades of faults in the text of kernels: no innocent statement is blamed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.diverge.score import HERE, Score, case_of, load, scores

import tilelet.language as pl
from tilelet.divergence.answer import Answer, Options, answer
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.edits import replaced_scalars
from tilelet.divergence.evidence import Agreement
from tilelet.divergence.matching import Matcher
from tilelet.divergence.misplaced import WindowSearch
from tilelet.divergence.outer_values import with_outer_values
from tilelet.divergence.replay import Replay
from tilelet.divergence.scoped_edits import ScopedEdits, Visible
from tilelet.divergence.slices import Slice
from tilelet.ir.core import walk
from tilelet.runtime import TensorSpec

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
    (found,) = scores("programs", "int8: lost block", 0.05)
    score, answer = found
    assert score.grade != "repaired"
    assert answer.divergence is not None
    assert not answer.divergence.is_complete
    assert "larger --budget" in str(answer)


def broken(folder: str, name: str, fault: str) -> GoldenCase:
    text = (HERE / folder / f"{name}.py").read_text(encoding="utf-8")
    old, new = load(name, text).FAULTS[fault]
    case = case_of(load(name, text.split("FAULTS =")[0].replace(old, new)))
    assert case.written is not None
    return replace(case, program=case.written())


def evidence(case: GoldenCase) -> tuple[Replay, Matcher, Agreement]:
    replay = Replay(with_outer_values(case.program), case.arguments)
    matcher = Matcher([*case.intermediates, *case.partial({16, 32})])
    return replay, matcher, Agreement(replay.trace, matcher, {}, 1e-2)


def test_running_values_agree_with_the_golden_over_the_blocks_so_far() -> None:
    """A maximum of the last block is no running maximum, although it agrees with a block."""
    replay, _, agreement = evidence(broken("programs", "causal_flash", "old maximum kept"))
    agrees: dict[tuple[str, int], list[bool]] = {}
    for n, event in enumerate(replay.trace.events):
        blocks = dict(replay.trace.iteration(event)).get("j", -1)
        if event.op.results and blocks >= 0:
            key = event.op.results[0].name, event.op.loc.line
            agrees.setdefault(key, []).append(agreement.of(n) is not None or blocks == 0)
    by_name = {name: all(some) for (name, _), some in sorted(agrees.items())}
    assert by_name["m_new"] is False
    assert by_name["row_max"]
    assert by_name["m"] is False


def test_the_index_of_a_misplaced_load_is_inferred() -> None:
    """Two of four heads share keys: the index is `h // 2`, but the kernel has `h % 2`."""
    replay, matcher, agreement = evidence(broken("held_out_2", "local_flash", "heads not grouped"))
    edits = ScopedEdits(replay.program, ())
    search = WindowSearch(replay.trace, matcher, agreement, edits, replay.add_steps)
    everything = Slice(frozenset(range(len(replay.trace.events))))
    loads = search.misplaced(everything)
    keys = next(op for op in loads if op.results[0].name == "key")
    assert any(
        "`k0 - (h % 2) * 96 + (h // 2) * 96`" in e.text for e in search.edits({keys: loads[keys]})
    )


def test_the_statements_that_compute_an_inferred_index_are_candidates() -> None:
    """No single change of `k0 = j * TILE` gives `(i - 1 + j) * TILE`."""
    (found,) = scores("held_out", "window_attention: values from the start", BUDGET)
    score, answer = found
    assert (score.grade, score.has_fault, score.size) == ("bounded", True, 2)
    assert "`k0 + i * 32 - 32` instead of `k0`" in str(answer)
    assert "loaded from [0, 0]; from [32, 0] the next value would agree" in str(answer)


def test_a_parameter_that_is_used_nowhere_is_combined_with_a_tile() -> None:
    (found,) = scores("held_out", "norm_rope: no gain", BUDGET)
    score, answer = found
    assert (score.grade, score.has_fault) == ("repaired", True)
    assert "pl.col_expand_mul(pl.row_expand_mul(tile, inverse), gain[:, :])" in str(answer)


def test_indices_of_other_integer_types_are_tried() -> None:
    """A page number from memory is INT32, the index of a loop is not."""
    program = with_outer_values(broken("programs", "paged_gqa", "wrong head").program)
    edits = ScopedEdits(program, ())
    texts = [e.text for k in program.kernels for op in walk(k.body) for e in edits.of(op)]
    assert "`g` instead of `0`" in texts


def test_a_bound_says_on_what_it_depends() -> None:
    (found,) = scores("programs", "int8: lost block", 0.01)
    text = str(found[1])
    assert "if the values that agree are the ones meant, the mistake is in one of" in text
    divergence = found[1].divergence
    assert divergence is not None
    assert all(golden["golden"]["name"] for golden in found[1].to_data()["divergence"]["agreeing"])
    assert found[0].has_fault


def test_assignments_without_an_op_are_listed() -> None:
    """`expert = member` has no op; the load that uses it can be changed."""
    (found,) = scores("held_out_2", "group_route: member for expert", BUDGET)
    score, answer = found
    assert (score.grade, score.has_fault, score.size) == ("bounded", True, 3)
    assert "`member + group * 8` instead of `member`" in str(answer)


TEMPERATURE = 0.25


@pl.jit
def scaled_late(
    x: pl.Tensor[[16, 64], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
        tile = pl.slice(x, [16, 64], [0, 0])
        shifted = pl.row_expand_sub(tile, pl.row_max(tile))
        weights = pl.mul(pl.exp(shifted), TEMPERATURE)
        out[:, :] = pl.row_expand_div(weights, pl.row_sum(weights))
    return out


def test_a_factor_is_moved_to_another_statement() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        e = np.exp(tensors["x"].astype(np.float64) * TEMPERATURE)
        tensors["out"][:] = e / e.sum(axis=1, keepdims=True)

    specs = [
        TensorSpec("x", [16, 64], pl.FP32, lambda: np.random.default_rng(1).normal(size=(16, 64))),
        TensorSpec("out", [16, 64], pl.FP32, is_output=True),
    ]
    module = SimpleNamespace(kernel=scaled_late, SPECS=specs, golden=golden, TOLERANCE=1e-4)
    case = case_of(module)
    replay = Replay(case.program, case.arguments)
    edits = ScopedEdits(replay.program, ())
    moved = [
        e for k in replay.program.kernels for op in walk(k.body) for e in edits.of(op) if e.also
    ]
    right = [e for e in moved if case.passes(replay.outputs(e))]
    assert {e.text for e in right} >= {"multiply `shifted` by 0.25 instead"}


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


@pytest.mark.parametrize(
    ("file", "fault", "edit"),
    [
        ("held_out_3/delta_rule", "state not decayed", "`keep` instead of `1.0`"),
        ("held_out_3/sorted_experts", "pair for token", "`pair // 2`"),
        ("held_out_3/sorted_experts", "gate not clamped", "`pl.minimum` with 1.5 instead of"),
        ("held_out_3/sorted_experts", "one missing", "1 instead of 0"),
        ("held_out_3/quant_cache", "no masked tail", "`pl.min(32, length - i * 32)` instead of"),
        ("held_out_4/adamw", "square of the raw gradient", "`scaled` instead of `raw` everywhere"),
        ("held_out_4/conv_pool", "taps transposed", "swap `dx` and `dy`"),
        ("held_out_4/conv_pool", "line without its border", "`18` instead of `16`"),
        ("held_out_4/latent_attention", "position one too far", "`position - 1`"),
        ("held_out_4/attention_backward", "mask forgotten for queries", "`pl.add(z, below[:, :])`"),
        ("held_out_4/gru", "both directions forward", "`4 - step` instead of `step`"),
        (
            "held_out_5/loss_backward",
            "mass not rescaled",
            "`pl.mul(mass, pl.exp(pl.sub(top, best)))`",
        ),
        ("held_out_5/pooled_embedding", "bag by batch", "`t * 6 + b`"),
        ("programs/chunked_scan", "swapped indices", "`c * 32 + h * 96`"),
        ("held_out_5/pooled_embedding", "mean of a constant length", "`pl.div(total, bottom)`"),
    ],
)
def test_edits_of_held_out_faults_are_tried(file: str, fault: str, edit: str) -> None:
    folder, name = file.split("/")
    program = with_outer_values(broken(folder, name, fault).program)
    edits = ScopedEdits(program, (1.5,))
    texts = [e.text for k in program.kernels for op in walk(k.body) for e in edits.of(op)]
    assert any(text.startswith(edit) for text in texts)


def test_a_scaled_load_replaces_none_of_its_indices() -> None:
    """The statements that compute the indices are no candidates then."""
    program = broken("programs", "causal_flash", "scale after the maximum").program
    edits = ScopedEdits(program, (0.5,))
    ops = [op for k in program.kernels for op in walk(k.body)]
    (load,) = (op for op in ops if op.name == "slice" and op.result.name == "query")
    scaled = [e for e in edits.of(load) if e.text.startswith("`pl.mul(query, ")]
    assert scaled
    assert not any(replaced_scalars(e) for e in scaled)


@pl.jit
def unweighted(
    x: pl.Tensor[[16, 64], pl.FP32],
    weights: pl.Tensor[[16, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 1], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="squares"):
        tile = pl.slice(x, [16, 64], [0, 0])
        total = pl.row_sum(pl.mul(tile, tile))
        out[:, :] = total
    return out


def test_a_function_of_a_value_may_be_missing_where_the_value_is_used() -> None:
    """The store could multiply by the weights as well as the statement before it."""

    def golden(tensors: dict[str, Any]) -> None:
        squares = (tensors["x"].astype(np.float64) ** 2).sum(axis=1, keepdims=True)
        tensors["out"][:] = squares * tensors["weights"]

    rng = np.random.default_rng
    specs = [
        TensorSpec("x", [16, 64], pl.FP32, lambda: rng(1).normal(size=(16, 64))),
        TensorSpec("weights", [16, 1], pl.FP32, lambda: rng(2).uniform(0.5, 2, (16, 1))),
        TensorSpec("out", [16, 1], pl.FP32, is_output=True),
    ]
    module = SimpleNamespace(kernel=unweighted, SPECS=specs, golden=golden, TOLERANCE=1e-4)
    found = answer("unweighted", case_of(module), Options(BUDGET)).divergence
    assert found is not None
    first = unweighted.__wrapped__.__code__.co_firstlineno
    assert found.grade == "bounded"
    assert {s.loc.line - first for s in found.listed} == {8, 9}


def test_counts_stay_whole_in_other_inputs() -> None:
    """With other counts, `min(count, 1)` of the kernel is not `count > 0` of the golden."""
    (found,) = scores("held_out_3", "nucleus: penalties exchanged", BUDGET)
    score, answer = found
    assert (score.grade, score.has_fault) == ("repaired", True)
    assert "for these inputs and 2 others" in str(answer)


@pytest.mark.parametrize("folder", ["held_out_3", "held_out_4", "held_out_5"])
def test_held_out_faults_are_found(thorough: bool, folder: str) -> None:
    if not thorough:
        pytest.skip("with --thorough")
    found = [score for score, _ in scores(folder, "", 40.0)]
    assert sum(score.found for score in found) >= 0.8 * len(found)
    assert not any(score.innocent for score in found)
