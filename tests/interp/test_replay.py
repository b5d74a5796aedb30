"""Control flow in kernels: recorded when tasks run, otherwise found out afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.ir.core import Program
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.control_points import MAX_KEPT, control_trace_of, decision, sites
from tilelet.tasks.stream import TaskStream

ROWS, COLUMNS, MOST = 16, 64, 8


@pl.program
class Given:
    """Two tasks, each with as many iterations as an element of an input says."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        counts: pl.Tensor[[2], pl.INT32],
        x: pl.Tensor[[MOST * ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[MOST * ROWS, COLUMNS], pl.FP32]],
    ):
        for t in pl.parallel(2):
            with pl.incore():
                n = pl.read(counts, [t])
                for i in pl.range(n):
                    at = i * ROWS
                    y = pl.assemble(y, pl.exp(pl.slice(x, [ROWS, COLUMNS], [at, 0])), [at, 0])
        return y


@pl.program
class Computed:
    """The count is the result of another task that nothing else needs."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        votes: pl.Tensor[[1, 8], pl.INT32],
        x: pl.Tensor[[MOST * ROWS, COLUMNS], pl.FP32],
        other: pl.InOut[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
        y: pl.Out[pl.Tensor[[MOST * ROWS, COLUMNS], pl.FP32]],
    ):
        count = pl.create_tensor([1, 8], dtype=pl.INT32)
        with pl.incore():
            other = pl.assemble(other, pl.exp(pl.slice(other, [ROWS, COLUMNS], [0, 0])), [0, 0])
        with pl.incore():
            two = pl.add(pl.slice(votes, [1, 8], [0, 0]), 2)
            count = pl.assemble(count, two, [0, 0])
        with pl.incore():
            n = pl.read(count, [0, 3])
            for i in pl.range(n):
                at = i * ROWS
                y = pl.assemble(y, pl.exp(pl.slice(x, [ROWS, COLUMNS], [at, 0])), [at, 0])
        return y, other


@pl.program
class Halving:
    """A `while` that halves a number until it is small."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        start: pl.Tensor[[1], pl.INT32],
        x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    ):
        with pl.incore():
            n = pl.read(start, [0])
            while n > 1:
                y = pl.assemble(y, pl.exp(pl.slice(x, [ROWS, COLUMNS], [0, 0])), [0, 0])
                n = n // 2
        return y


@pl.program
class Branches:
    """Each block of a task takes the branch that its own flag selects."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        flags: pl.Tensor[[4], pl.INT32],
        x: pl.Tensor[[4 * ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[4 * ROWS, COLUMNS], pl.FP32]],
    ):
        for b in pl.spmd(4):
            at = b * ROWS
            flag = pl.read(flags, [b])
            tile = pl.slice(x, [ROWS, COLUMNS], [at, 0])
            if flag > 0:
                y = pl.assemble(y, pl.exp(tile), [at, 0])
            else:
                y = pl.assemble(y, tile, [at, 0])
        return y


@pl.program
class ReadsBack:
    """The kernel's loop reads what the kernel has written."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        n: pl.Tensor[[1, 8], pl.INT32],
        y: pl.InOut[pl.Tensor[[1, 8], pl.INT32]],
    ):
        with pl.incore():
            y = pl.assemble(y, pl.add(pl.slice(n, [1, 8], [0, 0]), 1), [0, 0])
            limit = pl.read(y, [0, 0])
            for _ in pl.range(limit):
                y = pl.assemble(y, pl.add(pl.slice(y, [1, 8], [0, 0]), 1), [0, 0])
        return y


def arrays(program: Program, **given: np.ndarray) -> dict[str, Any]:
    """Return the given arguments, and zeros for the rest."""
    return {
        p.name: given.get(p.name, np.zeros(p.type.shape, p.type.dtype.numpy))  # pyright: ignore[reportAttributeAccessIssue]
        for p in program.main.params
    }


