"""A work limit for optional analyses that follow every loop of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


class OutOfSteps(Exception):  # noqa: N818
    """The work limit of an analysis is reached; not an error."""


_left: list[int] = []
_stops: list[Callable[[], bool]] = []


@contextmanager
def within(steps: int) -> Generator[None]:
    """Let `step` raise `OutOfSteps` inside this block after this many scalar ops."""
    _left.append(steps)
    try:
        yield
    finally:
        _left.pop()


@contextmanager
def until(stop: Callable[[], bool]) -> Generator[None]:
    """Let `step` raise `OutOfSteps` inside this block once `stop` returns true."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.pop()


def step(count: int = 1) -> None:
    """Count scalar ops, or work that takes as long."""
    if not _left:
        return
    _left[-1] -= count
    if _left[-1] < 0 or (_stops and _stops[-1]()):
        raise OutOfSteps
