"""Describe where an output is wrong: its regions, the statements that wrote them, correct tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc, UserError
from tilelet.diag.internal import InternalError
from tilelet.diag.json_types import JsonObject
from tilelet.diag.source import display_path
from tilelet.diag.text import plural
from tilelet.divergence.error_map import Bools, Region, Shape, regions_of, shape_of
from tilelet.divergence.record import (
    NOBODY,
    Event,
    Recorder,
    UnknownAddressError,
    Writes,
    follow,
)
from tilelet.dtypes import Arguments, Array
from tilelet.ir.core import FunctionKind, Program
from tilelet.tasks.window import Window

MAX_WRITERS = 6
_ULPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}


@dataclass(frozen=True)
class Writer:
    """A statement that wrote elements of an output: task, iteration, number of wrong elements."""

    loc: Loc | None
    kernel: str
    task: int
    iteration: tuple[tuple[str, int], ...]
    written: int
    wrong: int

    @property
    def who(self) -> str:
        if self.loc is None:
            return "written by no statement"
        at = f" ({', '.join(f'{n} = {v}' for n, v in self.iteration)})" if self.iteration else ""
        task = f"task {self.task} of `{self.kernel}`" if self.kernel else "the control program"
        return f"{display_path(self.loc.file)}:{self.loc.line}, {task}{at}"

    def to_data(self) -> JsonObject:
        return {
            "file": self.loc.file if self.loc else None,
            "line": self.loc.line if self.loc else None,
            "kernel": self.kernel,
            "task": self.task,
            "iteration": dict(self.iteration),
            "written": self.written,
            "wrong": self.wrong,
        }


@dataclass(frozen=True)
class Where:
    """The error map of one output.

    writers  writers of wrong elements, most wrong first; () if unknown
    right    tasks all of whose elements are correct, by kernel
    note     why there are no writers
    """

    output: str
    regions: tuple[Region, ...]
    shape: Shape
    writers: tuple[Writer, ...] = ()
    right: Mapping[str, int] = field(default_factory=dict[str, int])
    note: str = ""

    def lines(self) -> list[str]:
        lines = ["Where it is wrong:"]
        for region in self.regions:
            share = (
                "" if region.wrong == region.size else f", {region.wrong} of {region.size} wrong"
            )
            lines.append(f"  {self.output}{region.text}: {region.about}{share}")
        if self.writers:
            lines.append("Written by:")
            by_name: dict[str, list[Writer]] = {}  # blocks of a task cannot be told apart
            for w in self.writers:
                by_name.setdefault(w.who, []).append(w)
            for who, some in list(by_name.items())[:MAX_WRITERS]:
                wrong, written = sum(w.wrong for w in some), sum(w.written for w in some)
                share = "all" if wrong == written else f"{wrong} of {written}"
                what = plural(written, "element") if some[0].loc is None else f"{share} wrong"
                lines.append(f"  {who}: {what}")
            if len(by_name) > MAX_WRITERS:
                more = plural(len(by_name) - MAX_WRITERS, "more write")
                lines.append(f"  and {more}")
        for kernel, count in self.right.items():
            lines.append(f"  all correct: {plural(count, 'task')} of `{kernel}`")
        if self.note:
            lines.append(f"  {self.note}")
        lines.append(f"It looks like {self.shape.text}")
        return lines

    def to_data(self) -> JsonObject:
        return {
            "output": self.output,
            "regions": [region.to_data() for region in self.regions],
            "shape": self.shape.to_data(),
            "writers": [writer.to_data() for writer in self.writers],
            "right": dict(self.right),
            "note": self.note,
        }


def where_wrong(
    program: Program,
    arguments: Arguments,
    outputs: Mapping[str, tuple[str, Array, Array, Bools]],
) -> list[Where]:
    """Return the error map of each wrong output, given its name, actual, expected and mask."""
    recorder, note = Writes(program), ""
    parameters: Mapping[str, Any] = {}
    try:
        if program.main.kind is FunctionKind.Host:
            note = "the writers are unknown: several ranks write"
        else:
            parameters = follow(recorder, arguments).parameters
    except UnknownAddressError:
        note = "the writers are unknown: addresses depend on computed data"
    except (UserError, InternalError, MemoryError) as error:
        note = f"the writers are unknown: {type(error).__name__}"
    maps: list[Where] = []
    for param, (name, actual, expected, bad) in outputs.items():
        writers: Sequence[Writer] = ()
        right: Mapping[str, int] = {}
        if not note and param in parameters:
            origins = recorder.origins.view(parameters[param])
            writers, right = _writers(recorder, origins.reshape(-1), bad.reshape(-1))
        ulp = _ULPS.get(actual.dtype.name, 0.0)
        shape = shape_of(actual, expected, bad, ulp)
        if writers and writers[0].loc is None:
            shape = Shape("missing write", _missing_text(recorder, parameters[param]))
        maps.append(Where(name, tuple(regions_of(bad)), shape, tuple(writers), right, note))
    return maps


def _writers(recorder: Recorder, origins: Array, bad: Array) -> tuple[list[Writer], dict[str, int]]:
    """Return the writers of wrong elements, and how many tasks wrote only correct ones."""
    written_by, wrong = _counts(origins), _counts(origins[bad])
    writers: list[Writer] = []
    tasks_wrong: set[int] = set()
    tasks_right: dict[int, str] = {}
    for number, written in written_by.items():
        event = None if number == NOBODY else recorder.events[number]
        if number in wrong:
            writers.append(_writer(recorder, event, written, wrong[number]))
            tasks_wrong.add(writers[-1].task)
        elif event is not None and event.task != NOBODY:
            tasks_right[event.task] = recorder.kernel(event)
    right: dict[str, int] = {}
    for task, kernel in tasks_right.items():
        if task not in tasks_wrong:
            right[kernel] = right.get(kernel, 0) + 1
    # Unwritten elements first, then the largest counts.
    return sorted(writers, key=lambda w: (w.loc is not None, -w.wrong, w.task)), right


def _missing_text(recorder: Recorder, window: Window) -> str:
    """Say that nothing wrote the elements, and name the statement that writes the rest."""
    text = "a missing write: no statement wrote these elements"
    counts: dict[Loc, int] = {}
    for number in recorder.origins.writers(window):
        loc = recorder.events[number].op.loc
        counts[loc] = counts.get(loc, 0) + 1
    if not counts:
        return text
    loc = max(counts, key=lambda loc: counts[loc])
    return f"{text}; the others are written by {display_path(loc.file)}:{loc.line}"


def _counts(numbers: Array) -> dict[int, int]:
    found, counts = np.unique(numbers, return_counts=True)
    return {int(n): int(c) for n, c in zip(found, counts)}


def _writer(recorder: Recorder, event: Event | None, written: int, wrong: int) -> Writer:
    if event is None:
        return Writer(None, "", NOBODY, (), written, wrong)
    kernel, iteration = recorder.kernel(event), recorder.iteration(event)
    return Writer(event.op.loc, kernel, event.task, iteration, written, wrong)
