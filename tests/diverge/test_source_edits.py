"""Mistakes in statements without an op: numbers, names, and missing assignments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.diverge.score import case_of, graded, load

from tilelet.divergence.answer import Answer, Options, answer
from tilelet.divergence.repair import RepairSearch, WrongElements
from tilelet.divergence.replay import Replay
from tilelet.ir.core import walk

TEXT = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLS, TILE, HEADS = 16, 96, 32, 3


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    w: pl.Tensor[[ROWS, COLS], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
    top: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]],
):
    for h in pl.parallel(HEADS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            col = h * TILE
            a = x[:, col : col + TILE]
            b = w[:, col : col + TILE]
            out[:, col : col + TILE] = pl.mul(a, b)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="maximum"):
        best = pl.full([ROWS, 1], dtype=pl.FP32, value=-1e30)
        for c in pl.range(0, COLS, TILE):
            larger = pl.maximum(best, pl.row_max(x[:, c : c + TILE]))
            best = larger
        top[:, :] = best
    return out, top


def golden(tensors):
    tensors["out"][:] = tensors["x"] * tensors["w"]
    tensors["top"][:] = tensors["x"].max(axis=1, keepdims=True)


def normal(seed):
    return lambda: np.random.default_rng(seed).normal(size=(ROWS, COLS))


SPECS = [
    TensorSpec("x", [ROWS, COLS], pl.FP32, normal(1)),
    TensorSpec("w", [ROWS, COLS], pl.FP32, normal(2)),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
    TensorSpec("top", [ROWS, 1], pl.FP32, is_output=True),
]
TOLERANCE = 1e-5
"""


def examined(old: str, new: str) -> tuple[Answer, int]:
    """Return the answer about a changed text, and the first changed line."""
    assert TEXT.count(old) == 1
    changed = TEXT.replace(old, new)
    line = next(
        i for i, (a, b) in enumerate(zip(TEXT.split("\n"), changed.split("\n")), 1) if a != b
    )
    return answer("kernel", case_of(load("silent", changed)), Options(20.0)), line


def test_a_number_that_several_statements_use_is_repaired() -> None:
    found, line = examined("col = h * TILE", "col = 0")
    assert [loc.line for loc in graded(found)[1]] == [line]
    assert found.divergence is not None
    assert found.divergence.grade == "repaired"
    assert "+ col = h * 32" in str(found)
    assert "tile `" not in str(found)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [("            best = larger\n", "", -1), ("best = larger", "bests = larger", 0)],
)
def test_a_missing_assignment_is_named_after_the_statement_before_it(
    old: str, new: str, line: int
) -> None:
    at = TEXT[: TEXT.index("best = larger")].count("\n") + 1 + line
    found = answer("kernel", case_of(load("missing", TEXT.replace(old, new))), Options(20.0))
    assert found.divergence is not None
    assert at in [loc.line for loc in graded(found)[1]]
    assert "`best = larger` after it" in str(found)


def test_an_assignment_to_another_name_of_a_value_may_be_missing() -> None:
    text = TEXT.replace("            best = larger\n", "").replace(
        "best = pl.full", "first = pl.full"
    )
    text = text.replace("        for c in", "        best = first\n        for c in")
    found = answer("kernel", case_of(load("renamed", text)), Options(20.0))
    assert "`best = larger` after it" in str(found)


def test_an_edit_that_makes_a_loop_endless_is_given_up() -> None:
    """Edits of the step or of the condition of a `while` would never end."""
    text = TEXT.replace(
        "        for c in pl.range(0, COLS, TILE):\n",
        "        c = 0\n        while c < COLS:\n",
    ).replace(
        "            best = larger\n", "            best = larger\n            c = c + TILE\n"
    )
    case = case_of(load("endless", text))
    replay = Replay(case.program, case.arguments)
    search = RepairSearch(case, replay, 1e9, lambda _: None)
    ops = [op for k in case.program.kernels for op in walk(k.body) if op.name.startswith("scalar.")]
    region: Any = WrongElements("top", np.ones((16, 1), np.bool_), None)
    search.run(ops, [], region)
    assert search.is_complete


SCATTER = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLS = 16, 64


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    order: pl.Tensor[[ROWS, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[2 * ROWS, COLS], pl.FP32]],
):
    rows = pl.create_tensor([ROWS, 1], dtype=pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="place"):
        rows[:, :] = pl.add(order[:, :], 0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="clear"):
        out[:, :] = pl.full([2 * ROWS, COLS], dtype=pl.FP32, value=0.0)
    for i in pl.range(ROWS):
        row = pl.read(rows, [i, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scatter"):
            out[row : row + 1, :] = pl.mul(x[i : i + 1, :], 2.0)
    return out


def golden(tensors):
    tensors["out"][:] = 0
    tensors["out"][tensors["order"][:, 0] + 1] = 2.0 * tensors["x"]


X = np.random.default_rng(1).normal(size=(ROWS, COLS))
SPECS = [
    TensorSpec("x", [ROWS, COLS], pl.FP32, lambda: X),
    TensorSpec("order", [ROWS, 1], pl.INT32, lambda: 2 * np.arange(ROWS).reshape(ROWS, 1)),
    TensorSpec("out", [2 * ROWS, COLS], pl.FP32, is_output=True),
]
TOLERANCE = 1e-5
"""


def test_what_decides_where_a_store_goes_is_tried() -> None:
    """Half of the wrong rows were cleared and never written by the wrong store."""
    found = answer("kernel", case_of(load("scatter", SCATTER)), Options(40.0))
    line = SCATTER[: SCATTER.index("pl.add(order")].count("\n") + 1
    assert line in [loc.line for loc in graded(found)[1]]
    assert "corrects the outputs" in str(found)
