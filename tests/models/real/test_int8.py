"""INT8 weights: their values, their error, and their size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.models.real.files import CONFIG, tensors, write_model
from tests.models.real.test_generate import SMALL, one_thread, prompts
from tests.models.real.tiny import Sizes, relative, tiny, tiny_moe

from tilelet import dtypes
from tilelet.cli.main import main
from tilelet.diag.catalogue.generate import BadGenerateSetting
from tilelet.models import qwen3
from tilelet.models.qwen3.architecture import architecture_of
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.int8 import fill_int8
from tilelet.models.qwen3.int8_error import int8_error
from tilelet.models.qwen3.loading import layer_bytes
from tilelet.models.qwen3.published import FACTOR_ROWS

__all__ = ["one_thread"]
Array = np.ndarray[Any, np.dtype[Any]]


def converted(matrix: Array) -> Array:
    """`[out, in]` in INT8."""
    outputs, inputs = matrix.shape
    found = np.empty((inputs + FACTOR_ROWS, outputs), np.int8)
    fill_int8(found, [matrix])
    return found


def dequantize(array: Array) -> Array:
    """Return a matrix with its scales as `[in, out]` in FP32."""
    factors = array[-FACTOR_ROWS:].reshape(-1).view(np.float32)
    return array[:-FACTOR_ROWS].astype(np.float32) * factors


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_weight_is_within_half_a_factor(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    spread = np.exp(rng.standard_normal((300, 1)) * 3)  # rows of very different sizes
    matrix = (rng.standard_normal((300, 24)) * spread).astype(dtype)
    matrix[7] = 0
    found = converted(matrix)
    wide = matrix.astype(np.float64).T
    factor = np.abs(wide).max(axis=0) / 127
    assert (np.abs(dequantize(found) - wide) <= factor * 0.5001).all()
    assert (np.abs(found[:-FACTOR_ROWS].astype(int)).max(axis=0)[factor > 0] == 127).all()
    assert (dequantize(found)[:, 7] == 0).all()


def test_blocks_of_columns_have_their_factors_below_them() -> None:
    matrix = np.random.default_rng(1).standard_normal((24, 10)).astype(np.float32)
    found = np.empty((3 * (10 + FACTOR_ROWS), 8), np.int8)
    fill_int8(found, [matrix])
    for i, block in enumerate(np.split(found, 3)):
        assert np.array_equal(block, converted(matrix[8 * i : 8 * (i + 1)]))


def dequantised(stored: dict[str, Array]) -> dict[str, Array]:
    """Return the model's tensors with the matrices of its layers rounded to INT8."""
    return {
        name: dequantize(converted(array)).T if "layers." in name and array.ndim == 2 else array
        for name, array in stored.items()
    }


@pytest.mark.parametrize("engine", ["interp", "cpu"])
def test_programs_compute_with_what_the_numbers_stand_for(
    engine: str, tmp_path: Path, thorough: bool
) -> None:
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    stored = {n: a / 4 if a.ndim == 2 else a for n, a in tensors().items()}
    for name, arrays in {"stored": stored, "rounded": dequantised(stored)}.items():
        (tmp_path / name).mkdir()
        write_model(tmp_path / name, arrays)
    sizes: dict[str, Any] = {"max_seq": 32, "page": 16, "chunk": 16, "engine": engine}
    tokens = np.arange(19) * 5 % CONFIG["vocab_size"]
    exact = qwen3.load(tmp_path / "rounded", **sizes).forward(tokens)
    found = qwen3.load(tmp_path / "stored", quantize="int8", **sizes).forward(tokens)
    assert relative(found, exact) < 1e-5
    before = qwen3.load(tmp_path / "stored", **sizes).forward(tokens)
    assert 1e-3 < relative(found, before) < 0.05


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_error_by_layer_and_at_the_logits(kind: str, thorough: bool) -> None:
    """Eight bits per weight, many errors that cancel: about a percent; BF16 adds to it."""
    if not thorough:
        pytest.skip("compiles for seconds")
    if kind == "dense":
        directory = tiny("bfloat16", Sizes(layers=2)).directory
    else:
        fields: dict[str, Any] = {"num_hidden_layers": 2, "mlp_only_layers": (1,)}
        directory = tiny_moe("bfloat16", **fields).directory
    found = int8_error(directory, prompts([33])[0], **SMALL)
    assert len(found.layers) == 2
    assert all(0 < error < 0.03 for error in (*found.layers, found.logits))
    assert found.positions == 33
    assert 0.8 <= found.same_best <= 1
    assert 0.5 < found.int8_bytes / found.bytes < 0.6  # norms, factors and the router remain


def test_a_layer_takes_half_the_memory() -> None:
    for name in ("0.6B", "32B", "30B-A3B"):
        c = Qwen3Config.preset(name)
        wide, narrow = (
            layer_bytes(architecture_of(c, int8=int8).arrays_of(0), dtypes.BF16)
            for int8 in (False, True)
        )
        assert 0.5 < narrow / wide < 0.504


def test_other_ways_to_quantise(tmp_path: Path) -> None:
    with pytest.raises(BadGenerateSetting, match="`quantize` is int4"):
        qwen3.load(write_model(tmp_path), quantize="int4")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(tmp_path, {n: a / 4 if a.ndim == 2 else a for n, a in tensors().items()})
    words = ["generate", str(tmp_path), "--tokens", "1 2 3", "--engine", "interp", "--int8"]
    words += ["--max-new-tokens", "2", "--max-seq", "64", "--compare"]
    assert main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["sequences"][0]["tokens"]) == 2
    assert len(found["int8"]["layers"]) == 2
    assert 0 < found["int8"]["logits"] < 0.1
    assert found["int8"]["positions"] == 3
    assert main(words) == 0
    assert "best token the same at" in capsys.readouterr().out
