"""The advisor: find faults, try every rewriting, keep those that are correct and faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

from tilelet.advice.core import Advice, Costs, Rule, Subject
from tilelet.advice.programs import Programs, ScriptPrograms, Setting, silence
from tilelet.advice.proof import Attempt, examine
from tilelet.advice.rules import RULES
from tilelet.dataclasses import dataclass, field
from tilelet.device.report.uncertainty import MIN_LIKELIHOOD, likelihood
from tilelet.diag.catalogue.advice import CannotAdvise
from tilelet.diag.core import Loc
from tilelet.equivalence.claims import Claim
from tilelet.equivalence.data_control import (
    control_digest,
    open_parameters,
    overlapping_arguments,
)
from tilelet.equivalence.proof import Equivalence
from tilelet.equivalence.trials import Outputs, Trials, difference, outputs_of
from tilelet.runtime.progress import progress
from tilelet.scripts.target import Target

Chain: TypeAlias = list[tuple[Rule, Advice]]
Identity: TypeAlias = tuple[str, str]
Identities: TypeAlias = tuple[Identity, ...]
Helps: TypeAlias = Callable[[Chain, Attempt, Attempt], bool]

_MAX_CHAIN = 4
"""Maximum length of a chain of rewritings."""

_MIN_GAIN = 0.02
"""Minimum share of the time that a change must save; less is within the model's error."""

_NO_LOSS = 0.005
_SMALL_GAIN = 0.001
"""Limits on the cost and the gain of a small change, in time, tasks, bytes or core time."""


@dataclass(frozen=True)
class AdviceFinding:
    """A piece of advice with the effect of its rewriting.

    after    costs of the rewritten program; None without a correct rewriting
    why_not  why the rewriting was rejected; empty if it was not
    chain    the rewriting, and those it enabled
    newest   time before and after under the newest runtime, where that matters
    claim    evidence that the rewriting keeps the results
    is_small whether it saves too little to be applied by itself
    """

    rule: Rule
    advice: Advice
    after: Costs | None = None
    why_not: str = ""
    chain: Sequence[tuple[Rule, Advice]] = ()
    newest: tuple[float, float] | None = None
    claim: Claim = Claim.NOT_TRIED
    is_small: bool = False

    @property
    def applied_by(self) -> str:
        """The command that applies the rewriting; empty if none does."""
        if self.after is None or self.is_small:
            return ""
        if self.rule.ends_chain:
            return "tune"
        return "advise --fix" if self.claim is Claim.PROVED else "advise --fix --unproved"

    @property
    def text(self) -> str | None:
        """The script after the whole chain."""
        return self.chain[-1][1].text if self.chain else None

    @property
    def rules(self) -> list[str]:
        """Names of the rules of the chain."""
        return list(dict.fromkeys(rule.name for rule, _ in self.chain))

    @property
    def is_rounded(self) -> bool:
        return any(advice.rounding for _, advice in self.chain)


@dataclass(frozen=True)
class AppliedRewriting:
    """An applied rewriting, and the costs of the program after it."""

    finding: AdviceFinding
    costs: Costs


@dataclass
class Report:
    """The findings about one script.

    steps   the ladder of `fix`: rewritings in the order in which they were applied
    text    the script after them
    held_back  rewritings that `fix` left out because they are not proved
    causes  wasted machine resources without a known rewriting
    origin  maps a place in the script to one that the user knows
    """

    target: Target
    before: Costs
    original: str
    findings: list[AdviceFinding] = field(default_factory=list[AdviceFinding])
    steps: list[AppliedRewriting] = field(default_factory=list[AppliedRewriting])
    text: str = ""
    held_back: int = 0
    causes: list[str] = field(default_factory=list[str])
    origin: Callable[[Loc], Loc] = lambda loc: loc

    @property
    def after(self) -> Costs:
        return self.steps[-1].costs if self.steps else self.before


