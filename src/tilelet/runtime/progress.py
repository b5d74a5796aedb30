"""A line on the terminal while something takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

DELAY = 2.0  # seconds before anything is shown


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show a spinner with `what` on a terminal, if the block takes more than two seconds.

    A debugger needs the terminal for itself: `breakpoint()` ends the spinner.
    """
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_spin, args=(what, done), daemon=True)
    thread.start()

    def stop() -> None:
        done.set()
        thread.join()

    hook = sys.breakpointhook
    sys.breakpointhook = lambda *args, **named: (stop(), hook(*args, **named))[1]
    try:
        yield
    finally:
        sys.breakpointhook = hook
        stop()


def _spin(what: str, done: threading.Event) -> None:
    if done.wait(DELAY):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(what, total=None)
        done.wait()
