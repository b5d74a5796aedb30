"""First-fit packing: buffers that are live at the same time never overlap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilelet.analysis.packing import Need, first_fit


@st.composite
def needs(draw) -> Need:
    first = draw(st.integers(0, 20))
    return Need(draw(st.integers(0, 300)), first, first + draw(st.integers(0, 10)))


def rounded(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


@given(st.lists(needs(), max_size=12), st.sampled_from([1, 32, 64]), st.randoms())
def test_places_are_apart_aligned_and_within_the_end(given_needs, alignment, random) -> None:
    order = list(range(len(given_needs)))
    random.shuffle(order)
    offsets, end = first_fit(given_needs, order, alignment)
    spans = [(o, o + rounded(n.nbytes, alignment)) for o, n in zip(offsets, given_needs)]
    assert all(o % alignment == 0 for o in offsets)
    assert end == max((high for _, high in spans), default=0)
    for i, (low, high) in enumerate(spans):
        for j in range(i):
            if given_needs[i].meets(given_needs[j]):
                assert high <= spans[j][0] or spans[j][1] <= low


@given(st.lists(needs(), max_size=8))
def test_each_gets_the_lowest_place_that_was_free(given_needs) -> None:
    """Compare with a byte-by-byte search."""
    offsets, _ = first_fit(given_needs, range(len(given_needs)), 1)
    for i, need in enumerate(given_needs):
        taken: set[int] = set()
        for j in range(i):
            if given_needs[j].meets(need):
                taken.update(range(offsets[j], offsets[j] + given_needs[j].nbytes))
        lowest = 0
        while taken.intersection(range(lowest, lowest + need.nbytes)):
            lowest += 1
        assert offsets[i] == lowest or need.nbytes == 0


def test_memory_is_used_again() -> None:
    offsets, end = first_fit([Need(10, 0, 1), Need(20, 1, 2), Need(10, 2, 3)], [0, 1, 2], 32)
    assert (offsets, end) == ([0, 32, 0], 64)
    assert first_fit([], [], 32) == ([], 0)
