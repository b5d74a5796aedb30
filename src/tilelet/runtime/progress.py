"""Progress line on the terminal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tilelet.dataclasses import dataclass
from tilelet.diag.text import escape_controls

DELAY = 2.0  # seconds before anything is shown
_PERIOD = 0.1  # seconds between two updates

Count = Callable[[], int]


@dataclass(eq=False)
class _Activity:
    """The current activity, and the number of tasks so far, if counted."""

    what: str
    count: Count | None

    def __str__(self) -> str:
        what = escape_controls(self.what)
        return f"{what}: {self.count():,} tasks" if self.count else what


# All current activities, the latest last; the display shows the latest.
_activities: list[_Activity] = []
_display: _Display | None = None
_lock = threading.Lock()


@contextmanager
def progress(what: str, count: Count | None = None) -> Generator[None]:
    """Show `what` on a terminal, with the tasks so far, while the block runs.

    Nothing is shown in the first two seconds of the outermost block. A block inside another takes
    over its line. A debugger needs the terminal for itself: `breakpoint()` ends the line.
    """
    activity = _Activity(what, count)
    _begin(activity)
    try:
        yield
    finally:
        _end(activity)


def _begin(activity: _Activity) -> None:
    global _display  # noqa: PLW0603 - there is one terminal
    with _lock:
        _activities.append(activity)
        if _display is None and sys.stderr.isatty():
            _display = _Display()


def _end(activity: _Activity) -> None:
    global _display  # noqa: PLW0603
    with _lock:
        if activity in _activities:  # not in a process that was forked meanwhile
            _activities.remove(activity)
        if not _activities and _display is not None:
            _display.stop()
            _display = None


def _in_forked_child() -> None:
    """Reset the state after a fork: activities and perhaps the lock belong to the parent."""
    global _display, _lock
    _lock, _display = threading.Lock(), None
    _activities.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


class _Display:
    """The thread that writes the line."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, name="tilelet progress", daemon=True)
        self._thread.start()
        self._hook = _Hook(sys.breakpointhook, self)
        sys.breakpointhook = self._hook

    def stop(self) -> None:
        if sys.breakpointhook is self._hook:  # otherwise another one was started
            sys.breakpointhook = self._hook.behind
        self._done.set()
        self._thread.join()

    def _show(self) -> None:
        if self._done.wait(DELAY):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (text, BarColumn(bar_width=20), TimeElapsedColumn())
        console = Console(file=sys.stderr)
        # The total is unknown, so the bar is indeterminate.
        with Progress(*columns, console=console, transient=True) as bar:
            line = bar.add_task(_latest(), total=None)
            bar.tasks[0].start_time = bar.get_time() - DELAY
            while not self._done.wait(_PERIOD):
                bar.update(line, description=_latest())


@dataclass
class _Hook:
    """Hook of `breakpoint()` that ends the line, because the debugger needs the terminal."""

    behind: Callable[..., object]
    display: _Display

    def give_way(self) -> None:
        self.display.stop()

    def __call__(self, *args: object, **named: object) -> object:
        from tilelet.interp.debugger import frame_hook

        self.give_way()
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        return frame_hook(caller, self.behind, *args, **named)


def under_way() -> str:
    """Return the current activity; None if a progress line shows it."""
    return "" if _display is not None else _latest()


def _latest() -> str:
    activities = _activities[-1:]  # a copy, because threads modify the list
    return str(activities[0]) if activities else ""
