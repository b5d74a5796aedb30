"""Recorded tasks as arrays: sizes, flags, memory and traffic."""

from __future__ import annotations

import numpy as np
from tests.device.recording import elementwise, mixed, recorded

import tilelet.language as pl
from tilelet.device import load_machine
from tilelet.device.schedule.arrays import (
    HEAP_GRANULE,
    LOOKS_UP,
    NO_WORK,
    REGISTERS,
    SHAPES,
    Stream,
    build_stream,
)
from tilelet.device.schedule.pricing import CostCache
from tilelet.ir.core import Program

A2A3 = load_machine("a2a3")


def arrays_of(program: Program, **arguments) -> Stream:
    tasks, compiled = recorded(program, **arguments)
    return build_stream(tasks, compiled, A2A3.period(None), CostCache(A2A3, A2A3.period()))


def shapes(stream: Stream) -> list[str]:
    return ["" if s == NO_WORK else SHAPES[s] for s in stream.shape]


def test_one_entry_for_each_task() -> None:
    stream = arrays_of(elementwise(tasks=5))
    assert stream.count == len(stream.tasks) == 5
    assert shapes(stream) == ["AIV"] * 5
    assert np.diff(stream.arg_ptr).tolist() == [2] * 5
    assert stream.arg_flags.reshape(5, 2).tolist() == [[LOOKS_UP, REGISTERS]] * 5
    assert stream.first_cost.tolist() == [0] * 5
    assert stream.deps.tolist() == []
    assert stream.held_until.tolist() == list(range(5))
    assert stream.total(np.array([7])).tolist() == [7] * 5


def test_the_kind_of_cores() -> None:
    assert shapes(arrays_of(mixed(None))) == ["MIX"]
    split = arrays_of(mixed(pl.SplitMode.UP_DOWN))
    assert split.lanes.tolist() == [2]


def test_blocks_are_counted_in_totals() -> None:
    @pl.program
    class Blocks:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 64], pl.FP32], y: pl.InOut[pl.Tensor[[64, 64], pl.FP32]]):
            for b in pl.spmd(4):
                y = pl.assemble(y, pl.exp(pl.slice(x, [16, 64], [b * 16, 0])), [b * 16, 0])
            for b in pl.spmd(3):
                for k in pl.range(b + 1):
                    y = pl.assemble(y, pl.exp(pl.slice(x, [8, 64], [k * 8, 0])), [b * 16, 0])
            return y

    stream = arrays_of(Blocks)
    assert stream.blocks.tolist() == [4, 3]
    assert np.diff(stream.cost_ptr).tolist() == [1, 3]
    read = np.array([sum(c.read.values()) for c in stream.costs])
    assert stream.total(read).tolist() == [64 * 64 * 4, (1 + 2 + 3) * 8 * 64 * 4]
    for group, wanted in zip(stream.groups, stream.total(read).tolist()):
        parts = [group.moved(stream.costs, p, writes=False) for p in group.tensors]
        assert np.sum(parts, axis=0).tolist() == [wanted]


def test_explicit_order_and_arguments_without_order() -> None:
    @pl.program
    class Ordered:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 64], pl.FP32], y: pl.InOut[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.incore() as first:
                y = pl.assemble(y, pl.exp(x), [0, 0])
            with pl.manual_scope():  # noqa: SIM117  (the language has one scope to a `with`)
                with pl.incore(deps=[first]):
                    y = pl.assemble(y, pl.neg(x), [0, 0])
            return y

    stream = arrays_of(Ordered)
    assert stream.dep_ptr.tolist() == [0, 0, 1]
    assert stream.deps.tolist() == [0]
    assert stream.arg_flags[stream.arg_ptr[1] :].tolist() == [0, 0]


def test_fresh_memory_is_taken_at_its_first_use_and_given_back_after_the_last() -> None:
    @pl.program
    class Fresh:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 65], pl.FP32], y: pl.Out[pl.Tensor[[16, 65], pl.FP32]]):
            made = pl.create_tensor([16, 65], dtype=pl.FP32)
            with pl.incore():
                made = pl.assemble(made, pl.exp(x), [0, 0])
            with pl.incore():
                made = pl.assemble(made, pl.neg(pl.slice(made, [16, 65], [0, 0])), [0, 0])
            with pl.incore():
                y = pl.assemble(y, pl.slice(made, [16, 65], [0, 0]), [0, 0])
            return y

    stream = arrays_of(Fresh)
    taken = -(-16 * 65 * 4 // HEAP_GRANULE) * HEAP_GRANULE
    assert stream.heap.tolist() == [taken, 0, 0]
    assert stream.freed.tolist() == [0, 0, taken]
    assert stream.arg_flags.tolist() == [
        *(LOOKS_UP, REGISTERS),
        LOOKS_UP | REGISTERS,
        *(LOOKS_UP, REGISTERS),
    ]


def test_a_task_that_did_not_run_is_no_work() -> None:
    @pl.program
    class Skipped:
        @pl.function(type=pl.FunctionType.InCore)
        def work(self, x: pl.Tensor[[16, 64], pl.FP32], y: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            y = pl.assemble(y, pl.exp(x), [0, 0])
            return y

        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: pl.Tensor[[16, 64], pl.FP32], y: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            tid = pl.system.task_dummy(deps=[])
            y, done = pl.submit(self.work, x, y, deps=[tid])
            return y

    stream = arrays_of(Skipped)
    assert shapes(stream) == ["", "AIV"]
    assert stream.kernel_names == ["", "work"]
    assert stream.kernels[0] is None


def test_parts_say_how_far_scalars_shift_them() -> None:
    stream = arrays_of(elementwise(tasks=3, rows=16, columns=128))
    read, written = stream.parts
    assert not read.touched.writes
    assert written.touched.writes
    (rows, columns) = read.shifts
    assert rows is not None
    assert rows.tolist() == [0, 16, 32]
    assert columns is None
    assert read.amount.tolist() == [16 * 128 * 4] * 3
