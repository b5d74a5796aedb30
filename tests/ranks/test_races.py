"""Accesses are compared by the bytes they touch, with the answer of comparing all of them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tilelet.analysis.overlap import Bytes, meet
from tilelet.ranks.races import Access, SliceAccesses, join

SIZE = 1 << 15


def random_access(draw: random.Random, strands: list[Any], order: int) -> Access:
    strand = draw.choice(strands)
    for other in strands:  # hear of another strand now and then
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
        # Accesses may be dropped for a later one to the same bytes, which then races instead.
        assert {a.order for a in racing} <= {a.order for a in wanted}
        assert bool(racing) == bool(wanted)
        assert racing == sorted(racing, key=lambda a: a.order)
        found += len(racing)
        earlier.append(now)
    assert found
