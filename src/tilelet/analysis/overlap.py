"""Overlap test: whether two windows of one buffer share a byte.

This is the reference implementation. The CPU runtime (`cpu/c/depend.c`) and the dependency rules of
the device model (`device/schedule/c/graph.c`) implement it in C and are tested against it.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple


class Bytes(NamedTuple):
    """A strided set of bytes: `run` contiguous bytes at `start`, repeated along every axis.

    axes  pairs (count, stride in bytes), for axes of more than one element
    """

    start: int
    run: int
    axes: tuple[tuple[int, int], ...] = ()

    @property
    def limits(self) -> tuple[int, int]:
        """Return the first byte, and the one past the last."""
        low = self.start + sum((n - 1) * step for n, step in self.axes if step < 0)
        high = self.start + sum((n - 1) * step for n, step in self.axes if step > 0)
        return low, high + self.run

    @property
    def is_dense(self) -> bool:
        """Whether they are all bytes between their limits."""
        length = self.run
        for count, step in sorted(self.axes, key=lambda axis: axis[1]):
            if step != length:
                return False
            length *= count
        return True


def meet(a: Bytes, b: Bytes) -> bool:
    """Return whether the two share a byte; True when in doubt.

    Both are expressed as boxes in one grid of bytes, whose axes are all strides of the two, each a
    multiple of the next. Boxes overlap if their intervals overlap on every axis. The test is exact
    for boxes of one array, also through views that keep rows separate.
    """
    (low_a, high_a), (low_b, high_b) = a.limits, b.limits
    if high_a <= low_b or high_b <= low_a:
        return False
    steps = sorted({1, *(step for x in (a, b) for _, step in x.axes)}, reverse=True)
    if steps[-1] != 1 or any(x % y for x, y in itertools.pairwise(steps)):
        return True
    first, second = _intervals(a, steps), _intervals(b, steps)
    if first is None or second is None:
        return True
    return all(p < q + n and q < p + m for (p, m), (q, n) in zip(first, second))


def _intervals(x: Bytes, steps: list[int]) -> list[tuple[int, int]] | None:
    """Return (start, length) on every axis of the grid, or None if `x` is not a box there."""
    lengths = dict.fromkeys(steps, 1)
    lengths[1] = x.run
    for n, step in x.axes:
        if lengths[step] != 1 and step != 1:
            return None  # two axes with the same stride
        lengths[step] = n
    rest = x.start
    starts: list[int] = []
    for step in steps:
        starts.append(rest // step)
        rest %= step
    # From the innermost axis outwards: a run longer than its row must cover whole rows.
    for i in range(len(steps) - 1, 0, -1):
        row = steps[i - 1] // steps[i]
        length = lengths[steps[i]]
        if starts[i] + length <= row:
            continue
        if starts[i] or length % row or lengths[steps[i - 1]] != 1:
            return None
        lengths[steps[i]], lengths[steps[i - 1]] = row, length // row
    return list(zip(starts, (lengths[s] for s in steps)))
