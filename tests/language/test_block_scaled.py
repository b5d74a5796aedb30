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
from tilelet.ir.spec import REGISTRY
from tilelet.runtime import TensorSpec, run_jit

M, K, N = 32, 128, 48
RNG = np.random.default_rng(5)
E4M3, E2M1, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu


def packed_for_lhs(scale: np.ndarray) -> np.ndarray:
    """Blocks of 16 rows and 2 columns in row-major order."""
    out = [
        scale[r : r + 16, c : c + 2].ravel()
        for r in range(0, scale.shape[0], 16)
        for c in range(0, scale.shape[1], 2)
    ]
    return np.concatenate(out).reshape(scale.shape)


def packed_for_rhs(scale: np.ndarray) -> np.ndarray:
    """Blocks of 16 columns and 2 rows in column-major order."""
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
def quantised_product(
    a: pl.Tensor[[2 * M, K], pl.BF16],
    b: pl.Tensor[[64, K], pl.FP32],
    q: pl.Out[pl.Tensor[[M, K], pl.FP8E4M3FN]],
    y: pl.Out[pl.Tensor[[M, 64], pl.FP32]],
):
    left = pl.create_tensor([2, M * K // 32], dtype=pl.FP8E8M0)
    right = pl.create_tensor([K, 64], dtype=pl.FP8E4M3FN)
    right_scale = pl.create_tensor([K // 32, 64], dtype=pl.FP8E8M0)
    for i in pl.range(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            tile = pl.load(a, [i * M, 0], [M, K], target_memory=pl.Mem.Vec)
            data, scale = pl.quant_mx(tile, layout=pl.MX_A_ZZ)
            q = pl.store(data, [0, 0], q)
            left = pl.store(pl.reshape(scale, [1, M * K // 32]), [i, 0], left)
    with pl.at(level=pl.Level.CORE_GROUP):
        data, scale = pl.quant_mx(pl.load(b, [0, 0], [64, K]), layout=pl.MX_B_NN)
        right = pl.store(data, [0, 0], right)
        right_scale = pl.store(scale, [0, 0], right_scale)
    last = pl.tensor.view(left[1:2, :], [M, K // 32], layout=pl.MX_A_ZZ)
    other = pl.tensor.view(right_scale, layout=pl.MX_B_NN)
    with pl.at(level=pl.Level.CORE_GROUP):
        lhs = pl.move(pl.load(q, [0, 0], [M, K], target_memory=pl.Mem.Mat), pl.Mem.Left)
        rhs = pl.move(pl.load(right, [0, 0], [K, 64], target_memory=pl.Mem.Mat), pl.Mem.Right)
        lhs_scale = pl.load(last, [0, 0], [M, K // 32], target_memory=pl.Mem.Mat)
        rhs_scale = pl.load(other, [0, 0], [K // 32, 64], target_memory=pl.Mem.Mat)
        y = pl.store(pl.matmul_mx(lhs, lhs_scale, rhs, rhs_scale), [0, 0], y)
    return q, y


def quantised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and scales, group by group."""
    data, scales = np.zeros(x.shape, np.float32), np.zeros((x.shape[0], x.shape[1] // 32))
    for row, line in enumerate(x.astype(np.float64)):
        for group in range(len(line) // 32):
            part = slice(32 * group, 32 * group + 32)
            exponent = np.floor(np.log2(np.abs(line[part]).max())) - 8
            scales[row, group] = 2.0**exponent
            data[row, part] = np.clip(line[part] / 2.0**exponent, -448, 448).astype(E4M3)
    return data, scales.astype(np.float32)


def test_operands_are_quantised_where_they_are_needed() -> None:
    a = (RNG.normal(size=(2 * M, K)) * 10.0 ** RNG.integers(-9, 9, (2 * M, K))).astype(
        ml_dtypes.bfloat16
    )
    b = RNG.normal(size=(64, K)).astype(np.float32)
    got = run(
        quantised_product,
        a=a,
        b=b,
        q=np.zeros((M, K), E4M3),
        y=np.zeros((M, 64), np.float32),
    )
    (data, scale), (other, other_scale) = quantised(a[M:]), quantised(b)
    np.testing.assert_array_equal(got["q"].astype(np.float32), data)
    lhs, rhs = data * scale.repeat(32, 1), (other * other_scale.repeat(32, 1)).T
    wanted = lhs.astype(np.float64) @ rhs
    np.testing.assert_allclose(got["y"], wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_scales_at_the_ends_of_their_range() -> None:
    groups = np.zeros((16, 64), np.float32)
    largest = [0, 2.0**-149, 2.0**-119, 448, 480, np.finfo(np.float32).max, np.inf, np.nan]
    groups[: len(largest), 5] = largest
    reference = REGISTRY["quant_mx"].reference
    assert reference is not None
    data, scales = reference(groups, pl.MX_A_ZZ, pl.FP8E4M3FN)
    fields = scales.reshape(16, 2)[: len(largest), 0].view(np.uint8)
    np.testing.assert_array_equal(fields, [0, 0, 0, 127, 127, 246, 247, 255])
    numbers = data[: len(largest), 5].astype(np.float32)
    np.testing.assert_array_equal(numbers, [0, 0, 256, 448, 448, 448, 448, np.nan])


SAME_SCOPE = """
import tilelet.language as pl

@pl.program
class P:
    @pl.function(type=pl.FunctionType.InCore)
    def main(
        self,
        x: pl.Tensor[[16, 64], pl.FP32],
        b: pl.Tensor[[64, 16], pl.FP8E4M3FN],
        t: pl.Tensor[[2, 16], pl.FP8E8M0, pl.MX_B_NN],
        kept: pl.Tensor[[16, 2], pl.FP8E8M0],
        y: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    ):
        q, s = pl.quant_mx(pl.load(x, [0, 0], [16, 64]), layout=pl.MX_A_ZZ)
        right = pl.load(t, [0, 0], [2, 16], target_memory=pl.Mem.Mat)
        lhs, rhs = pl.move(q, pl.Mem.Left), pl.load(b, [0, 0], [64, 16], target_memory=pl.Mem.Mat)
        {scale}
        return pl.store(pl.matmul_mx(lhs, scale, rhs, right), [0, 0], y)
"""


@pytest.mark.parametrize(
    "scale",
    [
        "scale = s",
        "scale = pl.move(pl.move(s, pl.Mem.Mat), pl.Mem.LeftScale)",
        "scale = pl.load(pl.store(s, [0, 0], kept), [0, 0], [16, 2])",
    ],
)
def test_scales_of_a_layout_are_loaded_before_they_are_used(scale: str) -> None:
    with pytest.raises((UserError, UserErrors), match="E0801"):
        pl.parse(SAME_SCOPE.format(scale=scale))
    view = "pl.tensor.view(pl.store(s, [0, 0], kept), layout=pl.MX_A_ZZ)"
    pl.parse(SAME_SCOPE.format(scale=f"scale = pl.load({view}, [0, 0], [16, 2])"))


@pl.jit
def views(
    x: pl.Tensor[[4, 6], pl.FP32],
    flat: pl.Out[pl.Tensor[[3, 8], pl.FP32]],
    swapped: pl.Out[pl.Tensor[[6, 4], pl.FP32]],
    columns: pl.Out[pl.Tensor[[2, 12], pl.FP32]],
    part: pl.Out[pl.Tensor[[2, 12], pl.FP32]],
):
    three = pl.tensor.view(x, [3, 8], layout=pl.ND)
    other = pl.tensor.view(tensor=x, layout=pl.DN)
    twelve = pl.tensor.view(input=x, shape=[2, 12], layout=pl.DN)
    some = pl.tensor.view(x, [2, 12], valid_shape=[1, 9])
    with pl.at(level=pl.Level.CORE_GROUP):
        flat[:, :] = pl.adds(three, 1.0)
        swapped[:, :] = pl.adds(other, 1.0)
        columns[:, :] = pl.adds(twelve, 1.0)
        part = pl.assemble(part, pl.adds(some, 1.0), [0, 0])
    return flat, swapped, columns, part


def test_views_of_memory_in_another_layout() -> None:
    x = np.arange(24, dtype=np.float32)
    out = {"flat": (3, 8), "swapped": (6, 4), "columns": (2, 12), "part": (2, 12)}
    got = run(views, x=x.reshape(4, 6), **{n: np.zeros(s, np.float32) for n, s in out.items()})
    np.testing.assert_array_equal(got["flat"], x.reshape(3, 8) + 1)
    np.testing.assert_array_equal(got["swapped"], x.reshape(4, 6).T + 1)
    np.testing.assert_array_equal(got["columns"], x.reshape(12, 2).T + 1)
    inside = np.zeros((2, 12), np.float32)
    inside[:1, :9] = 1
    np.testing.assert_array_equal(got["part"], (x.reshape(2, 12) + 1) * inside)


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
        ("n, m = pl.quant_mx(pl.load(x, [0, 0], [16, 64]), layout=pl.ND)", "E0318"),
        ("n, m = pl.quant_mx(pl.load(x, [0, 0], [16, 32]), layout=pl.MX_A_ZZ)", "E0309"),
        ("n, m = pl.quant_mx(pl.load(x, [0, 0], [16, 64]), layout=pl.MX_B_NN)", "E0309"),
        ("n = pl.tensor.view(x, [16, 64], layout=pl.NZ)", "E0318"),
        ("n = pl.tensor.view(x, [16, 64], stride=1)", "E0302"),
        ("n = pl.tensor.view(x, [16, 64], shape=[64, 16])", "E0305"),
        ("n = pl.tensor.view(x)", "E0304"),
        ("n = pl.tensor.view(x, [1024], layout=pl.DN)", "E0308"),
        ("n = pl.full([16, 64], dtype=pl.FP8E8M0, value=1.0)", "E0318"),
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
