"""Recording of goldens, matching of tiles, and bounds of rounding errors."""

from __future__ import annotations

import itertools
import linecache
import runpy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diverge.faults import EXAMPLES, cases_of, model_cases
from tests.diverge.kernels import line_of, normal
from tests.models.programs import NAMES

import tilelet.language as pl
from tilelet.divergence.answer import Options, answer
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.golden_trace import GoldenTrace, Intermediate, Part
from tilelet.divergence.matching import Matcher
from tilelet.runtime import TensorSpec, run_jit, session
from tilelet.runtime.handlers.examine import Examine
from tilelet.runtime.session import Session

RNG = np.random.default_rng(11)


def helper(x: Any) -> Any:
    scaled = x * 3.0
    return scaled + 1.0


def halved(x: Any) -> Any:
    if len(x) > 2:
        return halved(x[: len(x) // 2])
    doubled = x * 2.0
    return doubled


def seen(golden: Any, **tensors: Any) -> dict[str, Intermediate]:
    trace = GoldenTrace(golden)
    assert trace.note == ""
    trace.golden(tensors)
    return {found.name: found for found in trace.found}


def test_locals_temporaries_and_helpers_are_seen_with_their_lines() -> None:
    offset = 2.0

    def golden(tensors: dict[str, Any]) -> None:
        y = np.exp(tensors["x"]) + offset
        for i in range(2):
            y[i] = helper(y[i])
        tensors["out"] = y.T

    x = RNG.normal(size=(3, 5))
    found = seen(golden, x=x)
    first = golden.__code__.co_firstlineno
    assert found["np.exp(tensors['x'])"].line == first + 1
    np.testing.assert_allclose(found["np.exp(tensors['x'])"].array, np.exp(x))
    assert {"y", "scaled", "y.T"} <= set(found)
    assert found["scaled"].line == helper.__code__.co_firstlineno + 1


def test_a_helper_that_calls_itself_is_seen() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"] = halved(tensors["x"])

    found = seen(golden, x=RNG.normal(size=8))
    assert "doubled" in found


def test_packages_outside_of_the_environment_are_not_followed(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "foreign.py"
    package.parent.mkdir()
    package.write_text("def twice(x):\n    doubled = x * 2.0\n    return doubled\n")
    names = runpy.run_path(str(package))

    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"] = names["twice"](tensors["x"])

    assert "doubled" not in seen(golden, x=RNG.normal(size=8))


def attention_numpy(tensors: dict[str, Any]) -> None:
    scores = tensors["q"] @ tensors["k"].T
    top = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - top)
    mass = np.sum(p, axis=1, keepdims=True)
    tensors["out"] = np.einsum("ij,jd->id", p, tensors["v"]) / mass


def attention_torch(tensors: dict[str, Any]) -> None:
    import torch

    q, k, v = (torch.tensor(tensors[n]) for n in ("q", "k", "v"))
    scores = torch.matmul(q, k.T)
    top = scores.amax(dim=1, keepdim=True)
    p = torch.exp(scores - top)
    mass = p.sum(dim=1, keepdim=True)
    tensors["out"] = (p @ v / mass).numpy()


@pytest.mark.parametrize("golden", [attention_numpy, attention_torch])
def test_a_golden_over_a_part_of_its_reductions_computes_running_values(golden: Any) -> None:
    """The running maximum, sum and output of an online softmax after two of three blocks."""
    if golden is attention_torch:
        pytest.importorskip("torch")
    q, k, v = RNG.normal(size=(16, 5)), RNG.normal(size=(12, 5)), RNG.normal(size=(12, 5))
    given = {"q": q, "k": k, "v": v}
    trace = GoldenTrace(golden)
    trace.golden(dict(given))
    found = trace.partial_arrays(lambda other: other(dict(given)), [4])
    scores = (q @ k.T)[:, :8]
    top = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - top)
    running = {f.name: f.array for f in found if f.part == Part(12, 0, 8)}
    np.testing.assert_allclose(running["top"], top)
    np.testing.assert_allclose(running["p"][:, :8], p)
    np.testing.assert_allclose(running["mass"], p.sum(axis=1, keepdims=True))
    assert any(np.allclose(a, p @ v[:8]) for a in running.values() if a.shape == (16, 5))
    blocks = [f.array for f in found if f.part == Part(12, 4, 8)]
    assert any(np.allclose(a, scores[:, 4:].max(axis=1, keepdims=True)) for a in blocks)


def test_what_a_golden_computes_stays_the_same() -> None:
    def golden(tensors: dict[str, Any]) -> Any:
        a, (b, c) = tensors["x"], (1.0, 2.0)
        a = a + b
        a *= c
        return [row.sum() for row in a if row[0] > 0], max(x for x in a.reshape(-1))

    x = RNG.normal(size=(4, 6))
    traced, plain = GoldenTrace(golden).golden({"x": x.copy()}), golden({"x": x.copy()})
    assert traced == plain


def test_reductions_of_lists_and_named_operands_are_called_as_they_are() -> None:
    def golden(tensors: dict[str, Any]) -> Any:
        rows = [row * 2.0 for row in tensors["x"]]
        return np.sum(rows, axis=0), np.max(a=tensors["x"], axis=1), [1.0] * 4 @ tensors["x"]

    x = RNG.normal(size=(4, 6))
    for one, other in zip(GoldenTrace(golden).golden({"x": x}), golden({"x": x})):
        np.testing.assert_array_equal(one, other)


def test_complex_arrays_and_torch_tensors_are_seen() -> None:
    torch = pytest.importorskip("torch")

    def golden(tensors: dict[str, Any]) -> None:
        turned = tensors["x"] * 1j
        tensors["out"] = torch.tanh(tensors["t"]), turned.real

    found = seen(golden, x=RNG.normal(size=(2, 4)), t=torch.ones(2, 4) * 0.5)
    assert {"turned", "tensors['x'] * 1j.imag"} & set(found)
    assert "torch.tanh(tensors['t'])" in found


def test_a_golden_without_text_is_said_and_still_called() -> None:
    trace = GoldenTrace(np.exp)
    assert "not available" in trace.note
    assert trace.golden(0.0) == 1.0


def blocks(a: Any) -> dict[str, tuple[Any, tuple[int, int]]]:
    """Draw tiles cut out of an array, and their offsets."""
    block = a[8:16, 4:12]
    return {
        "block": (block, (8, 4)),
        "transposed": (block.T, (8, 4)),
        "row": (a[3:4, :], (3, 0)),
        "column": (a[:, 5:6], (0, 5)),
        "padded": (np.pad(a[8:12, 4:12], ((0, 4), (0, 8))), (8, 4)),
        "rounded": (block * (1 + 2e-3 * RNG.uniform(-1, 1, (8, 8))), (8, 4)),
    }


@pytest.mark.parametrize("kind", list(blocks(np.zeros((32, 24)))))
def test_a_block_of_an_array_is_found(kind: str) -> None:
    arrays = [Intermediate(n, "g.py", i, RNG.normal(size=(32, 24))) for i, n in enumerate("abc")]
    tile, position = blocks(arrays[1].array)[kind]
    match = Matcher(arrays).find(tile)
    assert match is not None
    assert (match.array.name, match.position) == ("b", position)


def test_what_is_not_there_is_not_found() -> None:
    arrays = [Intermediate("a", "g.py", 1, RNG.normal(size=(32, 24)))]
    matcher = Matcher(arrays)
    assert matcher.find(RNG.normal(size=(8, 8))) is None
    assert matcher.find(arrays[0].array[8:16, 4:12] * 1.1) is None
    assert matcher.find(np.ones((8, 8))) is None
    assert Matcher([]).find(np.arange(16.0)) is None


@pytest.mark.parametrize("factor", [0.37, -2.0, 1e-3])
@pytest.mark.parametrize("layout", ["block", "transposed", "row", "column"])
def test_multiples_of_a_tile_are_found_with_their_factor(factor: float, layout: str) -> None:
    whole = RNG.normal(size=(3, 40, 24))
    cut = {
        "block": whole[1, 8:24, 4:20],
        "transposed": whole[2, 8:24, 4:20].T,
        "row": whole[0, 5:6, :],
        "column": whole[1, :, 7:8],
    }[layout]
    other = RNG.normal(size=whole.shape)
    matcher = Matcher(
        [Intermediate(n, "", i, a) for i, (n, a) in enumerate(zip("ab", (other, whole)))]
    )
    noisy = cut / factor * (1 + 1e-3 * RNG.normal(size=cut.shape))
    ((match, found),) = matcher.multiples(noisy)
    assert match.array.name == "b"
    assert found == pytest.approx(factor, rel=1e-3)
    assert matcher.multiples(cut) == []  # a factor of one is no multiple
    assert matcher.multiples(RNG.normal(size=cut.shape)) == []


# Doubles


@pl.jit
def too_large(x: pl.Tensor[[16, 32], pl.FP32], out: pl.Out[pl.Tensor[[16, 32], pl.FP16]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.assemble(out, pl.cast(pl.mul(x, 1e6), pl.FP16), [0, 0])
    return out


@pl.jit
def narrow_sum(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 1], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        narrow = pl.cast(x, pl.BF16, mode="rint")
        out = pl.assemble(out, pl.row_sum(pl.cast(narrow, pl.FP32)), [0, 0])
    return out


def case_of(kernel: Any, specs: list[TensorSpec], golden: Any, tolerance: float) -> GoldenCase:
    handler = Examine()
    with session.active(Session(handler)):
        run_jit(kernel, specs, golden_fn=golden, rtol=tolerance, atol=tolerance)
    return handler.cases[0][1]


def test_an_overflow_is_found_without_a_golden() -> None:
    specs = [
        TensorSpec("x", [16, 32], pl.FP32, normal(1, 16, 32)),
        TensorSpec("out", [16, 32], pl.FP16, is_output=True),
    ]
    found = answer("kernel", case_of(too_large, specs, None, 1e-3), Options(1.0))
    assert found.agrees is None
    assert [error.code for error in found.found] == ["E1154"]
    assert found.violations[0][1].kind == "overflow"


def test_a_mismatch_that_double_has_not_is_rounding() -> None:
    specs = [
        TensorSpec("x", [16, 64], pl.FP32, normal(1, 16, 64)),
        TensorSpec("out", [16, 1], pl.FP32, is_output=True),
    ]

    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"][:] = tensors["x"].astype(np.float64).sum(axis=1, keepdims=True)

    found = answer("kernel", case_of(narrow_sum, specs, golden, 1e-5), Options(1.0))
    assert [error.code for error in found.found] == ["E1155"]
    loc = found.diagnostics[0].loc
    assert loc is not None
    assert "pl.cast(x, pl.BF16" in linecache.getline(__file__, loc.line)
    found = answer("kernel", case_of(narrow_sum, specs, golden, 1e-1), Options(1.0))
    assert (found.agrees, found.found) == (True, [])


# Programs that are right


def findings(cases: Any) -> list[str]:
    return [str(e) for name, case in cases for e in answer(name, case, Options(1.0)).found]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_nothing_is_found_in_the_examples(file: Path, thorough: bool) -> None:
    if not thorough and file.stem[:2] not in ("03", "06", "10"):
        pytest.skip("with --thorough")
    assert findings(cases_of(str(file))) == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_in_qwen3(name: str, thorough: bool) -> None:
    if not thorough and name != "qwen3/scope1:per_block":
        pytest.skip("with --thorough")
    assert findings(model_cases(*name.split(":"))) == []


@pl.jit
def capped(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        small = pl.mul(x[:, :], 1.0 / 30.0)
        out[:, :] = pl.mul(pl.exp(small), 3.7)
    return out


def test_a_wrong_number_is_one_that_the_golden_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks as on a busy machine: budgets count work."""
    for clock in ("monotonic", "perf_counter", "process_time", "time"):
        monkeypatch.setattr(time, clock, itertools.count(0, 1000).__next__)
    specs = [
        TensorSpec("x", [16, 64], pl.FP32, normal(3, 16, 64)),
        TensorSpec("out", [16, 64], pl.FP32, is_output=True),
    ]

    def golden(tensors: dict[str, Any]) -> None:
        limit = 2.9
        tensors["out"][:] = np.exp(tensors["x"] * (1.0 / 30.0)) * limit

    (error,) = answer("kernel", case_of(capped, specs, golden, 1e-4), Options(15.0)).found
    assert "wrong constant" in error.diagnostic.message
    assert "2.9 instead of 3.7" in error.diagnostic.helps[-1]
    assert error.diagnostic.loc is not None
    assert "3.7" in linecache.getline(__file__, error.diagnostic.loc.line)


def test_very_small_numbers_are_a_multiple_of_nothing() -> None:
    """Their products are zero, and so is the best-fitting factor."""
    pattern = np.random.default_rng(5).normal(size=(4, 8))
    matcher = Matcher([Intermediate("e", "", 1, 1e-200 * pattern)])
    assert matcher.multiples(1e-130 * pattern) == []


KV = pl.InOut[pl.Tensor[[8, 32], pl.BF16]]
TILE_IN, TILE_OUT = pl.Tensor[[16, 32], pl.FP32], pl.Out[pl.Tensor[[16, 32], pl.FP32]]


@pl.jit
def not_appended(
    key: pl.Tensor[[1, 32], pl.FP32], q: pl.Tensor[[16, 32], pl.FP32], cache: KV, out: TILE_OUT
):
    with pl.at(level=pl.Level.CORE_GROUP):
        row = pl.cast(pl.mul(key[:, :], 0.5), pl.BF16, mode="rint")  # to be stored
        own = pl.col_expand_mul(q[:, :], pl.cast(row, pl.FP32))
        cache = pl.assemble(cache, pl.cast(pl.neg(key[:, :]), pl.BF16, mode="rint"), [2, 0])
        out = pl.assemble(out, own, [0, 0])
    return out


def test_an_output_that_nobody_wrote_has_a_value_that_belongs_there() -> None:
    """The value has another use, so it is not an unused one."""
    specs = [
        TensorSpec("key", [1, 32], pl.FP32, normal(1, 1, 32)),
        TensorSpec("q", [16, 32], pl.FP32, normal(2, 16, 32)),
        TensorSpec("cache", [8, 32], pl.BF16, normal(3, 8, 32), is_output=True),
        TensorSpec("out", [16, 32], pl.FP32, is_output=True),
    ]

    def golden(tensors: dict[str, Any]) -> None:
        key = tensors["key"].astype(np.float64)
        tensors["cache"][5] = 0.5 * key[0]
        tensors["cache"][2] = -key[0]
        tensors["out"][:] = tensors["q"] * 0.5 * key

    result = answer("kernel", case_of(not_appended, specs, golden, 1e-2), Options(5.0))
    assert result.divergence is not None
    assert result.divergence.kind == "missing write"
    found = result.divergence.unstored
    assert found is not None
    assert found.loc.line == line_of(not_appended, "# to be stored")
    assert "`row` belongs there" in str(result.found[0])


@pl.jit
def not_handed_on(x: TILE_IN, out: TILE_OUT):
    weights = pl.create_tensor([32, 32], dtype=pl.BF16)
    total = pl.create_tensor([16, 1], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        e = pl.cast(pl.exp(x[:, :]), pl.BF16, mode="rint")  # to be stored
        total = pl.assemble(total, pl.row_sum(pl.cast(e, pl.FP32)), [0, 0])
        zero = pl.full([16, 32], dtype=pl.FP32, value=0.0)
        weights = pl.assemble(weights, pl.cast(zero, pl.BF16, mode="rint"), [16, 0])
    with pl.at(level=pl.Level.CORE_GROUP):
        top = pl.cast(weights[0:16, :], pl.FP32)
        out = pl.assemble(out, pl.row_expand_div(top, total[:, :]), [0, 0])
    return out


def test_memory_that_nobody_wrote_has_a_value_that_would_fit() -> None:
    specs = [
        TensorSpec("x", [16, 32], pl.FP32, normal(1, 16, 32)),
        TensorSpec("out", [16, 32], pl.FP32, is_output=True),
    ]

    def golden(tensors: dict[str, Any]) -> None:
        e = np.exp(tensors["x"].astype(np.float64))
        tensors["out"][:] = e / e.sum(axis=1, keepdims=True)

    result = answer("kernel", case_of(not_handed_on, specs, golden, 1e-2), Options(5.0))
    assert result.divergence is not None
    assert result.divergence.kind == "undefined read"
    found = result.divergence.unstored
    assert found is not None
    assert found.loc.line == line_of(not_handed_on, "# to be stored")
