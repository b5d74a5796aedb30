"""Live ranges of the tiles of a kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilelet.device.kernel.view import Loop, Node, TileStorage, loops_in, walk_steps


def with_live_ranges(
    tiles: Sequence[TileStorage], body: tuple[Node, ...]
) -> tuple[TileStorage, ...]:
    """Return the tiles with `live` filled in."""
    ranges: dict[int, list[int]] = {}
    for step in walk_steps(body):
        for tile in (*step.reads, *step.writes):
            span = ranges.setdefault(tile, [step.position, step.position])
            span[1] = max(span[1], step.position)
    # Innermost first, because extending a range in an inner loop may affect the outer one.
    for loop in sorted(loops_in(body), key=lambda item: item.span[1] - item.span[0]):
        _extend(ranges, loop)
    return tuple(dataclasses.replace(t, live=tuple(ranges.get(t.id, (0, 0)))) for t in tiles)


def _extend(ranges: dict[int, list[int]], loop: Loop) -> None:
    """Extend contents needed from a previous iteration over the whole loop."""
    first, last = loop.span[0], loop.span[1] - 1
    seen: set[int] = set()
    for step in walk_steps(loop.body):
        carried = [t for t in step.reads if t not in seen and t not in loop.created]
        for tile in carried:
            span = ranges[tile]
            span[0], span[1] = min(span[0], first), max(span[1], last)
        seen.update(step.reads, step.writes)
