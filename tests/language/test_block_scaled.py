"""Block-scaled (MX) operands: scales as a host packs them, FP4 and FP8 data, on every engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run

import tilelet.language as pl
from tilelet.diag import UserError
from tilelet.diag.core import UserErrors
from tilelet.runtime import TensorSpec, run_jit

M, K, N = 32, 128, 48
RNG = np.random.default_rng(5)
E4M3, E2M1, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu


def packed_for_lhs(scale: np.ndarray) -> np.ndarray:
    """Blocks of 16 rows and 2 columns one after the other."""
    out = [
        scale[r : r + 16, c : c + 2].ravel()
        for r in range(0, scale.shape[0], 16)
        for c in range(0, scale.shape[1], 2)
    ]
    return np.concatenate(out).reshape(scale.shape)


def packed_for_rhs(scale: np.ndarray) -> np.ndarray:
    """Blocks of 16 columns and 2 rows one after the other, column by column."""
    out = [
        scale[r : r + 2, c : c + 16].T.ravel()
        for c in range(0, scale.shape[1], 16)
        for r in range(0, scale.shape[0], 2)
    ]
    return np.concatenate(out).reshape(scale.shape)


@pl.program
class Products:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self,
        a: pl.Tensor[[M, K], pl.FP8E4M3FN],
        a_scale: pl.Tensor[[M, K // 32], pl.FP8E8M0, pl.MX_A_ZZ],
        b: pl.Tensor[[K, N], pl.FP8E4M3FN],
        b_scale: pl.Tensor[[K // 32, N], pl.FP8E8M0, pl.MX_B_NN],
        bias: pl.Tensor[[1, N], pl.FP32],
        plain: pl.Out[pl.Tensor[[M, N], pl.FP32]],
        twice: pl.Out[pl.Tensor[[M, N], pl.FP32]],
        biased: pl.Out[pl.Tensor[[M, 16], pl.FP32]],
    ):
        lhs = pl.move(pl.load(a, [0, 0], [M, K], target_memory=pl.Mem.Mat), pl.Mem.Left)
        rhs = pl.move(pl.load(b, [0, 0], [K, N], target_memory=pl.Mem.Mat), pl.Mem.Right)
        left = pl.load(a_scale, [0, 0], [M, K // 32], target_memory=pl.Mem.Mat)
        right = pl.load(b_scale, [0, 0], [K // 32, N], target_memory=pl.Mem.Mat)
        left_scale = pl.move(left, target_memory=pl.Mem.LeftScale)
        right_scale = pl.move(right, target_memory=pl.Mem.RightScale)
        acc = pl.matmul_mx(lhs, left_scale, rhs, right_scale)
        plain = pl.store(acc, [0, 0], plain)
        both = pl.matmul_mx_acc(acc, lhs, left_scale, rhs, right_scale)
        twice = pl.store(both, [0, 0], twice)
        some = pl.load(b, [0, 16], [K, 16], target_memory=pl.Mem.Mat)
        some_scale = pl.load(b_scale, [0, 16], [K // 32, 16], target_memory=pl.Mem.Mat)
        row = pl.load(bias, [0, 16], [1, 16])
        one = pl.matmul_mx_bias(lhs, left_scale, some, some_scale, row)
        biased = pl.store(one, [0, 0], biased)
        return plain, twice, biased

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        a: pl.Tensor[[M, K], pl.FP8E4M3FN],
        a_scale: pl.Tensor[[M, K // 32], pl.FP8E8M0, pl.MX_A_ZZ],
        b: pl.Tensor[[K, N], pl.FP8E4M3FN],
        b_scale: pl.Tensor[[K // 32, N], pl.FP8E8M0, pl.MX_B_NN],
        bias: pl.Tensor[[1, N], pl.FP32],
        plain: pl.Out[pl.Tensor[[M, N], pl.FP32]],
        twice: pl.Out[pl.Tensor[[M, N], pl.FP32]],
        biased: pl.Out[pl.Tensor[[M, 16], pl.FP32]],
    ):
        plain, twice, biased = self.kernel(a, a_scale, b, b_scale, bias, plain, twice, biased)
        return plain, twice, biased


def test_products_of_block_scaled_operands() -> None:
    a = RNG.integers(-4, 5, (M, K)).astype(np.float32)
    b = RNG.integers(-4, 5, (K, N)).astype(np.float32)
    a_scale = (2.0 ** RNG.integers(-2, 3, (M, K // 32))).astype(np.float32)
    b_scale = (2.0 ** RNG.integers(-2, 3, (K // 32, N))).astype(np.float32)
    bias = RNG.integers(-4, 5, (1, N)).astype(np.float32)
    expected = (a * a_scale.repeat(32, 1)) @ (b * b_scale.repeat(32, 0))
    got = run(
        Products,
        a=a.astype(E4M3),
        a_scale=packed_for_lhs(a_scale).astype(E8M0),
        b=b.astype(E4M3),
        b_scale=packed_for_rhs(b_scale).astype(E8M0),
        bias=bias,
        plain=np.zeros((M, N), np.float32),
        twice=np.zeros((M, N), np.float32),
        biased=np.zeros((M, 16), np.float32),
    )
    np.testing.assert_array_equal(got["plain"], expected)
    np.testing.assert_array_equal(got["twice"], 2 * expected)
    np.testing.assert_array_equal(got["biased"], expected[:, 16:32] + bias[:, 16:32])


@pl.jit
def widens(
    four: pl.Tensor,
    scale: pl.Tensor,
    y: pl.Out[pl.Tensor],
    z: pl.Out[pl.Tensor],
    w: pl.Out[pl.Tensor],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.cast(four, pl.FP8E4M3FN)
        z[:, :] = pl.cast(scale, pl.FP32)
        w[:, :] = four[:, 16:32]


def test_values_of_narrow_types_are_widened_exactly() -> None:
    four = np.arange(16, dtype=np.uint8).repeat(32).reshape(16, 32).view(E2M1)
    scale = np.minimum(np.arange(256), 254).astype(np.uint8).reshape(8, 32).view(E8M0)
    got = run(
        widens,
        four=four,
        scale=scale,
        y=np.zeros((16, 32), E4M3),
        z=np.zeros((8, 32), np.float32),
        w=np.zeros((16, 16), E2M1),
    )
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    wanted = np.array([*values, *(-v for v in values)], np.float32)
    np.testing.assert_array_equal(got["y"].astype(np.float32)[:, 0], wanted)
    np.testing.assert_array_equal(got["w"].view(np.uint8), four[:, 16:].view(np.uint8))
    powers = 2.0 ** (np.minimum(np.arange(256), 254) - 127.0)
    np.testing.assert_array_equal(got["z"].ravel(), powers.astype(np.float32))


def refused(body: str) -> str:
    parameters = (
        "a: pl.Tensor[[16, 64], pl.FP8E4M3FN]",
        "x: pl.Tensor[[16, 64], pl.FP32]",
        "s: pl.Tensor[[16, 2], pl.FP8E8M0, pl.MX_A_ZZ]",
        "t: pl.Tensor[[2, 16], pl.FP8E8M0]",
        "y: pl.Out[pl.Tensor[[16, 64], pl.FP32]]",
    )
    text = (
        "import tilelet.language as pl\n"
        "@pl.program\n"
        "class P:\n"
        "    @pl.function(type=pl.FunctionType.InCore)\n"
        f"    def main(self, {', '.join(parameters)}):\n"
        f"        {body}\n"
        "        return pl.store(pl.load(x, [0, 0], [16, 64]), [0, 0], y)\n"
    )
    with pytest.raises((UserError, UserErrors)) as caught:
        pl.parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("n = pl.cast(pl.load(x, [0, 0], [16, 64]), pl.FP4)", "E0320"),
        ("n = pl.slice(s, [16, 2], [0, 0])", "E0801"),
        ("n = pl.load(s, [16, 0], [16, 2])", "E0503"),
        ("n = pl.matmul_mx(a, pl.load(s, [0, 0], [16, 2]), x, t)", "E0"),
        ("n = pl.matmul_mx(a, t, pl.transpose(a, 0, 1), t)", "E0306"),
    ],
)
def test_what_block_scaled_data_is_not_for(body: str, code: str) -> None:
    assert code in refused(body)


@pl.jit
def widens_pairs(four: pl.Tensor[[16, 32], pl.FP4], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.cast(four, pl.FP32)


def test_torch_keeps_two_elements_in_a_byte() -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no FP4")
    codes = RNG.integers(0, 16, (16, 32)).astype(np.uint8)
    pairs = torch.from_numpy(codes[:, 0::2] | codes[:, 1::2] << 4).view(torch.float4_e2m1fn_x2)
    expected = codes.view(E2M1).astype(np.float32)

    def golden(tensors: dict[str, Any]) -> None:
        assert torch.equal(tensors["four"].view(torch.uint8), pairs.view(torch.uint8))
        tensors["y"][:] = torch.from_numpy(expected)

    specs = [
        TensorSpec("four", [16, 16], torch.float4_e2m1fn_x2, pairs),
        TensorSpec("y", [16, 32], torch.float32, is_output=True),
    ]
    result = run_jit(widens_pairs, specs, golden)
    assert result.passed, result.error
    out = torch.zeros(16, 32)
    widens_pairs(pairs, out)
    np.testing.assert_array_equal(out.numpy(), expected)
