"""Arrays and tensors share memory, whatever the element type."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilelet import dtypes
from tilelet.runtime import arrays

STORED = [d for d in dtypes.ALL if d.kind not in ("index", "task")]


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_a_tensor_and_its_array_are_the_same_memory(dtype: dtypes.DType) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    tensor = arrays.as_tensor(array)
    assert arrays.dtype_of(tensor.dtype) is dtype
    view = arrays.as_array(tensor)
    assert view.dtype == dtype.numpy
    array[1, 2] = 0
    assert float(view[1, 2]) == 0.0
    assert float(tensor[1, 2]) == 0.0


def test_what_is_a_dtype() -> None:
    assert all(arrays.is_dtype(d) for d in (dtypes.BF16, np.int8, np.dtype("f4"), torch.half, int))
    assert not any(arrays.is_dtype(d) for d in ("float32", 4, list, list[int]))


def test_a_transposed_tensor_is_seen_without_copying() -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    view = arrays.as_array(tensor)
    view[2, 1] = 99
    assert tensor[2, 1].item() == 99.0


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (torch.float32, dtypes.FP32),
        (np.dtype("int8"), dtypes.INT8),
        (np.uint16, dtypes.UINT16),
        ("BF16", dtypes.BF16),
        ("bfloat16", dtypes.BF16),
        ("float32", dtypes.FP32),
        (dtypes.INDEX, dtypes.INDEX),
        (torch.float64, None),
        ("nothing", None),
        (3, None),
    ],
)
def test_dtype_of(named: object, expected: dtypes.DType | None) -> None:
    assert arrays.dtype_of(named) is expected
