"""Small programs, recorded and ready to be simulated."""

from __future__ import annotations

from typing import Any

import tilelet.language as pl
from tilelet.device import load_machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.ir.core import Program
from tilelet.passes.pipeline import run_passes

A2A3 = load_machine("a2a3")
A5 = load_machine("a5")


def passed(kernel: Any) -> Program:
    """Return a `@pl.jit` function (or a program) after all passes."""
    return run_passes(kernel if isinstance(kernel, Program) else kernel.specialize())


def device_run(kernel: Any, machine: Any = A2A3, **inputs: Any) -> DeviceRun:
    program = passed(kernel)
    tasks = Interpreter().run(program, inputs, execute=False).tasks
    find_control_traces(program, tasks, inputs)
    return DeviceRun(Recorded(program.name, program, tasks), machine)


@pl.jit
def chain(
    x: pl.Tensor[[64, 256], pl.FP32],
    w: pl.Tensor[[256, 128], pl.FP32],
    y: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
):
    """Four products, each followed by a vector task that needs it."""
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            part = pl.matmul(x[r : r + 16, :], w[:, :], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="activate"):
            y[r : r + 16, :] = pl.exp(part)
    return y


def many_rows(count: int) -> Any:
    """`count` independent tasks of one kernel."""
    rows = count

    @pl.jit
    def scale(x: pl.Tensor[[rows, 64], pl.FP32], y: pl.Out[pl.Tensor[[rows, 64], pl.FP32]]):
        for r in pl.parallel(rows):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[r : r + 1, :] = pl.mul(x[r : r + 1, :], 2.0)
        return y

    return scale
