"""Tensors of a checkpoint as inputs of a user's own script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.models.real.files import tensors, write_file, write_model, write_shards

import tilelet.language as pl
from tilelet.checkpoint.files import SINGLE
from tilelet.checkpoint.tensors import VARIABLE
from tilelet.diag.catalogue.checkpoint import (
    NoCheckpoint,
    NoSuchTensor,
    WrongStoredDType,
    WrongStoredShape,
)
from tilelet.diag.catalogue.harness import BadSpec
from tilelet.diag.catalogue.models import BadWeightFile, OutsideModelDirectory
from tilelet.runtime import TensorSpec, run_jit

UP = "model.layers.1.mlp.up_proj.weight"
NORM = "model.layers.1.input_layernorm.weight"


def spec(shape: list[int], name: str = UP, dtype: Any = pl.FP32, **options: Any) -> TensorSpec:
    return TensorSpec("w", shape, dtype, from_checkpoint=name, **options)


def test_a_matrix_and_its_transpose(tmp_path: Path) -> None:
    stored = tensors()[UP]
    write_model(tmp_path)
    assert np.array_equal(spec([48, 32], checkpoint=tmp_path).create_tensor(), stored)
    turned = spec([32, 48], UP + ".T", checkpoint=str(tmp_path)).create_tensor()
    assert np.array_equal(turned, stored.T)
    assert turned.flags.c_contiguous
    turned[:] = 0  # an array of the caller's own
    assert np.array_equal(spec([48, 32], checkpoint=tmp_path).create_tensor(), stored)


def test_rows_of_one_dimension_and_other_types(tmp_path: Path) -> None:
    write_shards(tmp_path, tensors())
    narrow = spec([1, 32], NORM, pl.BF16, checkpoint=tmp_path).create_tensor()
    assert narrow.shape == (1, 32)
    assert np.array_equal(narrow[0], tensors()[NORM].astype(ml_dtypes.bfloat16))
    torch = pytest.importorskip("torch")
    found = spec([32], NORM, torch.float32, checkpoint=tmp_path).create_tensor()
    assert torch.is_tensor(found)


def test_the_environment_names_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(NoCheckpoint, match="`w` comes from a checkpoint"):
        spec([48, 32]).create_tensor()
    monkeypatch.setenv(VARIABLE, str(write_model(tmp_path)))
    assert np.array_equal(spec([48, 32]).create_tensor(), tensors()[UP])


def test_a_single_file(tmp_path: Path) -> None:
    states = np.arange(6, dtype=np.float32).reshape(2, 3)
    file = write_file(tmp_path / "layer3.safetensors", {"states": states})
    assert np.array_equal(spec([2, 3], "states", checkpoint=file).create_tensor(), states)


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    for value in (1, 2):
        file = write_file(tmp_path / "a.safetensors", {"x": np.full((1, 2), value, np.float32)})
        os.utime(file, ns=(value, value))
        assert spec([1, 2], "x", checkpoint=file).create_tensor()[0, 0] == value


def test_names_that_are_not_there(tmp_path: Path) -> None:
    write_model(tmp_path)
    with pytest.raises(NoSuchTensor, match=r"did you mean `model\.layers\.1\.mlp\.up_proj"):
        spec([48, 32], UP.replace("up_proj", "up_porj"), checkpoint=tmp_path).create_tensor()
    with pytest.raises(NoSuchTensor, match="its layers are 0 to 1"):
        spec([48, 32], UP.replace("1", "17"), checkpoint=tmp_path).create_tensor()


def test_shapes_and_types_that_do_not_fit(tmp_path: Path) -> None:
    arrays = {**tensors(), "codes": np.zeros((4, 4), np.int8)}
    write_file(tmp_path / SINGLE, arrays)
    with pytest.raises(WrongStoredShape, match=r"its transpose has this shape: `.*weight\.T`"):
        spec([32, 48], checkpoint=tmp_path).create_tensor()
    with pytest.raises(WrongStoredShape, match=r"\[48, 32\] .* but \[48, 33\] in the spec"):
        spec([48, 33], checkpoint=tmp_path).create_tensor()
    with pytest.raises(WrongStoredDType, match="is int8 in the checkpoint"):
        spec([4, 4], "codes", checkpoint=tmp_path).create_tensor()
    same = spec([4, 4], "codes", pl.INT8, checkpoint=tmp_path).create_tensor()
    assert same.dtype == np.int8


def test_damaged_files_and_links_out_of_the_directory(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    write_model(tmp_path)
    (inside / SINGLE).symlink_to(tmp_path / SINGLE)
    with pytest.raises(OutsideModelDirectory):
        spec([48, 32], checkpoint=inside).create_tensor()
    (inside / SINGLE).unlink()
    (inside / SINGLE).write_bytes((tmp_path / SINGLE).read_bytes()[:-100])
    with pytest.raises(BadWeightFile, match="is at bytes"):
        spec([48, 32], checkpoint=inside).create_tensor()


def test_one_source_of_data() -> None:
    with pytest.raises(BadSpec, match="has an `init_value` and comes from a checkpoint"):
        spec([2, 2], init_value=1.0)


@pl.jit
def doubled(w: pl.Tensor[[48, 32], pl.FP32], out: pl.Out[pl.Tensor[[48, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.mul(w[:, :], 2.0)
    return out


def test_a_run_with_real_weights(tmp_path: Path) -> None:
    def golden(arrays: dict[str, Any]) -> None:
        arrays["out"][:] = arrays["w"] * 2

    write_model(tmp_path)
    specs = [
        spec([48, 32], checkpoint=tmp_path),
        TensorSpec("out", [48, 32], pl.FP32, is_output=True),
    ]
    result = run_jit(doubled, specs, golden_fn=golden, rtol=0, atol=0)
    assert result.passed
