"""Specs of all eras, and mistakes in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilelet import dtypes
from tilelet.diag.catalogue.harness import BadSpec
from tilelet.runtime import ScalarSpec, TensorSpec


def test_a_tensor_spec_knows_its_element_type() -> None:
    assert TensorSpec("x", [2, 3], torch.bfloat16).element is dtypes.BF16
    assert TensorSpec("x", [2, 3], dtypes.FP16).element is dtypes.FP16
    assert TensorSpec("x", (2, 3), np.int8).element is dtypes.INT8
    assert TensorSpec("x", 5, "float32").shape == (5,)
    assert TensorSpec("x", torch.Size([2, 3]), torch.float32).nbytes == 24


def test_only_torch_dtypes_ask_for_tensors() -> None:
    assert TensorSpec("x", [2], torch.float32).wants_torch
    assert not TensorSpec("x", [2], dtypes.FP32).wants_torch
    assert isinstance(TensorSpec("x", [2], torch.float32, 3).create_tensor(), torch.Tensor)
    assert isinstance(TensorSpec("x", [2], np.float32, 3).create_tensor(), np.ndarray)


def test_both_forms_of_a_scalar_spec() -> None:
    old = ScalarSpec("n", 7)
    assert (old.value, old.element, old.ctype) == (7, dtypes.INT64, "int64")
    assert ScalarSpec("n", 7, "int32").element is dtypes.INT32
    assert ScalarSpec("n", value=0.5, ctype="float").element is dtypes.FP32
    new = ScalarSpec("n", torch.int32, 7)
    assert (new.value, new.element, new.wants_torch) == (7, dtypes.INT32, True)
    assert ScalarSpec("n", dtype=dtypes.FP32, value=torch.tensor(0.5)).value == 0.5


def test_a_scalar_of_a_torch_type_is_a_tensor_to_scripts() -> None:
    spec = ScalarSpec("n", torch.int32, 7)
    assert (spec.value.item(), spec.value.dtype, spec.value.shape) == (7, torch.int32, ())
    assert ScalarSpec(spec.name, spec.dtype, spec.value).number == 7
    spec.value = torch.tensor(9)
    assert spec.number == 9
    assert type(ScalarSpec("n", 7).value) is int


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TensorSpec("x", [2, 0], np.float32), "a dimension of 0 holds no elements"),
        (lambda: TensorSpec("x", [2, -1], np.float32), "a dimension of -1"),
        (lambda: TensorSpec("x", [2.5], np.float32), "must be an integer"),
        (lambda: TensorSpec("x", [2], torch.complex64), "no element type of the language"),
        (lambda: TensorSpec("x", [2], float), "no element type of the language"),
        (lambda: TensorSpec("", [2], np.float32), "needs a name"),
        (lambda: ScalarSpec("n", "seven"), "not a number"),
        (lambda: ScalarSpec("n"), "has no value"),
        (lambda: ScalarSpec("n", 7, "int128"), "no type of the language"),
        (lambda: ScalarSpec("n", torch.int32, 7, 8), "one argument too many"),
        (lambda: ScalarSpec("n", 7, dtype=torch.int32, value=3), "one argument too many"),
    ],
)
def test_mistakes(make: object, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)