class Advisor:
    """Advice about one script on one machine."""

    def __init__(
        self,
        target: Target,
        setting: Setting,
        rules: Sequence[Rule] = RULES,
        programs: Programs | None = None,
        *,
        unproved: bool = False,
    ) -> None:
        """`unproved`: let `fix` apply rewritings that were only tested on inputs."""
        self._takes_unproved = unproved
        self._is_fixing = False
        self._target = target
        self._setting = setting
        self._rules = rules
        self._programs = programs or ScriptPrograms(target, setting)
        self._tried: dict[str, Attempt] = {}
        self._compared: dict[str, tuple[str, str]] = {}
        self._seen: dict[str, list[tuple[Rule, Advice]]] = {}
        self._claims: dict[tuple[str, bool], Claim] = {}
        self._originals: dict[bool, list[Equivalence]] = {}
        self._refuted: set[Identities] = set()
        self._held_back: set[Identities] = set()

    def advise(self) -> Report:
        """Return all findings, largest savings first."""
        report, start = self._begin()
        ranked = self._ranked(start)
        # If all rewritings together are correct, each is; the others are tried one by one.
        steps = self._together(ranked, start)
        proved = {_identities(step) for step in steps if not self._why_not(steps, start)}
        self._add_findings(report, start, ranked, proved)
        return report

    def fix(self) -> Report:
        """Apply rewritings one by one, the largest gain first, until none helps.

        Sizes are left to the tuner, which searches combinations of them.
        """
        self._is_fixing = True
        report, original = self._begin()
        now, rounded = original, False
        first = ranked = self._ranked(now)
        while ranked:
            steps = self._together(ranked, now)
            if steps and self._why_not_applied(steps, original, rounded=rounded):
                steps = self._one_by_one(ranked, now, original, rounded=rounded)
            if not steps:
                break
            report.steps += self._with_claims(steps, original, rounded=rounded)
            rounded = rounded or any(step.finding.is_rounded for step in steps)
            now = self._first(steps[-1].finding.text or "")
            ranked = self._ranked(now)
        assert now.subject is not None
        report.text = now.subject.source.text
        proved = {_identities(step) for step in report.steps}
        report.held_back = len(self._held_back)
        told = proved | self._held_back
        taken = [c for c in first if _chain_identities(c) in told]
        self._add_findings(report, original, taken, proved, small=False)
        return report

    def _begin(self) -> tuple[Report, Attempt]:
        text = self._programs.text
        start = self._first(text)
        assert start.costs is not None
        origin = self._programs.origin
        return Report(self._target, start.costs, text, text=text, origin=origin), start

    def _add_findings(
        self,
        report: Report,
        start: Attempt,
        ranked: Sequence[Chain],
        proved: set[Identities],
        *,
        small: bool = True,
    ) -> None:
        """Add each fault with the best chain of rewritings that begins with it."""
        assert start.subject is not None
        chains = {chain[0][1].text: chain for chain in reversed(ranked)}
        others = self._small(start, chains) if small else []
        steps = self._together(others, start, gains)
        if not self._why_not(steps, start):
            proved = proved | {_identities(step) for step in steps}
        chains.update({chain[0][1].text: chain for chain in others})
        for rule, advice in self._found(start.subject, self._rules):
            chain = chains.get(advice.text) if advice.text is not None else None
            if chain is not None and _chain_identities(chain) in proved:
                finding = self._finding(rule, advice, chain, start)
            else:
                finding = self._judged(rule, advice, chain, start, rounded=False)
            if finding is not None:
                is_small = any(chain is other for other in others)
                report.findings.append(dataclasses.replace(finding, is_small=is_small))
            elif advice.text is None:
                report.causes.append(advice.diagnostic.message)
        report.findings.sort(key=_saved_us(report.before), reverse=True)
        report.findings = _distinct(report.findings)

    def _small(self, start: Attempt, known: Container[str | None]) -> list[Chain]:
        """Return rewritings with a small gain and no cost."""
        assert start.subject is not None
        return [
            [(rule, advice)]
            for rule, advice in self._rewritings(start.subject)
            if advice.text not in known
            and not rule.is_about_text
            and gains([(rule, advice)], start, self._try(advice.text or ""))
        ]

    def _together(
        self, ranked: Sequence[Chain], now: Attempt, helps: Helps | None = None
    ) -> list[AppliedRewriting]:
        """Return the chains that help when applied in order, according to the model alone."""
        helps = helps or self._is_help
        steps: list[AppliedRewriting] = []
        for found in ranked:
            if _chain_identities(found) in self._refuted:
                continue
            chain = self._again(found, now)
            if chain is not None and helps(chain, now, self._try(chain[-1][1].text or "")):
                now = self._try(chain[-1][1].text or "")
                assert now.costs is not None
                steps.append(
                    AppliedRewriting(AdviceFinding(*chain[0], now.costs, "", chain), now.costs)
                )
        return steps

    def _one_by_one(
        self, ranked: Sequence[Chain], now: Attempt, original: Attempt, *, rounded: bool
    ) -> list[AppliedRewriting]:
        """Return the correct chains; the others are remembered and not tried again."""
        steps: list[AppliedRewriting] = []
        for found in ranked:
            step = self._together([found], now)
            if step and self._why_not_applied([*steps, *step], original, rounded=rounded):
                self._refuted.add(_chain_identities(found))
                if not self._why_not([*steps, *step], original, rounded=rounded):
                    self._held_back.add(_chain_identities(found))
            elif step:
                steps += step
                now = self._first(step[0].finding.text or "")
        return steps

    def _why_not(
        self, steps: Sequence[AppliedRewriting], original: Attempt, *, rounded: bool = False
    ) -> str:
        """Return why the text after all steps is rejected, or ""."""
        if not steps:
            return ""
        text = steps[-1].finding.text or ""
        loose = rounded or any(step.finding.is_rounded for step in steps)
        return self._disproof(text, original, rounding=loose) or self._added(text, original)

    def _why_not_applied(
        self, steps: Sequence[AppliedRewriting], original: Attempt, *, rounded: bool = False
    ) -> str:
        """Return why `fix` does not write the text after all steps, or ""."""
        why = self._why_not(steps, original, rounded=rounded)
        if why or self._takes_unproved or not steps:
            return why
        loose = rounded or any(step.finding.is_rounded for step in steps)
        claim = self._claim(steps[-1].finding.text or "", original, rounding=loose)
        return "" if claim is Claim.PROVED else claim.value

    def _claim(self, text: str, original: Attempt, *, rounding: bool) -> Claim:
        """Return the claim for a text that was not refuted: proved, or tested on inputs."""
        key = text, rounding
        if key not in self._claims:
            self._claims[key] = self._proved(text, original, rounding=rounding)
        return self._claims[key]

    def _proved(self, text: str, original: Attempt, *, rounding: bool) -> Claim:
        after = self._try(text)
        if len(after.checked) != len(original.checked) or not after.is_ordered(rounding=rounding):
            return Claim.TRIED
        if any(open_parameters(c.program) for c in original.checked):
            return Claim.TRIED  # a proof is about the shapes of one call
        before = self._equivalences(rounding=rounding)
        proofs = (e.proof(now.program) for e, now in zip(before, after.checked))
        with progress(f"proving a version of {self._target.name}"):
            return Claim.PROVED if all(proof.holds for proof in proofs) else Claim.TRIED

    def _equivalences(self, *, rounding: bool) -> list[Equivalence]:
        """Return a comparison with the original script for each of its programs."""
        if rounding not in self._originals:
            checked = self._first(self._programs.text).checked
            self._originals[rounding] = [Equivalence(c.program, rounding=rounding) for c in checked]
        return self._originals[rounding]

    def _with_claims(
        self, steps: Sequence[AppliedRewriting], original: Attempt, *, rounded: bool
    ) -> Iterator[AppliedRewriting]:
        """Yield the steps of a chain, each with the subject after it."""
        for step in steps:
            rounded = rounded or step.finding.is_rounded
            claim = self._claim(step.finding.text or "", original, rounding=rounded)
            yield dataclasses.replace(step, finding=dataclasses.replace(step.finding, claim=claim))

    # Rewritings that need each other

    def _ranked(self, now: Attempt) -> list[Chain]:
        """Return chains of rewritings that help, best first."""
        assert now.subject is not None
        found: list[tuple[float, int, Chain]] = []
        for chain in self._chains(now.subject, _MAX_CHAIN, frozenset()):
            if self._helps(chain, now):
                costs = self._try(chain[-1][1].text or "").costs
                assert costs is not None
                found.append((costs.us, len(chain), chain))
        return [chain for _, _, chain in sorted(found, key=lambda item: item[:2])]

    def _chains(self, subject: Subject, depth: int, known: frozenset[Identity]) -> Iterator[Chain]:
        """Follow a rewriting with those it enables; alone, it may even cost time."""
        here = self._rewritings(subject)
        seen = known | {_identity(advice) for _, advice in here}
        for rule, advice in here:
            if _identity(advice) in known or advice.text == subject.source.text:
                continue
            if not rule.is_about_text and advice.share < _MIN_GAIN:
                continue  # removing these kernels would not shorten the program
            if rule.needs_newer and not subject.orders_writers:
                continue
            if rule.ends_chain and (self._is_fixing or depth < _MAX_CHAIN):
                continue  # sizes are proposed for the original script; `tune` combines them
            yield [(rule, advice)]
            after = self._try(advice.text or "")
            if (
                depth > 1
                and after.subject is not None
                and not (rule.is_about_text or rule.ends_chain)
            ):
                for rest in self._chains(after.subject, depth - 1, seen):
                    yield [(rule, advice), *rest]

    def _again(self, chain: Chain, now: Attempt) -> Chain | None:
        """Repeat the rewritings on a changed text; None if they no longer apply."""
        made: Chain = []
        for rule, advice in chain:
            if now.subject is None:
                return None
            same = (a for r, a in self._rewritings(now.subject) if r is rule)
            found = next((a for a in same if _identity(a) == _identity(advice)), None)
            if found is None:
                return None
            made.append((rule, found))
            now = self._try(found.text or "")
        return made

    def _helps(self, chain: Chain, now: Attempt) -> bool:
        return self._is_help(chain, now, self._try(chain[-1][1].text or ""))

    @staticmethod
    def _is_help(chain: Chain, now: Attempt, after: Attempt) -> bool:
        """Whether the modelled difference between two programs is significant."""
        if after.costs is None or now.costs is None or after.why:
            return False
        if all(rule.is_about_text for rule, _ in chain):
            return after.costs.us <= now.costs.us
        return is_faster(now, after)

    def _first(self, text: str) -> Attempt:
        start = self._try(text)
        if start.subject is None:
            raise CannotAdvise(self._target.name, start.why)
        return start

    def _rewritings(self, subject: Subject) -> list[tuple[Rule, Advice]]:
        """Return findings with a rewriting."""
        known = self._seen.get(subject.source.text)
        if known is None:
            found = self._found(subject, [rule for rule in self._rules if rule.rewrites])
            known = [(rule, advice) for rule, advice in found if advice.text is not None]
            self._seen[subject.source.text] = known
        return known

    def _found(self, subject: Subject, rules: Sequence[Rule]) -> Iterator[tuple[Rule, Advice]]:
        """Yield the findings of some rules, one per rule and statement."""
        for rule in rules:
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
    ) -> AdviceFinding | None:
        """Return the finding if its rewriting is correct and helps, else None."""
        if advice.text is None:
            return AdviceFinding(rule, advice) if rule.is_fault or rule.is_about_text else None
        if chain is None:
            why = self._try(advice.text).why
            return (
                AdviceFinding(rule, advice, why_not=why) if why and not rule.needs_proof else None
            )
        text = chain[-1][1].text or ""
        loose = rounded or any(a.rounding for _, a in chain)
        why = self._disproof(text, original, rounding=loose) or self._added(text, original)
        if why:
            return None if rule.needs_proof else AdviceFinding(rule, advice, why_not=why)
        return self._finding(rule, advice, chain, original)

    def _finding(self, rule: Rule, advice: Advice, chain: Chain, start: Attempt) -> AdviceFinding:
        """Make a finding of a fault whose rewriting is correct."""
        after = self._try(chain[-1][1].text or "")
        newest = None
        if rule.needs_newer and start.subject is not None and after.subject is not None:
            newest = start.subject.newest_us, after.subject.newest_us
        loose = any(a.rounding for _, a in chain)
        claim = self._claim(chain[-1][1].text or "", start, rounding=loose)
        return AdviceFinding(rule, advice, after.costs, "", chain, newest, claim)

    def _added(self, text: str, original: Attempt) -> str:
        """Return a check finding that the original script does not have, or ""."""
        with progress(f"checking a version of {self._target.name}"):
            codes = {code for code, _ in original.findings}
            new = [f"{c}: {message}" for c, message in self._try(text).findings if c not in codes]
        return new[0] if new else ""

    def _disproof(self, text: str, original: Attempt, *, rounding: bool) -> str:
        """Return why a text cannot replace the script, or ""."""
        assert original.subject is not None
        for checked in original.checked:
            pair = overlapping_arguments(checked.program, checked.arguments)
            if pair is not None:
                return f"arguments `{pair[0]}` and `{pair[1]}` share memory"
        if self._control(text) != self._control(self._programs.text):
            return "it has other lengths, tables or scalars as inputs"
        if text not in self._compared:
            before = self._original_outputs
            after = before if text == original.subject.source.text else self._outputs(text)
            why = "it runs other programs"
            strict = loose = why
            if before is not None and after is not None:
                strict = difference(before, after, rounding=False)
                loose = difference(before, after, rounding=True) if strict else ""
            # Outputs of a layer are gigabytes: only differences are kept.
            self._compared[text] = strict, loose
        return self._compared[text][rounding]

    def _control(self, text: str) -> list[str]:
        return [control_digest(run.program, run.arguments) for run in self._try(text).checked]

    @cached_property
    def _inputs(self) -> list[Trials]:
        with progress(f"making the inputs of {self._target.name}"):
            runs = self._first(self._programs.text).checked
            inputs = self._programs.inputs()
            return [Trials(run.program, given) for run, given in zip(runs, inputs)]

    @cached_property
    def _original_outputs(self) -> Outputs | None:
        return self._outputs(self._programs.text)

    def _outputs(self, text: str) -> Outputs | None:
        inputs = self._inputs
        programs = [checked.program for checked in self._try(text).checked]
        with progress(f"running a version of {self._target.name}"), silence():
            return outputs_of(programs, inputs)

    def _try(self, text: str) -> Attempt:
        """Examine a version of the script; reject it if the machine refuses more than before."""
        known = self._tried.get(text)
        if known is None:
            with progress(f"modelling a version of {self._target.name}"):
                known = examine(self._programs, text, self._setting)
            if text != self._programs.text:
                codes = {code for code, _ in self._try(self._programs.text).refusals}
                new = [f"{c}: {message}" for c, message in known.refusals if c not in codes]
                if new and not known.why:
                    known = dataclasses.replace(known, why=new[0])
            self._tried[text] = known
        return known


