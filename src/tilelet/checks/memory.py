"""Bounds: every window of a kernel lies inside its tensor.

If offsets are affine in loops and parameters, isl proves it for all sizes; other windows are
checked on this run, by tracing the kernels.
"""

from __future__ import annotations

from tilelet.checks.findings import Place, Status, make_finding
from tilelet.checks.init import Stopped, watched_run
from tilelet.checks.prove import prove_bounds
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.checks import OutOfBounds
from tilelet.diag.catalogue.unsupported import ExternalKernel
from tilelet.diag.text import plural


def check(subject: Subject) -> CheckResult:
    """Prove bounds for all sizes first; check the rest on this run."""
    shown, count, why = prove_bounds(subject.program)
    windows = plural(count, "window")
    if shown == count:
        return part("memory", [], Status.PROVED, f"{windows} inside their tensors")
    if not subject.tasks.complete:
        summary = f"{shown} of {windows} inside for all sizes, the others unknown"
        return CheckResult("memory", Status.NOT_CHECKED, summary, remarks=(subject.too_many,))
    run = watched_run(subject)
    summary = f"{shown} of {windows} inside for all sizes, the others in this run"
    if isinstance(run, Stopped) and run.watcher.uses:
        return CheckResult(
            "memory", Status.NOT_CHECKED, ("undefined memory decides the position of windows")
        )
    if isinstance(run, Stopped) and isinstance(run.error, ExternalKernel):
        return CheckResult("memory", Status.NOT_CHECKED, run.error.diagnostic.message)
    if isinstance(run, Stopped):
        error = run.error.diagnostic
        made = next((label.loc for label in error.labels[1:]), None)
        problem = OutOfBounds(error.message, error.loc, run.task, made)
        place = (Place(error.loc, "takes", task=run.task),) if error.loc else ()
        return part(
            "memory", [make_finding("memory", problem, places=place)], Status.FOUND, summary
        )
    return part("memory", [], Status.THIS_RUN, summary, [why] if why else [])
