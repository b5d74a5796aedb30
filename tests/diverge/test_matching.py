"""Tiles found in the arrays of a golden."""

import numpy as np

from tilelet.divergence import matching


def test_values_are_put_in_order() -> None:
    draw = np.random.default_rng(3)
    values = np.concatenate(
        [draw.standard_normal(300) * 10.0 ** draw.integers(-30, 30, 300), np.zeros(9)]
    )
    values = np.concatenate([values, [np.inf, -np.inf, np.nan, -np.nan, 1e300, -1e300], values])
    ordered, places = matching._in_order(values)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    np.testing.assert_array_equal(places, np.argsort(single, kind="stable"))
    np.testing.assert_array_equal(ordered, np.sort(single))
