"""A program with a given number of tasks, up to the size of the largest public ones."""

from __future__ import annotations

import tilelet.language as pl
from tilelet.ir.core import Program


def many_tasks(count: int) -> Program:
    """One third reads what another third wrote, and one third sums row by row."""
    N = count // 3

    @pl.program
    class ManyTasks:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 128], pl.FP32],
            y: pl.InOut[pl.Tensor[[1024, 128], pl.FP32]],
        ):
            t = pl.create_tensor([1024, 128], dtype=pl.FP32)
            for i in pl.range(N):
                r = (i % 64) * 16
                with pl.incore():
                    t = pl.assemble(t, pl.exp(pl.slice(x, [16, 128], [0, 0])), [r, 0])
                with pl.incore():
                    a = pl.mul(pl.slice(t, [16, 128], [r, 0]), pl.slice(x, [16, 128], [0, 0]))
                    t = pl.assemble(t, a, [r, 0])
                with pl.incore():
                    b = pl.add(pl.slice(y, [16, 128], [r, 0]), pl.slice(t, [16, 128], [r, 0]))
                    y = pl.assemble(y, b, [r, 0])
            return y

    return ManyTasks
