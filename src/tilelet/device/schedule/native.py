"""Cells, dependency rules and event loop in C: compiled once, kept, and called with arrays."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilelet.device.schedule.arrays import Stream
from tilelet.device.schedule.events import Config, SimResult, Work
from tilelet.device.schedule.graph import Graph
from tilelet.device.schedule.l2_cells import (
    Cells,
    Part,
    empty_cells,
    grid_of,
    pitches,
    rank_and_item,
)
from tilelet.device.schedule.region_arrays import Regions
from tilelet.diag.core import UserError
from tilelet.native import cache
from tilelet.native.toolchain import (
    FLAGS,
    Compiler,
    cpu_id,
    find_compiler,
    machine_flags,
    run_compiler,
    stopped_when_terminated,
)

SOURCES = Path(__file__).parent / "c"
LIBRARY = "device.so"


def _build(compiler: Compiler, folder: Path) -> None:
    sources = [str(p) for p in sorted(SOURCES.glob("*.c"))]
    flags = [*FLAGS, *machine_flags(), "-O2", "-shared"]
    run_compiler([*compiler.command, *flags, *sources, "-o", str(folder / LIBRARY)], seconds=600)


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled library; None if this machine has no C compiler that works."""
    try:
        compiler = find_compiler()
    except UserError:
        return None
    text = b"\0".join(p.read_bytes() for p in sorted(SOURCES.glob("*.c")))
    parts = (compiler.name, compiler.version, cpu_id(), *FLAGS, *machine_flags())
    key = hashlib.sha256(text + "\0".join(parts).encode()).hexdigest()[:40]
    try:
        with stopped_when_terminated():
            return cache.use(
                f"device-{key}",
                lambda folder: _build(compiler, folder),
                lambda made: made.load(LIBRARY, "tl_simulate", "tl_graph", "tl_cells_place"),
            )
    except (OSError, UserError, subprocess.SubprocessError, cache.UnusableError):
        return None


def _structure(name: str, fields: Mapping[str, str]) -> type[ctypes.Structure]:
    kinds = {"i": ctypes.c_int64, "f": ctypes.c_double, "p": ctypes.c_void_p}
    listed = [(field, kinds[kind]) for field, kind in fields.items()]
    return type(name, (ctypes.Structure,), {"_fields_": listed})


def _fields(integers: str = "", floats: str = "", pointers: str = "") -> dict[str, str]:
    return (
        dict.fromkeys(integers.split(), "i")
        | dict.fromkeys(floats.split(), "f")
        | dict.fromkeys(pointers.split(), "p")
    )


_Config = _structure(
    "Config",
    _fields(
        "clusters vectors threads slots window heap record_capacity",
        "submit submit_arg dispatch complete head tail poll hbm l2_rate l2_bytes",
    ),
)
_Work = _structure(
    "Work",
    _fields(
        "tasks nodes",
        "",
        "pred_count succ_ptr succ shape lanes blocks cost_ptr cost args held_until heap freed "
        "hot cold moved read all_moved cell_ptr cell_base cell_rows cell_columns cell_share "
        "cell_buffer cell_part buffer_pitch buffer_size part_writes part_asked",
    )
    | {"cells": "i"},
)
_Result = _structure(
    "Result",
    _fields(
        "",
        "",
        "rec_task rec_core rec_dispatch rec_start rec_end rec_finish submitted ready finished "
        "hbm_read hbm_written released_by thread_busy totals status",
    ),
)
_Input = _structure(
    "Input",
    _fields(
        "tasks regions buffers",
        "",
        "arg_ptr arg_region arg_flags dep_ptr deps buffer low high row pitch size",
    ),
)
_Output = _structure("Output", _fields("nodes edges", "", "ptr pred"))

_Part = _structure(
    "Part",
    _fields("count rank item known scanned", "", "tasks regions amount low high shift"),
)
_Accesses = _structure(
    "Accesses",
    _fields(
        "parts tasks buffers",
        "",
        "part buffer offset layout rank_of dims_of shape strides pitch",
    )
    | {"line": "f"},
)
_Grid = _structure("Grid", _fields("", "", "height width per_row start"))
_Placed = _structure("Placed", _fields("", "", "ptr base rows columns grid use share"))

_FLOATS = frozenset(
    {"hot", "cold", "moved", "read", "all_moved", "cell_share", "buffer_size", "part_asked"}
)
_SHORT = frozenset({"cell_rows", "cell_columns", "cell_buffer", "cell_part"})
"""Arrays of doubles, and of 32-bit integers; the others have 64 bits."""


def _pointer(array: Any) -> int:
    return array.ctypes.data


