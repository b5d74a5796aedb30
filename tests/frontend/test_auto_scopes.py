"""Auto scopes without chunk loops: one kernel per maximal sequence of compute statements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import round_trip, task_counts

import tilelet.language as pl

X = np.arange(16 * 64, dtype=np.float32).reshape(16, 64) / 100


def program(body: str, header: str = "with pl.auto_incore():") -> Any:
    indented = body.strip().replace("\n", "\n            ")
    return pl.parse(
        f"""
import tilelet.language as pl
@pl.program
class Auto:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[16, 64], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
        {header}
            {indented}
        return out
"""
    )


def result_and_tasks(built: Any) -> tuple[np.ndarray, dict[str, int]]:
    arguments = {"x": X, "out": np.zeros_like(X)}
    counts = task_counts(built, arguments)
    again = task_counts(pl.parse(round_trip(built)), arguments)
    assert list(again.values()) == list(counts.values())
    return run(built, **arguments)["out"], counts


BETWEEN = """
left = pl.slice(x, [16, 32], [0, 0])
a = pl.add(left, 1.0)
right = pl.slice(x, [16, 32], [0, 32])
b = pl.mul(right, 2.0)
both = pl.concat(a, b)
out = pl.assemble(out, both, [0, 0])
"""
WANTED = np.concatenate([X[:, :32] + 1, X[:, 32:] * 2], axis=1)


def test_statements_of_the_control_program_stand_between_kernels() -> None:
    out, counts = result_and_tasks(program(BETWEEN))
    np.testing.assert_array_equal(out, WANTED)
    assert counts == {"main_incore_0": 1, "main_incore_1": 1}


def test_kernels_have_the_name_of_the_scope() -> None:
    header = (
        'with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk], name_hint="halves"):'
    )
    out, counts = result_and_tasks(program(BETWEEN, header))
    np.testing.assert_array_equal(out, WANTED)
    assert list(counts) == ["halves", "halves_1"]


@pytest.mark.parametrize("header", ["with pl.incore():", "with pl.at(level=pl.Level.CORE_GROUP):"])
def test_other_scopes_are_one_kernel(header: str) -> None:
    out, counts = result_and_tasks(program(BETWEEN, header))
    np.testing.assert_array_equal(out, WANTED)
    assert list(counts.values()) == [1]


def test_statements_before_and_after_all_that_compute_make_no_difference() -> None:
    body = """
half = pl.slice(x, [16, 32], [0, 0])
a = pl.add(half, 1.0)
b = pl.mul(a, 2.0)
wide = pl.reshape(b, [8, 64])
out = pl.assemble(out, wide, [0, 0])
"""
    out, counts = result_and_tasks(program(body))
    np.testing.assert_array_equal(out[:8], ((X[:, :32] + 1) * 2).reshape(8, 64))
    assert counts["main_incore_0"] == 1


def test_a_value_that_is_valid_in_part_stays_in_its_kernel() -> None:
    body = """
part = pl.slice(x, [16, 64], [0, 0], valid_shape=[16, 40])
a = pl.add(part, 1.0)
all = pl.slice(x, [16, 64], [0, 0])
out = pl.assemble(out, pl.row_expand_mul(all, pl.row_sum(a)), [0, 0])
"""
    out, counts = result_and_tasks(program(body))
    np.testing.assert_allclose(out, X * (X[:, :40] + 1).sum(1, keepdims=True), rtol=1e-5)
    assert list(counts.values()) == [1]


def test_a_window_is_a_copy_where_its_memory_is_written_later() -> None:
    body = """
old = pl.add(x, 0.0)
out = pl.assemble(out, old, [0, 0])
row = pl.slice(out, [1, 64], [3, 0])
out = pl.assemble(out, pl.add(row, 1.0), [4, 0])
out = pl.assemble(out, row, [5, 0])
"""
    out, counts = result_and_tasks(program(body))
    np.testing.assert_array_equal(out[3:6], [X[3], X[3] + 1, X[3]])
    assert list(counts.values()) == [1]


def test_a_scope_that_names_its_task_has_one() -> None:
    header = "with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]) as tid:"
    out, counts = result_and_tasks(program(BETWEEN, header))
    np.testing.assert_array_equal(out, WANTED)
    assert list(counts.values()) == [1]


FIRST = "first = pl.full([1, 64], pl.FP32, 0.0)\n"
SECOND = "out = pl.assemble(out, pl.add(old, 1.0), [1, 0])\n"


@pytest.mark.parametrize(
    "rest",
    [
        "old = pl.slice(out, [1, 64], [1, 0])\n" + SECOND + "out = pl.assemble(out, old, [2, 0])",
        "old = pl.slice(out, [1, 64], [1, 0])\nfor _ in pl.range(2):\n    " + SECOND,
    ],
)
def test_a_window_is_a_copy_for_statements_that_do_not_compute(rest: str) -> None:
    """The kernel of a scope that is not split loads `old` before it writes."""
    split, whole = (
        result_and_tasks(program(FIRST + rest, header))[0]
        for header in ("with pl.auto_incore():", "with pl.incore():")
    )
    np.testing.assert_array_equal(split, whole)


def test_a_window_that_leaves_the_scope_is_a_copy() -> None:
    header = """
        {}
            first = pl.full([1, 64], pl.FP32, 0.0)
            old = pl.slice(out, [1, 64], [0, 0])
            keep = pl.add(first, 1.0)
        with pl.incore():
            out = pl.assemble(out, pl.full([1, 64], pl.FP32, 9.0), [0, 0])
        with pl.incore():"""
    split, whole = (
        result_and_tasks(program("out = pl.assemble(out, pl.add(old, keep), [1, 0])", text))[0]
        for text in (header.format("with pl.auto_incore():"), header.format("with pl.incore():"))
    )
    np.testing.assert_array_equal(split, whole)
