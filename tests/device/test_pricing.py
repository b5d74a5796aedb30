"""Tasks of equal cost share a cost object; anything that may change a cost separates them."""

from __future__ import annotations

import numpy as np
from tests.device.recording import chain, elementwise, recorded

import tilelet.language as pl
from tilelet.device import load_machine
from tilelet.device.schedule.pricing import NOTHING, CostCache, Pricing, _codes, _distinct
from tilelet.device.schedule.region_arrays import regions_of
from tilelet.ir.core import Program

A2A3 = load_machine("a2a3")


def priced(program: Program, cache: CostCache | None = None, **arguments) -> tuple[Pricing, list]:
    """Return the pricing of a recorded program, and the costs of each group's tasks."""
    tasks, compiled = recorded(program, **arguments)
    cache = cache or CostCache(A2A3, A2A3.period())
    pricing = Pricing(cache, regions_of(tasks.regions))
    found = []
    for number, group in enumerate(tasks.groups):
        kernel = cache.kernel(compiled, group.kernel) if group.kernel else None
        found.append(pricing.price(group, group.region_columns(), kernel, number))
    return pricing, found


def test_tasks_that_differ_in_place_only_cost_the_same() -> None:
    pricing, (costs,) = priced(elementwise(tasks=6))
    assert costs.tolist() == [[0]] * 6
    assert len(pricing.costs) == len(pricing.signatures) == len(pricing.cost_kernel) == 1
    assert pricing.costs[0].exec_us > 0


def test_scalars_count_where_they_decide() -> None:
    @pl.program
    class Triangle:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 64], pl.FP32], y: pl.InOut[pl.Tensor[[64, 64], pl.FP32]]):
            for i in pl.parallel(6):
                with pl.incore():
                    for k in pl.range(i // 2 + 1):
                        tile = pl.slice(x, [8, 64], [k * 8, 0])
                        y = pl.assemble(y, pl.exp(tile), [i * 8, 0])
            return y

    pricing, (costs,) = priced(Triangle)
    assert costs[:, 0].tolist() == [0, 0, 1, 1, 2, 2], "by trip count, in order of appearance"
    times = [c.exec_us for c in pricing.costs]
    assert times == sorted(times)
    assert times[0] < times[-1]


def test_blocks_get_costs_of_their_own_only_if_they_differ() -> None:
    @pl.program
    class Blocks:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 64], pl.FP32], y: pl.InOut[pl.Tensor[[64, 64], pl.FP32]]):
            for b in pl.spmd(4, name_hint="alike"):
                y = pl.assemble(y, pl.exp(pl.slice(x, [16, 64], [b * 16, 0])), [b * 16, 0])
            for b in pl.spmd(4, name_hint="uneven"):
                for k in pl.range(b + 1):
                    tile = pl.slice(x, [8, 64], [k * 8, 0])
                    y = pl.assemble(y, pl.exp(tile), [b * 16, 0])
            return y

    _, (alike, uneven) = priced(Blocks)
    assert alike.shape == (1, 1)
    assert uneven.shape == (1, 4)
    assert len(set(uneven[0].tolist())) == 4


def test_a_join_costs_nothing() -> None:
    @pl.program
    class Joined:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 64], pl.FP32], y: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            tid = pl.system.task_dummy(deps=[])
            with pl.incore(deps=[tid]):
                y = pl.assemble(y, pl.exp(x), [0, 0])
            return y

    pricing, costs = priced(Joined)
    assert [c.tolist() for c in costs] == [[[0]], [[1]]]
    assert pricing.costs[0] is NOTHING


def test_a_cache_follows_each_signature_once() -> None:
    cache = CostCache(A2A3, A2A3.period())
    first, _ = priced(chain(), cache)
    known = dict(cache.costs)
    second, _ = priced(chain(), cache)
    assert len(cache.costs) == len(known)
    assert first.costs[0].exec_us == second.costs[0].exec_us
    assert second.costs[0] is not first.costs[0], "another program's kernel of the same name"


def test_rows_are_sorted_by_first_appearance() -> None:
    columns = [np.array([5, 5, 2, 5, 2]), np.array([1, 1, 1, 0, 1])]
    firsts, kinds = _distinct(columns, 5)
    assert firsts == [0, 2, 3]
    assert kinds.tolist() == [0, 0, 1, 2, 1]
    firsts, kinds = _distinct([], 3)
    assert (firsts, kinds.tolist()) == ([0], [0, 0, 0])
    assert _codes(["b", "a", "b", 1.5]).tolist() == [0, 1, 0, 2]
