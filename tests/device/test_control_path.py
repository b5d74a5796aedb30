"""One execution of a kernel: trip counts, branches, blocks and traffic."""

from __future__ import annotations

import numpy as np
import pytest
from tests.device.recording import recorded
from tests.interp.test_replay import CASES, COLUMNS, ROWS, arrays

import tilelet.language as pl
from tilelet.device import kernel_cost, load_machine, lower_kernel, simulate
from tilelet.device.kernel import pipes
from tilelet.device.kernel.control_path import ControlPath
from tilelet.device.report.profile import profile_of
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.passes.pipeline import run_passes

A2A3 = load_machine("a2a3")
TILE_BYTES = ROWS * COLUMNS * 4


# Data decides


@pytest.mark.parametrize("case", CASES)
def test_recorded_and_executed_runs_cost_the_same(case: str) -> None:
    source, given, _, _ = CASES[case]
    program = run_passes(source)
    arguments = arrays(program, **given)
    tasks = Interpreter().run(program, arguments, execute=False).tasks
    find_control_traces(program, tasks, arguments)
    found = simulate(tasks, program, A2A3)
    executed = Interpreter().run(program, {n: a.copy() for n, a in arguments.items()}).tasks
    known = simulate(executed, program, A2A3)
    assert found.total_us == known.total_us
    assert not any(c.guesses for c in found.stream.costs)


@pytest.mark.parametrize(("case", "tiles"), [("given", 7), ("computed", 5), ("while", 5)])
def test_as_much_is_moved_as_the_data_says(case: str, tiles: int) -> None:
    source, given, kernel, _ = CASES[case]
    program = run_passes(source)
    arguments = arrays(program, **given)
    tasks = Interpreter().run(program, arguments, execute=False).tasks
    find_control_traces(program, tasks, arguments)
    line = simulate(tasks, program, A2A3)
    mine = line.stream.kernel == line.kernel_names.index(kernel)
    written = line.stream.total(np.array([c.written_bytes for c in line.stream.costs]))
    assert written[mine].sum() == tiles * TILE_BYTES


def test_a_guess_is_said_at_its_place() -> None:
    program = run_passes(CASES["computed"][0])
    tasks = Interpreter().run(program, {}, execute=False).tasks
    profile = profile_of(simulate(tasks, program, A2A3), "x")
    (guess,) = profile.guesses
    assert guess.startswith("test_replay.py:")
    assert "`main_incore_2` depends on data; one iteration is assumed" in guess


def test_each_block_costs_what_it_does() -> None:
    """Blocks of one task with different data take different times."""
    source, given, _, _ = CASES["branches"]
    program = run_passes(source)
    arguments = arrays(program, **given)
    tasks = Interpreter().run(program, arguments, execute=False).tasks
    find_control_traces(program, tasks, arguments)
    line = simulate(tasks, program, A2A3)
    assert [line.stream.costs[c].busy_us["AIV.VEC"] > 0 for c in line.stream.cost[:1]] == [True]
    with_exp, without = line.stream.cost[0], line.stream.cost[1]
    assert line.stream.cost.tolist() == [with_exp, without, without, with_exp]
    assert line.stream.costs[with_exp].exec_us > line.stream.costs[without].exec_us


# Blocks


