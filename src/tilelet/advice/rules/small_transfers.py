"""Rule small-transfers."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.device.kernel.view import Branch, Loop, Node, Step, Transfer
from tilelet.diag.core import Caution, Label, Loc


class SmallTransfers(Caution, code="W1329"):
    """Single short rows are moved to or from global memory, one transfer each."""

    def __init__(self, loc: Loc, tensor: str, row_bytes: int, times: int, stores: bool) -> None:
        super().__init__(
            f"{times:,} transfers of {row_bytes} bytes {'to' if stores else 'from'} `{tensor}`",
            [Label(loc)],
            helps=["move several rows at once: collect them in a tile, or use larger blocks"],
        )


_MIN_SHARE = 0.01
_MIN_TRANSFERS = 64
"""Minimum number of transfers of one kind."""


def find(subject: Subject) -> Iterator[Advice]:
    """Find single-row transfers shorter than the access granularity of global memory."""
    for run in subject.runs:
        rows = {kernel.name: kernel for kernel in run.summary.kernels}
        for kernel in run.kernels:
            row = rows.get(kernel.name)
            if row is None or row.tasks == 0:
                continue
            seen: set[tuple[int, bool]] = set()
            for step, times in _steps(kernel.body, row.tasks):
                work = step.work
                assert isinstance(work, Transfer)
                if work.param is None or work.rows != 1 or work.row_bytes >= run.machine.gm.granule:
                    continue
                kind = work.param, work.writes_gm
                if times >= _MIN_TRANSFERS and kind not in seen:
                    seen.add(kind)  # one per tensor and direction
                    problem = SmallTransfers(
                        step.loc,
                        kernel.function.params[work.param].name,
                        work.row_bytes,
                        times,
                        work.writes_gm,
                    )
                    advice = subject.advice(problem, [row])
                    if advice.share > _MIN_SHARE:
                        yield advice


def _steps(nodes: tuple[Node, ...], times: int) -> Iterator[tuple[Step, int]]:
    """Yield transfers with a lower bound on their executions in all tasks."""
    for node in nodes:
        if isinstance(node, Step):
            if isinstance(node.work, Transfer):
                yield node, times
        elif isinstance(node, Loop):
            bounds = node.start, node.stop, node.step
            trips = 1  # unless the text gives the trip count
            if all(type(bound) is int for bound in bounds):
                trips = len(range(*(int(str(bound)) for bound in bounds)))
            yield from _steps(node.body, times * trips)
        elif isinstance(node, Branch):
            yield from _steps(node.then, times)
            yield from _steps(node.orelse, times)


RULE = Rule("small-transfers", SmallTransfers, find)
