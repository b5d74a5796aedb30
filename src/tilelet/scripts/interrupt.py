"""Ctrl-C while modules are imported: those that are written in C make an `ImportError` of it.

So it waits for the command's own modules. In a script's imports it is remembered, and the error
that became of it is known for what it is.
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
def noticed() -> Generator[None]:
    """Remember Ctrl-C in the block, which raises `KeyboardInterrupt` as ever."""
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
def deferred() -> Generator[None]:
    """Ctrl-C in the block comes at its end."""
    _waits.set()
    try:
        yield
    finally:
        _waits.clear()
        if _was_pressed.is_set():
            raise KeyboardInterrupt


class _Notice:
    """A handler of Ctrl-C."""

    raises_interrupt = True  # so native code may run under it as under Python's own

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _was_pressed.set()
        if not _waits.is_set():
            signal.default_int_handler(number, frame)


def explains(error: BaseException) -> bool:
    """Whether an exception is what became of Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        return True
    return _was_pressed.is_set() and isinstance(error, ImportError | SyntaxError | SystemError)
