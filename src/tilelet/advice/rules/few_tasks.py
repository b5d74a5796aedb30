"""Kernels on the critical path with fewer tasks than there are cores."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import WORTH, cores_of, place_of
from tilelet.diag.catalogue.machine_use import FewTasks


def find(subject: Subject) -> Iterator[Advice]:
    """Kernels on the critical path with fewer tasks than there are cores."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            cores = cores_of(profile, kernel)
            share = kernel.path_us / max(profile.total_us, 1e-9)
            if 0 < kernel.tasks < cores and share > 2 * WORTH:
                problem = FewTasks(place_of(subject, kernel), kernel.name, kernel.tasks, cores)
                yield subject.advice(problem, [kernel])


RULE = Rule(
    "few-tasks",
    FewTasks,
    find,
    "An A2/A3 has 24 cubes and 48 vector cores; a core without a task is idle.",
    """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 2048], pl.BF16],
        w: pl.Tensor[[2048, 3072], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 3072], pl.FP32]],
    ):
        for d in pl.parallel(0, 3072, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(x[:, 0:64], w[0:64, d : d + 128], out_dtype=pl.FP32)
                for k in pl.range(64, 2048, 64):
                    acc = pl.matmul_acc(acc, x[:, k : k + 64], w[k : k + 64, d : d + 128])
                out[:, d : d + 128] = acc
        return out
    """,
)
