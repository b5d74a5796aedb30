"""Alternate the advisor's rewritings with the tuner's sizes until neither helps."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

from tilelet.advice.advisor import Advisor
from tilelet.advice.core import Costs, costs_of
from tilelet.advice.programs import Setting
from tilelet.dataclasses import dataclass, field
from tilelet.device.run import DeviceRun
from tilelet.diag.catalogue.advice import CannotAdvise
from tilelet.diag.catalogue.tuner import NothingFits, NothingToVary
from tilelet.diag.core import UserError
from tilelet.diag.files import read_script
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, byte_text, number
from tilelet.equivalence.claims import Claim
from tilelet.oracle.floor import Floor, floor_of
from tilelet.scripts.recording import Recording, record
from tilelet.scripts.target import Target
from tilelet.tuning.evaluate import Question
from tilelet.tuning.tuner import Request, tune

MAX_ROUNDS = 4
MIN_GAIN = 0.01
"""Share of the time that a round must save for another one to follow."""


@dataclass(frozen=True)
class Rung:
    """A step of the ladder: the change, the costs after it, and the strength of its proof."""

    change: str
    costs: Costs
    claim: Claim


@dataclass
class Optimised:
    """The outcome: the ladder, the text at its top, and the floor.

    held_back  changes that were left out because they are not proved
    """

    target: Target
    original: str
    start: Costs
    floor: Floor
    rungs: list[Rung] = field(default_factory=list[Rung])
    text: str = ""
    held_back: list[str] = field(default_factory=list[str])

    @property
    def costs(self) -> Costs:
        return self.rungs[-1].costs if self.rungs else self.start

    @property
    def ratio(self) -> float:
        """How many times faster the result is, modelled."""
        return self.start.us / self.costs.us if self.costs.us else 1.0

    @property
    def diff(self) -> str:
        lines = (self.original, self.text)
        before, after = (text.splitlines(keepends=True) for text in lines)
        return "".join(difflib.unified_diff(before, after, self.target.name, self.target.name))

    def parts(self) -> list[str | Table]:
        """Return the ladder, the distance to the floor, and the diff as text and tables."""
        table = Table("", ("step", "us", "tasks", "GM bytes", "faster", "results"), left=1)
        every = [Rung("as it stands", self.start, Claim.PROVED), *self.rungs]
        for rung in every:
            costs = rung.costs
            table.rows.append(
                (
                    rung.change,
                    number(costs.us),
                    f"{costs.tasks:,}",
                    byte_text(costs.gm_bytes),
                    f"{self.start.us / costs.us:.2f}x" if costs.us else "",
                    rung.claim.value,
                )
            )
        share = f"{min(1.0, self.floor.us / self.costs.us):.0%}" if self.costs.us else "all"
        left = f"the floor is {number(self.floor.us)} us ({self.floor.bound}): {share} is reached"
        held = [f"left out, because not proved: {what}" for what in self.held_back]
        return [table, "\n".join([left, *held]), *([self.diff] if self.diff else [])]

    def to_data(self) -> JsonObject:
        return {
            "version": 1,
            "program": self.target.name,
            "start": self.start.to_data(),
            "steps": [
                {"change": r.change, "costs": r.costs.to_data(), "claim": r.claim.value}
                for r in self.rungs
            ],
            "ratio": round(self.ratio, 4),
            "floor": self.floor.to_data(),
            "held_back": self.held_back,
            "diff": self.diff,
        }


def optimise(
    target: Target,
    setting: Setting,
    *,
    candidates: int = 60,
    jobs: int | None = None,
    executor: Executor | str | None = None,
    unproved: bool = False,
) -> Optimised:
    """Search rewritings and sizes of a script; `unproved` accepts what holds for the inputs tried.

    candidates  sizes that the tuner tries in each round
    """
    if target.is_model:
        raise CannotAdvise(target.name, "it has no file to rewrite; `tilelet export` writes one")
    text = read_script(Path(target.name))
    first = _record(target, text, setting)
    runs = [DeviceRun(run, setting.machine, setting.period) for run in first.runs]
    if not runs:
        raise CannotAdvise(target.name, "it runs no program")
    figures = runs[0].figures
    found = Optimised(
        target,
        text,
        costs_of([run.summary for run in runs]),
        floor_of(figures, setting.machine, figures.flops),
        text=text,
    )
    for _ in range(MAX_ROUNDS):
        before = found.costs.us
        for rung, text in _rewriting_rungs(found, setting, unproved):
            found.rungs.append(rung)
            found.text = text
        for rung, text in _tuning_rungs(found, setting, candidates, jobs, executor, unproved):
            found.rungs.append(rung)
            found.text = text
        if found.costs.us > (1.0 - MIN_GAIN) * before:
            break
    return found


def _record(target: Target, text: str, setting: Setting) -> Recording:
    with contextlib.redirect_stderr(io.StringIO()):  # discard output of the script
        return record(dataclasses.replace(target, text=text), setting.options)


def _rewriting_rungs(
    found: Optimised, setting: Setting, unproved: bool
) -> Iterator[tuple[Rung, str]]:
    target = dataclasses.replace(found.target, text=found.text)
    try:
        report = Advisor(target, setting, unproved=unproved).fix()
    except UserError:
        return  # the advisor cannot read this script; sizes may still help
    for step in report.steps:
        names = ", ".join(step.finding.rules)
        yield Rung(names, step.costs, step.finding.claim), report.text


def _tuning_rungs(
    found: Optimised,
    setting: Setting,
    candidates: int,
    jobs: int | None,
    executor: Executor | str | None,
    unproved: bool,
) -> Iterator[tuple[Rung, str]]:
    target = dataclasses.replace(found.target, text=found.text)
    question = Question(target, (setting.machine.name,), setting.period, setting.options.seed)
    try:
        outcome = tune(Request(question, candidates=candidates, jobs=jobs, executor=executor))
    except (NothingToVary, NothingFits):
        return
    verdict, settings = outcome.winner.verdict, outcome.winner.settings
    if not settings or verdict is None or not verdict.passed:
        return
    change = ", ".join(f"{name}={value}" for name, value in settings.items())
    if verdict.claim is not Claim.PROVED and not unproved:
        found.held_back.append(change)
        return
    text = outcome.subject.varied(settings).text or found.text
    tried = _record(found.target, text, setting)
    costs = costs_of(
        [DeviceRun(run, setting.machine, setting.period).summary for run in tried.runs]
    )
    if costs.us < found.costs.us:
        yield Rung(change, costs, verdict.claim), text
