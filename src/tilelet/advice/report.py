"""Advice for people and for programs."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

from tilelet.advice.advisor import Finding, Report
from tilelet.advice.core import Costs
from tilelet.diag.core import Diagnostic
from tilelet.diag.tables import Table, byte_text, number, times
from tilelet.diag.text import plural


def diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, name, n=2
    )
    return "".join(lines)


def diagnostics(report: Report) -> list[Diagnostic]:
    """Each finding as a message at its place, with what it takes and what the change gives."""
    return [_diagnostic(finding, report) for finding in report.findings]


def _diagnostic(finding: Finding, report: Report) -> Diagnostic:
    found = finding.advice.diagnostic
    notes = list(found.notes)
    if finding.advice.tasks:
        notes.append(
            f"now: {plural(finding.advice.tasks, 'task')}, {number(finding.advice.us)} us on the "
            f"critical path, {byte_text(finding.advice.gm_bytes)} of global memory"
        )
    after = finding.after
    if after is not None and not finding.rule.is_about_text:
        notes.append(
            f"with the change: {number(after.us)} instead of {number(report.before.us)} us "
            f"({times(after.us, report.before.us)}), {after.tasks:,} instead of "
            f"{report.before.tasks:,} tasks, modelled; results "
            + ("equal but for rounding" if finding.is_rounded else "equal, bit for bit")
        )
    elif finding.why_not:
        notes.append(f"a rewriting was tried and not taken: {finding.why_not}")
    return dataclasses.replace(found, notes=tuple(notes))


def ladder(report: Report) -> Table:
    """Every rewriting that was applied, with what the program takes after it."""
    table = Table("", ("step", "us", "tasks", "GM bytes", "of the start"), left=1)

    def row(name: str, costs: Costs) -> Sequence[str]:
        share = times(costs.us, report.before.us)
        return name, number(costs.us), f"{costs.tasks:,}", byte_text(costs.gm_bytes), share

    table.rows.append(row("as it stands", report.before))
    for step in report.steps:
        loc = step.finding.advice.loc
        line = f" (line {loc.line})" if loc else ""
        table.rows.append(row(f"{' + '.join(step.finding.rules)}{line}", step.costs))
    return table


def to_data(report: Report) -> dict[str, Any]:
    """`advice` of the schema."""
    return {
        "before": report.before.to_data(),
        "after": report.after.to_data(),
        "findings": [_finding_data(finding, report) for finding in report.findings],
        "steps": [
            {
                "rule": step.finding.rule.name,
                "code": step.finding.advice.problem.code,
                "rules": step.finding.rules,
                "costs": step.costs.to_data(),
            }
            for step in report.steps
        ],
        "diff": diff(report.original, report.text, report.target.name),
    }


def _finding_data(finding: Finding, report: Report) -> dict[str, Any]:
    advice, text = finding.advice, finding.text
    return {
        "rule": finding.rule.name,
        "code": advice.problem.code,
        "message": advice.diagnostic.message,
        "file": advice.loc.file if advice.loc else None,
        "line": advice.loc.line if advice.loc else None,
        "now": Costs(advice.us, advice.tasks, advice.gm_bytes).to_data(),
        "after": finding.after.to_data() if finding.after else None,
        "rounding": finding.is_rounded,
        "why_not": finding.why_not,
        "diff": "" if text is None else diff(report.original, text, report.target.name),
    }
