"""Accesses are compared by the bytes they touch, with the answer of comparing all of them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tilelet.analysis.overlap import Bytes, meet
from tilelet.ranks.races import Access, SliceAccesses, Touch, compact, join

SIZE = 1 << 15


def random_access(draw: random.Random, strands: list[Any], order: int) -> Access:
    strand = draw.choice(strands)
    for other in strands:  # occasionally synchronize with another strand
        if draw.random() < 0.1:
            join(strand.clock, other.clock)
            other.clock[other.number] += 1
    width = draw.choice([4, 64, 512])
    rows = draw.choice([1, 1, 8])
    start = draw.randrange((SIZE - 8 * 1024) // width) * width
    touched = Bytes(start, 4, ((rows, 1024), (width // 4, 4)))
    how = draw.choice(["read", "write", "store", "add", "notify", "set"])
    window: Any = None
    return Access(strand, how, window, touched, window, strand.clock[strand.number], order)


@pytest.mark.parametrize("seed", range(20))
def test_races_are_those_of_comparing_every_pair(seed: int) -> None:
    draw = random.Random(seed)
    strands = [SimpleNamespace(number=i, clock={i: 1}) for i in range(4)]
    accesses, earlier, found = SliceAccesses(SIZE), list[Access](), 0
    for order in range(300):
        now = random_access(draw, strands, order)
        wanted = [a for a in earlier if a.races(now, now.strand.clock) and meet(a.bytes, now.bytes)]
        racing = accesses.add(now)
        # An access may be dropped for a later one to the same bytes, which then races instead.
        assert {a.order for a in racing} <= {a.order for a in wanted}
        assert bool(racing) == bool(wanted)
        assert racing == sorted(racing, key=lambda a: a.order)
        found += len(racing)
        earlier.append(now)
    assert found


def bytes_of(touch: Touch) -> set[int]:
    found = {touch.bytes.start}
    for count, step in touch.bytes.axes:
        found = {at + i * step for at in found for i in range(count)}
    return {at + i for at in found for i in range(touch.bytes.run)}


@pytest.mark.parametrize("seed", range(10))
def test_a_compacted_footprint_touches_the_same_bytes(seed: int) -> None:
    draw = random.Random(seed)
    touches: list[Touch] = []
    for _ in range(40):
        how = draw.choice(["read", "store", "add", "notify", "wait"])
        axes = draw.choice([(), ((8, 4),), ((4, 4),), ((2, 64), (4, 4)), ((2, 16), (4, 4))])
        touches.append(Touch(("w", draw.randrange(2)), Bytes(draw.randrange(32) * 4, 4, axes), how))
    fewer = compact(touches)
    assert len(fewer) < len(touches)
    for kind in {(t.slice, t.how) for t in touches}:
        sets = [
            {b for t in some if (t.slice, t.how) == kind for b in bytes_of(t)}
            for some in (touches, fewer)
        ]
        assert sets[0] == sets[1]
    cells = {t for t in touches if t.how in ("notify", "wait")}
    assert cells == {t for t in fewer if t.how in ("notify", "wait")}
