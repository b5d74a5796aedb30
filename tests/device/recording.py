"""Small programs for the modelled device, compiled and recorded."""

from __future__ import annotations

from typing import Any

import tilelet.language as pl
from tilelet.device import DeviceKernel, Machine, lower_kernel
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.ir.core import Program
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.stream import TaskStream


def recorded(program: Program, **arguments: Any) -> tuple[TaskStream, Program]:
    """Return a program's tasks with their control flow, and the program after all passes."""
    compiled = run_passes(program)
    tasks = Interpreter().run(compiled, arguments, execute=False).tasks
    find_control_traces(compiled, tasks, arguments)
    return tasks, compiled


def only_kernel(program: Program, machine: Machine) -> DeviceKernel:
    (function,) = run_passes(program).kernels
    return lower_kernel(function, machine)


def projection(
    columns: int = 64, depth: int = 512, step: int = 128, tasks: int = 4, pipelined: bool = False
) -> Program:
    """`[16, depth] @ [depth, columns]` per task, K in steps, accumulated on chip."""
    N, K, TK, TASKS = columns, depth, step, tasks
    if pipelined:

        @pl.inline
        def rest(x, w, acc, column):
            for kb in pl.pipeline(1, K // TK, stage=2):
                acc = pl.matmul_acc(
                    acc,
                    pl.slice(x, [16, TK], [0, kb * TK]),
                    pl.slice(w, [TK, N], [kb * TK, column]),
                )
            return acc
    else:

        @pl.inline
        def rest(x, w, acc, column):
            for kb in pl.range(1, K // TK):
                acc = pl.matmul_acc(
                    acc,
                    pl.slice(x, [16, TK], [0, kb * TK]),
                    pl.slice(w, [TK, N], [kb * TK, column]),
                )
            return acc

    @pl.program
    class Projection:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, K], pl.BF16],
            w: pl.Tensor[[K, N * TASKS], pl.BF16],
            y: pl.Out[pl.Tensor[[16, N * TASKS], pl.FP32]],
        ):
            for j in pl.parallel(TASKS):
                with pl.incore():
                    acc = pl.matmul(
                        pl.slice(x, [16, TK], [0, 0]),
                        pl.slice(w, [TK, N], [0, j * N]),
                        out_dtype=pl.FP32,
                    )
                    y = pl.assemble(y, rest(x, w, acc, j * N), [0, j * N])
            return y

    return Projection


def elementwise(tasks: int = 4, rows: int = 16, columns: int = 128) -> Program:
    """One vector task per block of rows."""
    TASKS, R, C = tasks, rows, columns

    @pl.program
    class Elementwise:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[TASKS * R, C], pl.FP32],
            y: pl.Out[pl.Tensor[[TASKS * R, C], pl.FP32]],
        ):
            for i in pl.parallel(TASKS):
                with pl.incore():
                    y = pl.assemble(y, pl.exp(pl.slice(x, [R, C], [i * R, 0])), [i * R, 0])
            return y

    return Elementwise


def chain(links: int = 4) -> Program:
    """Every task reads and writes the whole of one tensor."""
    LINKS = links

    @pl.program
    class Chain:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 128], pl.FP32],
            y: pl.InOut[pl.Tensor[[16, 128], pl.FP32]],
        ):
            for _ in pl.range(LINKS):
                with pl.incore():
                    y = pl.assemble(y, pl.add(pl.slice(y, [16, 128], [0, 0]), x), [0, 0])
            return y

    return Chain


def mixed(split: Any) -> Program:
    """One scope with a product and vector work on its result."""
    SPLIT = split

    @pl.program
    class Mixed:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            a: pl.Tensor[[64, 128], pl.BF16],
            b: pl.Tensor[[128, 64], pl.BF16],
            y: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
        ):
            with pl.auto_incore(split=SPLIT):
                product = pl.matmul(a, b, out_dtype=pl.FP32)
                y = pl.assemble(y, pl.exp(product), [0, 0])
            return y

    return Mixed


def held(tasks: int = 40) -> Program:
    """All tasks of a loop inside one runtime scope."""
    TASKS = tasks

    @pl.program
    class Held:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[TASKS * 16, 128], pl.FP32],
            y: pl.Out[pl.Tensor[[TASKS * 16, 128], pl.FP32]],
        ):
            with pl.scope():
                for i in pl.parallel(TASKS):
                    with pl.incore():
                        y = pl.assemble(y, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0])
            return y

    return Held
