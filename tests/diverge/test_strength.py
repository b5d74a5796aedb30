"""Strength of a golden: undetected changes are reported, with tests that would detect them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diverge.kernels import normal

import tilelet.language as pl
from tilelet.cli.main import main
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.strength import strength
from tilelet.runtime import TensorSpec, run_jit, session
from tilelet.runtime.handlers.examine import Examine
from tilelet.runtime.session import Session

ROWS, COLS = 16, 64


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    cache: pl.InOut[pl.Tensor[[ROWS, COLS], pl.FP32]],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="both"):
        kept = pl.exp(x)
        cache = pl.assemble(cache, kept, [0, 0])
        small = pl.mul(pl.sqrt(kept), 1e-6)
        out = pl.assemble(out, pl.add(pl.mul(x, 2.0), small), [0, 0])
    return out


def golden(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = 2.0 * tensors["x"]  # and says nothing about the cache


SPECS = [
    TensorSpec("x", [ROWS, COLS], pl.FP32, normal(1, ROWS, COLS)),
    TensorSpec("cache", [ROWS, COLS], pl.FP32, normal(2, ROWS, COLS)),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
]


@pytest.fixture(scope="module")
def case() -> GoldenCase:
    handler = Examine()
    with session.active(Session(handler)):
        run_jit(kernel, SPECS, golden_fn=golden, rtol=1e-3, atol=1e-3)
    return handler.cases[0][1]


def test_what_reaches_no_compared_output_is_named_with_the_output_that_would_show_it(
    case: GoldenCase,
) -> None:
    found = strength(case, 60.0)
    assert found.tried == found.total
    names = {one.edit.op.name: one for one in found.unnoticed if one.kind in ("zeroed", "dropped")}
    assert set(names) == {"add", "exp", "assemble", "sqrt", "mul"}
    assert "compare `cache`, too" in names["assemble"].remedies
    assert any("times tighter" in text for text in names["sqrt"].remedies)
    stores = [one.edit for one in found.unnoticed if one.edit.op.name == "assemble"]
    assert len(stores) == 1  # the one into `out` is noticed


def test_a_budget_is_work_not_time(case: GoldenCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, whose clocks advance between any two steps, the answer is the same."""
    quiet = strength(case, 60.0)
    little = strength(case, 1e-3)
    assert little.tried < quiet.tried
    for clock in ("monotonic", "perf_counter", "process_time", "time"):
        monkeypatch.setattr(time, clock, itertools.count(0, 1000).__next__)
    busy = strength(case, 60.0)
    assert (busy.tried, busy.noticed) == (quiet.tried, quiet.noticed)
    assert strength(case, 1e-3).tried == little.tried


def test_the_same_seed_tries_the_same(case: GoldenCase) -> None:
    def texts(seed: int) -> list[str]:
        return [one.edit.text for one in strength(case, 60.0, seed).unnoticed]

    assert texts(3) == texts(3)
    assert sorted(texts(3)) == sorted(texts(4))


def test_every_corruption_changes_something_or_is_one(case: GoldenCase) -> None:
    """The replay agrees with a complete run."""
    from tilelet.divergence.edits import apply_edit
    from tilelet.divergence.replay import Replay
    from tilelet.divergence.strength import corruptions
    from tilelet.interp.interpreter import Interpreter
    from tilelet.ir.core import walk

    replay = Replay(case.program, case.arguments)
    edits = [e for f in case.program.kernels for op in walk(f.body) for _, e in corruptions(op)]
    assert len(edits) > 10
    for edit in edits:
        given = {n: np.array(a) for n, a in case.arguments.items()}
        Interpreter().run(apply_edit(case.program, edit), given)
        made = replay.outputs(edit)
        for name, array in made.items():
            np.testing.assert_array_equal(array, given[name], err_msg=edit.text)


def test_the_command_says_how_much_it_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "weak.py"
    script.write_text(
        "from tests.diverge.test_strength import *\n"
        "run_jit(kernel, SPECS, golden_fn=golden, rtol=1e-3, atol=1e-3)\n"
    )
    assert main(["check", "--only", "golden", "--budget", "30s", str(script)]) == 1
    shown = capsys.readouterr()
    assert "mutations tried" in shown.out
    assert "compare `cache`, too" in shown.err
    script.write_text("from tests.diverge.test_strength import *\nrun_jit(kernel, SPECS)\n")
    assert main(["check", "--only", "golden", str(script)]) == 0
    assert "not checked" in capsys.readouterr().out


@pl.jit
def shifted(x: pl.Tensor[[ROWS, COLS], pl.FP32], out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        e = pl.exp(pl.row_expand_sub(x, pl.row_max(x)))
        out[:, :] = pl.row_expand_div(e, pl.row_sum(e))
    return out


def softmax(tensors: dict[str, Any]) -> None:
    e = np.exp(tensors["x"].astype(np.float64))
    tensors["out"][:] = e / e.sum(axis=1, keepdims=True)


def test_no_tolerance_below_rounding_is_recommended() -> None:
    """Without the maximum, results differ only in their last bits."""
    handler = Examine()
    with session.active(Session(handler)):
        run_jit(shifted, [SPECS[0], SPECS[2]], golden_fn=softmax, rtol=1e-3, atol=1e-3)
    unnoticed = strength(handler.cases[0][1], 60.0).unnoticed
    (one,) = [u for u in unnoticed if u.edit.op.name == "row_max" and u.kind == "zeroed"]
    assert one.remedies == ["other inputs: with these, it changes the result no more than rounding"]
