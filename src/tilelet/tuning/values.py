"""Candidate values of a knob."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.tuning.knobs import Knob, Setting

_MIN_EXTENT = 16
"""Smaller numbers are counts (parts, stages), not tile extents."""

_CUBE = 16
"""Tiles on chip are multiples of this: the cube works on sixteen rows and columns."""

_MAX_FACTOR = 8
"""Maximum factor by which a tile shrinks or grows."""


def values_for(knob: Knob, sizes: Iterable[int]) -> tuple[Setting, ...]:
    """Return the sorted values to try for `knob`, including its own.

    sizes  extents of the program's inputs and outputs: a tile that divides one of them leaves no
           remainder
    """
    value = knob.value
    if isinstance(value, str):
        return (value, *knob.others)
    if value < _MIN_EXTENT:
        return tuple(sorted({value, *range(1, 5), 6, 8, 16, 2 * value}))
    step = _CUBE if value % _CUBE == 0 else 1
    factors = [1 << k for k in range(_MAX_FACTOR.bit_length())]
    found = {value * f for f in factors} | {value // f for f in factors if value % f == 0}
    for size in set(sizes):
        found |= {d for d in _divisors(size) if _is_near(d, value)}
    return tuple(sorted(v for v in found if v % step == 0))


def _is_near(divisor: int, value: int) -> bool:
    return value <= _MAX_FACTOR * divisor and divisor <= _MAX_FACTOR * value


def _divisors(size: int) -> Iterable[int]:
    for small in range(1, int(size**0.5) + 1):
        if size % small == 0:
            yield small
            yield size // small


def neighbors(values: Sequence[Setting], value: Setting) -> list[Setting]:
    """Return `value` and the adjacent values."""
    place = values.index(value)
    return list(values[max(place - 1, 0) : place + 2])
