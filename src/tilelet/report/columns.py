"""The data of a page as bytes: a JSON header and typed columns, deflated.

    bytes 0-7    "TLPAGE" and the version of the format as two digits
    the rest     zlib stream of: length of the header (u32), header (UTF-8), columns

All numbers are little-endian. The header's `columns` say of each column its `type` ("u1", "u2",
"u4", "i4", "f4", "f8"), its `count`, where its bytes begin `at` after the header, and whether its
values are differences (`delta`: each to the one before, modulo 2**32). Bytes of a column are stored
by significance, all first bytes before all second ones: equal bytes lie together, which deflates
well. `web/src/data.ts` reads it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import cast

import numpy as np

from tilelet.diag.json_types import JsonObject
from tilelet.dtypes import Array

VERSION = 1
MAGIC = b"TLPAGE%02d" % VERSION
_TYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4", "f8": "<f8"}


class Columns:
    """Collects columns; `add` returns the header entry of a column."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Array, kind: str = "", *, delta: bool = False) -> JsonObject:
        """Store the values in the smallest integer type that holds them, or as `kind`."""
        if delta:
            values = np.diff(values, prepend=values.dtype.type(0)) & 0xFFFFFFFF
        kind = kind or _smallest(values)
        data = np.ascontiguousarray(values.astype(_TYPES[kind]))
        width = data.dtype.itemsize
        planes = data.view(np.uint8).reshape(-1, width).T
        entry = {"type": kind, "count": len(data), "at": self._size}
        if delta:
            entry["delta"] = True
        self._parts.append(np.ascontiguousarray(planes).tobytes())
        self._size += len(data) * width
        return entry

    def add_bytes(self, columns: bytes) -> None:
        """Add columns that are stored already."""
        self._parts.append(columns)
        self._size += len(columns)

    def pack(self, header: Mapping[str, object]) -> bytes:
        """Return the bytes of the file."""
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        encoded = text.encode("utf-8", errors="replace")
        body = len(encoded).to_bytes(4, "little") + encoded + b"".join(self._parts)
        return MAGIC + zlib.compress(body, 6)


def _smallest(values: Array) -> str:
    if not len(values):
        return "u1"
    low, high = int(values.min()), int(values.max())
    if low < 0:
        return "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    for kind, limit in (("u1", 1 << 8), ("u2", 1 << 16), ("u4", 1 << 32)):
        if high < limit:
            return kind
    return "f8"


class DamagedError(Exception):
    """The bytes are not page data; the message says why."""


def unpack(data: bytes) -> tuple[JsonObject, bytes]:
    """Return the header and the bytes of the columns."""
    if not data.startswith(MAGIC[:6]):
        raise DamagedError("it does not begin as such a file does")
    if data[:8] != MAGIC:
        found = data[6:8].decode("ascii", errors="replace")
        raise DamagedError(
            f"it has version {found} of the format, this Tilelet reads {VERSION:02d}"
        )
    try:
        body = zlib.decompress(data[8:])
        size = int.from_bytes(body[:4], "little")
        if size > len(body) - 4:
            raise DamagedError("its header is cut off")
        header = json.loads(body[4 : 4 + size])
    except (zlib.error, ValueError, RecursionError) as error:
        raise DamagedError(f"its data is damaged: {error}") from None
    if not isinstance(header, dict) or "runs" not in header:
        raise DamagedError("its header has no runs")
    header = cast("JsonObject", header)
    columns = body[4 + size :]
    try:
        for run in header["runs"]:
            for name, entry in dict(run.get("columns") or {}).items():
                if entry["at"] + entry["count"] * int(entry["type"][1:]) > len(columns):
                    raise DamagedError(f"its column `{name}` is cut off")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DamagedError("its header is not what Tilelet writes") from None
    return header, columns


def repack(header: Mapping[str, object], columns: bytes) -> bytes:
    """Return the same columns under another header."""
    packed = Columns()
    packed.add_bytes(columns)
    return packed.pack(header)
