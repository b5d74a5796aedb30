"""Maps of wrong elements, and what their shape suggests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelet.divergence.error_map import regions_of, shape_of

RNG = np.random.default_rng(7)
GOLDEN = RNG.normal(size=(64, 32))


def texts(bad: Any) -> list[str]:
    return [region.about for region in regions_of(bad)]


def wrong(*place: Any, shape: tuple[int, ...] = (64, 32)) -> Any:
    bad = np.zeros(shape, bool)
    bad[place] = True
    return bad


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (wrong(slice(16, 32)), "rows 16:32, all columns"),
        (wrong(slice(None), slice(8, 16)), "all rows, columns 8:16"),
        (wrong(slice(48, None)), "the last 16 rows (48:64), all columns"),
        (wrong(slice(1, None, 2)), "rows 1 of every 2 from 1, all columns"),
        (wrong(5, 6), "rows 5, columns 6"),
        (wrong(slice(None)), "all rows, all columns"),
        (wrong(slice(2, 4), shape=(9,)), "elements 2:4"),
        (wrong(1, slice(0, 2), 3, shape=(4, 8, 8)), "axis 0 at 1, rows 0:2, columns 3"),
        (
            wrong(slice(None), [*range(4, 8), *range(12, 16)]),
            "all rows, columns 4 of every 8 from 4 up to 16",
        ),
    ],
)
def test_regions(bad: Any, text: str) -> None:
    assert texts(bad) == [text]


def test_elements_that_are_no_grid_are_boxes_largest_first() -> None:
    bad = wrong(slice(0, 8), slice(0, 4)) | wrong(slice(32, 64), slice(16, 32))
    assert texts(bad) == [
        "the last 32 rows (32:64), the last 16 columns (16:32)",
        "rows 0:8, columns 0:4",
    ]


def test_nothing_wrong_has_no_region() -> None:
    assert regions_of(np.zeros((3, 3), bool)) == []


def shape(actual: Any, ulp: float = 0.0) -> Any:
    bad = ~np.isclose(actual, GOLDEN, rtol=1e-6, atol=1e-9)
    return shape_of(actual, GOLDEN, bad, ulp)


def test_nothing_wrong_by_this_measure_has_no_shape() -> None:
    found = shape_of(GOLDEN, GOLDEN, np.zeros(GOLDEN.shape, bool))
    assert (found.kind, "close" in found.text) == ("unknown", True)


def changed(rows: slice, values: Any) -> Any:
    actual = GOLDEN.copy()
    actual[rows] = values
    return actual


@pytest.mark.parametrize(
    ("actual", "kind", "value"),
    [
        (GOLDEN * 0.125, "factor", 0.125),
        (-GOLDEN, "sign", -1.0),
        (changed(slice(0, 16), GOLDEN[16:32]), "shift", 16),
        (np.roll(GOLDEN, 1, axis=1), "shift", None),
        (GOLDEN + 0.5, "offset", 0.5),
        (GOLDEN * np.arange(2, 66)[:, None], "row factor", None),
        (GOLDEN * np.arange(2, 34), "column factor", None),
        (changed(slice(8, 16), 0.0), "zero", None),
        (changed(slice(8, 16), np.nan), "NaN", None),
        (changed(slice(0, 32), GOLDEN[:32].T), "transposed", None),
        (changed(slice(0, 8), GOLDEN[[3, 9, 1, 30, 12, 40, 2, 5]]), "permuted", None),
        (RNG.normal(size=GOLDEN.shape), "unknown", None),
    ],
)
def test_shapes(actual: Any, kind: str, value: float | None) -> None:
    found = shape(actual)
    assert found.kind == kind
    if value is not None:
        assert found.value == pytest.approx(value, rel=1e-3)


def test_rounding_knows_its_direction() -> None:
    ulp = 2.0**-8
    down = GOLDEN * (1 - ulp * RNG.uniform(0.1, 1.0, GOLDEN.shape))
    found = shape(down, ulp)
    assert (found.kind, "towards zero" in found.text) == ("rounding", True)
    both = GOLDEN * (1 + ulp * RNG.uniform(-1.0, 1.0, GOLDEN.shape))
    found = shape(both, ulp)
    assert (found.kind, "zero" in found.text) == ("rounding", False)


def test_a_factor_is_explained_by_an_extent() -> None:
    assert "1/sqrt(64)" in shape(GOLDEN / 8.0).text or "1/8" in shape(GOLDEN / 8.0).text
