"""Loading layers: weights come out transposed; invalid files are rejected."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.real.files import (
    config,
    header_of,
    tensors,
    write_file,
    write_index,
    write_model,
    write_raw,
    write_shards,
)

import tilelet.language as pl
from tilelet.checkpoint.files import INDEX, SINGLE
from tilelet.checkpoint.safetensors import SafetensorsFile
from tilelet.diag import UserError
from tilelet.diag.catalogue import models
from tilelet.models.qwen3.weights import (
    Checkpoint,
    LayerWeights,
    load_layer,
    transpose_matrix,
)

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def same(a: LayerWeights, b: LayerWeights) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.arrays().values(), b.arrays().values()))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_matrices_aretransposed_and_norms_widened(tmp_path: Path, dtype: Any) -> None:
    stored = tensors(dtype)
    layer = load_layer(write_model(tmp_path, stored), 1)
    assert np.array_equal(layer.wq, stored[Q_PROJ].T)
    assert layer.wq.shape == (32, 64)
    assert layer.wo.shape == (64, 32)
    assert layer.w_down.shape == (48, 32)
    assert np.array_equal(layer.w_down, stored["model.layers.1.mlp.down_proj.weight"].T)
    assert layer.wq.flags.c_contiguous
    assert layer.wq.dtype == layer.dtype.numpy == np.dtype(dtype)
    assert layer.q_norm.dtype == np.float32
    assert np.array_equal(layer.q_norm[0], stored["model.layers.1.self_attn.q_norm.weight"])


def test_a_dtype_that_was_asked_for(tmp_path: Path) -> None:
    stored = tensors(np.float32)
    layer = load_layer(write_model(tmp_path, stored), 1, config(), pl.BF16)
    assert layer.dtype is pl.BF16
    assert np.array_equal(layer.wq, stored[Q_PROJ].T.astype(ml_dtypes.bfloat16))


def test_matrices_larger_than_a_block() -> None:
    stored = np.arange(600 * 257, dtype=np.float32).reshape(257, 600)
    assert np.array_equal(transpose_matrix(stored, pl.FP32), stored.T)


def test_blocks_of_columns_stand_one_below_the_other() -> None:
    """The last block lacks columns, which are zeros."""
    stored = np.arange(5 * 7, dtype=np.float32).reshape(7, 5)
    found = transpose_matrix(stored, pl.FP32, 3)
    assert found.shape == (15, 3)
    whole = np.concatenate(np.split(found, 3), axis=1)
    assert np.array_equal(whole[:, :7], stored.T)
    assert (whole[:, 7:] == 0).all()


def test_shards_and_names_without_prefix_give_the_same(tmp_path: Path) -> None:
    stored = tensors()
    single, sharded, bare = (tmp_path / n for n in ("single", "sharded", "bare"))
    for folder in (single, sharded, bare):
        folder.mkdir()
    wanted = load_layer(write_model(single, stored), 0)
    write_shards(sharded, stored)
    assert same(load_layer(sharded, 0), wanted)
    unprefixed = {n.removeprefix("model."): a for n, a in stored.items() if n != "lm_head.weight"}
    assert same(load_layer(write_model(bare, unprefixed), 0), wanted)


def test_files_of_the_safetensors_package_and_back(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.numpy")
    stored = tensors(np.float16)
    package.save_file(stored, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "theirs.safetensors")
    assert set(file.entries) == set(stored)
    for name, array in stored.items():
        assert np.array_equal(file.tensor(name), array)
    loaded = package.load_file(write_file(tmp_path / "ours.safetensors", stored))
    assert all(np.array_equal(loaded[n], a) for n, a in stored.items())


def test_tensors_are_read_only_views_at_any_alignment(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    empty = np.zeros((0, 5), np.float32)
    for pad in range(8):
        header = json.dumps(header_of({"x": array, "none": empty})).encode() + b" " * pad
        file = SafetensorsFile(write_raw(tmp_path / f"{pad}", header, array.tobytes()))
        found = file.tensor("x")
        assert np.array_equal(found, array)
        assert not found.flags.writeable
        assert file.tensor("none").shape == (0, 5)


def refuse(path: Path, error: type[UserError], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        load_layer(path, 1, config())
    assert "\n" not in caught.value.diagnostic.message


def test_missing_extra_and_misshapen_tensors(tmp_path: Path) -> None:
    stored = tensors()
    few = {n: a for n, a in stored.items() if n != Q_PROJ}
    refuse(write_model(tmp_path, few), models.MissingTensors, f"lack 1 tensor: `{Q_PROJ}`")
    assert load_layer(tmp_path, 0, config()).wq.shape == (32, 64)  # the other layer is complete
    none = {n: a for n, a in stored.items() if ".1." not in n}
    refuse(write_model(tmp_path, none), models.MissingTensors, "11 tensors: .* and 7 more")
    bias = {**stored, "model.layers.1.self_attn.q_proj.bias": np.zeros(64, np.float32)}
    refuse(write_model(tmp_path, bias), models.ExtraTensors, "q_proj.bias")
    deeper = {**stored, "model.layers.2.mlp.up_proj.weight": np.zeros((48, 32), np.float32)}
    refuse(write_model(tmp_path, deeper), models.ExtraTensors, "layers.2.mlp")
    square = {**stored, Q_PROJ: np.zeros((32, 32), np.float32)}
    shapes = r"has shape `\[32, 32\]`, but the configuration implies `\[64, 32\]`"
    refuse(write_model(tmp_path, square), models.WrongTensorShape, shapes)
    transposed = {**stored, Q_PROJ: stored[Q_PROJ].T}
    refuse(write_model(tmp_path, transposed), models.WrongTensorShape, Q_PROJ)
    narrow = {**stored, Q_PROJ: np.zeros((64, 32), np.int8)}
    refuse(write_model(tmp_path, narrow), models.WrongTensorDType, f"{Q_PROJ}.*dtype `I8`")


def test_layers_that_are_not_there(tmp_path: Path) -> None:
    write_model(tmp_path)
    for index in (-1, 2):
        with pytest.raises(models.NoSuchLayer, match=f"`{index}`: the model has 2 layers"):
            load_layer(tmp_path, index)
    assert len(list(Checkpoint(tmp_path, config()).layers())) == 2


def test_directories_without_weights(tmp_path: Path) -> None:
    refuse(tmp_path, models.NoWeights, "has no `model.safetensors`")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    refuse(tmp_path, models.NoWeights, "`pytorch_model.bin` cannot be used: pickled")
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"")
    refuse(tmp_path, models.NoWeights, "`model-00001-of-00002.safetensors` needs ")
    refuse(tmp_path / "absent", models.NoModelConfig, "no such directory")


X = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"x": {**X, "data_offsets": [0, 16]}}, "bytes 0 to 16 of 8"),
        ({"x": {**X, "data_offsets": [8, 0]}}, "bytes 8 to 0"),
        ({"x": {**X, "data_offsets": [-8, 0]}}, "not two positions"),
        ({"x": {**X, "data_offsets": [0, 8, 8]}}, "not two positions"),
        ({"x": {**X, "data_offsets": [0, 2**64]}}, "not two positions"),
        ({"x": {**X, "data_offsets": "08"}}, "not two positions"),
        ({"x": {**X, "data_offsets": [0, 4], "shape": [1]}}, "4 bytes at the end are unused"),
        ({"x": {**X, "data_offsets": [4, 8], "shape": [1]}}, "4 bytes before `x` are unused"),
        ({"x": X, "y": X}, "`y` overlaps `x`"),
        ({"x": {**X, "shape": [3]}}, "has 8 bytes, its shape and dtype need 12"),
        ({"x": {**X, "shape": [2**31, 2**31]}}, "its shape and dtype need"),
        ({"x": {**X, "shape": [-2]}}, "not a list of sizes"),
        ({"x": {**X, "shape": [2.0]}}, "not a list of sizes"),
        ({"x": {**X, "shape": [True, 2]}}, "not a list of sizes"),
        ({"x": {**X, "shape": 2}}, "not a list of sizes"),
        ({"x": {**X, "dtype": "F31"}}, "unknown dtype `F31`"),
        ({"x": {**X, "dtype": "f32"}}, "unknown dtype"),
        ({"x": {**X, "dtype": ["F32"]}}, "unknown dtype"),
        ({"x": {**X, "more": 1}}, "does not have just"),
        ({"x": {"dtype": "F32"}}, "does not have just"),
        ({"x": [1]}, "does not have just"),
        ({"x": X, "__metadata__": {"a": 1}}, "`__metadata__`"),
        ({"x": X, "__metadata__": []}, "`__metadata__`"),
        ({"\ud800": X}, "the name '.ud800' is not UTF-8"),
        ({"a\nb": {"dtype": "F31"}}, r"`a\\nb` does not"),
        ({"x" * 500: {"dtype": "F31"}}, r"`x{80}\.\.\.` does not"),
        ({}, "8 bytes at the end are unused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_headers_that_lie(tmp_path: Path, header: dict[str, Any], text: str) -> None:
    write_raw(tmp_path / SINGLE, json.dumps(header).encode(), bytes(8))
    refuse(tmp_path, models.BadWeightFile, text)


@pytest.mark.parametrize(
    ("header", "length", "text"),
    [
        (b"{}", 2**64 - 1, "claims 18446744073709551615 bytes, the file holds 10"),
        (b"{}", 11, "claims 11 bytes, the file holds 10"),
        (b"{}", 0, "not JSON"),
        (b"", None, "not JSON"),
        (b"[]", None, "is not an object"),
        (b'{"x": \xff\xfe}', None, "byte 6 is not UTF-8"),
        (b'{"x": {}, "x": {}}', None, "the key 'x' occurs twice"),
        (b'{"x": {"dtype": "F32", "dtype": "F16"}}', None, "occurs twice"),
        (b'{"x": ' + b"[" * 200_000, None, "nested too deeply"),
        (b'{"x": {"dtype": "F32", "shape": [' + b"9" * 9000 + b"]}}", None, "safetensors"),
    ],
    ids=[
        "huge",
        "one too long",
        "zero",
        "none",
        "list",
        "bytes",
        "twice",
        "inner",
        "deep",
        "digits",
    ],
)
def test_headers_that_are_damaged(
    tmp_path: Path, header: bytes, length: int | None, text: str
) -> None:
    write_raw(tmp_path / SINGLE, header, bytes(8), length)
    refuse(tmp_path, models.BadWeightFile, text)


def test_a_header_over_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilelet.checkpoint.safetensors._MAX_HEADER_BYTES", 50)
    write_model(tmp_path)
    refuse(tmp_path, models.BadWeightFile, "at most allowed are 50")


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = write_file(tmp_path / "whole", {"x": np.ones((2, 2), np.float32)}).read_bytes()
    cut = tmp_path / "cut"
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        with pytest.raises(models.BadWeightFile):
            SafetensorsFile(cut)
    cut.write_bytes(whole + b"\0")
    with pytest.raises(models.BadWeightFile, match="1 bytes at the end are unused"):
        SafetensorsFile(cut)


SAMPLE = {"a": np.ones((2, 2), np.float32), "b": np.ones(3, np.float16)}


@settings(max_examples=300)
@given(st.data())
def test_changed_bytes_never_do_worse_than_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    content = bytearray(write_file(path, SAMPLE).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.unlink()  # a mapped file must not change under its readers
    path.write_bytes(content)
    try:
        file = SafetensorsFile(path)
    except models.BadWeightFile:
        return
    assert sum(file.tensor(name).nbytes for name in file.entries) == 22


def test_paths_that_are_not_files(tmp_path: Path) -> None:
    (tmp_path / SINGLE).mkdir()
    refuse(tmp_path, models.BadWeightFile, "no such file")
    (tmp_path / SINGLE).rmdir()
    os.mkfifo(tmp_path / SINGLE)  # opening it would wait for a writer forever
    refuse(tmp_path, models.BadWeightFile, "no such file")


@pytest.mark.parametrize(
    "target",
    ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", "a\0b", "..\\x"],
)
def test_an_index_may_not_point_outside(tmp_path: Path, target: str) -> None:
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    write_file(tmp_path / "secret.safetensors", tensors())
    write_file(model / "sub" / "x.safetensors", tensors())
    write_index(model, dict.fromkeys(tensors(), target))
    refuse(model, models.OutsideModelDirectory, "outside the model's directory")


def test_links_out_of_the_directory_are_refused(tmp_path: Path) -> None:
    model, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    model.mkdir()
    elsewhere.mkdir()
    shard = next(iter(set(write_shards(model, tensors()).values())))
    (model / shard).rename(elsewhere / shard)
    (model / shard).symlink_to(elsewhere / shard)
    refuse(model, models.OutsideModelDirectory, "outside the model's directory")
    (model / shard).unlink()
    (elsewhere / shard).rename(model / "moved")
    (model / shard).symlink_to("moved")
    assert load_layer(model, 1, config()).wq.shape == (32, 64)


def test_the_download_cache_links_to_its_own_blobs(tmp_path: Path) -> None:
    root = tmp_path / "models--Qwen--Qwen3-0.6B"
    model, blobs = root / "snapshots" / "abc", root / "blobs"
    model.mkdir(parents=True)
    blobs.mkdir()
    for i, shard in enumerate(sorted(set(write_shards(model, tensors()).values()))):
        (model / shard).rename(blobs / str(i))
        (model / shard).symlink_to(f"../../blobs/{i}")
    assert load_layer(model, 1, config()).wq.shape == (32, 64)
    (blobs / "0").rename(tmp_path / "other")
    (blobs / "0").symlink_to(tmp_path / "other")
    refuse(model, models.OutsideModelDirectory, "outside the model's directory")


def test_an_index_that_does_not_fit_its_files(tmp_path: Path) -> None:
    weight_map = write_shards(tmp_path, tensors())
    first, second = sorted(set(weight_map.values()))
    swapped = {n: second if s == first else first for n, s in weight_map.items()}
    write_index(tmp_path, swapped)
    refuse(tmp_path, models.BadWeightIndex, "is not in `model-0000.-of-00002.safetensors`")
    write_index(tmp_path, {**weight_map, Q_PROJ: "model-00003.safetensors"})
    refuse(tmp_path, models.BadWeightIndex, "there is no file `model-00003.safetensors`")
    for nonsense in ({**weight_map, Q_PROJ: 7}, {**weight_map, Q_PROJ: ""}):
        write_index(tmp_path, nonsense)
        refuse(tmp_path, models.BadWeightIndex, "empty or not a string")
    for nonsense in ({}, [], None, "x"):
        write_index(tmp_path, nonsense)
        refuse(tmp_path, models.BadWeightIndex, "it has no `weight_map`")
    (tmp_path / INDEX).write_bytes(b'{"weight_map": {"x": "a", "x": "b"}}')
    refuse(tmp_path, models.BadModelConfig, "occurs twice")
    (tmp_path / INDEX).write_bytes(b"\xff")
    refuse(tmp_path, models.BadModelConfig, "byte 0 is not UTF-8")
    absent = {n: s for n, s in weight_map.items() if n != Q_PROJ}
    write_index(tmp_path, absent)
    refuse(tmp_path, models.MissingTensors, Q_PROJ)


def test_a_single_file_follows_the_rule_for_shards(tmp_path: Path) -> None:
    model, elsewhere = tmp_path / "model", tmp_path / "elsewhere.safetensors"
    model.mkdir()
    write_file(elsewhere, tensors())
    (model / SINGLE).symlink_to(elsewhere)
    refuse(model, models.OutsideModelDirectory, "outside the model's directory")
    (model / SINGLE).unlink()
    elsewhere.rename(model / "moved")
    (model / SINGLE).symlink_to("moved")
    assert load_layer(model, 1, config()).wq.shape == (32, 64)


@pytest.mark.parametrize("name", ["layers.01.mlp.up_proj.weight", "layers.99999999999.x", "layers"])
def test_names_that_no_layer_has(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / SINGLE, {**tensors(), f"model.{name}": next(iter(tensors().values()))})
    refuse(tmp_path, models.ExtraTensors, name)
