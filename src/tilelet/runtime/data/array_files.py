"""Arrays in files: `.npz` with the raw bits and the name of the element type. Never pickle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilelet import dtypes
from tilelet.dtypes import Array
from tilelet.runtime.data.arrays import raw

# Member names are prefixed: an array called `file` must not collide with a parameter of `np.savez`.
_BITS, _TYPE, _SEAL = "bits.", "dtype.", "seal"

# Digest of the arrays with their names, types and shapes, stored beside them.
Seal = Callable[[Mapping[str, Array]], str]


class BadFileError(Exception):
    """A stored file has unexpected contents; callers turn this into a message."""


def save_arrays(
    path: Path, arrays: Mapping[str, Array], mode: int = 0o644, seal: Seal | None = None
) -> Path:
    """Write all arrays to one file, which appears complete or not at all."""
    contents: dict[str, Any] = {} if seal is None else {_SEAL: np.array(seal(arrays))}
    for name, array in arrays.items():
        contents[_BITS + name] = raw(np.ascontiguousarray(array))
        contents[_TYPE + name] = np.array(dtypes.from_numpy(array.dtype).name)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **contents)  # no object arrays, so nothing is pickled
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def load_arrays(path: Path | BinaryIO, seal: Seal | None = None) -> dict[str, Array]:
    """Read what `save_arrays` wrote; `BadFileError` if the file is damaged or something else."""
    found: dict[str, Array] = {}
    try:
        with np.load(path, allow_pickle=False) as stored:
            known = None if seal is None else str(stored[_SEAL])
            for member in stored.files:
                if member.startswith(_BITS):
                    name = member.removeprefix(_BITS)
                    dtype = dtypes.by_name(str(stored[_TYPE + name]))
                    found[name] = stored[member].view(dtype.numpy)
    except Exception as error:  # np.load raises whatever zipfile, zlib or the header parser raise
        raise BadFileError(f"{path}: {error}") from error
    if seal is not None and seal(found) != known:
        raise BadFileError(f"{path}: not as it was written")
    return found


def save_array(path: Path, array: Array) -> Path:
    return save_arrays(path, {"data": array})


def load_array(folder: Path, name: str) -> Array | None:
    """Read the array `name` of a data folder, from `.npz` or `.npy`; None if absent.

    A `.pt` file is a pickle and is never loaded: the message says how to convert it.
    """
    for suffix in (".npz", ".npy", ".pt"):
        path = folder / (name + suffix)
        if not path.is_file():
            continue
        if suffix == ".pt":
            how = f"np.save('{name}.npy', tensor.numpy())"
            raise BadFileError(f"{path} is a pickle, which Tilelet does not load; save it by {how}")
        if suffix == ".npz":
            arrays = load_arrays(path)
            if "data" not in arrays:
                raise BadFileError(f"{path}: holds {sorted(arrays)}, not `data`")
            return arrays["data"]
        try:
            return np.load(path, allow_pickle=False)
        except Exception as error:  # as above
            raise BadFileError(f"{path}: {error}") from error
    return None
