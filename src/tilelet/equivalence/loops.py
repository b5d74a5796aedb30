"""Loops whose trip count data decides, and what symbolic execution compares of their iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.equivalence.memory import Buffer, View
from tilelet.equivalence.terms import Terms, combine, digest, grid, tag
from tilelet.equivalence.tiles import TermTile
from tilelet.ir.core import Block, Value


@dataclass(frozen=True)
class TermLoop:
    """A loop with an unknown trip count.

    outer  buffers that exist before it
    vague  positions of carried values about which nothing is assumed
    """

    name: np.uint64
    depth: int
    env: dict[Value, Any]
    body: Block
    cond: Block | None
    init: tuple[Any, ...]
    labels: list[str]
    outer: frozenset[Buffer]
    vague: set[int] = field(default_factory=set[int])

    def unknown_contents(self, buffer: Buffer, salt: np.uint64) -> Terms:
        """Return the contents of a buffer at the start of an iteration."""
        return combine(tag("state", self.depth, buffer.key, salt), grid((buffer.size,)))


@dataclass(frozen=True)
class Iteration:
    """One iteration of a loop from an unknown state.

    holds        the condition of a `while` loop
    values       carried values it yields
    after        contents of written buffers after it
    obligations  accesses that may fail
    """

    holds: tuple[object, ...]
    values: tuple[Any, ...]
    after: Mapping[Buffer, Terms]
    obligations: set[np.uint64]

    def is_same(self, other: Iteration, buffers: Sequence[Buffer]) -> bool:
        """Whether two iterations have the same effect except on other buffers."""
        return (
            digests(self.holds, self.values) == digests(other.holds, other.values)
            and self.obligations == other.obligations
            and all((self.after[b] == other.after[b]).all() for b in buffers)
        )


def window_labels(values: Sequence[object]) -> list[str]:
    """Return names of carried values without the removed windows."""
    found: list[str] = []
    for value in values:
        number = sum(isinstance(v, View) == isinstance(value, View) for v in values[: len(found)])
        found.append(f"window {number}" if isinstance(value, View) else f"value {number}")
    return found


def changed_positions(state: Sequence[Any], values: Sequence[Any]) -> set[int]:
    """Return positions of windows and valid regions that change in the next iteration."""
    found: set[int] = set()
    for k, (known, value) in enumerate(zip(state, values)):
        if isinstance(known, TermTile) and known.valid != value.valid:
            found.add(k)
        elif isinstance(known, View) and isinstance(value, View):
            same = value.is_same(known) and value.valid == known.valid
            found |= set() if same else {k}
    return found


def digests(*groups: Sequence[object]) -> tuple[object, ...]:
    """Return a comparable form of scalars and tiles; windows are compared by memory."""
    return tuple(
        (digest(v.terms)[()], v.valid) if isinstance(v, TermTile) else v
        for group in groups
        for v in group
        if not isinstance(v, View)
    )