def run_events_native(lib: ctypes.CDLL, config: Config, work: Work) -> SimResult:
    """`events.run_events`, in C."""
    n = work.tasks
    members = np.where(work.shape == 0, 1 + work.lanes, 1)
    capacity = int((members * work.blocks).sum()) + 1
    settings = _Config(record_capacity=capacity)
    for name, _ in _Config._fields_:  # type: ignore[misc]
        if hasattr(config, name):
            setattr(settings, name, getattr(config, name))
    keep: list[Any] = []
    task_work = _Work(tasks=n, nodes=work.nodes, cells=work.cells)
    for name, kind in _Work._fields_:  # type: ignore[misc]
        if kind is ctypes.c_void_p:
            wanted = np.float64 if name in _FLOATS else np.int32 if name in _SHORT else np.int64
            array = np.ascontiguousarray(getattr(work, name), wanted)
            keep.append(array)
            setattr(task_work, name, _pointer(array))
    out = {k: np.zeros(capacity) for k in ("rec_dispatch", "rec_start", "rec_end", "rec_finish")}
    out |= {k: np.zeros(capacity, np.int64) for k in ("rec_task", "rec_core")}
    out |= {k: np.zeros(n) for k in ("submitted", "ready", "finished", "hbm_read", "hbm_written")}
    out |= {"released_by": np.zeros(n, np.int64), "status": np.zeros(3, np.int64)}
    out |= {"thread_busy": np.zeros(config.threads), "totals": np.zeros(4)}
    result = _Result(**{k: _pointer(v) for k, v in out.items()})
    failed = lib.tl_simulate(ctypes.byref(settings), ctypes.byref(task_work), ctypes.byref(result))
    if failed:
        raise MemoryError("the modelled device found no memory for its state")
    records, error, stuck = (int(x) for x in out.pop("status"))
    totals = out.pop("totals")
    arrays = {k: v[:records] if k.startswith("rec_") else v for k, v in out.items()}
    return SimResult(
        **arrays,
        orchestrator_end=float(totals[0]),
        window_stall=float(totals[1]),
        heap_stall=float(totals[2]),
        last=float(totals[3]),
        error=error,
        stuck=stuck,
    )


def build_cells_native(
    lib: ctypes.CDLL, parts: Sequence[Part], regions: Regions, line: int, tasks: int
) -> Cells:
    """`cells.build_cells`, in C."""
    pitch = pitches(parts, regions)
    dims = [len(layout.shape) for layout in regions.layouts]
    arrays = {
        "buffer": regions.buffer,
        "offset": regions.offset,
        "layout": regions.layout,
        "rank_of": np.array(dims, np.int64),
        "dims_of": np.cumsum([0, *dims[:-1]]),
        "shape": np.array([n for layout in regions.layouts for n in layout.shape], np.int64),
        "strides": np.array([n for layout in regions.layouts for n in layout.strides], np.int64),
        "pitch": pitch,
    }
    keep: list[Any] = []
    given = _Accesses(
        parts=len(parts),
        tasks=tasks,
        buffers=len(pitch),
        part=ctypes.addressof(_part_array(parts, regions, keep)),
        line=float(line),
        **{k: _pointer(v) for k, v in arrays.items()},
    )
    least = np.full(len(pitch), np.inf)
    lib.tl_cells_least(ctypes.byref(given), ctypes.c_void_p(_pointer(least)))
    grid = grid_of(pitch, least, regions, line)
    cells = empty_cells(parts, grid, line, tasks)
    sides = {k: getattr(grid, k) for k in ("height", "width", "per_row", "start")}
    placed = {k: getattr(cells, k) for k in ("ptr", "base", "rows", "columns", "share")}
    placed |= {"grid": cells.buffer, "use": cells.part}
    into = _Placed(**{k: _pointer(v) for k, v in placed.items()})
    shape = _Grid(**{k: _pointer(v) for k, v in sides.items()})
    if lib.tl_cells_place(ctypes.byref(given), ctypes.byref(shape), ctypes.byref(into)):
        raise MemoryError("the modelled device found no memory for its caches")
    return cells


def _part_array(parts: Sequence[Part], regions: Regions, keep: list[Any]) -> Any:
    """The parts as C sees them; what they point to is added to `keep`."""
    every = (_Part * max(1, len(parts)))()
    for into, part in zip(every, parts):
        rank, item = rank_and_item(part, regions)
        extents = part.touched.extents
        known = extents is not None and len(extents) == rank
        bounds = extents if known and extents else ()
        arrays = {
            "tasks": part.tasks,
            "regions": part.regions,
            "amount": part.amount,
            "low": np.array([e.low for e in bounds], np.float64),
            "high": np.array([e.high for e in bounds], np.float64),
        }
        shifts = [None if s is None else _pointer(s) for s in part.shifts[: len(bounds)]]
        pointers = (ctypes.c_void_p * max(1, len(shifts)))(*shifts)
        for name, array in arrays.items():
            setattr(into, name, _pointer(array))
        into.shift = ctypes.addressof(pointers)
        into.count, into.rank, into.item = len(part.tasks), rank, item
        into.known, into.scanned = known, extents is None
        keep += [arrays, pointers]
    keep.append(every)
    return every


def build_graph_native(lib: ctypes.CDLL, stream: Stream) -> Graph:
    """`graph.build_graph`, in C."""
    regions = stream.regions.arrays()
    sizes = stream.regions.sizes
    arrays = {
        "arg_ptr": stream.arg_ptr,
        "arg_region": stream.arg_region,
        "arg_flags": stream.arg_flags,
        "dep_ptr": stream.dep_ptr,
        "deps": stream.deps,
        **regions,
        "size": sizes,
    }
    arrays = {k: np.ascontiguousarray(v, np.int64) for k, v in arrays.items()}
    given = _Input(
        tasks=stream.count,
        regions=len(regions["low"]),
        buffers=len(sizes),
        **{k: _pointer(v) for k, v in arrays.items()},
    )
    out = _Output()
    try:
        if lib.tl_graph(ctypes.byref(given), ctypes.byref(out)):
            raise MemoryError("the modelled device found no memory for its dependencies")
        ptr = _copied(out.ptr, out.nodes + 1)  # type: ignore[attr-defined]
        pred = _copied(out.pred, out.edges)  # type: ignore[attr-defined]
    finally:
        lib.tl_graph_free(ctypes.byref(out))
    return Graph(ptr, pred, stream.count)


def _copied(address: int | None, count: int) -> Any:
    if not address or not count:
        return np.zeros(count, np.int64)
    typed = ctypes.cast(address, ctypes.POINTER(ctypes.c_int64))
    return np.ctypeslib.as_array(typed, (count,)).copy()
