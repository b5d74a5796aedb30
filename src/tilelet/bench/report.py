"""Rows of measured figures with their goals, as tables and JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tilelet import __version__
from tilelet.dataclasses import asdict, dataclass, field
from tilelet.diag.files import write_text
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, byte_text, number

_MAX_OTHER_LOAD = 0.05  # share of other load that is reported


@dataclass(frozen=True)
class Figure:
    """A kind of figure: its column head and number format."""

    head: str
    text: Callable[[float], str]


def time_text(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x"


def _whole_number(value: float) -> str:
    return number(value, 0)


# The first group is in a section's table, the second in the table of the engine.
SPEED = {
    "seconds": Figure("time", time_text),
    "gflops": Figure("GFLOP/s", _whole_number),
    "fma_share": Figure("of FMA peak", _percent),
    "fma_share_by_processor_time": Figure("by CPU time", _percent),
    "gigabytes": Figure("GB/s", lambda v: number(v, 1)),
    "read_share": Figure("of reading", _percent),
    "read_streams_share": Figure("in 4 streams", _percent),
    "copy_share": Figure("of copying", _percent),
    "ours_is_faster": Figure("ours is faster", _times),
    "ours_is_faster_by_processor_time": Figure("by CPU time", _times),
    "candidates_per_minute": Figure("per minute", _whole_number),
    "gain": Figure("less modelled time", _times),
    "mismatched": Figure("mismatches", _whole_number),
}
ENGINE = {
    "tasks": Figure("tasks", _whole_number),
    "runtime_seconds": Figure("runtime", time_text),
    "runtime_per_task": Figure("per task", lambda v: f"{v * 1e6:.2f} us"),
    "cold_seconds": Figure("compile", time_text),
    "warm_seconds": Figure("warm start", time_text),
    "extra_bytes": Figure("more memory", byte_text),
    "scaling": Figure("threads", _times),
}
FIGURES = {**SPEED, **ENGINE}


@dataclass(frozen=True)
class Goal:
    """A goal for a figure."""

    figure: str
    target: float
    is_upper: bool = False  # the figure may be at most the target

    @property
    def text(self) -> str:
        sign = "<=" if self.is_upper else ">="
        return f"{sign} {FIGURES[self.figure].text(self.target)}"

    def is_met(self, value: float) -> bool:
        return value <= self.target if self.is_upper else value >= self.target


@dataclass
class Row:
    """One row: a form of some work, its figures by name, and their goals."""

    section: str
    name: str
    figures: dict[str, float] = field(default_factory=dict[str, float])
    goals: list[Goal] = field(default_factory=list[Goal])
    note: str = ""
    failed: bool = False

    def reach(self, figures: Sequence[str]) -> str:
        """Return in a few words whether the goals of these figures are met."""
        return ", ".join(
            f"{goal.text} {verdict(goal, self.figures[goal.figure])}"
            for goal in self.goals
            if goal.figure in figures and goal.figure in self.figures
        )


def verdict(goal: Goal, value: float) -> str:
    return "met" if goal.is_met(value) else "NOT met"


@dataclass
class Report:
    """All rows so far."""

    machine: JsonObject = field(default_factory=JsonObject)
    options: JsonObject = field(default_factory=JsonObject)
    rows: list[Row] = field(default_factory=list[Row])
    # Share of other load while a section was measured.
    other_work: dict[str, float] = field(default_factory=dict[str, float])
    interrupted: bool = False
    began: float = field(default_factory=time.time)
    measured: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    version: str = __version__

    @property
    def failed(self) -> bool:
        """Whether a case did not run, or had wrong results."""
        return any(row.failed for row in self.rows)

    def section_table(self, section: str) -> Table | None:
        """Return the table of one section: times and rates."""
        rows = [row for row in self.rows if row.section == section]
        table = _figures_table(section, rows, SPEED, with_notes=True)
        others = self.other_work.get(section, 0.0)
        if table and others > _MAX_OTHER_LOAD:
            took = f"other work took {_percent(others)} of this machine meanwhile"
            table.notes.append(f"{took}: these times are too long")
        return table

    def engine_table(self) -> Table | None:
        """Return the table of engine costs over all sections."""
        rows = [row for row in self.rows if any(name in row.figures for name in ENGINE)]
        return _figures_table("engine", rows, ENGINE, with_notes=False)

    def reach_table(self) -> Table | None:
        """Return how many goals are met, and the missed ones with their figures."""
        table = Table("", ["", "figure", "measured", "target"], left=2)
        count = 0
        for row in self.rows:
            for goal in row.goals:
                value = row.figures.get(goal.figure)
                count += value is not None
                if value is not None and not goal.is_met(value):
                    figure = FIGURES[goal.figure]
                    table.rows.append([row.name, figure.head, figure.text(value), goal.text])
        missed = len(table.rows)
        table.title = f"reach: {count - missed} of {count} met" + ("; not met:" if missed else "")
        return table if count else None

    def document(self) -> JsonObject:
        """Return all rows as JSON data."""
        rows = [
            {
                **asdict(row),
                "figures": {n: v for n, v in row.figures.items() if math.isfinite(v)},
                "goals": [
                    {**asdict(goal), "met": goal.is_met(row.figures[goal.figure])}
                    for goal in row.goals
                    if goal.figure in row.figures
                ],
            }
            for row in self.rows
        ]
        return {
            "tilelet": self.version,
            "measured": self.measured,
            "machine": self.machine,
            "options": self.options,
            "other_work": self.other_work,
            "interrupted": self.interrupted,
            "seconds": time.time() - self.began,
            "rows": rows,
        }

    def save(self, path: Path) -> None:
        save_document(self.document(), path)


def document_report(data: JsonObject) -> Report:
    """Return the report of which `data` is the document."""
    rows = [
        Row(
            **row | {"goals": [Goal(g["figure"], g["target"], g["is_upper"]) for g in row["goals"]]}
        )
        for row in data["rows"]
    ]
    kept = {name: data[name] for name in ("machine", "options", "other_work", "measured")}
    return Report(**kept, rows=rows, version=data["tilelet"])


def save_document(document: JsonObject, path: Path) -> None:
    """Write figures as JSON."""
    write_text(path, json.dumps(document, indent=2) + "\n")


def _figures_table(
    title: str, rows: Sequence[Row], figures: dict[str, Figure], with_notes: bool
) -> Table | None:
    """Return a table with the figures of all rows, their goals, and optional notes."""
    if not rows:
        return None
    shown = [name for name in figures if any(name in row.figures for row in rows)]
    heads = ["", *(figures[name].head for name in shown)]
    cells = [[row.name, *_texts(row, shown)] for row in rows]
    reaches = [row.reach(list(figures)) for row in rows]
    if any(reaches):
        heads.append("reach")
        cells = [[*line, reach] for line, reach in zip(cells, reaches)]
    if with_notes and any(row.note for row in rows):
        heads.append("note")
        cells = [[*line, row.note] for line, row in zip(cells, rows)]
    return Table(title, heads, list(cells))


def _texts(row: Row, names: Sequence[str]) -> list[str]:
    return [FIGURES[n].text(row.figures[n]) if n in row.figures else "" for n in names]
