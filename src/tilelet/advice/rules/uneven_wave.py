"""Kernels whose last tasks leave most cores idle."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import WORTH, cores_of, place_of
from tilelet.diag.catalogue.machine_use import UnevenWave


def find(subject: Subject) -> Iterator[Advice]:
    """Kernels whose last tasks leave most cores idle."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            cores = cores_of(profile, kernel)
            waves, left = divmod(kernel.tasks, cores) if cores else (0, 0)
            share = kernel.path_us / max(profile.total_us, 1e-9)
            if 1 <= waves <= 4 and 0 < left <= cores // 2 and share > 2 * WORTH:
                loc = place_of(subject, kernel)
                yield subject.advice(
                    UnevenWave(loc, kernel.name, kernel.tasks, cores, left), [kernel]
                )


RULE = Rule(
    "uneven-wave",
    UnevenWave,
    find,
    "The program waits for the last tasks while the other cores are idle.",
    """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 2048], pl.BF16],
        w: pl.Tensor[[2048, 3072], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 3072], pl.FP32]],
    ):
        for d in pl.parallel(0, 3072, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(x[:, 0:256], w[0:256, d : d + 128], out_dtype=pl.FP32)
                for k in pl.range(256, 2048, 256):
                    acc = pl.matmul_acc(acc, x[:, k : k + 256], w[k : k + 256, d : d + 128])
                out[:, d : d + 128] = acc
        return out
    """,
)
