"""The weight files of a model directory: one, or several shards with an index."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tilelet.checkpoint.json_file import read_json_object
from tilelet.checkpoint.safetensors import SafetensorsFile
from tilelet.diag.catalogue.models import (
    BadModelConfig,
    BadWeightIndex,
    NoModelConfig,
    NoWeights,
    OutsideModelDirectory,
    shown_name,
)

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def open_files(directory: Path) -> dict[str, SafetensorsFile]:
    """Map each tensor of a model directory to the file that contains it."""
    if not directory.is_dir():
        why = "it is a file" if directory.exists() else "there is no such directory"
        raise NoModelConfig(str(directory), why)
    single, index = directory / SINGLE, directory / INDEX
    if single.exists():
        _check_inside(directory, single, str(single))
        file = SafetensorsFile(single)
        return dict.fromkeys(file.entries, file)
    if index.exists():
        return _open_shards(directory, index)
    pickled = sorted(p.name for s in ("*.bin", "*.pt", "*.pth") for p in directory.glob(s))
    shards = sorted(p.name for p in directory.glob("*.safetensors"))
    raise NoWeights(str(directory), pickled, shards)


def _open_shards(directory: Path, index: Path) -> dict[str, SafetensorsFile]:
    if not index.is_file():
        raise BadModelConfig(str(index), "it is not a file")
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadWeightIndex(str(index), "it has no `weight_map`")
    names = cast("dict[str, object]", weight_map)
    shards: dict[str, SafetensorsFile] = {}
    for shard in sorted({v if isinstance(v, str) else "" for v in names.values()}):
        shards[shard] = SafetensorsFile(_shard_path(directory, str(index), shard))
    found: dict[str, SafetensorsFile] = {}
    for name, shard in names.items():
        file = shards[str(shard)]
        if name not in file.entries:
            raise BadWeightIndex(
                str(index),
                f"`{shown_name(name)}` is not in `{shown_name(str(shard))}`, where it should be",
            )
        found[name] = file
    return found


def _shard_path(directory: Path, index: str, shard: str) -> Path:
    """Return the path of a shard; its name is untrusted and must stay inside the directory."""
    if not shard:
        raise BadWeightIndex(index, "a file name is empty or not a string")
    if "/" in shard or "\\" in shard or "\0" in shard or shard in (".", ".."):
        raise OutsideModelDirectory(index, shard)
    path = directory / shard
    if not path.exists():
        raise BadWeightIndex(index, f"there is no file `{shown_name(shard)}`")
    _check_inside(directory, path, index)
    return path


def _check_inside(directory: Path, path: Path, named_by: str) -> None:
    """Check that a file of a model, which may be a symlink, stays inside the model's directory."""
    target = path.resolve()
    if not target.is_relative_to(_root(directory.resolve())):
        raise OutsideModelDirectory(named_by, f"{path.name} -> {target}")


def _root(directory: Path) -> Path:
    """Return the directory that must contain all files of a model.

    The download cache of Hugging Face keeps a model in `models--*/`, with files in `blobs/` and
    symlinks to them in `snapshots/<revision>/`; there it is the whole of `models--*/`.
    """
    if directory.parent.name == "snapshots" and directory.parents[1].name.startswith("models--"):
        return directory.parents[1]
    return directory
