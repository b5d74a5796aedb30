"""Goldens of all forms, and their failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilelet.diag.catalogue.harness import (
    GoldenRaised,
    GoldenUnknownName,
    GoldenWrongShape,
    GoldenWroteNothing,
)
from tilelet.runtime import session
from tilelet.runtime.session import Session
from tilelet.runtime.validation.golden import compute_golden, takes_params

X = np.arange(4, dtype=np.float32)
ZERO = np.zeros(4, np.float32)


def expected_of(golden: Any, **options: Any) -> dict[str, np.ndarray]:
    settings: dict[str, Any] = {"outputs": ["out"], "fresh": ["out"], "scalars": {}} | options
    return compute_golden(golden, {"x": X, "out": ZERO}, **settings)


def test_a_golden_writes_in_place_into_copies() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        tensors["out"][:] = tensors["x"] + 1
        tensors["x"][:] = -1

    assert expected_of(golden)["out"].tolist() == [1, 2, 3, 4]
    assert X.tolist() == [0, 1, 2, 3]
    assert ZERO.tolist() == [0, 0, 0, 0]


def test_torch_goldens_get_tensors() -> None:
    def golden(tensors: dict[str, torch.Tensor]) -> None:
        assert isinstance(tensors["x"], torch.Tensor)
        tensors["out"][:] = torch.exp(tensors["x"])

    expected = expected_of(golden, use_torch=True)["out"]
    assert expected.tolist() == torch.exp(torch.from_numpy(X)).tolist()


def test_the_older_form_gets_params() -> None:
    def golden(tensors: dict[str, Any], params: dict[str, Any]) -> None:
        tensors["out"][:] = params["n"] + tensors["n"].item()

    assert takes_params(golden)
    assert expected_of(golden, scalars={"n": np.int32(3)})["out"].tolist() == [6, 6, 6, 6]


@pytest.mark.parametrize(
    "golden",
    [
        lambda t: t.update(out=t["x"] * 2),
        lambda t: {"out": t["x"] * 2},
        lambda t: t["x"] * 2,
        lambda t: t.update(out=(t["x"] * 2).astype(np.float64)),
    ],
)
def test_replaced_and_returned_results_count(golden: Any) -> None:
    expected = expected_of(golden)["out"]
    assert expected.tolist() == [0, 2, 4, 6]
    assert expected.dtype == np.float32


def test_writing_the_initial_values_is_writing() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        tensors["out"][:] = 0

    assert expected_of(golden)["out"].tolist() == [0, 0, 0, 0]


def test_a_golden_that_writes_nothing() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        out = tensors["out"]
        out = tensors["x"] + 1  # noqa: F841

    with pytest.raises(GoldenWroteNothing, match="out"):
        compute_golden(golden, {"x": ZERO, "out": ZERO}, {}, ["out"], fresh=["out"])


def test_a_golden_may_leave_outputs_with_initial_data_alone() -> None:
    """A step without operations: the outputs are compared as they are."""
    now = Session(quiet_diagnostics=True)
    with session.active(now):
        found = compute_golden(lambda tensors: None, {"out": ZERO + 3}, {}, ["out"])
    assert found["out"].tolist() == (ZERO + 3).tolist()
    assert [d.code for d in now.diagnostics] == ["W0603"]


def test_a_golden_that_leaves_out_one_output() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        tensors["out"][:] = 1

    with pytest.raises(GoldenWroteNothing, match="other"):
        compute_golden(
            golden, {"out": ZERO, "other": ZERO}, {}, ["out", "other"], fresh=["out", "other"]
        )


def test_in_out_state_may_stay_as_it_is_if_something_is_written() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        tensors["out"][:] = 1

    expected = compute_golden(
        golden, {"out": ZERO, "cache": X}, {}, ["out", "cache"], fresh=["out"]
    )
    assert expected["cache"].tolist() == X.tolist()


def test_unmarked_outputs_count_if_the_golden_writes_them() -> None:
    def golden(tensors: dict[str, np.ndarray]) -> None:
        tensors["out"][:] = 1
        tensors["cache"][:] = tensors["zero"]

    arrays = {"out": ZERO, "cache": ZERO, "zero": ZERO, "scratch": ZERO}
    expected = compute_golden(
        golden, arrays, {}, ["out"], maybe_outputs=["cache", "scratch"], fresh=["out"]
    )
    assert set(expected) == {"out", "cache"}  # written with its initial values; scratch is not


def test_torch_tells_what_is_written_so_one_call_is_enough() -> None:
    calls: list[int] = []

    def golden(tensors: dict[str, torch.Tensor]) -> None:
        calls.append(1)
        tensors["out"][:] = 1
        tensors["cache"][1:].copy_(tensors["zero"][1:])  # through a view, with its initial values
        tensors["replaced"] = tensors["zero"].clone()
        tensors["scratch"] + 1

    names = ("cache", "replaced", "scratch")
    arrays = dict.fromkeys(("out", "zero", *names), ZERO)
    expected = compute_golden(
        golden, arrays, {}, ["out"], maybe_outputs=names, fresh=["out"], use_torch=True
    )
    assert set(expected) == {"out", "cache", "replaced"}
    assert len(calls) == 1


def test_what_is_written_behind_the_back_of_torch_counts() -> None:
    def golden(tensors: dict[str, torch.Tensor]) -> None:
        tensors["out"].numpy()[:] = tensors["x"].numpy() * 0

    assert expected_of(golden, use_torch=True)["out"].tolist() == [0, 0, 0, 0]


def test_mistakes() -> None:
    with pytest.raises(GoldenRaised) as caught:
        expected_of(lambda t: t["nothing"])
    assert "KeyError: 'nothing'" in str(caught.value)
    assert "runtime/golden.py" not in str(caught.value)
    with pytest.raises(GoldenWrongShape, match=r"\[2\]"):
        expected_of(lambda t: t.update(out=np.ones(2, np.float32)))
    with pytest.raises(GoldenUnknownName, match="ouput"):
        expected_of(lambda t: t.update(ouput=t["x"]))