def is_faster(before: Attempt, after: Attempt) -> bool:
    """Whether a modelled gain exceeds the known error of modelled changes."""
    assert before.subject is not None
    assert after.subject is not None
    was, now = before.subject.costs.us, after.subject.costs.us
    if now >= was * (1 - _MIN_GAIN):
        return False
    pair = before.subject.profiles[0].pair
    likely = likelihood(pair, was, now)
    return likely is None or likely >= MIN_LIKELIHOOD


def gains(chain: Chain, before: Attempt, after: Attempt) -> bool:
    """Whether a rewriting costs nothing and saves time, tasks, bytes or core time."""
    was, now = before.subject, after.subject
    if was is None or now is None or after.why:
        return False
    pairs = [
        (was.costs.us, now.costs.us),
        (was.costs.tasks, now.costs.tasks),
        (was.costs.gm_bytes, now.costs.gm_bytes),
        (was.core_us, now.core_us),
    ]
    if any(rule.needs_newer for rule, _ in chain):
        pairs.append((was.newest_us, now.newest_us))
    return all(new <= old * (1 + _NO_LOSS) for old, new in pairs) and any(
        new < old * (1 - _SMALL_GAIN) for old, new in pairs
    )


def _identity(advice: Advice) -> Identity:
    """Find the same fault in another version of the text, where lines have moved."""
    return advice.problem.code, advice.diagnostic.message


def _chain_identities(chain: Chain) -> Identities:
    return tuple(_identity(advice) for _, advice in chain)


def _identities(step: AppliedRewriting) -> Identities:
    return tuple(_identity(advice) for _, advice in step.finding.chain)


def _distinct(findings: Sequence[AdviceFinding]) -> list[AdviceFinding]:
    """Return the findings, best first, without those that another finding's rewriting includes."""
    kept: list[AdviceFinding] = []
    seen: set[str] = set()
    for finding in findings:
        text, loc = finding.text, finding.advice.loc
        # Of all sizes of one knob, propose the best.
        key = f"{finding.rule.name} {loc.line}" if finding.rule.ends_chain and loc else text
        if key is None or key not in seen:
            kept.append(finding)
        seen |= {key} if key is not None else set()
    return kept


def _saved_us(before: Costs) -> Callable[[AdviceFinding], float]:
    return lambda finding: before.us - finding.after.us if finding.after else 0.0
