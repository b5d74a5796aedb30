"""Arguments of a run: accepted and rejected ones."""

from __future__ import annotations

import numpy as np
import pytest
from tests.interp.build import FP32, Build, index, ramp, run, tensor

from tilelet import dtypes
from tilelet.diag.catalogue.harness import (
    ArgumentMismatch,
    ArgumentMissing,
    ArgumentUnknown,
    DynamicDimConflict,
    ReadOnlyOutput,
    UnknownData,
)
from tilelet.dtypes import BF16, BOOL, INT8
from tilelet.ir.core import Program
from tilelet.ir.types import ScalarType, SymDim


def doubling(shape=(4, 8), dtype=FP32) -> Program:
    """`out = x + x`."""
    b = Build()
    x, out = b.param("x", tensor(shape, dtype)), b.param("out", tensor(shape, dtype))

    def work(s):
        tile = s.window(x, [4, 8], [0, 0])
        return [s.put(out, s.op("add", lhs=tile, rhs=tile), [0, 0])]

    (o,) = b.scope(work)
    return b.program(o)


@pytest.mark.parametrize("layout", ["fortran", "strided", "reversed"])
def test_arrays_of_any_strides_are_used_in_place(layout: str) -> None:
    def make() -> np.ndarray:
        if layout == "fortran":
            return np.zeros((4, 8), np.float32, order="F")
        if layout == "strided":
            return np.zeros((8, 24), np.float32)[::2, ::3]
        return np.zeros((4, 8), np.float32)[::-1, ::-1]

    x, out = make(), make()
    x[...] = ramp(4, 8)
    run(doubling(), x=x, out=out)
    np.testing.assert_array_equal(out, 2 * ramp(4, 8))
    if layout == "strided":
        assert out.base is not None
        assert not out.base[1::2].any(), "nothing between the rows is touched"


def test_missing_and_unknown_arguments() -> None:
    with pytest.raises(ArgumentMissing, match="no argument for the parameter `out`"):
        run(doubling(), x=ramp(4, 8))
    with pytest.raises(ArgumentUnknown, match="`outt` has no parameter"):
        run(doubling(), x=ramp(4, 8), outt=ramp(4, 8))


def test_shape_and_dtype_must_fit() -> None:
    with pytest.raises(
        ArgumentMismatch, match="has shape `\\[4, 9\\]`, but the parameter has `\\[4, 8\\]`"
    ):
        run(doubling(), x=ramp(4, 9), out=ramp(4, 8))
    with pytest.raises(ArgumentMismatch, match="has shape `\\[32\\]`"):
        run(doubling(), x=ramp(32), out=ramp(4, 8))
    with pytest.raises(
        ArgumentMismatch, match=r"has dtype `float64`, but the parameter has `pl\.FP32`"
    ):
        run(doubling(), x=ramp(4, 8).astype(np.float64), out=ramp(4, 8))
    with pytest.raises(ArgumentMismatch, match="has type `int`"):
        run(doubling(), x=3, out=ramp(4, 8))


def test_unaligned_elements_are_refused() -> None:
    records = np.zeros((4, 8), np.dtype([("a", np.int8), ("x", np.float32)], align=False))
    with pytest.raises(UnknownData):
        run(doubling(), x=records["x"], out=ramp(4, 8))


def test_one_symbol_is_one_extent() -> None:
    rows = SymDim("M")
    program = doubling((rows, 8))
    out = np.zeros((6, 8), np.float32)
    run(program, x=ramp(6, 8), out=out)
    np.testing.assert_array_equal(out[:4], 2 * ramp(6, 8)[:4])
    with pytest.raises(DynamicDimConflict, match="`M` is 6 in `x` but 5 in `out`"):
        run(program, x=ramp(6, 8), out=ramp(5, 8))


def test_read_only_outputs_are_refused_and_read_only_inputs_are_fine() -> None:
    locked = ramp(4, 8)
    locked.flags.writeable = False
    run(doubling(), x=locked, out=ramp(4, 8))
    with pytest.raises(ReadOnlyOutput, match="`out` is read-only"):
        run(doubling(), x=ramp(4, 8), out=locked)
    run(doubling(), execute=False, x=locked, out=locked)


@pytest.mark.parametrize(
    ("dtype", "given", "bound"),
    [
        (dtypes.INDEX, np.int32(5), 5),
        (INT8, -128, -128),
        (FP32, 0.1, float(np.float32(0.1))),
        (FP32, 3, 3.0),
        (BF16, 1.001, 1.0),
        (BOOL, True, True),
        (BOOL, np.bool_(False), False),
        (FP32, float("inf"), float("inf")),
    ],
)
def test_scalars_become_values_of_their_type(dtype, given, bound) -> None:
    b = Build()
    program = b.program(b.param("n", ScalarType(dtype)))
    (value,) = run(program, n=given).returned
    assert value == bound
    assert type(value) is type(bound)


@pytest.mark.parametrize(
    ("dtype", "given"),
    [(INT8, 128), (dtypes.INDEX, 1.5), (dtypes.UINT8, -1), (FP32, "x"), (FP32, np.zeros(2))],
)
def test_scalars_that_do_not_fit(dtype, given) -> None:
    b = Build()
    program = b.program(b.param("n", ScalarType(dtype)))
    with pytest.raises(ArgumentMismatch, match="argument `n` has"):
        run(program, n=given)


def test_counting_needs_scalars_and_dynamic_shapes_only() -> None:
    assert run(doubling(), execute=False).tasks.total == 1
    with pytest.raises(ArgumentMissing, match="`x`"):
        run(doubling((SymDim("M"), 8)), execute=False)
    b = Build()
    b.param("n", index())
    with pytest.raises(ArgumentMissing, match="`n`"):
        run(b.program(), execute=False)
