"""ctypes declarations of the structures in `rt.h`."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_double,
    c_int,
    c_int16,
    c_int32,
    c_int64,
    c_uint8,
    c_uint64,
    c_void_p,
)
from typing import ClassVar, TypeAlias

RANK = 6
TABLE = "tl_main"  # name of the program table in its library
FUNCTIONS = ("tl_run", "tl_run_here", "tl_free_record")  # exported by every library


class Word(Union):
    _fields_: ClassVar = [("i", c_int64), ("u", c_uint64), ("f", c_double)]


class Win(Structure):
    _fields_: ClassVar = [
        ("data", c_void_p),
        ("buf", c_void_p),
        ("rank", c_int32),
        ("itemsize", c_int16),
        ("is_far", c_int16),
        ("shape", c_int64 * RANK),
        ("stride", c_int64 * RANK),
        ("valid", c_int64 * RANK),
        ("reach", c_int64 * RANK),
    ]


class Fault(Structure):
    _fields_: ClassVar = [
        ("kind", c_int32),
        ("site", c_int32),
        ("buffer", c_int32),
        ("task", c_uint64),
        ("n", c_int64 * (2 * RANK + 4)),
    ]


HostFunction = CFUNCTYPE(c_int, c_int64, POINTER(Win), POINTER(Word), c_int64)


class NativeRecord(Structure):
    _fields_: ClassVar = [
        ("words", POINTER(c_int64)),
        ("count", c_int64),
        ("capacity", c_int64),
        ("is_incomplete", c_int32),
    ]


class RunArgs(Structure):
    _fields_: ClassVar = [
        ("windows", POINTER(Win)),
        ("scalars", POINTER(Word)),
        ("buffer_of", POINTER(c_int64)),
        ("bases", POINTER(c_void_p)),
        ("names", POINTER(c_int32)),
        ("readonly", POINTER(c_uint8)),
        ("window_count", c_int64),
        ("buffer_count", c_int64),
        ("threads", c_int64),
        ("seed", c_int64),
        ("memory", c_int64),
        ("cancel", POINTER(c_int32)),
        ("host", HostFunction),
        ("counts", POINTER(c_int64)),
        ("record", POINTER(NativeRecord)),
        ("fault", POINTER(Fault)),
    ]


class ProgramTable(Structure):
    """`tl_program`: describes the program of a library."""

    _fields_: ClassVar = [
        ("kernels", c_void_p),
        ("kernel_count", c_int32),
        ("max_windows", c_int32),
        ("max_scalars", c_int32),
        ("scratch_bytes", c_int64),
        ("control", c_void_p),
        ("run_products", c_void_p),
    ]


Entry: TypeAlias = "ctypes._NamedFuncPointer"  # pyright: ignore[reportPrivateUsage]


def entry_points(library: ctypes.CDLL, table: str) -> tuple[Entry, Entry, ProgramTable]:
    """Return `tl_run`, `tl_run_here`, and the program of that name in the library."""
    for run in (library.tl_run, library.tl_run_here):
        run.argtypes = [POINTER(ProgramTable), POINTER(RunArgs)]
        run.restype = c_int
    return library.tl_run, library.tl_run_here, ProgramTable.in_dll(library, table)
