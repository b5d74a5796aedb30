"""The structures of `c/structures.h` for ctypes."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import POINTER, Structure, c_double, c_int32, c_int64
from typing import Any, ClassVar

import numpy as np

Shorts, Longs, Doubles = POINTER(c_int32), POINTER(c_int64), POINTER(c_double)
_ELEMENTS: Mapping[object, object] = {Shorts: np.int32, Longs: np.int64, Doubles: np.float64}


class Config(Structure):
    _fields_: ClassVar = [
        ("clusters", c_int64),
        ("vectors", c_int64),
        ("threads", c_int64),
        ("slots", c_int64),
        ("window", c_int64),
        ("heap", c_int64),
        ("record_capacity", c_int64),
        ("submit", c_double),
        ("submit_arg", c_double),
        ("node", c_double),
        ("dispatch", c_double),
        ("complete", c_double),
        ("head", c_double),
        ("tail", c_double),
        ("poll", c_double),
        ("resolve", c_double),
        ("stagger", c_double),
        ("first", c_double),
        ("hbm", c_double),
        ("l2_rate", c_double),
        ("l2_bytes", c_double),
    ]


class Work(Structure):
    _fields_: ClassVar = [
        ("tasks", c_int64),
        ("nodes", c_int64),
        ("pred_count", Longs),
        ("succ_ptr", Longs),
        ("succ", Longs),
        ("shape", Longs),
        ("lanes", Longs),
        ("blocks", Longs),
        ("cost_ptr", Longs),
        ("cost", Longs),
        ("args", Longs),
        ("held_until", Longs),
        ("in_graph", Longs),
        ("heap", Longs),
        ("freed", Longs),
        ("await_ptr", Longs),
        ("awaits", Longs),
        ("hot", Doubles),
        ("cold", Doubles),
        ("store", Doubles),
        ("moved", Doubles),
        ("served", Doubles),
        ("kernel", Longs),
        ("kernels", c_int64),
        ("read", Doubles),
        ("written", Doubles),
        ("all_moved", Doubles),
        ("cell_ptr", Longs),
        ("cell_base", Longs),
        ("cell_rows", Shorts),
        ("cell_columns", Shorts),
        ("cell_share", Doubles),
        ("cell_buffer", Shorts),
        ("cell_part", Shorts),
        ("buffer_pitch", Longs),
        ("buffer_size", Doubles),
        ("buffer_heap", Longs),
        ("part_writes", Longs),
        ("part_asked", Doubles),
        ("cells", c_int64),
    ]


class Result(Structure):
    _fields_: ClassVar = [
        ("rec_task", Longs),
        ("rec_core", Longs),
        ("rec_dispatch", Doubles),
        ("rec_start", Doubles),
        ("rec_end", Doubles),
        ("rec_finish", Doubles),
        ("submitted", Doubles),
        ("ready", Doubles),
        ("finished", Doubles),
        ("hbm_read", Doubles),
        ("hbm_written", Doubles),
        ("released_by", Longs),
        ("thread_busy", Doubles),
        ("totals", Doubles),
        ("status", Longs),
    ]


class GraphInput(Structure):
    _fields_: ClassVar = [
        ("tasks", c_int64),
        ("regions", c_int64),
        ("buffers", c_int64),
        ("arg_ptr", Longs),
        ("arg_region", Longs),
        ("arg_flags", Longs),
        ("dep_ptr", Longs),
        ("deps", Longs),
        ("buffer", Longs),
        ("low", Longs),
        ("high", Longs),
        ("row", Longs),
        ("pitch", Longs),
        ("size", Longs),
    ]


class GraphOutput(Structure):
    _fields_: ClassVar = [
        ("nodes", c_int64),
        ("edges", c_int64),
        ("ptr", Longs),
        ("pred", Longs),
    ]


class ConflictInput(Structure):
    _fields_: ClassVar = [
        ("tasks", c_int64),
        ("nodes", c_int64),
        ("regions", c_int64),
        ("buffers", c_int64),
        ("most", c_int64),
        ("work", c_int64),
        ("ptr", Longs),
        ("pred", Longs),
        ("acc_ptr", Longs),
        ("region", Longs),
        ("block", Longs),
        ("kind", Longs),
        ("key", Longs),
        ("buffer", Longs),
        ("low", Longs),
        ("high", Longs),
        ("row", Longs),
        ("pitch", Longs),
        ("size", Longs),
        ("loop_ptr", Longs),
        ("loop", Longs),
        ("iteration", Longs),
        ("parallel", Longs),
    ]


class ConflictOutput(Structure):
    _fields_: ClassVar = [("count", c_int64), ("swept", c_int64), ("found", Longs)]


class CellsPart(Structure):
    _fields_: ClassVar = [
        ("count", c_int64),
        ("rank", c_int64),
        ("item", c_int64),
        ("known", c_int64),
        ("scanned", c_int64),
        ("tasks", Longs),
        ("regions", Longs),
        ("amount", Longs),
        ("low", Doubles),
        ("high", Doubles),
        ("shift", POINTER(Doubles)),
    ]


class CellsInput(Structure):
    _fields_: ClassVar = [
        ("parts", c_int64),
        ("tasks", c_int64),
        ("buffers", c_int64),
        ("part", POINTER(CellsPart)),
        ("buffer", Longs),
        ("offset", Longs),
        ("layout", Longs),
        ("rank_of", Longs),
        ("dims_of", Longs),
        ("shape", Longs),
        ("strides", Longs),
        ("pitch", Doubles),
        ("line", c_double),
    ]


class Grid(Structure):
    _fields_: ClassVar = [
        ("height", Doubles),
        ("width", Doubles),
        ("per_row", Doubles),
        ("start", Doubles),
    ]


class CellsOutput(Structure):
    _fields_: ClassVar = [
        ("ptr", Longs),
        ("base", Longs),
        ("rows", Shorts),
        ("columns", Shorts),
        ("grid", Shorts),
        ("use", Shorts),
        ("share", Doubles),
    ]


class WalkInput(Structure):
    _fields_: ClassVar = [
        ("size", c_int64),
        ("params", c_int64),
        ("tiles", c_int64),
        ("costs", c_int64),
        ("levels", c_int64),
        ("code_length", c_int64),
        ("busy_at", c_int64),
        ("scalar", c_int64),
        ("last", c_int64),
        ("issue", c_double),
        ("sync", c_double),
        ("across", c_double),
        ("start", c_double),
        ("is_vector", Longs),
        ("core_of", Longs),
        ("first", Longs),
        ("depth", Longs),
        ("pipe", Longs),
        ("flags", Longs),
        ("read_ptr", Longs),
        ("write_ptr", Longs),
        ("reads", Longs),
        ("writes", Longs),
        ("next", Longs),
        ("numbers", Doubles),
        ("into", Longs),
        ("level", Longs),
        ("code", Longs),
        ("out", Doubles),
    ]


ALL = (
    Config,
    Work,
    Result,
    GraphInput,
    GraphOutput,
    ConflictInput,
    ConflictOutput,
    CellsPart,
    CellsInput,
    Grid,
    CellsOutput,
    WalkInput,
)


def element_types(structure: type[Structure]) -> dict[str, Any]:
    """Return the pointer fields, each with the type of an element."""
    return {name: _ELEMENTS[k] for name, k in _kinds(structure).items() if k in _ELEMENTS}


def fill(into: Structure, arrays: Mapping[str, Any]) -> None:
    """Point fields to arrays, which must have the right type and stay alive."""
    kinds = _kinds(type(into))
    for name, array in arrays.items():
        assert array.dtype == _ELEMENTS[kinds[name]], name
        assert array.flags.c_contiguous, name
        setattr(into, name, array.ctypes.data_as(kinds[name]))


def _kinds(structure: type[Structure]) -> dict[str, object]:
    return {field[0]: field[1] for field in structure._fields_}