def values(tasks: TaskStream, kernel: str) -> list[list[tuple[int, ...]]]:
    """Return the outcomes at the only site of a kernel, by task and block."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for group in tasks.groups:
        if group.kernel == kernel:
            for row, index in enumerate(group.indices):
                blocks = group.outcomes.get(row, ())
                found[index] = [site[2] for outcome in blocks for site in outcome]
    return [found[i] for i in sorted(found)]


def both_ways(program: Program, arguments: dict[str, np.ndarray]) -> list[TaskStream]:
    """Return the tasks of a run that executes, and of one that records and replays."""
    executed = Interpreter().run(program, {n: a.copy() for n, a in arguments.items()}).tasks
    before = {n: a.copy() for n, a in arguments.items()}
    recorded = Interpreter().run(program, arguments, execute=False).tasks
    find_control_traces(program, recorded, arguments)
    for name, array in arguments.items():
        np.testing.assert_array_equal(array, before[name], f"`{name}` is the caller's")
    return [executed, recorded]


CASES = {
    "given": (Given, {"counts": np.array([5, 2], np.int32)}, "main_incore_0", [[(5,)], [(2,)]]),
    "computed": (
        Computed,
        {"votes": np.arange(8, dtype=np.int32).reshape(1, 8)},
        "main_incore_2",
        [[(5,)]],
    ),
    "while": (Halving, {"start": np.array([40], np.int32)}, "main_incore_0", [[(5,)]]),
    "branches": (
        Branches,
        {"flags": np.array([1, 0, 0, 3], np.int32)},
        None,
        [[(1,), (0,), (0,), (1,)]],
    ),
    "reads back": (
        ReadsBack,
        {"n": np.full((1, 8), 2, np.int32)},
        "main_incore_0",
        [[(3,)]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_data_decides_is_recorded(case: str) -> None:
    source, given, kernel, expected = CASES[case]
    program = run_passes(source)
    name = kernel or program.kernels[0].name
    for tasks in both_ways(program, arrays(program, **given)):
        assert values(tasks, name) == expected


def test_only_what_is_needed_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilelet.interp.state import State

    program = run_passes(Computed)
    votes = np.zeros((1, 8), np.int32)
    tasks = Interpreter().run(program, {"votes": votes}, execute=False).tasks
    ran: list[str] = []
    run_kernel = State.run_kernel

    def watched(self, name, arguments, blocks):
        ran.append(name)
        return run_kernel(self, name, arguments, blocks)

    monkeypatch.setattr(State, "run_kernel", watched)
    # Neither `x` nor `other` is given, and neither is read.
    find_control_traces(program, tasks, {"votes": votes})
    assert ran == ["main_incore_1"]
    assert values(tasks, "main_incore_2") == [[(2,)]]


def test_what_is_not_given_stays_unknown() -> None:
    program = run_passes(Computed)
    tasks = Interpreter().run(program, {}, execute=False).tasks
    find_control_traces(program, tasks, {})
    assert values(tasks, "main_incore_2") == [[]]


@pl.program
class Overwritten:
    """The second task must see the count as it was before the third changes it."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        count: pl.InOut[pl.Tensor[[1, 8], pl.INT32]],
        y: pl.InOut[pl.Tensor[[1, 8], pl.INT32]],
    ):
        for _ in pl.range(3):
            with pl.incore():
                n = pl.read(count, [0, 0])
                for _ in pl.range(n):
                    y = pl.assemble(y, pl.add(pl.slice(y, [1, 8], [0, 0]), 1), [0, 0])
            with pl.incore():
                count = pl.assemble(count, pl.add(pl.slice(count, [1, 8], [0, 0]), 3), [0, 0])
        return y, count


def test_each_task_sees_what_was_there_at_its_time() -> None:
    program = run_passes(Overwritten)
    for tasks in both_ways(program, arrays(program)):
        assert values(tasks, "main_incore_0") == [[(0,)], [(3,)], [(6,)]]


@pl.program
class ControlWrites:
    """The control program itself changes the count, between two tasks."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        count: pl.InOut[pl.Tensor[[8], pl.INT32]],
        y: pl.InOut[pl.Tensor[[1, 8], pl.INT32]],
    ):
        for i in pl.range(2):
            pl.write(count, [0], pl.cast(4 + i, pl.INT32))
            with pl.incore():
                n = pl.read(count, [0])
                for _ in pl.range(n):
                    y = pl.assemble(y, pl.add(pl.slice(y, [1, 8], [0, 0]), 1), [0, 0])
        return y, count


def test_tasks_see_what_the_control_program_wrote_before_them() -> None:
    program = run_passes(ControlWrites)
    given = arrays(program)
    tasks = Interpreter().run(program, given, execute=False).tasks
    find_control_traces(program, tasks, given)
    assert values(tasks, "main_incore_0") == [[(4,)], [(5,)]]


def test_the_deciding_part_leaves_the_work_out() -> None:
    (kernel,) = run_passes(Given).kernels
    part = decision(kernel)
    assert part is not None
    assert [kernel.params[i].name for i in part.reads] == ["counts"]
    names = [op.name for op in part.function.body.ops]
    assert names == ["read", "for", "return"]
    assert list(part.sites.values()) == list(sites(kernel).values())


def test_a_kernel_that_reads_what_it_writes_has_no_deciding_part() -> None:
    (kernel,) = run_passes(ReadsBack).kernels
    assert decision(kernel) is None


def test_scalars_of_the_task_are_no_site() -> None:
    @pl.program
    class Triangle:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, y: pl.InOut[pl.Tensor[[1, 8], pl.INT32]]):
            for t in pl.range(3):
                with pl.incore():
                    for _ in pl.range(t):
                        y = pl.assemble(y, pl.add(pl.slice(y, [1, 8], [0, 0]), 1), [0, 0])
            return y

    (kernel,) = run_passes(Triangle).kernels
    assert not sites(kernel)


def test_long_records_are_sampled_evenly() -> None:
    ((_, times, kept),) = control_trace_of({3: list(range(10 * MAX_KEPT))})
    assert times == 10 * MAX_KEPT
    assert kept == tuple(range(0, 10 * MAX_KEPT, 10))
