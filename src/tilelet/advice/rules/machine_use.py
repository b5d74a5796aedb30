"""How the machine is used: what the profile shows without looking at the text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from tilelet.advice.core import Advice, Subject
from tilelet.device.kernel.view import Transfer
from tilelet.device.report.profile import KernelRow, Profile
from tilelet.diag.catalogue.advice import (
    EmptyBuffers,
    FewTasks,
    OrchestratorBound,
    ShortRows,
    SmallTasks,
    UnevenWave,
)
from tilelet.diag.core import Loc

# Below these shares of the time nobody needs to act.
_WORTH = 0.05
_MOSTLY_EMPTY = 0.25


def small_tasks(subject: Subject) -> Iterator[Advice]:
    """Kernels that run for less time than it takes to hand them out."""
    for run in subject.runs:
        runtime = run.machine.period(run.period)
        overhead = runtime.head_us + runtime.tail_us + runtime.submit_us + runtime.dispatch_us
        for kernel in run.summary.kernels:
            each = kernel.exec_us / kernel.tasks if kernel.tasks else 0.0
            share = kernel.tasks * runtime.submit_us / max(run.summary.total_us, 1e-9)
            if kernel.tasks >= 100 and each < overhead and share > _WORTH:
                loc = _loc(subject, kernel)
                problem = SmallTasks(loc, kernel.name, kernel.tasks, each, overhead)
                yield subject.advice(problem, [kernel])


def few_tasks(subject: Subject) -> Iterator[Advice]:
    """Kernels on the critical path with fewer tasks than there are cores."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            cores = _cores(profile, kernel)
            share = kernel.path_us / max(profile.total_us, 1e-9)
            if 0 < kernel.tasks < cores and share > 2 * _WORTH:
                problem = FewTasks(_loc(subject, kernel), kernel.name, kernel.tasks, cores)
                yield subject.advice(problem, [kernel])


def uneven_wave(subject: Subject) -> Iterator[Advice]:
    """Kernels whose last tasks leave most cores idle."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            cores = _cores(profile, kernel)
            waves, left = divmod(kernel.tasks, cores) if cores else (0, 0)
            share = kernel.path_us / max(profile.total_us, 1e-9)
            if 1 <= waves <= 4 and 0 < left <= cores // 2 and share > 2 * _WORTH:
                loc = _loc(subject, kernel)
                yield subject.advice(
                    UnevenWave(loc, kernel.name, kernel.tasks, cores, left), [kernel]
                )


def orchestrator_bound(subject: Subject) -> Iterator[Advice]:
    """Programs that wait for the orchestrator to submit their tasks."""
    for run in subject.runs:
        profile = run.summary
        waiting = profile.path.get("orchestrator", 0.0)
        if waiting > 0.3 * profile.total_us and profile.tasks >= 100:
            most = max(profile.kernels, key=lambda k: k.tasks)
            problem = OrchestratorBound(
                _loc(subject, most),
                profile.tasks,
                waiting / profile.total_us,
                most.name,
                most.tasks,
            )
            yield subject.advice(problem, [most])


def short_rows(subject: Subject) -> Iterator[Advice]:
    """Transfers in rows shorter than global memory moves at a time."""
    for run in subject.runs:
        granule = run.machine.gm.granule
        rows = {kernel.name: kernel for kernel in run.summary.kernels}
        for kernel in run.kernels:
            row = rows.get(kernel.name)
            if row is None or row.path_us < _WORTH * run.summary.total_us:
                continue
            for step in kernel.walk():
                work = step.work
                if not isinstance(work, Transfer) or work.param is None or work.rows < 2:
                    continue
                if work.row_bytes < granule:
                    name = kernel.function.params[work.param].name
                    problem = ShortRows(
                        step.loc, name, work.rows, work.row_bytes, granule, run.machine.name
                    )
                    yield subject.advice(problem, [row])


def empty_buffers(subject: Subject) -> Iterator[Advice]:
    """Kernels bound by memory that leave most of the memory on chip unused."""
    for run in subject.runs:
        profile = run.summary
        for kernel in profile.kernels:
            if kernel.bound not in ("GM", "MTE", "dispatch") or not kernel.memory:
                continue
            if kernel.path_us < 2 * _WORTH * profile.total_us:
                continue
            fullest = max(
                (used / profile.limits[space], space)
                for space, used in kernel.memory.items()
                if profile.limits.get(space)
            )
            if 0 < fullest[0] < _MOSTLY_EMPTY:
                problem = EmptyBuffers(_loc(subject, kernel), kernel.name, fullest[1], fullest[0])
                yield subject.advice(problem, [kernel])


def _cores(profile: Profile, kernel: KernelRow) -> int:
    kind = "AIC" if "AIC" in kernel.cores else kernel.cores
    return profile.cores.get(kind, 0)


def _loc(subject: Subject, kernel: KernelRow) -> Loc:
    file, _, line = kernel.where.rpartition(":")
    name = PurePath(subject.source.path).name
    path = subject.source.path if PurePath(file).name == name else file
    return Loc(path, int(line) if line.isdecimal() else 0)
