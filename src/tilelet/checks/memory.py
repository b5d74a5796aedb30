"""Bounds: every window that a kernel takes lies inside its tensor.

Where offsets are affine in loops and parameters, isl shows it for all of them; the rest is checked
on this run, by following the kernels.
"""

from __future__ import annotations

from tilelet.checks.findings import Place, Status, found
from tilelet.checks.init import Stopped, watched
from tilelet.checks.prove import prove_bounds
from tilelet.checks.verdict import Part, Subject, part
from tilelet.diag.catalogue.checks import OutOfBounds
from tilelet.diag.core import Loc
from tilelet.diag.text import plural
from tilelet.ir.core import walk


def check(subject: Subject) -> Part:
    """First for all sizes; what is left, on this run."""
    shown, count, why = prove_bounds(subject.program)
    windows = plural(count, "window")
    if shown == count:
        return part("memory", [], Status.PROVED, f"{windows} inside for all sizes")
    run = watched(subject)
    summary = f"{shown} of {windows} inside for all sizes, the others in this run"
    if isinstance(run, Stopped) and run.watcher.uses:
        return Part("memory", Status.NOT_CHECKED, "undefined memory decides where windows lie")
    if isinstance(run, Stopped):
        error = run.error.diagnostic
        problem = OutOfBounds(error.message, error.loc, run.task, _made(subject, error.message))
        place = (Place(error.loc, "takes", task=run.task),) if error.loc else ()
        return part("memory", [found("memory", problem, places=place)], Status.FOUND, summary)
    return part("memory", [], Status.THIS_RUN, summary, [why] if why else [])


def _made(subject: Subject, message: str) -> Loc | None:
    """Where the tensor that a message names is made, if the program makes one of that name."""
    found = [
        op.loc
        for function in subject.program.functions.values()
        for op in walk(function.body)
        if op.name == "create_tensor" and f"`{op.result.name}`" in message
    ]
    return found[0] if len(found) == 1 else None
