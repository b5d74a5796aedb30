"""Find kernels whose last wave of tasks leaves most cores idle."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import MIN_SHARE, cores_of, place_of
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import plural


class UnevenWave(Caution, code="W1309"):
    """The last wave of a kernel's tasks leaves most cores idle."""

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int, left: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` on {cores} cores: the last {left} run alone",
            [Label(loc)],
            helps=[f"choose tiles so that the number of tasks is a multiple of {cores}"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find kernels whose last wave of tasks leaves most cores idle."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            cores = cores_of(profile, kernel)
            waves, left = divmod(kernel.tasks, cores) if cores else (0, 0)
            share = kernel.path_us / max(profile.total_us, 1e-9)
            if 1 <= waves <= 4 and 0 < left <= cores // 2 and share > 2 * MIN_SHARE:
                loc = place_of(subject, kernel)
                yield subject.advice(
                    UnevenWave(loc, kernel.name, kernel.tasks, cores, left), [kernel]
                )


RULE = Rule("uneven-wave", UnevenWave, find)
