"""Transfers in rows shorter than global memory moves at a time."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import WORTH
from tilelet.device.kernel.view import Transfer
from tilelet.diag.catalogue.machine_use import ShortRows


def find(subject: Subject) -> Iterator[Advice]:
    """Transfers in rows shorter than global memory moves at a time."""
    for run in subject.runs:
        granule = run.machine.gm.granule
        rows = {kernel.name: kernel for kernel in run.summary.kernels}
        for kernel in run.kernels:
            row = rows.get(kernel.name)
            if row is None or row.path_us < WORTH * run.summary.total_us:
                continue
            seen: set[str] = set()
            for step in kernel.walk():
                work = step.work
                if not isinstance(work, Transfer) or work.param is None or work.rows < 2:
                    continue
                if work.row_bytes < granule:
                    name = kernel.function.params[work.param].name
                    if name in seen:
                        continue  # one for each tensor
                    seen.add(name)
                    problem = ShortRows(
                        step.loc, name, work.rows, work.row_bytes, granule, run.machine.name
                    )
                    yield subject.advice(problem, [row])


RULE = Rule(
    "short-rows",
    ShortRows,
    find,
    "Global memory of A2/A3 moves 512 bytes at a time, that of A5 128.",
    """
    @pl.jit
    def kernel(x: pl.Tensor[[512, 512], pl.FP32], out: pl.Out[pl.Tensor[[512, 512], pl.FP32]]):
        for r in pl.parallel(0, 512, 32):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 32, :] = pl.exp(x[r : r + 32, :])
        return out
    """,
)
