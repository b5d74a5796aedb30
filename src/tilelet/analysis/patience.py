"""A time limit for optional analyses that follow every loop of a kernel."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager


class OutOfTime(Exception):  # noqa: N818
    """The time limit of an analysis has passed; not an error."""


_ends: list[float] = []
_EVERY = 1 << 10
_asked = 0


@contextmanager
def within(seconds: float) -> Generator[None]:
    """Let `look` raise `OutOfTime` inside this block after `seconds`."""
    _ends.append(time.perf_counter() + seconds)
    try:
        yield
    finally:
        _ends.pop()


def look() -> None:
    """Check the clock now and then."""
    global _asked  # noqa: PLW0603
    if not _ends:
        return
    _asked += 1
    if _asked % _EVERY == 0 and time.perf_counter() > _ends[-1]:
        raise OutOfTime
