"""Kernels bound by memory that leave most of the memory on chip unused."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import WORTH, place_of
from tilelet.diag.catalogue.machine_use import EmptyBuffers

_MOSTLY_EMPTY = 0.25
_LOADED = ("Vec", "Mat")  # where loads go; the others hold parts of that
_WAITING = ("GM", "MTE", "dispatch", "latency")


def find(subject: Subject) -> Iterator[Advice]:
    """Kernels bound by memory that leave most of the memory on chip unused."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            if kernel.bound not in _WAITING or not {*_LOADED} & {*kernel.memory}:
                continue
            if kernel.path_us < 2 * WORTH * profile.total_us:
                continue
            fullest = max(
                (used / profile.limits[space], space)
                for space, used in kernel.memory.items()
                if profile.limits.get(space) and space in _LOADED
            )
            if 0 < fullest[0] < _MOSTLY_EMPTY:
                problem = EmptyBuffers(
                    place_of(subject, kernel), kernel.name, kernel.bound, fullest[1], fullest[0]
                )
                yield subject.advice(problem, [kernel])


RULE = Rule(
    "empty-buffers",
    EmptyBuffers,
    find,
    "Bytes moved by a product fall with the size of its tiles.",
    """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 2048], pl.BF16],
        w: pl.Tensor[[2048, 3072], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 3072], pl.FP32]],
    ):
        for d in pl.parallel(0, 3072, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(x[:, 0:512], w[0:512, d : d + 128], out_dtype=pl.FP32)
                for k in pl.range(512, 2048, 512):
                    acc = pl.matmul_acc(acc, x[:, k : k + 512], w[k : k + 512, d : d + 128])
                out[:, d : d + 128] = acc
        return out
    """,
)
