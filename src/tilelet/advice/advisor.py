"""The advisor: looks for faults, tries every rewriting, and keeps what is right and faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from tilelet.advice.core import Advice, Costs, Rule, Subject
from tilelet.advice.proof import (
    Attempt,
    Inputs,
    Outputs,
    Setting,
    difference,
    examine,
    inputs_of,
    outputs_of,
)
from tilelet.advice.rules import RULES
from tilelet.diag.catalogue.advice import CannotAdvise
from tilelet.runtime.progress import progress
from tilelet.scripts.target import Target

Chain: TypeAlias = list[tuple[Rule, Advice]]
Identity: TypeAlias = tuple[str, str]

_DEPTH = 4
"""How many rewritings may have to go together."""

_LEAST_GAIN = 0.02
"""Share of the time that a change must save: less is not told apart from chance."""


@dataclass(frozen=True)
class Finding:
    """A piece of advice, with what its rewriting gives.

    after    what the rewritten program takes; None if there is no rewriting, or none that holds
    why_not  why the rewriting was not taken; empty if it was, or there is none
    chain    the rewriting, and those that it made possible
    """

    rule: Rule
    advice: Advice
    after: Costs | None = None
    why_not: str = ""
    chain: Sequence[tuple[Rule, Advice]] = ()

    @property
    def text(self) -> str | None:
        """The script after all of them."""
        return self.chain[-1][1].text if self.chain else None

    @property
    def rules(self) -> list[str]:
        """Names of the rules whose rewritings went together."""
        return list(dict.fromkeys(rule.name for rule, _ in self.chain))

    @property
    def is_rounded(self) -> bool:
        return any(advice.rounding for _, advice in self.chain)


@dataclass(frozen=True)
class Step:
    """A rewriting that was applied, and what the program takes after it."""

    finding: Finding
    costs: Costs


@dataclass
class Report:
    """What the advisor found.

    steps  the ladder of `fix`: rewritings in the order in which they were applied
    text   the script after them
    """

    target: Target
    before: Costs
    original: str
    findings: list[Finding] = field(default_factory=list[Finding])
    steps: list[Step] = field(default_factory=list[Step])
    text: str = ""

    @property
    def after(self) -> Costs:
        return self.steps[-1].costs if self.steps else self.before


class Advisor:
    """Advice about one script on one machine."""

    def __init__(self, target: Target, setting: Setting, rules: Sequence[Rule] = RULES) -> None:
        assert target.text is not None
        self._target = target
        self._setting = setting
        self._rules = rules
        self._tried: dict[str, Attempt] = {}
        self._made: dict[str, Outputs | None] = {}

    def advise(self) -> Report:
        """All findings, those that save most first."""
        text = self._target.text or ""
        start = self._first(text)
        assert start.subject is not None
        assert start.costs is not None
        report = Report(self._target, start.costs, text, text=text)
        chains = {_identity(chain[0][1]): chain for chain in reversed(self._ranked(start))}
        for rule, advice in self._found(start.subject):
            chain = chains.get(_identity(advice))
            finding = self._judged(rule, advice, chain, start, rounded=False)
            if finding is not None:
                report.findings.append(finding)
        report.findings.sort(key=_saved(report.before), reverse=True)
        return report

    def fix(self) -> Report:
        """Apply rewritings one after the other, the most useful first, until none helps."""
        report = self.advise()
        original = self._first(report.original)
        now, rounded = original, False
        while True:
            step = self._step(now, original, rounded)
            if step is None:
                break
            assert step.finding.text is not None
            rounded = rounded or step.finding.is_rounded
            report.steps.append(step)
            now = self._first(step.finding.text)
        assert now.subject is not None
        report.text = now.subject.source.text
        return report

    def _step(self, now: Attempt, original: Attempt, rounded: bool) -> Step | None:
        """The chain of rewritings that saves most, if it is proved."""
        for chain in self._ranked(now):
            rule, advice = chain[0]
            finding = self._judged(rule, advice, chain, original, rounded=rounded)
            if finding is not None and finding.after is not None:
                return Step(finding, finding.after)
        return None

    # Rewritings that need each other

    def _ranked(self, now: Attempt) -> list[Chain]:
        """Chains of rewritings that help, the best first."""
        found: list[tuple[float, int, Chain]] = []
        assert now.subject is not None
        assert now.costs is not None
        for chain in self._chains(now.subject, _DEPTH, frozenset()):
            after = self._try(chain[-1][1].text or "")
            if after.costs is not None and not after.why:
                about_text = all(rule.is_about_text for rule, _ in chain)
                if about_text or after.costs.us < now.costs.us * (1 - _LEAST_GAIN):
                    found.append((after.costs.us, len(chain), chain))
        return [chain for _, _, chain in sorted(found, key=lambda item: item[:2])]

    def _chains(self, subject: Subject, depth: int, known: frozenset[Identity]) -> Iterator[Chain]:
        """A rewriting, then others that only it made possible: alone it may even cost time."""
        here = [(rule, advice) for rule, advice in self._found(subject) if advice.text is not None]
        seen = known | {_identity(advice) for _, advice in here}
        for rule, advice in here:
            if _identity(advice) in known or advice.text == subject.source.text:
                continue
            yield [(rule, advice)]
            after = self._try(advice.text or "")
            if depth > 1 and after.subject is not None and not rule.is_about_text:
                for rest in self._chains(after.subject, depth - 1, seen):
                    yield [(rule, advice), *rest]

    def _first(self, text: str) -> Attempt:
        start = self._try(text)
        if start.subject is None:
            raise CannotAdvise(self._target.name, start.why)
        return start

    def _found(self, subject: Subject) -> Iterator[tuple[Rule, Advice]]:
        """Findings of all rules, each statement once per rule."""
        for rule in self._rules:
            seen: set[object] = set()
            for advice in rule.find(subject):
                key = (advice.problem.code, advice.loc, advice.diagnostic.message)
                if key not in seen:
                    seen.add(key)
                    yield rule, advice

    def _judged(
        self,
        rule: Rule,
        advice: Advice,
        chain: Chain | None,
        original: Attempt,
        *,
        rounded: bool,
    ) -> Finding | None:
        """The finding, if it is one: a rewriting must hold, and help."""
        if advice.text is None:
            return Finding(rule, advice)
        if chain is None:
            why = self._try(advice.text).why
            return None if rule.needs_proof or not why else Finding(rule, advice, why_not=why)
        text = chain[-1][1].text or ""
        loose = rounded or any(a.rounding for _, a in chain)
        why = self._disproof(text, original, rounding=loose)
        if why:
            return None if rule.needs_proof else Finding(rule, advice, why_not=why)
        after = self._try(text).costs
        return Finding(rule, advice, after, "", chain)

    def _disproof(self, text: str, original: Attempt, *, rounding: bool) -> str:
        """Why a text is no substitute for the script; empty if it is."""
        assert original.subject is not None
        before = self._outputs(original.subject.source.text)
        after = self._outputs(text)
        if before is None or after is None:
            return "it runs other programs"
        return difference(before, after, rounding=rounding)

    @cached_property
    def _inputs(self) -> list[Inputs]:
        with progress(f"running {self._target.name} for its inputs"):
            return inputs_of(self._target, self._setting)

    def _outputs(self, text: str) -> Outputs | None:
        if text not in self._made:
            inputs = self._inputs
            with progress(f"running a version of {self._target.name}"):
                self._made[text] = outputs_of(self._try(text), inputs)
        return self._made[text]

    def _try(self, text: str) -> Attempt:
        """A version of the script; one with findings that the script has not cannot be taken."""
        known = self._tried.get(text)
        if known is None:
            with progress(f"modelling a version of {self._target.name}"):
                known = examine(self._target, text, self._setting)
            if text != self._target.text:
                codes = {code for code, _ in self._try(self._target.text or "").findings}
                new = [
                    f"{code}: {message}" for code, message in known.findings if code not in codes
                ]
                if new and not known.why:
                    known = dataclasses.replace(known, why=new[0])
            self._tried[text] = known
        return known


def _identity(advice: Advice) -> Identity:
    """The same fault in another version of the text: lines move."""
    return advice.problem.code, advice.diagnostic.message


def _saved(before: Costs) -> Callable[[Finding], float]:
    return lambda finding: before.us - finding.after.us if finding.after else 0.0
