"""torch as an independent reference: conversions, reductions, products and sorts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.numerics.exact import Array, same

from tilelet import numerics as nm
from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, INT32, DType

torch = pytest.importorskip("torch")


def fp32_patterns() -> Array:
    patterns = np.random.default_rng(5).integers(0, 1 << 32, 200_000, dtype=np.uint32)
    near_ties = (patterns[:50_000] & 0xFFFF0000) | 0x8000
    return np.concatenate([patterns, near_ties]).view(np.float32)


@pytest.mark.parametrize(
    ("to", "name"),
    [
        (BF16, "bfloat16"),
        (FP16, "float16"),
        (FP8E4M3FN, "float8_e4m3fn"),
        (FP8E5M2, "float8_e5m2"),
    ],
    ids=str,
)
def test_rint_is_torchs_conversion(to: DType, name: str) -> None:
    x = fp32_patterns()
    theirs = torch.from_numpy(x).to(getattr(torch, name)).float().numpy()
    same(nm.cast(x, to, "rint"), theirs)


@pytest.mark.parametrize("to", [BF16, FP16], ids=str)
def test_bf16_and_fp16_arithmetic_is_torchs(to: DType) -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.integers(0, 1 << 16, 50_000, dtype=np.uint16).view(to.numpy) for _ in range(2))
    kind = torch.bfloat16 if to is BF16 else torch.float16
    ta, tb = (torch.from_numpy(x.view(np.int16)).view(kind) for x in (a, b))
    for ours, theirs in [
        (nm.add(a, b), ta + tb),
        (nm.sub(a, b), ta - tb),
        (nm.mul(a, b), ta * tb),
        (nm.div(a, b), ta / tb),
        (nm.sqrt(a), ta.sqrt()),
    ]:
        same(ours, theirs.float().numpy())


def test_rem_has_the_sign_of_the_divisor_as_torch() -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-50, 50, 4000).astype(np.int32) for _ in range(2))
    b[b == 0] = 3
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    np.testing.assert_array_equal(nm.rem(a, b), torch.remainder(ta, tb).numpy())
    np.testing.assert_array_equal(nm.fmod(a, b), torch.fmod(ta, tb).numpy())
    np.testing.assert_array_equal(nm.div(a, b), torch.div(ta, tb, rounding_mode="trunc").numpy())
    x, y = a.astype(np.float32) / 4, b.astype(np.float32) / 3
    np.testing.assert_array_equal(
        nm.rem(x, y), torch.remainder(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    )


def test_transcendentals_are_within_an_ulp_of_torchs_doubles() -> None:
    x = np.random.default_rng(9).uniform(0.001, 80, 5000).astype(np.float32)
    doubles = torch.from_numpy(x).double()
    for name in ("exp", "log", "sin", "cos", "rsqrt"):
        theirs = getattr(torch, name)(doubles).numpy()
        np.testing.assert_allclose(getattr(nm, name)(x), theirs, rtol=2**-23, atol=0)


@pytest.mark.parametrize("to", ["float32", "bfloat16", "float16"])
def test_matmul_and_row_sum_are_close_to_torchs(to: str) -> None:
    generator = torch.Generator().manual_seed(0)
    kind = getattr(torch, to)
    a = torch.randn(3, 16, 300, generator=generator).to(kind)
    b = torch.randn(300, 40, generator=generator).to(kind)
    numpy_type = {"float32": np.float32, "bfloat16": BF16.numpy, "float16": np.float16}[to]
    ours_a, ours_b = (x.float().numpy().astype(numpy_type) for x in (a, b))
    product = nm.matmul(ours_a, ours_b)
    np.testing.assert_allclose(product, (a.double() @ b.double()).numpy(), rtol=1e-4, atol=1e-4)
    sums = nm.row_sum(ours_a.astype(np.float32))
    np.testing.assert_allclose(sums, a.double().sum(-1, keepdim=True).numpy(), rtol=1e-4, atol=1e-4)


def test_topk_recipe_is_torchs_topk() -> None:
    x = np.random.default_rng(10).standard_normal((1, 2048)).astype(np.float32)
    records = nm.sort32(x, np.arange(2048, dtype=np.uint32)[None])
    for run in (64, 256):
        records = nm.mrgsort(records, run)
    records = nm.mrgsort_lists(np.split(records, 4, axis=-1)[:2] + np.split(records, 4, -1)[2:])
    top = records[:, : 2 * 50]
    values, indices = torch.topk(torch.from_numpy(x), 50)
    np.testing.assert_array_equal(nm.gather_mask(top, "P0101"), values.numpy())
    np.testing.assert_array_equal(nm.gather_mask(top, "P1010", INT32), indices.numpy())
