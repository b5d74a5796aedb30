"""Standard streams that are closed, or whose disk is full."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TextIO

_failures: list[OSError] = []  # errors of writing to the streams


def open_closed_streams() -> None:
    """Replace missing standard streams by null devices."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def watch_output() -> Generator[None]:
    """Record errors of printing, which are neither bugs nor about other files."""
    streams = [sys.stdout, sys.stderr]
    for stream in streams:
        for name in ("write", "flush"):
            setattr(stream, name, _watched_method(getattr(stream, name)))
    try:
        yield
    finally:
        for stream in streams:
            for name in ("write", "flush"):
                delattr(stream, name)
        _failures.clear()


def _watched_method(method: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object) -> Any:
        try:
            return method(*args)
        except OSError as error:
            _failures.append(error)
            raise

    return call


def failed_by(error: BaseException) -> bool:
    """Whether an error came from printing."""
    return any(error is failure for failure in _failures)


def discard() -> None:
    """Discard unwritten output, which Python would report at exit."""
    for stream in (sys.stdout, sys.stderr):
        if not _flush(stream):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say_failed(error: OSError) -> None:
    """Try to report that the output could not be written."""
    from tilelet.diag.catalogue.command import CannotWrite

    discard()
    message = CannotWrite("the standard output", error.strerror or str(error))
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def _flush(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True
