"""Scratch memory of a kernel: slots that live at the same time are apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilelet.cpu.plan.model import Slot
from tilelet.cpu.plan.slots import ALIGNMENT, pack
from tilelet.dtypes import INT8


def slot(nbytes: int, first: int, last: int) -> Slot:
    return Slot("tile", INT8, nbytes, first, last)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 9), st.integers(0, 5)), max_size=10))
def test_slots_that_meet_in_time_do_not_meet_in_memory(lives) -> None:
    slots, end = pack([slot(n, first, first + more) for n, first, more in lives])
    for s in slots:
        assert s.offset % ALIGNMENT == 0
        assert s.offset + s.nbytes <= end
    for i, a in enumerate(slots):
        for b in slots[:i]:
            if a.first <= b.last and b.first <= a.last:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_large_slots_choose_first_and_memory_is_used_again() -> None:
    (small, large, later), end = pack([slot(10, 0, 1), slot(100, 0, 1), slot(100, 2, 3)])
    assert end == 3 * ALIGNMENT
    assert (large.offset, small.offset, later.offset) == (0, 2 * ALIGNMENT, 0)
    assert pack([]) == ((), 0)
