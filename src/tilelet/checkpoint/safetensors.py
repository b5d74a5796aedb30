"""Safetensors files: a length, a JSON header, then the bytes of the tensors.

Files are untrusted. The header is validated completely when a file is opened; tensors are read-only
views of the mapped file, so only what is used is read from disk.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard, cast

import ml_dtypes
import numpy as np

from tilelet.checkpoint.json_file import parse_json_object
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.models import BadWeightFile, shown_name
from tilelet.diag.json_types import JsonObject

Array = np.ndarray[Any, np.dtype[Any]]

_LENGTH_BYTES = 8
_ALIGNMENT = 64  # alignment of the first tensor in files written here
_MAX_HEADER_BYTES = 100_000_000  # the limit of the format
# Start of a Git LFS pointer, left in place of a file that was not downloaded.
_LFS_POINTER = b"version https://git-lfs"
_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: its type and shape, and its byte range after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """An open file with `entries` by name; `tensor(name)` returns the elements."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = _map_file(path)
        length = int.from_bytes(self._map[:_LENGTH_BYTES], "little")
        room = len(self._map) - _LENGTH_BYTES
        if self._map[: len(_LFS_POINTER)] == _LFS_POINTER:
            raise BadWeightFile(str(path), "it is a Git LFS pointer; run `git lfs pull`")
        if length > min(room, _MAX_HEADER_BYTES):
            limit = "the file holds" if room < _MAX_HEADER_BYTES else "at most allowed are"
            why = f"its header claims {length} bytes, {limit} {min(room, _MAX_HEADER_BYTES)}"
            raise BadWeightFile(str(path), why)
        self._start = _LENGTH_BYTES + length
        try:
            header = parse_json_object(self._map[_LENGTH_BYTES : self._start])
            self.entries = _entries(header, len(self._map) - self._start)
        except ValueError as error:
            raise BadWeightFile(str(path), str(error)) from error

    def tensor(self, name: str) -> Array:
        """Return the elements of a tensor as a read-only view of the file."""
        entry = self.entries[name]
        dtype, count = _DTYPES[entry.dtype], math.prod(entry.shape)
        if count == 0:
            return np.empty(entry.shape, dtype)
        flat = np.frombuffer(self._map, dtype, count, self._start + entry.begin)
        return flat.reshape(entry.shape)


def write_header(
    file: BinaryIO, tensors: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
) -> dict[str, int]:
    """Write the header of a file with these tensors; return the offset of each tensor's elements.

    Larger elements come first, so that all are aligned.
    """
    names = {dtype: name for name, dtype in _DTYPES.items()}
    fields: JsonObject = {}
    end = 0
    for name, (shape, dtype) in sorted(tensors.items(), key=lambda item: -item[1][1].itemsize):
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        fields[name] = {"dtype": names[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(fields).encode()
    text += b" " * (-(len(text) + _LENGTH_BYTES) % _ALIGNMENT)
    file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    start = _LENGTH_BYTES + len(text)
    return {name: start + entry["data_offsets"][0] for name, entry in fields.items()}


def _map_file(path: Path) -> mmap.mmap:
    if not path.is_file():  # also rejects pipes and devices, which would block
        raise BadWeightFile(str(path), "there is no such file")
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < _LENGTH_BYTES:
                raise BadWeightFile(
                    str(path), (f"it ends after {size} bytes, within the length field")
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BadWeightFile(str(path), error.strerror or str(error)) from error


def _entries(header: Mapping[str, object], size: int) -> dict[str, TensorEntry]:
    """Parse the tensors of a header; ValueError says what is wrong with it."""
    entries: dict[str, TensorEntry] = {}
    for name, fields in header.items():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:  # JSON can escape lone surrogates
            raise ValueError(f"the name {name[:80]!a} is not UTF-8") from error
        if name == "__metadata__":
            _check_metadata(fields)
        else:
            entries[name] = _entry(shown_name(name), fields, size)
    _check_places(entries, size)
    return entries


def _check_metadata(fields: object) -> None:
    values = cast("JsonObject", fields).values() if isinstance(fields, dict) else (None,)
    if not all(isinstance(v, str) for v in values):
        raise ValueError("its `__metadata__` is not an object of strings")


def _entry(name: str, fields: object, size: int) -> TensorEntry:
    fields = cast("JsonObject", fields) if isinstance(fields, dict) else {}
    if set(fields) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"`{name}` does not have just `dtype`, `shape` and `data_offsets`")
    dtype, shape, place = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"`{name}` has the unknown dtype `{shown_name(str(dtype), 20)}`")
    if not _are_sizes(shape):
        raise ValueError(f"the shape of `{name}` is not a list of sizes")
    if not _are_sizes(place) or len(place) != 2:
        raise ValueError(f"the offsets of `{name}` are not two positions")
    begin, end = place
    if not begin <= end <= size:
        raise ValueError(f"`{name}` is at bytes {begin} to {end} of {size}")
    needed = math.prod(shape) * _DTYPES[dtype].itemsize
    if end - begin != needed:
        raise ValueError(f"`{name}` has {end - begin} bytes, its shape and dtype need {needed}")
    return TensorEntry(dtype, tuple(shape), begin, end)


def _are_sizes(values: object) -> TypeGuard[list[int]]:
    """Return whether `values` is a list of integers from 0 to the largest possible file size."""
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 63
        for v in cast("list[object]", values)
    )


def _check_places(entries: Mapping[str, TensorEntry], size: int) -> None:
    """Check that the tensors cover the data without overlaps or gaps, as the format requires."""
    expected, before = 0, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin < expected:
            raise ValueError(f"`{shown_name(name)}` overlaps `{before}`")
        if entry.begin > expected:
            raise ValueError(
                f"{entry.begin - expected} bytes before `{shown_name(name)}` are unused"
            )
        expected, before = entry.end, shown_name(name)
    if expected != size:
        raise ValueError(f"{size - expected} bytes at the end are unused")
