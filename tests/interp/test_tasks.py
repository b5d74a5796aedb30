"""The record of a run, stored by columns and read as tasks."""

from __future__ import annotations

import pytest

import tilelet.language as pl
from tilelet.interp.interpreter import Interpreter
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Window


@pl.program
class Mixed:
    """Two kernels in turn, one of them without scalars, and a join."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[64, 16], pl.FP32],
        y: pl.Out[pl.Tensor[[64, 16], pl.FP32]],
    ):
        for i in pl.range(4):
            part = pl.create_tensor([16, 16], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="load"):
                part = pl.assemble(part, pl.slice(x, [16, 16], [i * 16, 0]), [0, 0])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="store"):
                y = pl.assemble(y, pl.exp(pl.slice(part, [16, 16], [0, 0])), [i * 16, 0])
        return y


@pytest.fixture(scope="module")
def tasks() -> TaskStream:
    return Interpreter().run(run_passes(Mixed), {}, execute=False).tasks


def test_tasks_come_in_program_order(tasks: TaskStream) -> None:
    assert [t.kernel for t in tasks] == ["load", "store"] * 4
    assert [t.index for t in tasks] == list(range(8))
    assert tasks.counts() == {"load": 4, "store": 4}
    assert tasks.total == len(tasks) == 8


def test_indices_are_those_of_a_list(tasks: TaskStream) -> None:
    assert tasks[-1].index == 7
    with pytest.raises(IndexError):
        tasks[8]


def test_tasks_of_one_call_share_a_group(tasks: TaskStream) -> None:
    assert [list(g.indices) for g in tasks.groups] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_columns_hold_the_arguments(tasks: TaskStream) -> None:
    for group in tasks.groups:
        columns = group.region_columns()
        assert columns.shape == (len(group.tensors), len(group))
        for row, index in enumerate(group.indices):
            values = tasks[index].values
            for position, column in zip(group.tensors, columns):
                window, same = values[position], tasks.regions.window(column[row])
                assert isinstance(window, Window)
                assert window.buffer is same.buffer
                assert (window.offset, window.shape) == (same.offset, same.shape)
            for position in group.others:
                assert group.scalar_column(position)[row] == values[position]


def test_each_fresh_tensor_is_a_buffer_of_its_own(tasks: TaskStream) -> None:
    made = [t.windows[-1][0].buffer.id for t in tasks if t.kernel == "load"]
    assert len(set(made)) == 4
    read = [w.buffer.id for t in tasks if t.kernel == "store" for w, _ in t.windows]
    assert set(made) < set(read)
