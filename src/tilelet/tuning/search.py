"""Search strategies: exhaustive for few candidates, else coordinate descent with restarts.

A tile size mostly affects its own kernels, so coordinate descent finds most of the gain, and each
step is one batch for all workers. Two knobs that share a buffer must change together: when no
single knob helps, neighboring values of pairs are tried; then the search restarts from a perturbed
optimum.

The order of candidates depends only on their scores and the seed, not on timing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeAlias

from tilelet.tuning.knobs import Setting, Settings
from tilelet.tuning.values import neighbors

Space: TypeAlias = Mapping[str, Sequence[Setting]]
"""The values of each knob."""

Batches: TypeAlias = Generator[Sequence[Settings], list[float], None]
"""A generator of candidate batches that is sent their costs; infinite means infeasible."""

Method: TypeAlias = Callable[[Space, Settings, int], Batches]

_BATCH = 16


def size(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def exhaustive_search(space: Space, start: Settings, seed: int) -> Batches:
    """Yield every candidate once."""
    del start, seed
    every = itertools.product(*space.values())
    while batch := [dict(zip(space, values)) for values in itertools.islice(every, _BATCH)]:
        yield batch


def random_search(space: Space, start: Settings, seed: int) -> Batches:
    """Yield uniformly drawn candidates, the baseline of other methods."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    seen = {_key(space, start)}
    while len(seen) < size(space):
        batch: list[Settings] = []
        while len(batch) < _BATCH and len(seen) < size(space):
            candidate = {name: draw.choice(list(values)) for name, values in space.items()}
            if _key(space, candidate) not in seen:
                seen.add(_key(space, candidate))
                batch.append(candidate)
        yield batch


def descent(space: Space, start: Settings, seed: int) -> Batches:
    """Coordinate descent, then pairs of neighbors, then restarts."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    costs: dict[tuple[Setting, ...], float] = {}
    best: Settings = dict(start)
    here: Settings = best
    # A knob that once helped is likely to help again.
    gains = dict.fromkeys(space, 0.0)
    while len(costs) < size(space):
        here = yield from _descend(space, here, costs, gains)
        if costs[_key(space, here)] < costs[_key(space, best)]:
            best = here
        strength = 2
        while _key(space, here) in costs and len(costs) < size(space):
            here = _disturb(space, best, draw, strength)
            strength = min(strength + 1, len(space))


_Costs: TypeAlias = dict[tuple[Setting, ...], float]


def _descend(
    space: Space, here: Settings, costs: _Costs, gains: dict[str, float]
) -> Generator[Sequence[Settings], list[float], Settings]:
    """Descend from `here` until neither a knob nor a pair of knobs helps."""
    yield from _ask(space, [here], costs)
    while True:
        now = costs[_key(space, here)]
        for name in sorted(space, key=lambda name: -gains[name]):
            candidates = [{**here, name: value} for value in space[name]]
            better = yield from _best_of(space, candidates, here, costs)
            gains[name] = _gain(costs[_key(space, here)], costs[_key(space, better)])
            here = better
        if costs[_key(space, here)] < now:
            continue
        better = yield from _pairs(space, here, costs, gains)
        if costs[_key(space, better)] >= now:
            return here
        here = better


def _pairs(
    space: Space, here: Settings, costs: _Costs, gains: dict[str, float]
) -> Generator[Sequence[Settings], list[float], Settings]:
    """Find the first pair of knobs whose neighboring values help."""
    names = sorted(space, key=lambda name: -gains[name])
    for a, b in itertools.combinations(names, 2):
        both = itertools.product(neighbors(space[a], here[a]), neighbors(space[b], here[b]))
        better = yield from _best_of(space, [{**here, a: x, b: y} for x, y in both], here, costs)
        if better is not here:
            return better
    return here


def _best_of(
    space: Space, candidates: Sequence[Settings], here: Settings, costs: _Costs
) -> Generator[Sequence[Settings], list[float], Settings]:
    yield from _ask(space, candidates, costs)
    best = min(candidates, key=lambda c: costs[_key(space, c)])
    return best if costs[_key(space, best)] < costs[_key(space, here)] else here


def _ask(
    space: Space, candidates: Sequence[Settings], costs: _Costs
) -> Generator[Sequence[Settings], list[float], None]:
    unknown = [c for c in candidates if _key(space, c) not in costs]
    if unknown:
        answers = yield unknown
        costs.update(zip([_key(space, c) for c in unknown], answers))


def _disturb(space: Space, best: Settings, draw: random.Random, strength: int) -> Settings:
    names = draw.sample(list(space), min(strength, len(space)))
    return {**best, **{name: draw.choice(list(space[name])) for name in names}}


def _key(space: Space, settings: Settings) -> tuple[Setting, ...]:
    return tuple(settings[name] for name in space)


def _gain(before: float, after: float) -> float:
    if math.isinf(before):
        return 0.0 if math.isinf(after) else 1.0
    return (before - after) / before if before else 0.0
