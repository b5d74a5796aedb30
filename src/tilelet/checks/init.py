"""Uninitialized memory: values that reach an output, branch or index must have been written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilelet.checks.boxes import Bits, boxes_of
from tilelet.checks.findings import Box, Finding, Place, Status, make_finding
from tilelet.checks.trace import Tracer
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.checks import NeverWritten, UndefinedDecides, UndefinedOutput
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.diag.core import Loc, UserError
from tilelet.diag.text import plural
from tilelet.dtypes import Argument, Arguments
from tilelet.interp.cells import (
    NEVER,
    UNDEFINED,
    NeedsValuesError,
    UndefinedOrigin,
    Watcher,
    leave_undefined,
)
from tilelet.interp.definedness import watching_state
from tilelet.ir.core import Direction, Program, Value
from tilelet.tasks.arguments import bind_arguments
from tilelet.tasks.window import Window

_MAX_COMPARED = 256
"""Limit on stores compared to find one that overwrites another."""


@dataclass(frozen=True)
class Watched:
    """The outcome of a run that tracks definedness."""

    watcher: Watcher
    outputs: list[tuple[Value, Window]]
    values: bool
    tasks: int


def check(subject: Subject) -> CheckResult:
    """Run without values if possible; otherwise execute the kernels."""
    if not subject.tasks.complete:
        return CheckResult("init", Status.NOT_CHECKED, subject.too_many)
    run = watched_run(subject)
    if isinstance(run, Stopped):
        findings = [_of_use(use) for use in run.watcher.uses.values()]
        summary = "the kernels cannot be traced to their end"
        return part("init", findings, Status.NOT_CHECKED, summary)
    unset = [u for param, window in run.outputs if (u := _unset_elements(param, window)).mask.any()]
    unset, remarks = _without_ignored(subject, unset)
    findings = [f for output in unset for f in _of_output(subject, run, output)]
    findings += [_of_use(use) for use in run.watcher.uses.values()]
    how = "executed" if run.values else "without values"
    outputs = plural(len(run.outputs), "output")
    summary = f"{outputs}, every element through {plural(run.tasks, 'task')} ({how})"
    return part("init", findings, Status.THIS_RUN, summary, remarks)


@dataclass(frozen=True)
class _Unset:
    """The elements of an output that no task writes, and those computed from undefined memory."""

    param: Value
    window: Window
    never: Bits
    undefined: Bits

    @property
    def mask(self) -> Bits:
        return self.never | self.undefined


def _unset_elements(param: Value, window: Window) -> _Unset:
    codes = window.buffer.defined.get(window)
    return _Unset(param, window, codes == NEVER, codes == UNDEFINED)


def _without_ignored(subject: Subject, outputs: list[_Unset]) -> tuple[list[_Unset], list[str]]:
    """Leave out the elements that need no value; return remarks on these."""
    comparison = subject.comparison
    if not outputs or comparison is None or comparison.ignored is None:
        return outputs, []
    unset = {output.param.name: output.mask for output in outputs}
    all_ignored = comparison.ignored(subject.arguments, unset)
    kept: list[_Unset] = []
    remarks: list[str] = []
    for output in outputs:
        name = output.param.name
        ignored = all_ignored.get(name)
        if ignored is None or not ignored.any():
            kept.append(output)
            continue
        boxes, more = boxes_of(ignored, name, most=3)
        texts = [*map(str, boxes), *([f"{more} more"] if more else [])]
        remarks.append(
            f"{int(ignored.sum())} of {plural(ignored.size, 'element')} of `{name}` stay "
            f"undefined, and nothing is compared there: {', '.join(texts)}"
        )
        if (output.mask & ~ignored).any():
            kept.append(
                replace(
                    output, never=output.never & ~ignored, undefined=output.undefined & ~ignored
                )
            )
    return kept, remarks


@dataclass(frozen=True)
class Stopped:
    """The program does not run to completion: `error` stops `task`."""

    error: UserError
    task: int
    watcher: Watcher


def watched_run(subject: Subject) -> Watched | Stopped:
    """Return the tracked run, shared by all checks."""
    if subject.shared.tracked is None:
        subject.shared.tracked = _watch_subject(subject)
    return subject.shared.tracked


def _watch_subject(subject: Subject) -> Watched | Stopped:
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
    """Return the parameters that are uninitialized when the program starts."""
    entry = subject.program.main
    declared = {
        p.name
        for p, said, is_written in zip(entry.params, entry.declarations, entry.directions)
        if said is Direction.Out or (said is None and is_written is Direction.Out)
    }
    comparison = subject.comparison
    if comparison is None:
        return declared
    # A tensor that the script fills keeps its contents, whatever its declaration.
    return {name for name in declared if name not in comparison.filled}


def watch(program: Program, arguments: Arguments, fresh: set[str], *, values: bool) -> Watched:
    """Run the program with tracking, without changing the caller's arrays."""
    watcher = Watcher()
    state = watching_state(program.functions, watcher, values=values)
    given: dict[str, Argument] = {
        name: np.copy(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
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


def _of_output(subject: Subject, run: Watched, output: _Unset) -> list[Finding]:
    param, window = output.param, output.window
    found_here: list[Finding] = []
    if output.never.any():
        found_here.append(_never_written(run, param, window, output.never))
    if output.undefined.any():
        found_here.append(_undefined_finding(subject, run, param, window, output.undefined))
    return found_here


def _never_written(run: Watched, param: Value, window: Window, mask: Any) -> Finding:
    boxes, more = boxes_of(mask, param.name)
    texts = [*map(str, boxes), *([f"{more} more"] if more else [])]
    stores = [Store(*s) for s in run.watcher.stores if s[2].buffer is window.buffer]
    near = _nearest(stores, window, boxes[0])
    place = () if near is None else (Place(near.loc, "writes", task=near.task),)
    problem = NeverWritten(
        param.name,
        int(mask.sum()),
        mask.size,
        texts,
        param.loc,
        (near.loc, _what(near, stores, "writes next to them")) if near else None,
    )
    return make_finding("init", problem, places=place, region=boxes[0])


class Store(NamedTuple):
    """One store by a statement."""

    loc: Loc
    task: int
    window: Window


def _nearest(stores: list[Store], whole: Window, box: Box) -> Store | None:
    """Return the store that ends nearest to a box, which most likely should have covered it.

    Among several, prefer one that overwrites another store, since it is probably misplaced.
    """
    near: list[Store] = []
    best = -1
    for store in stores:
        gap = 0
        start = corner(whole, store.window)
        sizes = (1,) * (len(start) - len(store.window.shape)) + store.window.shape
        for s, n, a, b in zip(start, sizes, box.start, box.stop):
            gap += max(0, a - (s + n), s - b)
        if best < 0 or gap < best:
            near, best = [], gap
        if gap == best:
            near.append(store)
    return find_misplaced(near, stores) or (near[0] if near else None)


def find_misplaced(candidates: list[Store], stores: list[Store]) -> Store | None:
    """Return the first of `stores` that overwrites a store of another statement or task."""
    for store in candidates[:_MAX_COMPARED]:
        if _written_before(store, stores) is not None:
            return store
    return None


def _written_before(store: Store, stores: list[Store]) -> Store | None:
    for other in stores[:_MAX_COMPARED]:
        if other is store:
            return None
        elsewhere = (other.loc, other.task) != (store.loc, store.task)
        if elsewhere and other.window.overlaps(store.window):
            return other
    return None


def _what(store: Store, stores: list[Store], beside: str) -> str:
    """Describe a store for its label."""
    other = _written_before(store, stores)
    if other is None:
        return f"{beside} (task {store.task})"
    who = f"line {other.loc.line} has written (task {other.task})"
    if other.loc == store.loc:
        who = f"task {other.task} has written"
    return f"task {store.task} overwrites what {who}"


def _stores_to(subject: Subject, origin: UndefinedOrigin) -> list[Store]:
    """Return the stores to memory from which undefined elements were read."""
    tasks = subject.tasks
    if not 0 <= origin.task < len(tasks) or not tasks[origin.task].kernel:
        return []
    taken = [v for v in tasks[origin.task].values if isinstance(v, Window)]
    buffers = {w.buffer.id for w in taken if w.buffer.name == origin.name}
    tracer = Tracer(subject.program, tasks, subject.small_arguments)
    found: list[Store] = []
    for index in range(origin.task):
        given = (v for v in tasks[index].values if isinstance(v, Window))
        if not any(window.buffer.id in buffers for window in given):
            continue
        touches = [t for t in tracer.touches(index) or () if t.window.buffer.id in buffers]
        read = [t.window for t in touches if not t.writes]
        # Atomic adds overwrite intentionally.
        found += [
            Store(touch.loc, index, touch.window)
            for touch in touches
            if touch.writes and not any(touch.window.overlaps(r) for r in read)
        ]
        if len(found) >= _MAX_COMPARED:
            break
    return found


def corner(whole: Window, part: Window) -> tuple[int, ...]:
    """Return the offset of a window in its tensor."""
    rest = part.offset - whole.offset
    place: list[int] = []
    for stride in whole.strides:
        place.append(rest // stride if stride else 0)
        rest -= place[-1] * stride
    return tuple(place)


def _undefined_finding(
    subject: Subject, run: Watched, param: Value, window: Window, mask: Any
) -> Finding:
    boxes, more = boxes_of(mask, param.name)
    texts = [*map(str, boxes), *([f"{more} more"] if more else [])]
    stores = [s for s in run.watcher.undefined_stores if s[2].buffer is window.buffer]
    loc, task, _, origin = stores[-1]
    others = _stores_to(subject, origin)
    over = find_misplaced(others, others)
    writer = over or (others[-1] if others else None)
    problem = UndefinedOutput(
        param.name,
        int(mask.sum()),
        texts,
        loc,
        _source(origin),
        origin.loc,
        f" (task {task})",
        (writer.loc, _what(writer, others, "writes other parts of it")) if writer else None,
        over is not None,
    )
    places = (
        Place(origin.loc, "uses undefined elements", task=origin.task),
        Place(loc, "stores", task=task),
        *([Place(writer.loc, "writes", task=writer.task)] if writer else ()),
    )
    return make_finding("init", problem, places=places, region=boxes[0])


def _of_use(use: Any) -> Finding:
    origin: UndefinedOrigin = use.origin
    problem = UndefinedDecides(use.use, use.loc, _source(origin), origin.loc)
    places = (Place(use.loc, "decides"), Place(origin.loc, "takes", task=origin.task))
    return make_finding("init", problem, places=places)


def _source(origin: UndefinedOrigin) -> str:
    return origin.name if origin.name.startswith("the ") else f"`{origin.name}`"
