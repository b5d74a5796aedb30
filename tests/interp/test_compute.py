"""Ops defined by their references: valid regions, several results, scalars."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.interp.build import FP32, Build, index, ramp, run, tensor

from tilelet import dtypes
from tilelet.diag.catalogue.windows import DivisionByZero, IndexOutOfRange, ValidRegionLost
from tilelet.diag.internal import InternalError
from tilelet.dtypes import INT32
from tilelet.ir.core import Const
from tilelet.ir.types import ScalarType
from tilelet.syntax.enums import CmpType


def on_tiles(work, *arrays: np.ndarray, seed_valid: bool = False, **scalars: int):
    """Run `work(scope, *tensors, *scalars)`; return its tiles, data outside regions included."""
    b = Build()
    tensors = [
        b.param(f"x{i}", tensor(a.shape, dtypes.from_numpy(a.dtype))) for i, a in enumerate(arrays)
    ]
    numbers = [b.param(name, index()) for name in scalars]
    results = b.scope(lambda s: [whole(s, tile) for tile in work(s, *tensors, *numbers)])
    given = {f"x{i}": a for i, a in enumerate(arrays)} | scalars
    execution = run(b.program(*results), seed_valid=seed_valid, **given)
    return [w.array for w in execution.returned]


def whole(s, tile):
    """Mark a tile as valid everywhere, because spilling stores only the valid part."""
    rows, cols = tile.type.shape
    return s.op("set_validshape", x=tile, rows=rows, cols=cols)


def part(s, x, rows, cols):
    return s.window(x, x.type.shape, [0] * len(x.type.shape), valid_shape=[rows, cols])


def test_elementwise_on_the_intersection() -> None:
    x = ramp(4, 8)
    (y,) = on_tiles(lambda s, a: [s.op("add", lhs=part(s, a, 3, 8), rhs=part(s, a, 4, 5))], x)
    expected = np.zeros((4, 8), np.float32)
    expected[:3, :5] = 2 * x[:3, :5]
    np.testing.assert_array_equal(y, expected)


def test_results_are_zero_outside_the_valid_region() -> None:
    (y,) = on_tiles(lambda s, a: [s.op("exp", x=part(s, a, 2, 3))], np.zeros((4, 8), np.float32))
    assert y.sum() == 6


def test_reductions_and_matmul_see_the_valid_region_only() -> None:
    x = -ramp(4, 8)

    def work(s, a):
        tile = part(s, a, 3, 5)
        return [
            s.op("row_max", x=tile),
            s.op("col_sum", x=tile),
            s.op("matmul", lhs=tile, rhs=s.op("transpose", x=tile, axis1=0, axis2=1)),
        ]

    largest, total, product = on_tiles(work, x)
    assert largest[:, 0].tolist() == [*x[:3, :5].max(axis=1), 0]
    assert total[0].tolist() == [*x[:3, :5].sum(axis=0), 0, 0, 0]
    expected = np.zeros((4, 4), np.float32)
    expected[:3, :3] = x[:3, :5] @ x[:3, :5].T
    np.testing.assert_array_equal(product, expected)


def test_empty_regions() -> None:
    def rows(s, a, n):
        return [s.op("row_max", x=part(s, a, n, 8)), s.op("exp", x=part(s, a, n, 8))]

    largest, exps = on_tiles(rows, ramp(4, 8), n=0)
    assert not largest.any()
    assert not exps.any()

    def columns(s, a, n):
        return [s.op("row_max", x=part(s, a, 4, n))]

    with pytest.raises(ValidRegionLost, match="row_max` of a partially valid value"):
        on_tiles(columns, ramp(4, 8), n=0)


def test_several_results() -> None:
    x = ramp(2, 8)

    def work(s, a):
        return s.op("gather", x=s.whole(a), kvalue=5.0, cmp_mode=CmpType.GT, out_cols=4)

    indices, counts = on_tiles(work, x)
    assert indices.tolist() == [[5, 6, 7, 0], [0, 1, 2, 3]]
    assert counts[0].tolist() == [3, 4]


def test_fault_of_a_reference_has_the_ops_place() -> None:
    bad = np.full((2, 8), 8, np.int32)

    def work(s, a, i):
        return [s.op("gather", x=s.whole(a), dim=-1, index=s.whole(i))]

    with pytest.raises(IndexOutOfRange, match="index 8 is outside axis 1") as caught:
        on_tiles(work, ramp(2, 8), bad)
    assert caught.value.diagnostic.loc
    assert caught.value.diagnostic.loc.file == "kernel.py"


def test_scatter_update_writes_the_tensor_in_place() -> None:
    b = Build()
    cache = b.param("cache", tensor([6, 8]))
    rows, src = b.param("rows", tensor([1, 2], INT32)), b.param("src", tensor([2, 8]))

    def work(s):
        args = {"index": s.whole(rows), "src": s.whole(src)}
        return [s.op("scatter_update", input=cache, dim=-2, **args)]

    (c,) = b.scope(work)
    program = b.program(c)
    data = np.zeros((6, 8), np.float32)
    given = {"rows": np.array([[4, 1]], np.int32), "src": ramp(2, 8)}
    (window,) = run(program, cache=data, **given).returned
    np.testing.assert_array_equal(data[[4, 1]], ramp(2, 8))
    assert not data[[0, 2, 3, 5]].any()
    assert window.name == "cache"
    with pytest.raises(IndexOutOfRange, match="index 6"):
        run(program, cache=data, rows=np.array([[6, 1]], np.int32), src=ramp(2, 8))


def test_no_numpy_warning_is_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        def work(s, a):
            tile = s.whole(a)
            return [s.op("recip", x=tile), s.op("log", x=tile), s.op("exp", x=tile)]

        on_tiles(work, np.array([[0, -1, 1e30, np.nan] * 2], np.float32))


def test_a_broken_reference_is_reported_as_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilelet.ir.spec import REGISTRY

    def broken(**_):
        raise IndexError("oops")

    monkeypatch.setitem(REGISTRY["exp"].__dict__, "reference", broken)
    with pytest.raises(InternalError, match="IndexError in the reference: oops"):
        on_tiles(lambda s, a: [s.op("exp", x=s.whole(a))], ramp(2, 8))


# The switch for the valid regions of spring 2026


def test_seed_tracking_forgets_regions() -> None:
    x = np.zeros((4, 8), np.float32)

    def work(s, a):
        tile = part(s, a, 2, 3)
        forgotten = s.op("exp", x=tile)
        return [
            forgotten,
            s.op("row_sum", x=forgotten),
            s.op("row_sum", x=tile),
            s.op("add", lhs=tile, rhs=s.whole(a)),
            s.op("exp", x=s.op("add", lhs=forgotten, rhs=tile)),
        ]

    exps, total, own, _, _ = on_tiles(work, x, seed_valid=True)
    assert (exps == 1).all(), "padding became data"
    assert (total == 8).all()
    assert not own.any()
    exps, total, *_ = on_tiles(work, x)
    assert exps.sum() == 6
    assert total[:, 0].tolist() == [3, 3, 0, 0]


def test_seed_tracking_of_binary_ops_takes_the_left_region() -> None:
    x = ramp(4, 8)

    def work(s, a):
        small, whole = part(s, a, 2, 3), s.whole(a)
        return [
            s.op("add", lhs=small, rhs=whole),
            s.op("add", lhs=whole, rhs=small),
            s.op("add", lhs=small, rhs=1.0),
        ]

    left, right, number = on_tiles(work, x, seed_valid=True)
    cut = np.zeros((4, 8), np.float32)
    cut[:2, :3] = x[:2, :3]
    np.testing.assert_array_equal(left, 2 * cut)
    np.testing.assert_array_equal(right, x + cut)
    np.testing.assert_array_equal(number, cut + (cut != 0))


# Scalars


NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)


@given(
    st.sampled_from(["add", "sub", "mul", "min", "max", "lt", "ge", "eq", "floordiv", "mod"]),
    NUMBERS,
    NUMBERS.filter(bool),
)
def test_integer_scalars_follow_their_reference(name: str, a: int, b: int) -> None:
    from tilelet.ir.spec import REGISTRY

    build = Build()
    lhs = build.param("a", ScalarType(INT32))
    value = build.op(f"scalar.{name}", lhs=lhs, rhs=Const(b, INT32))
    (got,) = run(build.program(value), a=a).returned
    spec = REGISTRY[f"scalar.{name}"]
    expected = spec.reference(lhs=a, rhs=b, result_type=value.type)  # pyright: ignore[reportOptionalCall]
    assert got == expected
    assert type(got) is type(expected)


def test_int32_scalars_wrap() -> None:
    b = Build()
    a = b.param("a", ScalarType(INT32))
    total = b.op("scalar.add", lhs=a, rhs=a)
    assert run(b.program(total), a=(1 << 31) - 1).returned == (-2,)


@pytest.mark.parametrize(("name", "symbol"), [("floordiv", "//"), ("mod", "%")])
def test_integer_division_by_zero(name: str, symbol: str) -> None:
    b = Build()
    n = b.param("n", index())
    value = b.op(f"scalar.{name}", lhs=7, rhs=n)
    program = b.program(value)
    assert run(program, n=-2).returned == ((-3,) if name == "floordiv" else (1,))
    with pytest.raises(DivisionByZero, match=f"integer `{symbol}` by zero") as caught:
        run(program, n=0)
    assert caught.value.diagnostic.loc
    assert caught.value.diagnostic.loc.file == "kernel.py"


def test_float_scalars_round_to_fp32() -> None:
    b = Build()
    x = b.param("x", ScalarType(FP32))
    y = b.op("scalar.add", lhs=x, rhs=Const(1e-9, FP32))
    third = b.op("scalar.truediv", lhs=x, rhs=3.0)
    result, third = run(b.program(y, third), x=1.0).returned
    assert result == 1.0
    assert third == float(np.float32(1) / np.float32(3))


def test_every_op_can_run() -> None:
    """Each op of the registry is lowered by a module of the interpreter or by its reference."""
    from tilelet.interp.lowering import LOWERINGS
    from tilelet.ir.spec import REGISTRY, Trait

    left = [
        spec.name
        for spec in REGISTRY.values()
        if spec.reference is None and spec.name not in LOWERINGS
        if not spec.terminator and spec.expands is None
    ]
    assert left == []
    computed = [s for s in REGISTRY.values() if s.reference is not None and not s.writes]
    without_rule = [s.name for s in computed if s.valid is None and Trait.SCALAR not in s.traits]
    assert without_rule == []
