"""Scalars computed from bounded operands lie within the computed bounds."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tilelet import dtypes
from tilelet.analysis.bounds import Bounds, BoundsArithmetic, of_index
from tilelet.ops.scalar import OPERATIONS

OPS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
NUMBERS = st.integers(-40, 40)


@st.composite
def bounded(draw: st.DrawFn) -> tuple[int, Bounds]:
    """A number and its known bounds: one end, both, or none."""
    number = draw(NUMBERS)
    below, above = (draw(st.sampled_from((0, 1, 9, math.inf))) for _ in range(2))
    return number, Bounds(number - below, number + above)


@given(
    st.sampled_from(("add", "sub", "mul", "floordiv", "mod", "min", "max")), bounded(), bounded()
)
def test_results_lie_in_their_bounds(
    operation: str, left: tuple[int, Bounds], right: tuple[int, Bounds]
) -> None:
    (a, of_a), (b, of_b) = left, right
    found = BoundsArithmetic().binary(operation, of_a, of_b)
    if found is not None and not (b == 0 and operation in ("floordiv", "mod")):
        result = int(OPERATIONS[operation](a, b))
        assert found.low <= result <= found.high
        assert found.most is None or result <= found.most


@given(bounded(), bounded(), st.integers(-7, 7).filter(bool))
def test_loop_indices_lie_in_their_bounds(
    start: tuple[int, Bounds], stop: tuple[int, Bounds], step: int
) -> None:
    found = of_index(start[1], stop[1], step)
    assert all(found.low <= i <= found.high for i in range(start[0], stop[0], step))


def test_the_smaller_of_two_is_bounded_by_either() -> None:
    least = BoundsArithmetic().least(Bounds(), Bounds(64, 64))
    assert least.most == 64
    assert Bounds().most is None
    assert least.fits(*dtypes.INT8.limits)
    assert not Bounds(high=128).fits(*dtypes.INT8.limits)
