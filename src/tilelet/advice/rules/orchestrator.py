"""Programs that wait for the orchestrator to submit their tasks."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.use import place_of
from tilelet.diag.catalogue.machine_use import OrchestratorBound


def find(subject: Subject) -> Iterator[Advice]:
    """Programs that wait for the orchestrator to submit their tasks."""
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


RULE = Rule(
    "orchestrator",
    OrchestratorBound,
    find,
    "One orchestrator submits all tasks, one after the other: 0.55-0.72 us each.",
    """
    @pl.jit
    def kernel(x: pl.Tensor[[4096, 128], pl.FP32], out: pl.Out[pl.Tensor[[4096, 128], pl.FP32]]):
        for r in pl.parallel(0, 4096, 64):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 64, :] = pl.exp(x[r : r + 64, :])
        return out
    """,
)
