"""Element types that are only moved and converted: INT4, UINT4 and HF8, on every engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run

import tilelet.language as pl
from tilelet.device.machine.description import load_machine
from tilelet.device.memory.limits import program_findings
from tilelet.diag import UserError
from tilelet.diag.core import UserErrors
from tilelet.dtypes import DType
from tilelet.numerics import cast, hifloat8
from tilelet.numerics.casts import MODES
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import TensorSpec, run_jit

RNG = np.random.default_rng(11)
ROWS, COLUMNS = 16, 64


def converts(source: DType, target: DType, mode: str) -> Any:
    @pl.program
    class Converts:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[ROWS, COLUMNS], source],
            y: pl.Out[pl.Tensor[[ROWS, COLUMNS], target]],
            same: pl.Out[pl.Tensor[[ROWS, COLUMNS], source]],
        ):
            with pl.incore():
                y = pl.assemble(y, pl.cast(x, target, mode=mode), [0, 0])
                half = pl.slice(x, [ROWS, COLUMNS // 2], [0, COLUMNS // 2])
                same = pl.assemble(same, half, [0, 0])
                pad = pl.slice(x, [ROWS, COLUMNS // 2], [0, 0], valid_shape=[ROWS, 3])
                filled = pl.fillpad(pad, pad_value=pl.PadValue.max)
                same = pl.assemble(same, filled, [0, COLUMNS // 2])
            return y, same

    return Converts


def numbers(dtype: DType) -> np.ndarray:
    codes = RNG.integers(0, 256, (ROWS, COLUMNS)).astype(np.uint8)
    if dtype.bits == 4:
        return (codes & 15).view(dtype.numpy)
    if dtype is pl.HF8:
        return codes.view(dtype.numpy)
    wide = RNG.normal(size=(ROWS, COLUMNS)) * 2.0 ** RNG.integers(-26, 18, (ROWS, COLUMNS))
    wide[0, :4] = (2.0**15 * 1.25, -(2.0**-23), np.inf, -0.0)
    return cast(wide.astype(np.float32), dtype, "rint")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pl.INT4, pl.FP16),
        (pl.FP16, pl.INT4),
        (pl.INT4, pl.UINT4),
        (pl.UINT4, pl.INT32),
        (pl.INT32, pl.UINT4),
        (pl.HF8, pl.FP32),
        (pl.FP32, pl.HF8),
        (pl.FP16, pl.HF8),
        (pl.HF8, pl.INT4),
        (pl.INT4, pl.HF8),
    ],
)
@pytest.mark.parametrize("mode", ["rint", "round", "floor"])
def test_engines_convert_alike(source: DType, target: DType, mode: str) -> None:
    x = numbers(source)
    zeros = np.zeros((ROWS, COLUMNS), target.numpy), np.zeros((ROWS, COLUMNS), source.numpy)
    got = run(converts(source, target, mode), x=x, y=zeros[0], same=zeros[1])
    assert got["y"].tobytes() == cast(x, target, mode).tobytes()
    assert got["same"][:, : COLUMNS // 2].tobytes() == x[:, COLUMNS // 2 :].tobytes()
    kept = COLUMNS // 2 + 3
    assert got["same"][:, COLUMNS // 2 : kept].tobytes() == x[:, :3].tobytes()
    top = {pl.INT4: 7, pl.UINT4: 15, pl.HF8: 0x6F}.get(source)
    if top is not None:
        assert (got["same"][:, kept:].view(np.uint8) == top).all()


def test_hifloat8_has_the_published_values() -> None:
    values = hifloat8.decode(np.arange(256, dtype=np.uint8).view(pl.HF8.numpy))
    assert values[[0x00, 0x01, 0x07]].tolist() == [0, 2.0**-22, 2.0**-16]
    assert values[[0x08, 0x0F, 0x10, 0x18]].tolist() == [1, 1.875, 2, 0.5]
    assert values[[0x6E, 0x7E, 0xEE]].tolist() == [2.0**15, 2.0**-15, -(2.0**15)]
    assert values[[0x6F, 0xEF]].tolist() == [np.inf, -np.inf]
    assert np.isnan(values[0x80])
    finite = values[np.isfinite(values)]
    assert len(set(finite.tolist())) == 253


def _neighbors(magnitude: float) -> tuple[float, float, int]:
    """Return the HF8 magnitudes around a number, with 1.5 x 2^15, and the lower one's index."""
    codes = np.arange(128, dtype=np.uint8).view(pl.HF8.numpy)
    known = np.sort(hifloat8.decode(codes).astype(np.float64))
    known = np.append(known[np.isfinite(known)], 1.5 * 2.0**15)
    place = min(int(np.searchsorted(known, magnitude, side="right")) - 1, len(known) - 2)
    return known[place], known[place + 1], place


