"""Ctrl-C during imports, which C extensions turn into an `ImportError`.

Imports of the command's own modules delay it. During a script's imports it is recorded, so that the
resulting error is recognized.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

_was_pressed = threading.Event()
_waits = threading.Event()


@contextlib.contextmanager
def record() -> Generator[None]:
    """Record Ctrl-C in the block, which raises `KeyboardInterrupt` as usual."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not is_usual:
        yield
        return
    signal.signal(signal.SIGINT, _Notice())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _was_pressed.clear()


@contextlib.contextmanager
def defer() -> Generator[None]:
    """Delay Ctrl-C to the end of the block."""
    _waits.set()
    try:
        yield
    finally:
        _waits.clear()
        if _was_pressed.is_set():
            raise KeyboardInterrupt


class _Notice:
    """A handler of Ctrl-C."""

    raises_interrupt = True  # native code may run under it, as under Python's own

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _was_pressed.set()
        if not _waits.is_set():
            signal.default_int_handler(number, frame)


def explains(error: BaseException) -> bool:
    """Whether an exception was caused by Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        return True
    return _was_pressed.is_set() and isinstance(error, ImportError | SyntaxError | SystemError)
