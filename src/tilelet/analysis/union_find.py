"""Union-find."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class UnionFind(Generic[T]):
    """Disjoint sets, each represented by one member; a member never joined is a set of its own."""

    def __init__(self) -> None:
        self._above: dict[T, T] = {}

    def find(self, member: T) -> T:
        """Return the representative of `member`."""
        root = member
        while (above := self._above.get(root, root)) != root:
            root = above
        while member != root:
            self._above[member], member = root, self._above[member]
        return root

    def join(self, a: T, b: T) -> None:
        """Merge two sets; the representative of `a` represents the result."""
        root_a, root_b = self.find(a), self.find(b)
        if root_a != root_b:
            self._above[root_b] = root_a
