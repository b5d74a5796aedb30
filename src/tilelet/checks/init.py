"""Undefined memory: what reaches an output, a branch or an index must have been written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelet.checks.boxes import boxes_of
from tilelet.checks.findings import Box, Finding, Place, Status, found
from tilelet.checks.verdict import Part, Subject, part
from tilelet.diag.catalogue.checks import NeverWritten, UndefinedDecides, UndefinedOutput
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.diag.core import Loc, UserError
from tilelet.diag.text import plural
from tilelet.interp.cells import (
    NEVER,
    UNDEFINED,
    NeedsValuesError,
    Origin,
    Watcher,
    leave_undefined,
)
from tilelet.interp.definedness import watching_state
from tilelet.ir.core import Direction, Program, Value
from tilelet.tasks.arguments import bind_arguments
from tilelet.tasks.window import Window


@dataclass(frozen=True)
class Watched:
    """A run in the mode that watches definedness, when it is over."""

    watcher: Watcher
    outputs: list[tuple[Value, Window]]
    values: bool
    tasks: int


def check(subject: Subject) -> Part:
    """Without values if that will do; else the kernels are executed."""
    if not subject.tasks.complete:
        return Part("init", Status.NOT_CHECKED, subject.too_many)
    run = watched(subject)
    if isinstance(run, Stopped):
        findings = [_of_use(use) for use in run.watcher.uses.values()]
        summary = "the kernels cannot be followed to their end"
        return part("init", findings, Status.NOT_CHECKED, summary)
    findings = [f for param, window in run.outputs for f in _of_output(run, param, window)]
    findings += [_of_use(use) for use in run.watcher.uses.values()]
    how = "executed" if run.values else "without values"
    outputs = plural(len(run.outputs), "output")
    summary = f"{outputs}, every element through {plural(run.tasks, 'task')} ({how})"
    return part("init", findings, Status.THIS_RUN, summary)


@dataclass(frozen=True)
class Stopped:
    """The program does not run to its end: `error` stops `task`."""

    error: UserError
    task: int
    watcher: Watcher


def watched(subject: Subject) -> Watched | Stopped:
    """The run in this mode, once for all checks."""
    if "watched" not in subject.cache:
        subject.cache["watched"] = _watched(subject)
    return subject.cache["watched"]


def _watched(subject: Subject) -> Watched | Stopped:
    fresh = fresh_outputs(subject)
    try:
        return watch(subject.program, subject.small_arguments, fresh, values=False)
    except (NeedsValuesError, DependsOnTaskData):
        pass
    except StoppedError as stop:
        return Stopped(stop.error, stop.task, stop.watcher)
    try:
        return watch(subject.program, subject.arguments, fresh, values=True)
    except StoppedError as stop:
        return Stopped(stop.error, stop.task, stop.watcher)


class StoppedError(Exception):
    def __init__(self, error: UserError, task: int, watcher: Watcher) -> None:
        super().__init__(str(error))
        self.error = error
        self.task = task
        self.watcher = watcher


def fresh_outputs(subject: Subject) -> set[str]:
    """Parameters that hold nothing when the program starts."""
    entry = subject.program.main
    declared = {
        p.name
        for p, said, is_written in zip(entry.params, entry.declarations, entry.directions)
        if said is Direction.Out or (said is None and is_written is Direction.Out)
    }
    comparison = subject.comparison
    if comparison is None:
        return declared
    # A tensor that the script fills is one that keeps its contents, whatever is declared.
    return {name for name in declared if name not in comparison.filled}


def watch(
    program: Program, arguments: Mapping[str, Any], fresh: set[str], *, values: bool
) -> Watched:
    """Run the program in the mode; the caller's arrays stay as they are."""
    watcher = Watcher()
    state = watching_state(program.functions, watcher, values=values)
    given: dict[str, Any] = {
        name: value if np.isscalar(value) else np.copy(value) for name, value in arguments.items()
    }
    bound = bind_arguments(program, given, execute=values)
    outputs: list[tuple[Value, Window]] = []
    for param, window in zip(program.main.params, bound):
        if param.name in fresh:
            leave_undefined(window.buffer, window.dtype.itemsize)
            watcher.watched.add(window.buffer.id)
            outputs.append((param, window))
    try:
        with np.errstate(all="ignore"):
            state.code(program.entry).run(bound)
    except DependsOnTaskData:
        raise
    except UserError as error:
        raise StoppedError(error, len(state.tasks), watcher) from error
    return Watched(watcher, outputs, values, len(state.tasks))


def _of_output(run: Watched, param: Value, window: Window) -> list[Finding]:
    codes = window.buffer.defined.get(window)
    found_here: list[Finding] = []
    never, undefined = codes == NEVER, codes == UNDEFINED
    if never.any():
        found_here.append(_never_written(run, param, window, never))
    if undefined.any():
        found_here.append(_undefined(run, param, window, undefined))
    return found_here


def _never_written(run: Watched, param: Value, window: Window, mask: Any) -> Finding:
    boxes, more = boxes_of(mask, param.name)
    texts = [*map(str, boxes), *([f"{more} more"] if more else [])]
    stores = [s for s in run.watcher.stores if s[2].buffer is window.buffer]
    near = _nearest(stores, window, boxes[0])
    place = () if near is None else (Place(near[0], "writes", task=near[1]),)
    problem = NeverWritten(
        param.name,
        int(mask.sum()),
        mask.size,
        texts,
        param.loc,
        near[0] if near else None,
        f" (task {near[1]})" if near else "",
    )
    return found("init", problem, places=place, region=boxes[0])


def _nearest(
    stores: list[tuple[Loc, int, Window]], whole: Window, box: Box
) -> tuple[Loc, int] | None:
    """The store that ends nearest to a box: most likely it was meant to reach it."""
    best: tuple[int, Loc, int] | None = None
    for loc, task, window in stores:
        gap = 0
        start = corner(whole, window)
        sizes = (1,) * (len(start) - len(window.shape)) + window.shape
        for s, n, a, b in zip(start, sizes, box.start, box.stop):
            gap += max(0, a - (s + n), s - b)
        if best is None or gap < best[0]:
            best = (gap, loc, task)
    return None if best is None else best[1:]


def corner(whole: Window, part: Window) -> tuple[int, ...]:
    """Where a window of a tensor starts in it."""
    rest = part.offset - whole.offset
    place: list[int] = []
    for stride in whole.strides:
        place.append(rest // stride if stride else 0)
        rest -= place[-1] * stride
    return tuple(place)


def _undefined(run: Watched, param: Value, window: Window, mask: Any) -> Finding:
    boxes, more = boxes_of(mask, param.name)
    texts = [*map(str, boxes), *([f"{more} more"] if more else [])]
    stores = [s for s in run.watcher.undefined_stores if s[2].buffer is window.buffer]
    loc, task, _, origin = stores[-1]
    problem = UndefinedOutput(
        param.name,
        int(mask.sum()),
        texts,
        loc,
        _source(origin),
        origin.loc,
        f" (task {task})",
    )
    places = (
        Place(origin.loc, "takes undefined elements", task=origin.task),
        Place(loc, "stores", task=task),
    )
    return found("init", problem, places=places, region=boxes[0])


def _of_use(use: Any) -> Finding:
    origin: Origin = use.origin
    problem = UndefinedDecides(use.use, use.loc, _source(origin), origin.loc)
    places = (Place(use.loc, "decides"), Place(origin.loc, "takes", task=origin.task))
    return found("init", problem, places=places)


def _source(origin: Origin) -> str:
    return origin.name if origin.name.startswith("the ") else f"`{origin.name}`"
