"""Advice as text and as JSON."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from tilelet.advice.advisor import AdviceFinding, Report
from tilelet.advice.core import Costs
from tilelet.device.report.uncertainty import ratio_interval
from tilelet.diag.core import Diagnostic, Loc
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, byte_text, number, times
from tilelet.diag.text import plural
from tilelet.equivalence.claims import Claim

MAX_CAUSES = 3
"""Maximum number of causes listed with a better size."""


def diff(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, name, n=2
    )
    return "".join(lines)


def diagnostics(report: Report) -> list[Diagnostic]:
    """Return each finding as a diagnostic with its costs and the effect of the change."""
    return [_diagnostic(finding, report) for finding in report.findings]


def _diagnostic(finding: AdviceFinding, report: Report) -> Diagnostic:
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
            f"with the change: {_time(after)} instead of {_time(report.before)} us "
            f"({_speedup(report.before, after)}), {after.tasks:,} instead of "
            f"{report.before.tasks:,} tasks, {byte_text(after.gm_bytes)} instead of "
            f"{byte_text(report.before.gm_bytes)}, modelled"
        )
        notes.append(_legality(finding))
        if finding.rule.ends_chain:
            notes += [f"cause: {cause}" for cause in dict.fromkeys(report.causes[:MAX_CAUSES])]
        if finding.newest is not None:
            was, now = finding.newest
            notes.append(f"under the newest runtime: {number(now)} instead of {number(was)} us")
    elif finding.why_not:
        notes.append(f"a rewriting was tried and not taken: {finding.why_not}")
    labels = [dataclasses.replace(at, loc=report.origin(at.loc)) for at in found.labels]
    return dataclasses.replace(found, notes=tuple(notes), labels=tuple(labels))


def _legality(finding: AdviceFinding) -> str:
    """Return the claim about results after the change."""
    equal = "equal but for rounding" if finding.is_rounded else "equal, bit for bit"
    known = (
        f"results {equal}, for all inputs of these sizes: {finding.claim.value}"
        if finding.claim is Claim.PROVED
        else f"results {equal}, on this script's inputs and on others with other integers and "
        f"sizes: {finding.claim.value}"
    )
    return f"{known}; {_APPLIED[finding.applied_by]}"


_APPLIED = {
    "advise --fix": "`--fix` applies it",
    "advise --fix --unproved": "`--fix` applies it with `--unproved` only",
    "tune": "`tilelet tune` searches sizes together",
    "": "`--fix` leaves it: it saves too little",
}


def closing_lines(report: Report) -> str:
    """How many findings there are, and which commands apply their rewritings."""
    if not report.findings:
        return "no advice: nothing was found that would help"
    counts = Counter(f.applied_by for f in report.findings if f.after is not None)
    parts = [
        f"{counts[command]} {'is' if counts[command] == 1 else 'are'} applied by `{command}`"
        for command in _APPLIED
        if command and counts[command]
    ]
    return "; ".join([plural(len(report.findings), "finding"), *parts])


def _speedup(before: Costs, after: Costs) -> str:
    """Format the gain, with the 90 % interval of the ratio of times."""
    ratio = times(before.us, after.us)
    if ratio == "1.00x":
        return "the same time"
    between = ratio_interval(after.pair, after.us, before.us)
    if between is None:
        return f"{ratio} faster"
    return f"{ratio} faster, 90 % interval {between[0]:.2f}x to {between[1]:.2f}x"


def _time(costs: Costs) -> str:
    """Format a time with its 90 % interval."""
    if costs.interval is None:
        return number(costs.us)
    low, high = costs.interval
    return f"{number(costs.us)} [{number(low)}, {number(high)}]"


class _Lines:
    """Map line numbers of a later version of a text to the first version."""

    def __init__(self, first: str, later: str) -> None:
        matcher = difflib.SequenceMatcher(None, later.splitlines(), first.splitlines(), False)
        self._blocks = matcher.get_matching_blocks()

    def first(self, line: int) -> int | None:
        """Return the line in the first version, or None."""
        for later, first, size in self._blocks:
            if later < line <= later + size:
                return first + line - later
        return None


def ladder(report: Report) -> Table:
    """Return a table of the applied rewritings with the costs after each, and the claim."""
    table = Table("", ("step", "us", "tasks", "GM bytes", "faster", "results"), left=1)

    def row(name: str, costs: Costs, claim: str = "") -> Sequence[str]:
        share = times(report.before.us, costs.us)
        return name, number(costs.us), f"{costs.tasks:,}", byte_text(costs.gm_bytes), share, claim

    table.rows.append(row("as it stands", report.before))
    text = report.original
    for step in report.steps:
        loc = step.finding.advice.loc
        line = _place(report, loc, text) if loc else ""
        text = step.finding.text or text
        name = f"{' + '.join(step.finding.rules)}{line}"
        table.rows.append(row(name, step.costs, step.finding.claim.value))
    return table


def _place(report: Report, loc: Loc, text: str) -> str:
    """Map a rewriting of a later text to a line that the user knows."""
    line = _Lines(report.original, text).first(loc.line)
    if line is None:
        return ""  # an earlier step wrote it
    known = report.origin(Loc(loc.file, line, 0, line, 0))
    name = "" if known.file == loc.file else f"{PurePath(known.file).name} "
    return f" ({name}line {known.line})"


def to_data(report: Report) -> JsonObject:
    """Return the `advice` object of the JSON schema."""
    return {
        "before": report.before.to_data(),
        "after": report.after.to_data(),
        "held_back": report.held_back,
        "causes": list(dict.fromkeys(report.causes)),
        "findings": [_finding_data(finding, report) for finding in report.findings],
        "steps": [
            {
                "rule": step.finding.rule.name,
                "code": step.finding.advice.problem.code,
                "rules": step.finding.rules,
                "claim": step.finding.claim.value,
                "costs": step.costs.to_data(),
            }
            for step in report.steps
        ],
        "diff": diff(report.original, report.text, report.target.name),
    }


def _finding_data(finding: AdviceFinding, report: Report) -> JsonObject:
    advice, text = finding.advice, finding.text
    loc = report.origin(advice.loc) if advice.loc else None
    return {
        "rule": finding.rule.name,
        "code": advice.problem.code,
        "message": advice.diagnostic.message,
        "file": loc.file if loc else None,
        "line": loc.line if loc else None,
        "now": Costs(advice.us, advice.tasks, advice.gm_bytes).to_data(),
        "after": finding.after.to_data() if finding.after else None,
        "rounding": finding.is_rounded,
        "claim": finding.claim.value,
        "applied_by": finding.applied_by,
        "why_not": finding.why_not,
        "diff": "" if text is None else diff(report.original, text, report.target.name),
    }
