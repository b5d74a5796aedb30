"""Check that the cores support every tile: row alignment, fractals, extents, element types."""

from __future__ import annotations

from tilelet.checks.findings import Status, make_finding
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.device import OnChipOverflow
from tilelet.diag.text import plural


def check(subject: Subject) -> CheckResult:
    """Check all kernels; shapes and types are constants, so the answer holds for all inputs."""
    run = subject.device_run
    findings = [
        make_finding("alignment", f) for f in run.findings if not isinstance(f, OnChipOverflow)
    ]
    summary = f"tiles of {plural(len(run.kernels), 'kernel')}"
    return part("alignment", findings, Status.PROVED, summary)
