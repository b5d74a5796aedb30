"""Rewritings of programs by rules, `tune` and `export`, compared with the programs.

    python -m tests.fuzz.rewrites --seconds 600 --seed 7

Every rewriting of a program of `rewritable.Text` that is claimed to be equal for all inputs is
compared with the program as it stands, interpreter against interpreter, on many inputs. A
difference is a failure. An exported program must not differ, whether that is proved or not.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.fuzz.rewritable import REJECTED, Text, Version, inputs
from tests.fuzz.rounding import is_rounding
from tests.fuzz.search import Tally, search

from tilelet import language
from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.rules import RULES
from tilelet.advice.source import Source
from tilelet.checks.verdict import Subject as Checked
from tilelet.device.machine.description import Machine, load_machine
from tilelet.device.run import Recorded
from tilelet.diag.core import UserError
from tilelet.diag.editing import Edit, OverlapError
from tilelet.dialects.data import DIALECTS
from tilelet.equivalence.data_control import integer_trials
from tilelet.equivalence.order import is_ordered
from tilelet.equivalence.proof import Equivalence
from tilelet.equivalence.trials import difference
from tilelet.export.kernels import kernel_text
from tilelet.export.rewrite import TextRewriter
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes
from tilelet.scripts.target import Target
from tilelet.tuning.knobs import ScriptText
from tilelet.tuning.values import values_for

SAMPLE = 16
"""One of this many programs has its unproved rewritings run, too."""

BACKWARDS = 3
"""Inputs on which parallel loops are run from their last iteration to the first."""

EXPORTED = 4
"""One of this many programs is exported."""

EXPECTED = ("E0306",)
"""Mistakes of the generator: a window whose ends are two reads of a table has no static extent."""

REWRITES = [rule for rule in RULES if rule.rewrites and not rule.is_about_text]

_CORES, _TASKS = 2, 1000


class ModelledRun:
    """A shortened modelled run for rules: every kernel matters, all tasks are short."""

    period = "any"
    machine = SimpleNamespace(
        period=lambda _: SimpleNamespace(
            head_us=1.0, tail_us=1.0, submit_us=1.0, dispatch_us=1.0, rule="window"
        )
    )

    def __init__(self, program: Program) -> None:
        self.program = program
        self.run = self

    @cached_property
    def summary(self) -> Any:
        kernels = [
            SimpleNamespace(
                where=f"{k.loc.file}:{k.loc.line}", cores="AIV", tasks=_TASKS, exec_us=1.0
            )
            for k in self.program.kernels
        ]
        return SimpleNamespace(
            kernels=kernels,
            total_us=float(_TASKS),
            cores={"AIV": _CORES},
            blocks=lambda kernel: kernel.tasks,
        )


class Quick(Subject):
    """A program whose kernels all matter, so that rules look at all of it."""

    def kernels_in(self, first: int, last: int) -> list[Any]:
        return [None]

    def advice(
        self,
        problem: Any,
        kernels: Any,
        edits: Sequence[Edit] | None = None,
        *,
        rounding: bool = False,
    ) -> Advice:
        try:
            text = self.source.edited(edits) if edits is not None else None
        except OverlapError:
            text = None
        return Advice(problem, text=text, rounding=rounding)


def quick_subject(version: Version) -> Quick:
    run: Any = ModelledRun(version.program)
    return Quick(Source("program.py", version.text), [run])


def rewritings(subject: Subject) -> Iterator[tuple[Rule, Advice]]:
    """Yield the texts that each rule makes of a program, without duplicates."""
    seen: set[str] = {subject.source.text}
    for rule in REWRITES:
        for advice in rule.find(subject):
            if advice.text is not None and advice.text not in seen:
                seen.add(advice.text)
                yield rule, advice


def other_size(text: str, draw: random.Random) -> str | None:
    """Return a program in which `tune` has changed a number."""
    subject = ScriptText(Target("program.py", text=text))
    if not subject.knobs:
        return None
    knob = draw.choice(subject.knobs)
    others = [v for v in values_for(knob, (4, 8)) if v != knob.value]
    return subject.varied({knob.name: draw.choice(others)}).text if others else None


def exported(text: str, draw: random.Random) -> Version | None:
    """Return the program in the language of a public release, or None if the release lacks a
    construct.
    """
    dialect = draw.choice(list(DIALECTS.values()))
    kernels = kernel_text(parse(text), (), chunks=dialect.has("auto_incore"))
    rewriter = TextRewriter(dialect, language, lambda module: getattr(module, kernels.name))
    written = rewriter("\n".join([*kernels.constants, *kernels.kernels]))
    if rewriter.read is None or any(d.severity == "error" for d in rewriter.remaining):
        return None
    return Version(written, run_passes(rewriter.read))


@dataclass
class Original:
    """A program, accepted inputs with their outputs, and what is proved from it."""

    version: Version
    allowed: list[tuple[dict[str, Any], Any]]
    is_sample: bool

    @cached_property
    def exact(self) -> Equivalence:
        return Equivalence(self.version.program)

    @cached_property
    def rounded(self) -> Equivalence:
        return Equivalence(self.version.program, rounding=True)

    def differs(self, after: Version, *, rounding: bool, backwards: bool = False) -> bool:
        """Return whether outputs differ, by more than rounding if rounding is allowed."""
        for given, old in self.allowed[:BACKWARDS] if backwards else self.allowed:
            new = after.outputs(given, backwards=backwards)
            if not difference([[old]], [[new]], rounding=rounding):
                continue
            programs = self.version.program, after.program
            if new is None or not rounding:
                return True
            if not is_rounding(*programs, given, (old, new), backwards=backwards):
                return True
        return False

    def holds_for_trials(self, after: Version, *, rounding: bool) -> bool:
        """Return whether the inputs that `advise` tries show no difference."""
        first = self.allowed[0][0]
        tried = [first, *integer_trials(after.program, first)]
        olds, news = ([v.outputs(g) for g in tried] for v in (self.version, after))
        return not difference([olds], [news], rounding=rounding)


class Judge:
    """Compares every rewriting of a program with the program."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.tally = Tally()

    def judge(self, seed: int) -> None:
        before = Version(Text(seed).program())
        given = list(inputs(seed))
        try:
            allowed = [(g, out) for g in given if (out := before.outputs(g)) is not None]
        except REJECTED as error:
            self._refused(seed, before, error)
            return
        if not allowed:
            self.tally.outcomes["no input is allowed"] += 1
            return
        original = Original(before, allowed, seed % SAMPLE == 0)
        draw, tried = random.Random(seed), 0
        for name, after, rounding in self._rewritten(before, draw):
            tried += 1
            self._note(seed, name, before, after, self._outcome(original, after, rounding))
        if seed % EXPORTED == 0:
            tried += self._export(seed, original, draw)
        self.tally.programs += bool(tried)

    def _refused(self, seed: int, before: Version, error: Exception) -> None:
        """Count a program that the language rejects; the generator makes few of them."""
        if any(code in str(error) for code in EXPECTED):
            self.tally.outcomes["not a program"] += 1
            return
        self.tally.outcomes["wrong: refused"] += 1
        self.tally.wrong.append((seed, "wrong: refused", f"{before.text}\n+++\n{error}"))

    def _note(self, seed: int, name: str, before: Version, after: Version, outcome: str) -> None:
        self.tally.outcomes[f"{name}: {outcome}"] += 1
        if outcome.startswith("wrong"):
            evidence = f"{before.text}\n+++\n{after.text}"
            self.tally.wrong.append((seed, f"{name}: {outcome}", evidence))

    def _rewritten(
        self, before: Version, draw: random.Random
    ) -> Iterator[tuple[str, Version, bool]]:
        """Yield one rewriting per rule, with rounding, and rewritings of one of them."""
        by_rule: dict[str, list[Advice]] = {}
        for rule, advice in rewritings(quick_subject(before)):
            by_rule.setdefault(rule.name, []).append(advice)
        chosen = [(name, draw.choice(found)) for name, found in by_rule.items()]
        made = [(name, Version(a.text or ""), a.rounding) for name, a in chosen]
        yield from made
        other = other_size(before.text, draw)
        if other is not None:
            yield "tune", Version(other), True
        if made:
            yield from self._chain(*draw.choice(made)[1:], draw)

    def _chain(
        self, version: Version, rounding: bool, draw: random.Random
    ) -> Iterator[tuple[str, Version, bool]]:
        """Yield rewritings of a rewriting."""
        for _ in range(2):
            try:
                found = [advice for _, advice in rewritings(quick_subject(version))]
            except REJECTED:
                return
            if not found:
                return
            advice = draw.choice(found)
            version, rounding = Version(advice.text or ""), rounding or advice.rounding
            yield "chain", version, rounding

    def _outcome(self, original: Original, after: Version, rounding: bool) -> str:
        try:
            program = after.program
        except REJECTED:
            return "not a program"
        equal = (original.rounded if rounding else original.exact).proof(program).holds
        if not equal and not original.is_sample:
            return "not proved"
        differs = original.differs(after, rounding=rounding)
        if equal and differs:
            return "wrong: proved, and differs"
        if differs:
            held = original.holds_for_trials(after, rounding=rounding)
            return "tried, and differs for other inputs" if held else "refuted"
        if not equal:
            return "tried"
        if "pl.parallel(" not in after.text:
            return "equal"
        if not original.differs(after, rounding=rounding, backwards=True):
            return "equal, and backwards"
        # If another order of iterations changes results, they must not be called ordered.
        if self._is_ordered(program, original.allowed[0][0], rounding=rounding):
            return "wrong: proved, and differs backwards"
        return "equal, not ordered"

    def _export(self, seed: int, original: Original, draw: random.Random) -> bool:
        after = exported(original.version.text, draw)
        if after is None:
            self.tally.outcomes["export: not in the language of the release"] += 1
            return False
        if original.differs(after, rounding=False):
            outcome = "wrong: differs"
        else:
            outcome = "equal" if original.exact.proof(after.program).holds else "not proved"
        self._note(seed, "export", original.version, after, outcome)
        return True

    def _is_ordered(self, program: Program, given: Mapping[str, Any], *, rounding: bool) -> bool:
        arguments = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()}
        try:
            tasks = Interpreter().run(program, arguments, execute=False).tasks
            subject = Checked(Recorded("main", program, tasks), given, self._machine)
            return is_ordered(subject, rounding=rounding)
        except UserError:
            return False


def main(arguments: Sequence[str] | None = None) -> int:
    judge = Judge(load_machine("a2a3"))
    return search(judge.judge, judge.tally, "rewrites", arguments)


if __name__ == "__main__":
    sys.exit(main())
