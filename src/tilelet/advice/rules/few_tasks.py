"""Find kernels on the critical path with fewer tasks than cores."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import MIN_SHARE, cores_of, place_of
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import plural


class FewTasks(Caution, code="W1308"):
    """A kernel on the critical path has fewer tasks than there are cores."""

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` for {cores} cores",
            [Label(loc)],
            helps=[
                "split the work into more tasks: smaller tiles, or parts of the inner dimension"
            ],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find kernels on the critical path with fewer tasks than cores."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            cores = cores_of(profile, kernel)
            share = kernel.path_us / max(profile.total_us, 1e-9)
            if 0 < kernel.tasks < cores and share > 2 * MIN_SHARE:
                problem = FewTasks(place_of(subject, kernel), kernel.name, kernel.tasks, cores)
                yield subject.advice(problem, [kernel])


RULE = Rule("few-tasks", FewTasks, find)
