"""Check that the live tiles of every kernel fit into on-chip memory."""

from __future__ import annotations

from tilelet.checks.findings import Status, make_finding
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.device import OnChipOverflow
from tilelet.diag.text import plural


def check(subject: Subject) -> CheckResult:
    """Check all kernels; tiles have constant shapes, so the answer holds for all inputs."""
    run = subject.device_run
    findings = [make_finding("capacity", f) for f in run.findings if isinstance(f, OnChipOverflow)]
    findings += [make_finding("capacity", caution) for caution in run.cautions]
    summary = f"{plural(len(run.kernels), 'kernel')} planned on {subject.machine.name}"
    return part("capacity", findings, Status.PROVED, summary)
