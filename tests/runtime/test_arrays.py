"""Arrays and tensors share memory, whatever the element type."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilelet.language as pl
from tilelet import dtypes
from tilelet.diag.catalogue.harness import UnknownData
from tilelet.runtime.data import arrays


@pl.jit
def add_one(a: pl.Tensor[[4, 4], pl.FP32], out: pl.Out[pl.Tensor[[4, 4], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(a, 1.0)
    return out


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


def negated() -> torch.Tensor:
    return torch.complex(torch.ones(4, 4), torch.ones(4, 4)).conj().imag


ODD = {
    "meta": lambda: torch.ones(4, 4, device="meta"),
    "sparse": lambda: torch.ones(4, 4).to_sparse(),
    "rows": lambda: torch.ones(4, 4).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(4, 4)]),
    "negated": negated,
    "masked": lambda: np.ma.masked_array(np.ones((4, 4), np.float32), np.eye(4)),
}


@pytest.mark.parametrize("kind", ODD)
def test_tensors_without_plain_memory_are_named(kind: str) -> None:
    with pytest.raises(TypeError, match=r"masked array|without plain memory"):
        arrays.as_array(ODD[kind]())
    for position in (0, 1):
        given = [torch.ones(4, 4), torch.zeros(4, 4)]
        given[position] = ODD[kind]()
        with pytest.raises(UnknownData) as caught:
            add_one(*given)
        assert "`a`" in str(caught.value) or "`out`" in str(caught.value)


def test_an_array_with_nothing_masked_is_an_array() -> None:
    a, out = np.ma.array(np.ones((4, 4), np.float32)), np.zeros((4, 4), np.float32)
    add_one(a, out)
    assert out.tolist() == [[2.0] * 4] * 4


@pytest.mark.parametrize("method", ["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize("error", [RuntimeError, OSError, TypeError, KeyError, ZeroDivisionError])
def test_dlpack_that_raises(method: str, error: type[Exception]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("\x1b[31mno")

    data = np.ones((4, 4), np.float32)
    methods = {
        "__dlpack__": lambda _, **__: data.__dlpack__(),
        "__dlpack_device__": lambda _: (1, 0),
    }
    strange = type("Strange", (), {**methods, method: fail})()
    with pytest.raises(UnknownData) as caught:
        add_one(strange, np.zeros((4, 4), np.float32))
    assert "Strange" in str(caught.value)
    assert "\x1b" not in str(caught.value)
