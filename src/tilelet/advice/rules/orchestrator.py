"""Find programs whose cores wait for the orchestrator."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import place_of
from tilelet.diag.core import Caution, Label, Loc


class OrchestratorBound(Caution, code="W1310"):
    """The cores wait for tasks to be submitted."""

    def __init__(self, loc: Loc, tasks: int, share: float, kernel: str, of_it: int) -> None:
        super().__init__(
            f"for {share:.0%} of the time the cores wait for {tasks:,} tasks to be submitted",
            [Label(loc, f"`{kernel}`: {of_it:,} of them")],
            helps=[
                "submit fewer tasks: larger scopes, `pl.spmd`, or `chunk=`",
                "or submit them as a graph: `with pl.graph():`; `--period 2026-09` models that",
            ],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find programs whose cores wait for the orchestrator."""
    for run in subject.runs:
        profile = run.summary
        waiting = profile.path.get("orchestrator", 0.0)
        if waiting > 0.3 * profile.total_us and profile.tasks >= 100:
            most = max(profile.kernels, key=lambda k: k.tasks)
            problem = OrchestratorBound(
                place_of(subject, most),
                profile.tasks,
                waiting / profile.total_us,
                most.name,
                most.tasks,
            )
            yield subject.advice(problem, [most])


RULE = Rule("orchestrator", OrchestratorBound, find)
