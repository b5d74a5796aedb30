"""Search methods on completely known costs."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence

import pytest

from tilelet.tuning import search
from tilelet.tuning.knobs import Settings

SPACE: search.Space = dict.fromkeys("abcdef", (1, 2, 4, 8, 16, 32))
START = dict.fromkeys(SPACE, 1)
Cost = Callable[[Settings], float]


def number(settings: Settings, name: str) -> float:
    return math.log2(int(settings[name]))


def separable(settings: Settings) -> float:
    """Every knob has its own optimum."""
    return 1 + sum(abs(number(settings, n) - i % 5) for i, n in enumerate(SPACE))


def shared_buffer(settings: Settings) -> float:
    """`a` and `b` are better the larger, and share a buffer, as tiles of a matrix product do."""
    a, b = number(settings, "a"), number(settings, "b")
    if a + b > 6:
        return math.inf
    return 20 - a - 1.5 * b + separable({**settings, "a": 1, "b": 1})


def walk(method: search.Method, cost: Cost, budget: int, seed: int = 0) -> list[Settings]:
    """Return the candidates that a method tries, in order, within a budget."""
    seen: list[Settings] = []
    batches = method(SPACE, START, seed)
    batch = next(batches)
    while len(seen) < budget:
        seen += batch
        try:
            batch = batches.send([cost(c) for c in batch])
        except StopIteration:
            break
    return seen[:budget]


def best(method: search.Method, cost: Cost, budget: int, seed: int = 0) -> float:
    return min(map(cost, walk(method, cost, budget, seed)))


def everything() -> list[Settings]:
    return [dict(zip(SPACE, values)) for values in itertools.product(*SPACE.values())]


@pytest.mark.parametrize("cost", [separable, shared_buffer])
def test_descent_finds_the_optimum(cost: Cost) -> None:
    assert best(search.descent, cost, 300) == min(map(cost, everything()))


@pytest.mark.parametrize("cost", [separable, shared_buffer])
def test_descent_beats_random_search_at_equal_budget(cost: Cost) -> None:
    descents = [best(search.descent, cost, 100, seed) for seed in range(9)]
    draws = [best(search.random_search, cost, 100, seed) for seed in range(9)]
    assert statistics.median(descents) < statistics.median(draws)


@pytest.mark.parametrize("method", [search.descent, search.random_search, search.exhaustive_search])
def test_nothing_is_asked_twice(method: search.Method) -> None:
    seen = walk(method, shared_buffer, 500)
    assert len({tuple(c.items()) for c in seen}) == len(seen)


def test_the_order_depends_on_the_seed_only() -> None:
    runs = [walk(search.descent, shared_buffer, 400, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_exhaustive_search_sees_everything() -> None:
    seen = walk(search.exhaustive_search, separable, 10**6)
    assert len(seen) == search.size(SPACE) == len(everything())


def test_descent_ends_when_all_is_seen() -> None:
    space: search.Space = {"a": (1, 2), "b": (1, 2, 4)}
    batches = search.descent(space, {"a": 1, "b": 1}, 0)
    batch: Sequence[Settings] | None = next(batches)
    seen = 0
    while batch:
        seen += len(batch)
        try:
            batch = batches.send([1.0] * len(batch))
        except StopIteration:
            batch = None
    assert seen == search.size(space)