def _rounded(x: float, mode: str) -> float:
    low, high, place = _neighbors(abs(x))
    gap = (abs(x) - low) - (high - abs(x))
    nearest = {"rint": place % 2 == 1, "round": True}
    up = {
        "trunc": False,
        "odd": place % 2 == 0,
        "floor": x < 0,
        "ceil": x > 0,
        **{m: gap > 0 or (gap == 0 and tie) for m, tie in nearest.items()},
    }[mode]
    found = high if up and abs(x) != low else low
    if found > 2.0**15:
        found = 2.0**15 if mode in ("trunc", "odd") else np.inf
    return float(np.copysign(found, x)) if found else 0.0


@pytest.mark.parametrize("mode", [m for m in MODES if m != "none"])
def test_rounding_to_hifloat8(mode: str) -> None:
    codes = np.arange(128, dtype=np.uint8).view(pl.HF8.numpy)
    known = np.sort(hifloat8.decode(codes))
    known = known[np.isfinite(known)]
    ties = (known[1:] + known[:-1]) / 2
    near = [np.nextafter(ties, np.float32(to)) for to in (0, 1e9)]
    some = RNG.normal(size=500) * 2.0 ** RNG.integers(-26, 15, 500)
    x = np.concatenate([known, ties, *near, some]).astype(np.float32)
    x = np.concatenate([x, -x])
    x = x[np.abs(x) < 1.5 * 2.0**15]
    expected = [_rounded(float(v), mode) for v in x]
    np.testing.assert_array_equal(hifloat8.decode(cast(x, pl.HF8, mode)), expected)


@pytest.mark.parametrize("dtype", [pl.INT4, pl.UINT4, pl.HF8])
def test_nothing_is_computed_in_them(dtype: DType) -> None:
    with pytest.raises((UserError, UserErrors)):

        @pl.program
        class _Adds:
            @pl.function(type=pl.FunctionType.Opaque)
            def main(self, x: pl.Out[pl.Tensor[[ROWS, COLUMNS], dtype]]):
                with pl.incore():
                    t = pl.slice(x, [ROWS, COLUMNS], [0, 0])
                    x = pl.assemble(x, pl.add(t, t), [0, 0])
                return x


@pytest.mark.parametrize(
    ("dtype", "missing", "where"),
    [
        (pl.HF8, "a2a3", "`a5` has it"),
        (pl.FP8E4M3FN, "a2a3", "`a5` has it"),
        (pl.INT4, "a5", "`a2a3` has it"),
        (pl.UINT4, "a2a3", "no known machine has it"),
        (pl.UINT4, "a5", "no known machine has it"),
    ],
)
def test_machines_say_which_has_a_type(dtype: DType, missing: str, where: str) -> None:
    program = run_passes(converts(dtype, pl.FP32, "rint"))
    found = [f.diagnostic for f in program_findings(program, load_machine(missing))]
    about = [d for d in found if d.code == "E0922"]
    assert [d.notes for d in about] == [(where,)] or [d.notes for d in about] == [[where]]
    other = {"a2a3": "a5", "a5": "a2a3"}[missing]
    codes = [f.diagnostic.code for f in program_findings(program, load_machine(other))]
    assert ("E0922" in codes) is (dtype is pl.UINT4)


@pl.jit
def widens(x: pl.Tensor[[ROWS, COLUMNS], pl.HF8], y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.cast(x, pl.FP32)


@pl.jit
def narrows(x: pl.Tensor[[ROWS, COLUMNS], pl.FP16], y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.INT4]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.cast(x, pl.INT4, mode="rint")


def test_scripts_give_and_get_such_data() -> None:
    shape = [ROWS, COLUMNS]

    def widened(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = hifloat8.decode(tensors["x"])

    specs = [
        TensorSpec("x", shape, pl.HF8, init_value=lambda: RNG.normal(size=shape)),
        TensorSpec("y", shape, pl.FP32, is_output=True),
    ]
    result = run_jit(widens, specs, widened)
    assert result.passed, result.error

    def narrowed(tensors: dict[str, Any]) -> None:
        tensors["y"][:] = cast(tensors["x"], pl.INT4, "rint")

    specs = [
        TensorSpec("x", shape, pl.FP16, init_value=lambda: 4 * RNG.normal(size=shape)),
        TensorSpec("y", shape, pl.INT4, is_output=True),
    ]
    result = run_jit(narrows, specs, narrowed)
    assert result.passed, result.error


def test_devices_pack_two_elements_into_a_byte() -> None:
    assert [d.packed(64) for d in (pl.INT4, pl.UINT4, pl.FP4, pl.HF8, pl.BF16)] == [
        32, 32, 32, 64, 128,
    ]  # fmt: skip
    assert np.dtype(ml_dtypes.int4) == pl.INT4.numpy
