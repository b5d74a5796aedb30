"""`pl.graph`: which tasks are submitted together, and the time saved."""

from __future__ import annotations

from typing import Any

import pytest
from tests.device.recorded import device_run, passed

import tilelet.language as pl
from tilelet.device import load_machine, simulate
from tilelet.device.run import DeviceRun

TASKS = 48


@pl.jit
def one_by_one(x: pl.Tensor[[48, 64], pl.FP32], y: pl.Out[pl.Tensor[[48, 64], pl.FP32]]):
    for r in pl.parallel(48):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[r : r + 1, :] = pl.mul(x[r : r + 1, :], 2.0)
    return y


@pl.jit
def as_a_graph(x: pl.Tensor[[48, 64], pl.FP32], y: pl.Out[pl.Tensor[[48, 64], pl.FP32]]):
    with pl.graph(name_hint="whole"):
        for r in pl.parallel(48):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[r : r + 1, :] = pl.mul(x[r : r + 1, :], 2.0)
    return y


@pl.jit
def graphs_in_a_loop(x: pl.Tensor[[48, 64], pl.FP32], y: pl.Out[pl.Tensor[[48, 64], pl.FP32]]):
    for b in pl.range(12):
        with pl.graph():
            for r in pl.parallel(3):
                with pl.at(level=pl.Level.CORE_GROUP):
                    y[b * 4 + r : b * 4 + r + 1, :] = pl.mul(x[b * 4 + r : b * 4 + r + 1, :], 2.0)
            with pl.scope():  # noqa: SIM117
                with pl.at(level=pl.Level.CORE_GROUP):
                    y[b * 4 + 3 : b * 4 + 4, :] = pl.mul(x[b * 4 + 3 : b * 4 + 4, :], 2.0)
    return y


@pl.jit.graph
def twice(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    """A graph declared by its decorator."""
    middle = pl.create_tensor([48, 64], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        middle[:, :] = pl.mul(x, 2.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.mul(middle, 2.0)
    return y


@pl.jit
def calls_a_graph(x: pl.Tensor[[48, 64], pl.FP32], y: pl.Out[pl.Tensor[[48, 64], pl.FP32]]):
    y = twice(x, y)
    y = twice(x, y)
    return y


def line_of(program: Any, period: str, machine: str = "a2a3"):
    run: DeviceRun = device_run(program)
    return simulate(run.run.tasks, run.run.program, load_machine(machine), period=period)


@pytest.mark.parametrize(
    ("program", "nodes"),
    [
        (one_by_one, [0] * TASKS),
        (as_a_graph, [0] + [1] * (TASKS - 1)),
        (graphs_in_a_loop, [0, 1, 1, 1] * 12),
        (calls_a_graph, [0, 1, 0, 1]),
    ],
)
def test_tasks_of_a_graph_come_with_its_first(program: Any, nodes: list[int]) -> None:
    assert line_of(program, "2026-09").stream.in_graph.tolist() == nodes


@pytest.mark.parametrize("machine", ["a2a3", "a5"])
def test_a_graph_is_submitted_once_where_the_runtime_takes_graphs(machine: str) -> None:
    runtime = load_machine(machine).period("2026-09")
    apart, whole = (line_of(p, "2026-09", machine) for p in (one_by_one, as_a_graph))
    saved = (TASKS - 1) * (runtime.submit_us - runtime.node_us)
    assert apart.orchestrator_end - whole.orchestrator_end == pytest.approx(saved)
    assert whole.total_us < apart.total_us
    before = line_of(as_a_graph, "2026-07", machine)
    assert before.orchestrator_end == apart.orchestrator_end, "there were no graphs yet"


def test_a_graph_does_not_make_its_tasks_any_faster() -> None:
    """Blocks are dispatched and retired one by one, which is the remaining cost of a run."""
    line = line_of(as_a_graph, "2026-09")
    runtime = line.machine.period("2026-09")
    each = (runtime.dispatch_us + runtime.complete_us) / runtime.threads
    assert line.total_us > TASKS * each


def test_a_program_says_what_its_graphs_are() -> None:
    assert "with pl.graph(name_hint=" in as_a_graph.specialize().as_python()
    assert passed(as_a_graph)
