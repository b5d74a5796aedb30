"""Find transfers with rows shorter than the access granularity of global memory."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import MIN_SHARE
from tilelet.device.kernel.view import Transfer
from tilelet.diag.core import Caution, Label, Loc


class ShortRows(Caution, code="W1311"):
    """A transfer has rows shorter than the access granularity of global memory."""

    def __init__(
        self, loc: Loc, tensor: str, rows: int, row_bytes: int, granule: int, machine: str
    ) -> None:
        super().__init__(
            f"{rows} rows of {row_bytes} bytes of `{tensor}`: {machine} moves {granule} bytes at "
            "a time",
            [Label(loc)],
            helps=["use wider tiles, or a tensor layout with longer rows"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find transfers with rows shorter than the access granularity of global memory."""
    for run in subject.runs:
        granule = run.machine.gm.granule
        rows = {kernel.name: kernel for kernel in run.summary.kernels}
        for kernel in run.kernels:
            row = rows.get(kernel.name)
            if row is None or row.path_us < MIN_SHARE * run.summary.total_us:
                continue
            seen: set[str] = set()
            for step in kernel.walk():
                work = step.work
                if not isinstance(work, Transfer) or work.param is None or work.rows < 2:
                    continue
                if work.row_bytes < granule:
                    name = kernel.function.params[work.param].name
                    if name in seen:
                        continue  # one per tensor
                    seen.add(name)
                    problem = ShortRows(
                        step.loc, name, work.rows, work.row_bytes, granule, run.machine.name
                    )
                    yield subject.advice(problem, [row])


RULE = Rule("short-rows", ShortRows, find)
