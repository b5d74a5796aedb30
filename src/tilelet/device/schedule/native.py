"""Cells, dependencies, conflicts and event loop in C, called with arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tilelet.device.schedule import structures
from tilelet.device.schedule.arrays import Stream
from tilelet.device.schedule.conflicts import NO_LOOPS, Accesses, Loops
from tilelet.device.schedule.events import Config, SimResult, Work
from tilelet.device.schedule.graph import Graph
from tilelet.device.schedule.l2_cells import (
    Cells,
    ParameterAccesses,
    empty_cells,
    grid_of,
    pitches,
    rank_and_item,
)
from tilelet.device.schedule.region_arrays import Ints, RegionArrays
from tilelet.device.schedule.structures import element_types, fill


def run_events_native(lib: ctypes.CDLL, config: Config, work: Work) -> SimResult:
    """`events.run_events`, in C."""
    n = work.tasks
    members = np.where(work.shape == 0, 1 + work.lanes, 1)
    capacity = int((members * work.blocks).sum()) + 1
    settings = structures.Config(record_capacity=capacity, **asdict(config))
    task_work = structures.Work(tasks=n, nodes=work.nodes, cells=work.cells, kernels=work.kernels)
    given = {
        name: np.ascontiguousarray(getattr(work, name), element)
        for name, element in element_types(structures.Work).items()
    }
    fill(task_work, given)
    out = {k: np.zeros(capacity) for k in ("rec_dispatch", "rec_start", "rec_end", "rec_finish")}
    out |= {k: np.zeros(capacity, np.int64) for k in ("rec_task", "rec_core")}
    out |= {k: np.zeros(n) for k in ("submitted", "ready", "finished", "hbm_read", "hbm_written")}
    out |= {"released_by": np.zeros(n, np.int64), "status": np.zeros(3, np.int64)}
    out |= {"thread_busy": np.zeros(config.threads), "totals": np.zeros(5)}
    result = structures.Result()
    fill(result, out)
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
        read_stall=float(totals[4]),
        last=float(totals[3]),
        error=error,
        stuck=stuck,
    )


def build_cells_native(
    lib: ctypes.CDLL,
    parts: Sequence[ParameterAccesses],
    regions: RegionArrays,
    line: int,
    tasks: int,
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
    every, _kept = _part_array(parts, regions)
    given = structures.CellsInput(
        parts=len(parts), tasks=tasks, buffers=len(pitch), part=every, line=float(line)
    )
    fill(given, arrays)
    least = np.full(len(pitch), np.inf)
    lib.tl_cells_least(ctypes.byref(given), least.ctypes.data_as(structures.Doubles))
    grid = grid_of(pitch, least, regions, line)
    cells = empty_cells(parts, grid, line, tasks)
    sides = {k: getattr(grid, k) for k in ("height", "width", "per_row", "start")}
    placed = {k: getattr(cells, k) for k in ("ptr", "base", "rows", "columns", "share")}
    placed |= {"grid": cells.buffer, "use": cells.part}
    into, shape = structures.CellsOutput(), structures.Grid()
    fill(into, placed)
    fill(shape, sides)
    if lib.tl_cells_place(ctypes.byref(given), ctypes.byref(shape), ctypes.byref(into)):
        raise MemoryError("the modelled device found no memory for its caches")
    return cells


def _part_array(
    parts: Sequence[ParameterAccesses], regions: RegionArrays
) -> tuple[object, list[object]]:
    """Return the parts as C structures, and the objects that must stay alive for them."""
    every = (structures.CellsPart * max(1, len(parts)))()
    kept: list[object] = []
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
        fill(into, arrays)
        shifts = part.shifts[: len(bounds)]
        into.shift = (structures.Doubles * max(1, len(shifts)))(
            *[None if s is None else s.ctypes.data_as(structures.Doubles) for s in shifts]
        )
        into.count, into.rank, into.item = len(part.tasks), rank, item
        into.known, into.scanned = known, extents is None
        kept += [arrays, shifts]
    return every, kept


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
    given = structures.GraphInput(
        tasks=stream.count, regions=len(regions["low"]), buffers=len(sizes)
    )
    fill(given, arrays)
    out = structures.GraphOutput()
    try:
        if lib.tl_graph(ctypes.byref(given), ctypes.byref(out)):
            raise MemoryError("the modelled device found no memory for its dependencies")
        ptr = _copy_array(out.ptr, out.nodes + 1)
        pred = _copy_array(out.pred, out.edges)
    finally:
        lib.tl_graph_free(ctypes.byref(out))
    return Graph(ptr, pred, stream.count)


def find_conflicts_native(
    lib: ctypes.CDLL, accesses: Accesses, graph: Graph, loops: Loops, most: int, work: int = 0
) -> tuple[Ints, int]:
    """`conflicts.find_conflicts`, in C; also returns the number of tasks checked.

    It stops after `work` pairs and edges; 0 means no limit.
    """
    given = _conflict_input(accesses, graph, loops, most)
    given[0].work = work
    out = structures.ConflictOutput()
    try:
        if lib.tl_conflicts(ctypes.byref(given[0]), ctypes.byref(out)):
            raise MemoryError("no memory to compare the tasks' accesses")
        return _copy_array(out.found, 3 * out.count).reshape(-1, 3), out.swept
    finally:
        lib.tl_conflicts_free(ctypes.byref(out))


def needed_edges_native(lib: ctypes.CDLL, accesses: Accesses, graph: Graph) -> Ints:
    """`conflicts.needed_edges`, in C."""
    given = _conflict_input(accesses, graph, NO_LOOPS, 0)
    needed = np.zeros(max(1, len(graph.pred)), np.int64)
    lib.tl_edges(ctypes.byref(given[0]), needed.ctypes.data_as(structures.Longs))
    return needed[: len(graph.pred)]


def _conflict_input(
    accesses: Accesses, graph: Graph, loops: Loops, most: int
) -> tuple[structures.ConflictInput, object]:
    """Return the C structure, and the objects that must stay alive for it."""
    arrays = {
        "ptr": graph.ptr,
        "pred": graph.pred,
        "acc_ptr": np.searchsorted(accesses.task, np.arange(graph.tasks + 1)),
        **{name: getattr(accesses, name) for name in ("region", "block", "kind", "key")},
        **accesses.rectangles,
        "size": accesses.sizes,
        "loop_ptr": loops.ptr if len(loops.ptr) else np.zeros(graph.tasks + 1),
        "loop": loops.loop,
        "iteration": loops.iteration,
        "parallel": loops.parallel,
    }
    arrays = {k: np.ascontiguousarray(v, np.int64) for k, v in arrays.items()}
    given = structures.ConflictInput(
        tasks=graph.tasks,
        nodes=graph.nodes,
        regions=len(arrays["low"]),
        buffers=len(accesses.sizes),
        most=most,
    )
    fill(given, arrays)
    return given, arrays


def _copy_array(items: object, count: int) -> Any:
    if not items or not count:
        return np.zeros(count, np.int64)
    return np.ctypeslib.as_array(items, (count,)).copy()