@pl.program
class Triangle:
    """Block `b` of an spmd task runs `b` iterations."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[8 * ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[8 * ROWS, COLUMNS], pl.FP32]],
    ):
        for b in pl.spmd(8):
            for i in pl.range(b):
                at = i * ROWS
                y = pl.assemble(y, pl.exp(pl.slice(x, [ROWS, COLUMNS], [at, 0])), [at, 0])
        return y


@pytest.mark.parametrize("reference", [False, True])
def test_blocks_have_trip_counts_of_their_own(reference: bool) -> None:
    tasks, program = recorded(Triangle)
    line = simulate(tasks, program, A2A3, reference=reference)
    moved = [line.stream.costs[c].read_bytes // TILE_BYTES for c in line.stream.cost]
    assert moved == list(range(8))
    spent = np.sort(line.end - line.start)
    assert len(spent) == 8
    assert (np.diff(spent) > 0).all()
    assert profile_of(line, "x").kernels[0].read == 28 * TILE_BYTES


# Traffic of a window


def moved(program, **arguments) -> tuple[int, int]:
    """Bytes that the first task reads and writes."""
    tasks, compiled = recorded(program, **arguments)
    cost = simulate(tasks, compiled, A2A3).cost_of(0)
    return cost.read_bytes, cost.written_bytes


@pl.program
class Partly:
    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    ):
        with pl.incore():
            tile = pl.slice(x, [ROWS, COLUMNS], [0, 0], valid_shape=[5, COLUMNS])
            y = pl.assemble(y, pl.exp(tile), [0, 0])
        return y


@pl.program
class PartlyByScalar:
    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        n: pl.Scalar[pl.INT32],
        x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    ):
        with pl.incore():
            tile = pl.slice(x, [ROWS, COLUMNS], [0, 0], valid_shape=[n - 3, 32])
            y = pl.assemble(y, pl.exp(tile), [0, 0])
        return y


@pl.program
class PartlyOutside:
    """The control program passes a partially valid window."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
    ):
        view = pl.slice(x, [8, COLUMNS], [4, 0], valid_shape=[3, COLUMNS])
        with pl.incore():
            y = pl.assemble(y, pl.exp(pl.slice(view, [8, COLUMNS], [0, 0])), [0, 0])
        return y


@pl.program
class Overhanging:
    """The last of three windows of 6 rows has only 4 left."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
        y: pl.Out[pl.Tensor[[3 * 6, COLUMNS], pl.FP32]],
    ):
        with pl.incore():
            for i in pl.range(3):
                tile = pl.slice(x, [6, COLUMNS], [i * 6, 0], clamp=True)
                y = pl.assemble(y, pl.exp(pl.fillpad(tile, pl.PadValue.zero)), [i * 6, 0])
        return y


def test_only_what_is_valid_is_moved() -> None:
    row = COLUMNS * 4
    assert moved(Partly) == (5 * row, 5 * row)
    assert moved(PartlyByScalar, n=10) == (7 * 32 * 4, 7 * 32 * 4)
    assert moved(PartlyOutside)[0] == 3 * row
    assert moved(Overhanging) == (ROWS * row, 18 * row)


def test_moving_less_takes_less_time() -> None:
    (short, _), (long, _) = (
        (simulate(*recorded(PartlyByScalar, n=n), A2A3).cost_of(0).exec_us, n) for n in (4, 19)
    )
    assert short < long


def test_what_a_loop_hands_on_survives_multiplied_iterations() -> None:
    """The first loop is multiplied instead of followed; it sets the trip count of the second."""

    @pl.program
    class Twice:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
            y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
        ):
            with pl.incore():
                count = 0
                for _ in pl.range(50):
                    y = pl.assemble(y, pl.slice(x, [ROWS, COLUMNS], [0, 0]), [0, 0])
                    count = count + 2
                for _ in pl.range(count):
                    y = pl.assemble(y, pl.slice(x, [ROWS, COLUMNS], [0, 0]), [0, 0])
            return y

    assert moved(Twice) == (150 * TILE_BYTES, 150 * TILE_BYTES)


def test_iterations_that_do_the_same_are_multiplied_up_to_the_one_that_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All iterations but the last move whole tiles."""

    @pl.program
    class Tail:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[1595, COLUMNS], pl.FP32],
            y: pl.Out[pl.Tensor[[1600, COLUMNS], pl.FP32]],
        ):
            with pl.incore():
                for i in pl.range(100):
                    rows = pl.min(ROWS, 1595 - i * ROWS)
                    at = [i * ROWS, 0]
                    tile = pl.slice(x, [ROWS, COLUMNS], at, valid_shape=[rows, COLUMNS])
                    y = pl.assemble(y, pl.exp(tile), at)
            return y

    (function,) = run_passes(Tail).kernels
    kernel = lower_kernel(function, A2A3)
    steps: list[int] = []
    step = pipes.Walk.step
    monkeypatch.setattr(pipes.Walk, "step", lambda w, s: (steps.append(1), step(w, s))[1])
    quick = kernel_cost(kernel, A2A3)
    few = len(steps)
    monkeypatch.setattr(ControlPath, "runs", lambda *args: list(range(1, args[3] + 1)))
    followed = kernel_cost(kernel, A2A3)
    assert quick.exec_us == pytest.approx(followed.exec_us, rel=1e-9)
    assert quick.read_bytes == followed.read_bytes == 1595 * COLUMNS * 4
    assert few * 5 < len(steps) - few
