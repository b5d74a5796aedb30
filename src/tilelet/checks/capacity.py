"""Check that the live tiles of every kernel fit into on-chip memory."""

from __future__ import annotations

from tilelet.checks.findings import Status, make_finding
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.cautions import UndividedScope
from tilelet.diag.catalogue.device import OnChipOverflow
from tilelet.diag.text import plural
from tilelet.ir.core import Program


def check(subject: Subject) -> CheckResult:
    """Check all kernels; tiles have constant shapes, so the answer holds for all inputs.

    Kernels that a compiler would divide are not judged, because their parts are unknown.
    """
    run = subject.device_run
    undivided = _undivided_kernels(subject.program)
    too_large = [f for f in run.findings if isinstance(f, OnChipOverflow)]
    findings = [make_finding("capacity", f) for f in too_large if f.kernel not in undivided]
    findings += [make_finding("capacity", caution) for caution in run.cautions]
    summary = f"{plural(len(run.kernels), 'kernel')} planned on {subject.machine.name}"
    unknown = sorted({f.kernel for f in too_large} & undivided)
    remarks = [
        f"not checked: `{name}` does not fit as one kernel, but a compiler may divide it (W0404)"
        for name in unknown
    ]
    return part(
        "capacity", findings, Status.NOT_CHECKED if unknown else Status.PROVED, summary, remarks
    )


def _undivided_kernels(program: Program) -> set[str]:
    """Return the kernels that are whole automatic scopes, or parts of them with chunk loops."""
    places = {d.loc for d in program.cautions if d.code == UndividedScope.code}
    return {name for name, function in program.functions.items() if function.loc in places}
