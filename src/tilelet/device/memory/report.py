"""The memory plan as files and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

from tilelet.device.kernel.view import DeviceKernel, TileStorage
from tilelet.device.memory.plan import MemoryPlan, SpaceUse, plan_json
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, as_text
from tilelet.diag.text import shape_text, size_text
from tilelet.ir.types import Mem

TILELET = 2048
"""Bytes of a TILELET, the unit in which programs budget vector operands."""

TILE = 16384
"""Bytes of a TILE, the unit for cube operands."""


def memory_report(plans: Sequence[MemoryPlan], backend: str) -> str:
    """Return the text of `report/memory_after_AllocateMemoryAddr.txt`."""
    lines = [
        "Memory usage (modelled)",
        "Pass: AllocateMemoryAddr",
        f"Backend: {backend}",
        f"Compute functions: {len(plans)}",
    ]
    for plan in plans:
        rows = [
            (
                use.space.name,
                size_text(use.used),
                size_text(use.limit),
                f"{100 * use.share:.1f}%",
                str(len(use.placements)),
            )
            for use in plan.spaces
        ]
        lines += ["", f"--- {plan.kernel} ({plan.shape}) ---"]
        lines += _pipe_table(("Space", "Used", "Limit", "Usage%", "MemRefs"), rows)
    return "\n".join(lines) + "\n"


def _pipe_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    shown = [" | ".join(f"{cell:<{w}}" for cell, w in zip(row, widths)) for row in (heads, *rows)]
    shown.insert(1, "-+-".join("-" * w for w in widths))
    return [line.rstrip() for line in shown]


def memory_map(plans: Iterable[MemoryPlan]) -> str:
    """Return every tile with its addresses, by memory: `report/memory_map.txt`."""
    return "\n\n".join(as_text(memory_map_parts(plans))) + "\n"


def memory_map_parts(plans: Iterable[MemoryPlan]) -> list[str | Table]:
    """Return the memory map as tables."""
    parts: list[str | Table] = []
    for plan in plans:
        parts.append(f"=== {plan.kernel} ({plan.shape}, {plan.machine}) ===")
        parts += [_space_map(use) for use in plan.spaces]
    return parts


def _space_map(use: SpaceUse) -> Table:
    title = f"{use.space.name}: {size_text(use.used)} of {size_text(use.limit)}"
    if not use.fits:
        title += "  DOES NOT FIT"
    table = Table(title, ("tile", "shape", "line", "from", "to", "bytes", "steps"), left=2)
    for p in use.placements:
        t = p.tile
        what = f"{shape_text(t.shape)} {t.dtype.name}"
        if p.piece:
            what += f" in pieces {shape_text(p.piece)}"
        elif t.buffers > 1:
            what += f" x {t.buffers}"
        name = f"{t.name} (over {p.in_place})" if p.in_place else t.name
        table.rows.append(
            (
                name,
                what,
                str(t.loc.line),
                f"{p.offset:#x}",
                f"{p.end:#x}",
                str(p.nbytes),
                f"{t.live[0]}-{t.live[1]}",
            )
        )
    return table


def memory_json(plans: Iterable[MemoryPlan], machine: str) -> str:
    """Return the memory map as data: `report/memory_map.json`."""
    document = {"version": 1, "machine": machine, "kernels": [plan_json(p) for p in plans]}
    return json.dumps(document, indent=1) + "\n"


def memory_table(plans: Sequence[MemoryPlan]) -> Table:
    """Return used and usable bytes of every memory, one kernel per row."""
    spaces = [s for s in Mem if any(u.space is s for p in plans for u in p.spaces)]
    table = Table("On-chip memory (modelled)", ("kernel", *(s.name for s in spaces)))
    for plan in plans:
        by_space = {use.space: use for use in plan.spaces}
        cells = [_cell(by_space[s]) if s in by_space else "-" for s in spaces]
        table.rows.append((plan.kernel, *cells))
    limits = {u.space: u.limit for p in plans for u in p.spaces}
    table.rows.append(("limit", *(size_text(limits[s]) for s in spaces)))
    return table


def _cell(use: SpaceUse) -> str:
    return f"{size_text(use.used)}{'' if use.fits else ' !'}"


def budget_rows(kernels: Iterable[DeviceKernel]) -> list[JsonObject]:
    """Return operands in TILELETs and TILEs; tiles of equal name and shape count once."""
    rows: dict[tuple[object, ...], JsonObject] = {}
    for kernel in kernels:
        used = {t for step in kernel.walk() for t in (*step.reads, *step.writes)}
        for tile in kernel.tiles:
            unit = _unit(tile)
            if tile.id not in used or unit is None:
                continue
            nbytes = tile.dtype.packed(math.prod(tile.shape))
            key = (kernel.name, tile.name, tile.shape, tile.dtype.name, unit)
            rows.setdefault(
                key,
                {
                    "kernel": kernel.name,
                    "tile": tile.name,
                    "line": tile.loc.line,
                    "shape": list(tile.shape),
                    "dtype": tile.dtype.name,
                    "bytes": nbytes,
                    "unit": unit,
                    "share": nbytes / (TILELET if unit == "TILELET" else TILE),
                },
            )
    return list(rows.values())


def _unit(tile: TileStorage) -> str | None:
    """Return the unit that a tile is budgeted in; results of the cube are not operands."""
    return {Mem.Vec: "TILELET", Mem.Mat: "TILE"}.get(tile.space)


def budget_table(kernels: Iterable[DeviceKernel]) -> Table:
    """Return the style budget: vector operands against 2 KB, cube operands against 16 KB."""
    table = Table(
        "Budget: vector operands in TILELETs of 2 KB, cube operands in TILEs of 16 KB",
        ("kernel", "tile", "shape", "line", "bytes", "budget"),
        left=3,
        notes=["a style budget, not a limit of the hardware"],
    )
    for row in budget_rows(kernels):
        shape = f"{shape_text(row['shape'])} {row['dtype']}"
        cells = (row["kernel"], row["tile"], shape, str(row["line"]), str(row["bytes"]))
        table.rows.append((*cells, _budget_text(row["share"], row["unit"])))
    return table


def _budget_text(share: float, unit: str) -> str:
    if share > 1:
        count = f"{share:.0f}" if share == int(share) else f"{share:.1f}"
        return f"{count} {unit}s"
    return f"{100 * share:.0f}% of a {unit}"
