"""Mistakes that are corrected by a term, a limit, or an expression of other tiles."""

from __future__ import annotations

import pytest
from tests.diverge.score import case_of, graded, load

from tilelet.divergence.answer import Options, answer

TEXT = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLS = 16, 32


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    w: pl.Tensor[[1, COLS], pl.FP32],
    n: pl.Tensor[[ROWS, COLS], pl.INT32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
    count: pl.Out[pl.Tensor[[ROWS, COLS], pl.INT32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
        tile = x[:, :]
        first = pl.row_max(tile)
        second = pl.row_sum(pl.abs(tile))
        factor = pl.recip(pl.add(first, second))
        gain = pl.add(w[:, :], 1.0)
        gained = pl.minimum(pl.col_expand_mul(tile, gain), 0.75)
        out[:, :] = pl.row_expand_mul(gained, factor)
        count[:, :] = pl.add(n[:, :], 1)
    return out, count


def golden(tensors):
    x = tensors["x"].astype(np.float64)
    factor = 1 / (x.max(axis=1, keepdims=True) + np.abs(x).sum(axis=1, keepdims=True))
    tensors["out"][:] = np.minimum(x * (1 + tensors["w"]), 0.75) * factor
    tensors["count"][:] = tensors["n"] + 1


def normal(seed, rows):
    return lambda: np.random.default_rng(seed).normal(size=(rows, COLS))


SPECS = [
    TensorSpec("x", [ROWS, COLS], pl.FP32, normal(1, ROWS)),
    TensorSpec("w", [1, COLS], pl.FP32, normal(2, 1)),
    TensorSpec("n", [ROWS, COLS], pl.INT32, lambda: np.arange(ROWS * COLS).reshape(ROWS, COLS)),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
    TensorSpec("count", [ROWS, COLS], pl.INT32, is_output=True),
]
TOLERANCE = 1e-5
"""


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("pl.add(first, second)", "pl.row_sum(tile)", "pl.add(second, first)"),
        ("gain = pl.add(w[:, :], 1.0)", "gain = w[:, :]", "pl.add(gain, 1)"),
        ("pl.minimum(pl.col_expand_mul(tile, gain), 0.75)", "pl.col_expand_mul(tile, gain)",
         "pl.minimum(gained, 0.75)"),
        ("pl.add(n[:, :], 1)", "n[:, :]", "1"),
    ],
)  # fmt: skip
def test_a_missing_part_of_an_expression_is_found(old: str, new: str, change: str) -> None:
    assert TEXT.count(old) == 1
    line = TEXT[: TEXT.index(old)].count("\n") + 1
    found = answer("kernel", case_of(load("tiles", TEXT.replace(old, new))), Options(40.0))
    assert found.divergence is not None
    assert line in [loc.line for loc in graded(found)[1]]
    assert len(found.divergence.listed) <= 2
    assert change in str(found)


def test_changes_that_fail_for_other_inputs_bound_the_mistake() -> None:
    """The inputs `y` are twice `x`, but redrawn inputs are not, so no change is right for them."""
    text = (
        TEXT.replace(
            "SPECS = [",
            'SPECS = [\n    TensorSpec("y", [ROWS, COLS], pl.FP32, lambda: 2 * normal(1, ROWS)()),',
        )
        .replace("    x: pl.Tensor", "    y: pl.Tensor[[ROWS, COLS], pl.FP32],\n    x: pl.Tensor")
        .replace("tile = x[:, :]", "tile = pl.mul(y[:, :], 2.0)")
    )
    found = answer("kernel", case_of(load("derived", text)), Options(40.0))
    line = text[: text.index("tile = pl.mul")].count("\n") + 1
    assert found.divergence is not None
    assert found.divergence.grade == "bounded"
    assert line in [loc.line for loc in graded(found)[1]]
    assert "for these inputs, but not for" in str(found)


def test_a_number_that_holds_for_some_other_inputs_bounds_the_mistake() -> None:
    """`exp` of the largest of the other inputs overflows, in the corrected program, too."""
    text = (
        TEXT.replace("gained = ", "powers = pl.exp(pl.mul(tile, 2.5))\n        gained = ")
        .replace(
            "pl.row_expand_mul(gained, factor)", "pl.row_expand_div(powers, pl.row_sum(powers))"
        )
        .replace('= np.minimum(x * (1 + tensors["w"]), 0.75) * factor', "= POWERS / SUM")
        .replace("POWERS / SUM", "np.exp(12 * x) / np.exp(12 * x).sum(axis=1, keepdims=True)")
    )
    found = answer("kernel", case_of(load("overflow", text)), Options(40.0))
    line = text[: text.index("powers = ")].count("\n") + 1
    assert found.divergence is not None
    assert found.divergence.grade == "bounded"
    assert line in [loc.line for loc in graded(found)[1]]
    assert "for these inputs and 1 other, but not for 1 other" in str(found)


CENTERED = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, COLS = 16, 32


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    n: pl.Tensor[[ROWS, COLS], pl.INT32],
    means: pl.Tensor[[1, 1], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
    low: pl.Out[pl.Tensor[[ROWS, COLS], pl.INT32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="center"):
        mean = pl.read(means, [0, 0])
        total = pl.full([ROWS, COLS], dtype=pl.FP32, value=0.0)
        for i in pl.range(2):
            tile = x[:, :]
            total = pl.add(total, pl.sub(tile, mean))
        out[:, :] = total
        codes = n[:, :]
        low[:, :] = pl.ands(codes, 15)
    return out, low


def golden(tensors):
    tensors["out"][:] = 2 * (tensors["x"] - tensors["means"][0, 0])
    tensors["low"][:] = tensors["n"] & 15


def normal(seed, shape):
    return lambda: np.random.default_rng(seed).normal(size=shape)


SPECS = [
    TensorSpec("x", [ROWS, COLS], pl.FP32, normal(1, (ROWS, COLS))),
    TensorSpec("n", [ROWS, COLS], pl.INT32, lambda: np.arange(ROWS * COLS).reshape(ROWS, COLS)),
    TensorSpec("means", [1, 1], pl.FP32, normal(3, (1, 1))),
    TensorSpec("out", [ROWS, COLS], pl.FP32, is_output=True),
    TensorSpec("low", [ROWS, COLS], pl.INT32, is_output=True),
]
TOLERANCE = 1e-5
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("value=0.0", "value=-1.0"), ("codes, 15", "codes, 3"), ("tile, mean", "tile, 0.0")],
)
def test_values_of_constant_tiles_masks_and_scalars_are_tried(old: str, new: str) -> None:
    """A sum that starts from -1, four bits cut to two, a mean from memory not subtracted."""
    assert CENTERED.count(old) == 1
    line = CENTERED[: CENTERED.index(old)].count("\n") + 1
    found = answer("kernel", case_of(load("full", CENTERED.replace(old, new))), Options(40.0))
    assert found.divergence is not None
    assert line in [loc.line for loc in graded(found)[1]]
    assert len(found.divergence.listed) <= 4


PLACED = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec

ROWS, DIM, HEADS, SHARED = 16, 32, 4, 2
ALL = (HEADS + 2 * SHARED) * DIM
TOLERANCE = 1e-5


@pl.jit
def kernel(
    x: pl.Tensor[[ROWS, ALL], pl.FP32],
    k: pl.Out[pl.Tensor[[ROWS, SHARED * DIM], pl.FP32]],
    v: pl.Out[pl.Tensor[[ROWS, SHARED * DIM], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="split"):
        for h in pl.range(SHARED):
            first = (HEADS + h) * DIM
            k[:, h * DIM : (h + 1) * DIM] = pl.mul(x[:, first : first + DIM], 2.0)
            second = (HEADS + h) * DIM  # wrong
            v[:, h * DIM : (h + 1) * DIM] = pl.mul(x[:, second : second + DIM], 3.0)
    return k, v


def golden(tensors):
    start = HEADS * DIM
    tensors["k"][:] = tensors["x"][:, start : start + SHARED * DIM] * 2
    tensors["v"][:] = tensors["x"][:, start + SHARED * DIM :] * 3


def normal():
    return np.random.default_rng(3).normal(size=(ROWS, ALL))


SPECS = [
    TensorSpec("x", [ROWS, ALL], pl.FP32, normal),
    TensorSpec("k", [ROWS, SHARED * DIM], pl.FP32, is_output=True),
    TensorSpec("v", [ROWS, SHARED * DIM], pl.FP32, is_output=True),
]
"""


@pytest.mark.parametrize("place", ["in the scope", "around the scope"])
def test_a_moved_window_blames_the_statements_of_its_index_as_well(place: str) -> None:
    """The load is right: its index is computed for the keys again."""
    text = PLACED
    if place == "around the scope":
        scope = '    with pl.at(level=pl.Level.CORE_GROUP, name_hint="split"):\n'
        before, _, after = text.partition(scope)
        body, end, rest = after.partition("    return k, v")
        lines = [line[4:] for line in body.splitlines()]
        inner = scope.replace("    with", "        with")
        wrapped = [f"{inner}    {line}" if ".mul(" in line else line for line in lines]
        text = before + "\n".join(wrapped) + "\n" + end + rest
    found = answer("kernel", case_of(load("placed", text)), Options(40.0))
    line = text[: text.index("# wrong")].count("\n") + 1
    assert found.divergence is not None
    assert line in [loc.line for loc in graded(found)[1]]
    assert len(found.divergence.listed) <= 3
