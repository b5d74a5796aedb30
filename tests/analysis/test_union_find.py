"""Disjoint sets, compared with sets that are merged one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilelet.analysis.union_find import UnionFind

MEMBERS = range(8)


@given(st.lists(st.tuples(st.sampled_from(MEMBERS), st.sampled_from(MEMBERS)), max_size=12))
def test_joined_things_are_found_together(pairs) -> None:
    classes: UnionFind[int] = UnionFind()
    sets = [{m} for m in MEMBERS]
    for a, b in pairs:
        first = classes.find(a)
        classes.join(a, b)
        assert classes.find(b) == first, "what stood for the first stands for both"
        (one,) = (s for s in sets if a in s)
        (other,) = (s for s in sets if b in s)
        if one is not other:
            sets.remove(other)
            one |= other
    for a in MEMBERS:
        (mine,) = (s for s in sets if a in s)
        assert {m for m in MEMBERS if classes.find(m) == classes.find(a)} == mine
        assert classes.find(a) in mine
