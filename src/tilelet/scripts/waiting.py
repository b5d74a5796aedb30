"""Notes about what a long-running script is doing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tilelet.diag.text import escape_controls
from tilelet.runtime import progress

_PACKAGE = Path(progress.__file__).parents[1]
FIRST = 15.0  # seconds until the first note; each further one takes twice as long


@contextmanager
def notes_on_stderr(script: str, first: float = FIRST) -> Generator[None]:
    """While the block runs, print from time to time what Tilelet or the script is doing.

    Scripts may draw inputs for minutes before they call Tilelet.
    """
    done = threading.Event()
    main = threading.get_ident()
    start = time.monotonic()

    def watch() -> None:
        pause = first
        while not done.wait(pause):
            seconds = time.monotonic() - start
            what = progress.under_way() or _place(script, sys._current_frames().get(main))  # pyright: ignore[reportPrivateUsage]
            if what:
                print(
                    escape_controls(f"note: {seconds:.0f} s: {what}"), file=sys.stderr, flush=True
                )
            pause *= 2

    thread = threading.Thread(target=watch, name="tilelet waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _place(script: str, frame: FrameType | None) -> str:
    """Return the innermost running line of the script."""
    while frame is not None:
        code = frame.f_code
        if Path(code.co_filename).is_relative_to(_PACKAGE):
            return ""  # long operations in Tilelet report themselves
        if _is_own(script, code.co_filename):
            where = f"{Path(code.co_filename).name}:{frame.f_lineno}"
            inside = "" if code.co_name == "<module>" else f" in {code.co_name}"
            return f"in the script's own code{inside}, {where}"
        frame = frame.f_back
    return ""


def _is_own(script: str, file: str) -> bool:
    """Whether a file is the script, or beside or below it, but not installed."""
    return Path(file).is_relative_to(Path(script).parent) and "site-packages" not in file
