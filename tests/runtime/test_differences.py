"""The comparison rule is torch's, and a failure's report names what is wrong."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tilelet.runtime.validation import differences

finite = st.floats(allow_nan=True, allow_infinity=True, width=64)
pairs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, (n,), elements=finite), hnp.arrays(np.float64, (n,), elements=finite)
    )
)
tolerances = st.sampled_from([0.0, 1e-8, 1e-5, 3e-3, 0.5])


@given(pairs, tolerances, tolerances)
def test_allclose_is_torchs(pair: tuple[np.ndarray, np.ndarray], rtol: float, atol: float) -> None:
    a, e = pair
    expected = torch.allclose(torch.from_numpy(a), torch.from_numpy(e), rtol=rtol, atol=atol)
    assert differences.allclose(a, e, rtol, atol) == expected


@given(
    hnp.arrays(np.float64, 16, elements=st.floats(-100, 100)),
    hnp.arrays(np.float64, 16, elements=st.floats(-1e-2, 1e-2)),
    tolerances,
)
def test_allclose_is_torchs_near_the_limit(base: np.ndarray, delta: np.ndarray, tol: float) -> None:
    a, e = torch.from_numpy(base + delta), torch.from_numpy(base)
    assert differences.allclose(a, e, tol, tol) == torch.allclose(a, e, rtol=tol, atol=tol)


@given(
    hnp.arrays(np.int64, 8, elements=st.integers(-(2**63), 2**63 - 1)),
    hnp.arrays(np.int64, 8, elements=st.integers(-1, 1)),
)
def test_integers_are_compared_exactly(base: np.ndarray, delta: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        other = base + delta
    found = differences.scan(other, base, rtol=0.0, atol=0.0)
    assert found.mismatched == int((other != base).sum())


@pytest.mark.filterwarnings("error")
def test_infinities_are_compared_without_a_word_of_numpy() -> None:
    inf = np.array([float("inf"), 1.0])
    assert differences.allclose(inf, inf, rtol=0.0, atol=0.0)
    assert not differences.allclose(-inf, inf, rtol=0.0, atol=0.0)


def test_nan_never_passes_and_equal_infinities_do() -> None:
    nan, inf = float("nan"), float("inf")
    assert not differences.allclose(np.array([nan]), np.array([nan]))
    assert differences.allclose(np.array([inf, -inf]), np.array([inf, -inf]))
    assert not differences.allclose(np.array([inf]), np.array([-inf]))
    assert not differences.allclose(np.array([1.0]), np.array([inf]), rtol=1.0)


def test_narrow_floats_are_compared_by_value() -> None:
    a = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert differences.allclose(a, np.array([1.0, 2.0], ml_dtypes.bfloat16))
    assert not differences.allclose(a, np.array([1.0, 2.015625], ml_dtypes.bfloat16), 1e-3, 1e-3)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((7, 5, 3)).astype(np.float32)
    actual = expected + (rng.random(expected.shape) < 0.3)
    whole = differences.scan(actual, expected, 1e-5, 1e-5)
    monkeypatch.setattr(differences, "_BLOCK", 4)
    pieces = differences.scan(actual, expected, 1e-5, 1e-5)
    assert pieces.mismatched == whole.mismatched > 0
    assert pieces.rows == whole.rows
    assert [e.place for e in pieces.worst] == [e.place for e in whole.worst]
    assert pieces.relative_l2 == pytest.approx(whole.relative_l2)


def test_the_report_shows_counts_worst_elements_norm_and_rows() -> None:
    expected = np.arange(12, dtype=np.float32).reshape(3, 4)
    actual = expected.copy()
    actual[1, 2] += 0.5
    actual[2, 0] = np.nan
    found = differences.scan(actual, expected, 1e-3, 1e-3)
    text = differences.failure_text("out", found, actual, expected)
    assert text.splitlines() == (
        [
            "Output 'out' does not match golden.",
            "Mismatched elements: 2/12 (16.7%)",
            "rtol=0.001, atol=0.001",
            "Not finite: 1 NaN in actual",
            "  memory that was never written reads as NaN; 0 / 0, inf - inf and 0 * inf give NaN",
            "Relative L2 error of the finite elements: 0.02223; largest difference: 0.5",
            "Worst elements:",
            "  [2, 0]: actual nan, golden 8, difference nan (allowed 0.009)",
            "  [1, 2]: actual 6.5, golden 6, difference 0.5 (allowed 0.007)",
            "First mismatching rows:",
            "  row [1]: 1 of 4 differ; columns 2:4",
            "    actual [6.5, 7]",
            "    golden [6, 7]",
            "  row [2]: 1 of 4 differ; columns 0:4",
            "    actual [nan, 9, 10, 11]",
            "    golden [8, 9, 10, 11]",
        ]
    )


def test_no_norm_is_claimed_if_nothing_is_a_number() -> None:
    expected = np.ones((2, 2), np.float32)
    actual = np.full_like(expected, np.nan)
    found = differences.scan(actual, expected, 1e-3, 1e-3)
    text = differences.failure_text("out", found, actual, expected)
    assert "Relative L2" not in text
    assert "Not finite: 4 NaN in actual" in text


def test_other_shapes_are_not_compared() -> None:
    with pytest.raises(ValueError, match="cannot compare shapes"):
        differences.scan(np.zeros((2, 3)), np.zeros((3, 2)), 0, 0)


def test_a_scalar_output_is_reported() -> None:
    actual, expected = np.array(1.0), np.array(2.0)
    found = differences.scan(actual, expected, 0, 0)
    assert "[]: actual 1, golden 2" in differences.failure_text("s", found, actual, expected)


def test_the_norm_beside_nans_says_what_it_is_of() -> None:
    expected = np.ones((4, 8), np.float32)
    actual = expected.copy()
    actual[0, :4] = np.nan
    lines = differences.failure_text(
        "y", differences.scan(actual, expected, 1e-5, 1e-5), actual, expected
    ).splitlines()
    assert "Relative L2 error of the finite elements: 0; largest difference: 0" in lines
    assert lines.index("Not finite: 4 NaN in actual") < lines.index(
        "Relative L2 error of the finite elements: 0; largest difference: 0"
    )
