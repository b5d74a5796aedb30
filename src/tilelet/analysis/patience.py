"""A limit of time for what follows every loop of a kernel, where nobody has asked for it."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager


class OutOfTime(Exception):  # noqa: N818
    """The time is over: no mistake of anybody."""


_ends: list[float] = []
_EVERY = 1 << 10
_asked = 0


@contextmanager
def within(seconds: float) -> Generator[None]:
    """What looks at the clock in this block raises `OutOfTime` once the seconds are over."""
    _ends.append(time.perf_counter() + seconds)
    try:
        yield
    finally:
        _ends.pop()


def look() -> None:
    """Look at the clock now and then."""
    global _asked  # noqa: PLW0603
    if not _ends:
        return
    _asked += 1
    if _asked % _EVERY == 0 and time.perf_counter() > _ends[-1]:
        raise OutOfTime
