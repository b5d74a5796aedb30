"""The context of a call in the control program, and the runtime's rules for it."""

from __future__ import annotations

import pytest
from tests.device.recording import chain, elementwise, recorded

import tilelet.language as pl
from tilelet.device.machine.description import RULES
from tilelet.device.schedule.callsites import CallSites
from tilelet.ir.core import Direction, Program
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Buffer

OUT, INOUT = Direction.Out, Direction.InOut


def sites_of(program: Program, rule: str = "loops") -> tuple[CallSites, TaskStream]:
    tasks, compiled = recorded(program)
    return CallSites(compiled, rule), tasks


def test_loops_around_a_call() -> None:
    sites, tasks = sites_of(elementwise())
    (group,) = tasks.groups
    site = sites.site(group)
    assert site is not None
    assert not site.sequential, "`pl.parallel` orders nothing"
    assert len(site.scope.loops) == 1
    sites, tasks = sites_of(chain())
    site = sites.site(tasks.groups[0])
    assert site is not None
    assert site.sequential


def two_writers() -> Program:
    @pl.program
    class TwoWriters:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[32, 64], pl.FP32], y: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
            made = pl.create_tensor([32, 64], dtype=pl.FP32)
            with pl.incore(name_hint="first"):
                made = pl.assemble(made, pl.slice(x, [16, 64], [0, 0]), [0, 0])
            with pl.incore(name_hint="second"):
                made = pl.assemble(made, pl.slice(x, [16, 64], [16, 0]), [16, 0])
            with pl.incore(name_hint="last"):
                y = pl.assemble(y, pl.slice(made, [32, 64], [0, 0]), [0, 0])
            return y

    return TwoWriters


def test_a_writer_after_another_one_is_known() -> None:
    sites, tasks = sites_of(two_writers())
    found = {g.kernel: sites.site(g) for g in tasks.groups}
    assert [s.order for s in found.values() if s] == [0, 1, 2]
    after = {name: len(site.after) for name, site in found.items() if site}
    assert after == {"first": 0, "second": 1, "last": 0}


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("kernel", [OUT, OUT]),
        ("written", [INOUT, INOUT]),
        ("loops", [OUT, INOUT]),
        ("params", [OUT, INOUT]),
        ("disjoint", [OUT, INOUT]),
    ],
)
def test_the_direction_of_fresh_memory_by_rule(rule: str, wanted: list[Direction]) -> None:
    assert rule in RULES
    sites, tasks = sites_of(two_writers(), rule)
    seen: list[Direction] = []
    for group in tasks.groups[:2]:
        (position,) = group.written
        (number,) = {group.regions[group.tensors.index(position)]}
        buffer = tasks.regions.window(number).buffer
        assert buffer.origin == "temp"
        seen.append(sites.direction(group, position, OUT, buffer))
    assert seen == wanted


def test_tensors_of_the_caller_by_rule() -> None:
    for rule in RULES:
        sites, tasks = sites_of(chain(), rule)
        (group,) = tasks.groups
        assert sites.direction(group, 0, Direction.In, Buffer("x", 4)) is Direction.In
        plain = Buffer("x", 4, origin="param")
        in_a_loop = INOUT if rule in ("params", "disjoint") else OUT
        assert sites.direction(group, 1, OUT, plain) is in_a_loop, rule


def filled(moving: bool, rounds: int = 4) -> Program:
    """A sequential loop that writes the caller's tensor row by row, or always the same row."""
    ROUNDS = rounds

    @pl.program
    class Filled:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 64], pl.FP32], y: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
            for i in pl.range(ROUNDS):
                at = i * 16
                with pl.incore(name_hint="fill"):
                    tile = pl.slice(x, [16, 64], [0, 0])
                    if moving:
                        y = pl.assemble(y, pl.add(tile, tile), [at, 0])
                    else:
                        y = pl.assemble(y, pl.mul(tile, at), [16, 0])
            return y

    return Filled


@pytest.mark.parametrize("moving", [True, False])
def test_a_loop_orders_writers_of_one_tensor(moving: bool) -> None:
    """Loops were exempt for one week if the written place changed in every iteration."""
    wanted = {"loops": OUT, "params": INOUT, "disjoint": OUT if moving else INOUT}
    for rule, direction in wanted.items():
        sites, tasks = sites_of(filled(moving), rule)
        (group,) = tasks.groups
        (position,) = group.written
        buffer = Buffer("y", 4, origin="param")
        assert sites.direction(group, position, OUT, buffer) is direction, rule


def test_a_loop_of_one_round_orders_nothing() -> None:
    for rounds, direction in ((1, OUT), (2, INOUT)):
        sites, tasks = sites_of(filled(moving=True, rounds=rounds), "params")
        (group,) = tasks.groups
        (position,) = group.written
        assert sites.direction(group, position, OUT, Buffer("y", 4, origin="param")) is direction


def scoped() -> Program:
    @pl.program
    class Scoped:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 64], pl.FP32], y: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
            with pl.incore(name_hint="before"):
                y = pl.assemble(y, pl.slice(x, [16, 64], [0, 0]), [0, 0])
            for i in pl.range(1, 3):
                with pl.scope():
                    for j in pl.range(2):
                        with pl.incore(name_hint="inner"):
                            tile = pl.slice(x, [8, 64], [i * 16 + j * 8, 0])
                            y = pl.assemble(y, tile, [i * 16 + j * 8, 0])
                    with pl.incore(name_hint="end"):
                        y = pl.assemble(y, pl.slice(x, [8, 64], [48, 0]), [48, 0])
            return y

    return Scoped


def test_tasks_of_a_runtime_scope_are_held_until_its_last() -> None:
    sites, tasks = sites_of(scoped())
    assert [t.kernel for t in tasks] == ["before", *["inner", "inner", "end"] * 2]
    assert sites.held_until(tasks).tolist() == [0, 3, 3, 3, 6, 6, 6]
    assert sites.scope_loc(tasks[0]) is None
    assert sites.scope_loc(tasks[1]) == sites.scope_loc(tasks[6]) is not None


def test_without_scopes_everyone_is_held_by_itself() -> None:
    sites, tasks = sites_of(elementwise())
    assert sites.held_until(tasks).tolist() == [0, 1, 2, 3]
