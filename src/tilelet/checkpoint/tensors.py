"""One tensor of a checkpoint, for use in a user's script.

A checkpoint is a model directory or a single `.safetensors` file. Files store matrices as `[out,
in]`; appending `.T` to a name selects the transpose, as programs that compute `x @ w` need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tilelet.checkpoint.files import open_files
from tilelet.checkpoint.safetensors import Array, SafetensorsFile
from tilelet.diag.catalogue.checkpoint import (
    NoCheckpoint,
    NoSuchTensor,
    WrongStoredDType,
    WrongStoredShape,
)

VARIABLE = "TILELET_CHECKPOINT"
TRANSPOSED = ".T"
_FLOATS = ("float16", "bfloat16", "float32", "float64")
# The last checkpoint opened, because the specs of a script are read one after the other.
_opened: dict[tuple[Path, int], dict[str, SafetensorsFile]] = {}


def chosen_checkpoint(spec: str, given: Any = None) -> Path:
    """Return the checkpoint given by a spec, or else by the environment."""
    source = given if given is not None else os.environ.get(VARIABLE)
    if not source:
        raise NoCheckpoint(spec, VARIABLE)
    return Path(source)


def read_tensor(source: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the tensor `name` (or its transpose) with this shape, converted; a new array.

    Leading dimensions of 1 may be added or dropped. Values are rounded to nearest, ties to even.
    """
    plain = name.removesuffix(TRANSPOSED)
    stored = _read_stored(source, plain)
    wanted = stored.T if name.endswith(TRANSPOSED) else stored
    if _core(wanted.shape) != _core(shape):
        turned = _core(wanted.T.shape) == _core(shape)
        other = plain if name.endswith(TRANSPOSED) else plain + TRANSPOSED
        raise WrongStoredShape(name, wanted.shape, shape, other if turned else None)
    if wanted.dtype != dtype and not {stored.dtype.name, dtype.name} <= set(_FLOATS):
        raise WrongStoredDType(name, stored.dtype.name, dtype.name)
    return np.array(wanted.reshape(shape), dtype, order="C")


def _core(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop leading ones from a shape: a norm's weight is `[n]` or `[1, n]`."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _read_stored(source: Path, name: str) -> Array:
    files = _files(source)
    if name not in files:
        raise NoSuchTensor(name, str(source), list(files))
    return files[name].tensor(name)


def _files(source: Path) -> dict[str, SafetensorsFile]:
    place = source.absolute(), source.stat().st_mtime_ns if source.exists() else 0
    if place not in _opened:
        if source.is_file():
            file = SafetensorsFile(source)
            files = dict.fromkeys(file.entries, file)
        else:
            files = open_files(source)
        _opened.clear()
        _opened[place] = files
    return _opened[place]
