"""Find memory-bound kernels that leave most of the on-chip memory unused."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import MIN_SHARE, place_of
from tilelet.diag.core import Caution, Label, Loc


class EmptyBuffers(Caution, code="W1312"):
    """A kernel that waits for global memory, or for its own latency, uses little on-chip memory."""

    def __init__(self, loc: Loc, kernel: str, bound: str, memory: str, share: float) -> None:
        super().__init__(
            f"`{kernel}` is bound by {bound} but fills at most {share:.0%} of {memory}",
            [Label(loc)],
            helps=[
                "use larger tiles or double buffering (`pl.pipeline`); `tilelet tune` finds sizes"
            ],
        )


_MAX_FILL = 0.25
_LOADED = ("Vec", "Mat")  # the targets of loads; other buffers hold parts of them
_WAITING = ("GM", "MTE", "dispatch", "latency")


def find(subject: Subject) -> Iterator[Advice]:
    """Find memory-bound kernels that leave most of the on-chip memory unused."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            if kernel.bound not in _WAITING or not {*_LOADED} & {*kernel.memory}:
                continue
            if kernel.path_us < 2 * MIN_SHARE * profile.total_us:
                continue
            fullest = max(
                (used / profile.limits[space], space)
                for space, used in kernel.memory.items()
                if profile.limits.get(space) and space in _LOADED
            )
            if 0 < fullest[0] < _MAX_FILL:
                problem = EmptyBuffers(
                    place_of(subject, kernel), kernel.name, kernel.bound, fullest[1], fullest[0]
                )
                yield subject.advice(problem, [kernel])


RULE = Rule("empty-buffers", EmptyBuffers, find)
