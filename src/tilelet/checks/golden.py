"""Check whether the golden would notice mistakes: mutate ops one at a time and compare again."""

from __future__ import annotations

from tilelet.checks.findings import Finding, Place, Status, make_finding
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.diverge import CouldBeWrong
from tilelet.diag.core import Loc
from tilelet.divergence.strength import Unnoticed, strength

NAME = "golden"


def check(subject: Subject) -> CheckResult:
    """Try mutations within `subject.budget`."""
    comparison = subject.comparison
    case = comparison.case() if comparison is not None and comparison.case is not None else None
    if case is None or not case.expected:
        why = (case.note if case is not None else "") or "the script compares nothing"
        return CheckResult(NAME, Status.NOT_CHECKED, why)
    result = strength(case, subject.budget, subject.seed)
    findings = [_unnoticed_finding(loc, ones) for loc, ones in result.by_place().items()]
    weak = len(result.unnoticed) - sum(len(ones) for ones in result.by_place().values())
    tried = f"{result.tried} of {result.total} mutations tried"
    if result.tried < result.total:
        tried += f" with a budget of {subject.budget:g} s (seed {subject.seed})"
    summary = f"{tried}, {result.noticed} noticed"
    if weak:
        summary += f"; {weak} by 1 % or a cast mode not noticed"
    return part(NAME, findings, Status.THIS_RUN, summary)


def _unnoticed_finding(loc: Loc, ones: list[Unnoticed]) -> Finding:
    op = ones[0].edit.op
    kinds = list(dict.fromkeys(one.kind for one in ones))
    remedies = list(dict.fromkeys(text for one in ones for text in one.remedies))
    problem = CouldBeWrong(op.name, loc, kinds, remedies)
    return make_finding(NAME, problem, places=(Place(loc, "computes"),), remedy=remedies[0])
