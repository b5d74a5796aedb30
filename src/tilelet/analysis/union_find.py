"""Sets of things that turn out to be the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class UnionFind(Generic[T]):
    """Disjoint sets; each is known by one of its members. What was never joined is alone."""

    def __init__(self) -> None:
        self._above: dict[T, T] = {}

    def find(self, member: T) -> T:
        """The one that stands for the set of `member`."""
        root = member
        while (above := self._above.get(root, root)) != root:
            root = above
        while member != root:
            self._above[member], member = root, self._above[member]
        return root

    def join(self, a: T, b: T) -> None:
        """Both sets become one; what stood for that of `a` stands for it."""
        root_a, root_b = self.find(a), self.find(b)
        if root_a != root_b:
            self._above[root_b] = root_a
