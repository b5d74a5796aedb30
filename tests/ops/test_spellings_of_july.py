"""Ops and spellings of summer 2026: quantization by groups, bits, alternating columns."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelet.language as pl
from tilelet.cpu.run.engine import CpuEngine
from tilelet.device import load_machine
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.diag.core import UserErrors
from tilelet.interp.interpreter import Interpreter
from tilelet.ops.block_scaled import pack_scales
from tilelet.passes.pipeline import run_passes

RANDOM = np.random.default_rng(33)


def numbers(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(kernel: Any, **arrays: Any) -> dict[str, Any]:
    """Run interpreted and natively, with equal results; the device must have its cost."""
    program = run_passes(kernel.specialize())
    found = {name: array.copy() for name, array in arrays.items()}
    Interpreter().run(program, found)
    native = {name: array.copy() for name, array in arrays.items()}
    CpuEngine().run(program, native)
    for name, array in found.items():
        np.testing.assert_array_equal(array.view(np.uint8), native[name].view(np.uint8), name)
    a5 = load_machine("a5")
    assert all(kernel_cost(lower_kernel(f, a5), a5).exec_us > 0 for f in program.kernels)
    return found


@pl.jit
def alternate(
    a: pl.Tensor[[32, 64], pl.FP32],
    b: pl.Tensor[[32, 64], pl.FP32],
    lo: pl.Out[pl.Tensor[[32, 64], pl.FP32]],
    hi: pl.Out[pl.Tensor[[32, 64], pl.FP32]],
    even: pl.Out[pl.Tensor[[32, 64], pl.FP32]],
    odd: pl.Out[pl.Tensor[[32, 64], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        x, y = pl.load(a, [0, 0], [32, 64]), pl.load(b, [0, 0], [32, 64])
        first, second = pl.tile.interleave(x, y)
        pl.store(first, [0, 0], lo)
        pl.store(second, [0, 0], hi)
        evens, odds = pl.tile.deinterleave(x, y)
        pl.store(evens, [0, 0], even)
        pl.store(odds, [0, 0], odd)
    return lo, hi, even, odd


def test_columns_alternate() -> None:
    a, b = numbers(32, 64), numbers(32, 64)
    outputs = {name: np.zeros_like(a) for name in ("lo", "hi", "even", "odd")}
    found = run(alternate, a=a, b=b, **outputs)
    both = np.stack([a, b], axis=-1).reshape(32, 128)
    np.testing.assert_array_equal(np.hstack([found["lo"], found["hi"]]), both)
    beside = np.hstack([a, b])
    np.testing.assert_array_equal(found["even"], beside[:, 0::2])
    np.testing.assert_array_equal(found["odd"], beside[:, 1::2])


def test_alternating_tiles_have_one_shape() -> None:
    @pl.jit
    def kernel(a: pl.Tensor[[32, 64], pl.FP32], y: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            x = pl.load(a, [0, 0], [32, 64])
            lo, _ = pl.tile.interleave(x, pl.load(a, [0, 0], [32, 32]))
            pl.store(lo, [0, 0], y)
        return y

    with pytest.raises(UserErrors, match="one shape"):
        kernel.specialize()


@pl.jit
def as_bits(x: pl.Tensor[[16, 64], pl.FP32], y: pl.Out[pl.Tensor[[16, 64], pl.INT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        bits = pl.tile.bitcast(pl.load(x, [0, 0], [16, 64]), pl.INT32)
        pl.store(pl.tile.adds(bits, 1), [0, 0], y)
    return y


def test_bits_of_numbers() -> None:
    x = numbers(16, 64)
    found = run(as_bits, x=x, y=np.zeros((16, 64), np.int32))
    np.testing.assert_array_equal(found["y"], x.view(np.int32) + 1)


@pl.jit
def quantize(
    x: pl.Tensor[[16, 64], pl.FP32],
    q: pl.Out[pl.Tensor[[16, 64], pl.FP8E4M3FN]],
    s: pl.Out[pl.Tensor[[16, 2], pl.FP8E8M0]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        elements, scales = pl.mx_quant(pl.load(x, [0, 0], [16, 64]))
        pl.store(elements, [0, 0], q)
        pl.store(scales, [0, 0], s)
    return q, s


def test_groups_of_32_have_a_power_of_two() -> None:
    x = numbers(16, 64)
    q = np.zeros((16, 64), ml_dtypes.float8_e4m3fn)
    s = np.zeros((16, 2), ml_dtypes.float8_e8m0fnu)
    found = run(quantize, x=x, q=q, s=s)
    groups = np.abs(x).reshape(16, 2, 32).max(axis=-1)
    scales = 2.0 ** (np.floor(np.log2(groups)) - 8)  # 448 = 1.75 * 2**8 is the largest element
    np.testing.assert_array_equal(found["s"].astype(np.float32), scales)
    scaled = np.clip(x / np.repeat(scales, 32, axis=1), -448, 448)
    expected = scaled.astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(found["q"].view(np.uint8), expected.view(np.uint8))


def test_modes_are_named() -> None:
    @pl.jit
    def kernel(x: pl.Tensor[[16, 64], pl.FP32], q: pl.Out[pl.Tensor[[16, 64], pl.FP8E4M3FN]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            elements, _ = pl.tquant(pl.load(x, [0, 0], [16, 64]), mode="int8")
            pl.store(elements, [0, 0], q)
        return q

    with pytest.raises(UserErrors, match="mxfp8_e4m3"):
        kernel.specialize()


@pl.jit
def dequantize(
    q: pl.Tensor[[16, 64], pl.INT8],
    scale: pl.Tensor[[16, 1], pl.FP32],
    zero: pl.Tensor[[16, 1], pl.FP32],
    y: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        scales, zeros = pl.load(scale, [0, 0], [16, 1]), pl.load(zero, [0, 0], [16, 1])
        pl.store(pl.tdequant(pl.load(q, [0, 0], [16, 64]), scales, zeros), [0, 0], y)
    return y


def test_rows_are_dequantized() -> None:
    q = RANDOM.integers(-128, 128, (16, 64)).astype(np.int8)
    scale, zero = numbers(16, 1), numbers(16, 1)
    found = run(dequantize, q=q, scale=scale, zero=zero, y=np.zeros((16, 64), np.float32))
    np.testing.assert_array_equal(found["y"], (q.astype(np.float32) - zero) * scale)


@pl.jit
def product(
    a: pl.Tensor[[32, 64], pl.FP8E4M3FN],
    a_scale: pl.Tensor[[32, 2], pl.FP8E8M0],
    b: pl.Tensor[[64, 32], pl.FP8E4M3FN],
    b_scale: pl.Tensor[[2, 32], pl.FP8E8M0],
    c: pl.Out[pl.Tensor[[32, 32], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        left = pl.load(a, [0, 0], [32, 64], target_memory=pl.Mem.Mat)
        right = pl.load(b, [0, 0], [64, 32], target_memory=pl.Mem.Mat)
        of_a = pl.load(a_scale, [0, 0], [32, 2], target_memory=pl.Mem.Mat, mx_layout="mx_a_zz")
        of_b = pl.load(b_scale, [0, 0], [2, 32], target_memory=pl.Mem.Mat, mx_layout="mx_b_nn")
        la, rb = (
            pl.move(left, target_memory=pl.Mem.Left),
            pl.move(right, target_memory=pl.Mem.Right),
        )
        las = pl.tget_scale_addr(pl.move(of_a, target_memory=pl.Mem.LeftScale), la)
        rbs = pl.tget_scale_addr(pl.move(of_b, target_memory=pl.Mem.RightScale), rb)
        pl.store(pl.matmul_mx(la, las, rb, rbs), [0, 0], c)
    return c


def test_scales_are_loaded_in_the_layout_of_their_operand() -> None:
    a, b = (numbers(*shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((32, 64), (64, 32)))
    powers = [RANDOM.integers(120, 134, s).astype(np.uint8) for s in ((32, 2), (2, 32))]
    a_scale, b_scale = (p.view(ml_dtypes.float8_e8m0fnu) for p in powers)
    found = run(
        product,
        a=a,
        a_scale=pack_scales(a_scale, "MX_A_ZZ"),
        b=b,
        b_scale=pack_scales(b_scale, "MX_B_NN"),
        c=np.zeros((32, 32), np.float32),
    )
    left = a.astype(np.float64) * np.repeat(a_scale.astype(np.float64), 32, axis=1)
    right = b.astype(np.float64) * np.repeat(b_scale.astype(np.float64), 32, axis=0)
    np.testing.assert_allclose(found["c"], left @ right, rtol=1e-5, atol=1e-4)
