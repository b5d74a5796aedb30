"""The result of tuning, as text and JSON."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from tilelet.dataclasses import dataclass
from tilelet.device.report.compare import ProfileComparison
from tilelet.device.report.profile import Profile
from tilelet.diag.catalogue.tuner import BetterValue
from tilelet.diag.core import Diagnostic
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, byte_text, number, times
from tilelet.diag.text import plural, quoted_names
from tilelet.equivalence.claims import Claim
from tilelet.tuning.evaluate import Score, Verdict
from tilelet.tuning.knobs import Knob, Setting, Settings, TunableProgram

_MAX_SHOWN = 8
_UNITS = {"gm_bytes": "bytes", "tasks": "tasks"}


@dataclass(frozen=True)
class Winner:
    """The best candidate.

    verdict  of its run on the CPU; None if it was not run
    without  its cost without each of its changes
    """

    settings: Settings
    score: Score
    verdict: Verdict | None
    without: Mapping[str, Score]


@dataclass(frozen=True)
class TuneResult:
    """The result of a search.

    space       the values that were tried for each knob
    left_alone  knobs that cannot be varied, and why
    scores      every candidate with its score, in the order they were tried
    failed      candidates whose results differ from the script's golden
    timed_out_after  number of candidates tried before the time limit; None if it was not reached
    profiles    of the start and of the winner, one for each program that the script runs
    """

    subject: TunableProgram
    machines: Sequence[str]
    objective: str
    start: Score
    winner: Winner
    space: Mapping[str, Sequence[Setting]]
    left_alone: Mapping[str, str]
    method: str
    scores: Sequence[tuple[Settings, Score]]
    failed: Sequence[tuple[Settings, Verdict]]
    profiles: Sequence[Sequence[str]]
    interrupted: bool = False
    timed_out_after: int | None = None

    @cached_property
    def ratio(self) -> float:
        """Improvement of the winner on the first machine; 1 if there is none."""
        name = next(iter(self.winner.score.figures))
        before = self.start.figures.get(name)
        after = self.winner.score.figures[name][self.objective]
        return before[self.objective] / after if before and after else 1.0

    @cached_property
    def comparisons(self) -> list[ProfileComparison]:
        """Comparison of winner and start for each program."""
        if len(self.profiles) < 2 or not self.winner.settings:
            return []
        start, best = ([Profile.from_json(text, "") for text in side] for side in self.profiles)
        return [ProfileComparison(a, b) for a, b in zip(start, best)]

    def pareto(self) -> list[tuple[Settings, Score]]:
        """Pareto-optimal candidates over all machines, sorted by the first."""
        found: list[tuple[Settings, Score]] = []
        rows = [(s, score) for s, score in self.scores if self._counts(score)]
        for settings, score in sorted(rows, key=lambda row: (self._vector(row[1]), len(row[0]))):
            if not any(self._dominates(other, score) for _, other in found):
                found.append((settings, score))
        return found

    def _counts(self, score: Score) -> bool:
        return score.is_modelled and score.signature == self.winner.score.signature

    def _vector(self, score: Score) -> tuple[float, ...]:
        return tuple(figures[self.objective] for figures in score.figures.values())

    def _dominates(self, a: Score, b: Score) -> bool:
        return all(x <= y for x, y in zip(self._vector(a), self._vector(b)))

    # For people

    def parts(self) -> list[str | Table]:
        """Return the report."""
        parts: list[str | Table] = [self._verdict_text(), *self._change_tables()]
        parts += self._rankings()
        sides = "The program as it stands", "The change"
        parts += [comparison.why(sides) for comparison in self.comparisons]
        if self.patch:
            parts.append(f"To write it into the script:\n{self.patch}")
        parts.append(self._searched())
        return parts

    def _verdict_text(self) -> str:
        if not self.winner.settings:
            text = "No candidate is better than the program as it stands."
        else:
            values = ", ".join(f"{name}={value}" for name, value in self.winner.settings.items())
            text = f"{self._gain()} with {values}."
        verdict = self.winner.verdict
        if self.interrupted:
            text = f"Interrupted. So far: {text} It was not run."
        elif verdict is not None:
            compared = "PASS against the golden" if verdict.validated else "runs; it has no golden"
            text += f" On this CPU: {compared}, {verdict.seconds * 1e3:,.1f} ms."
            if self.winner.settings:
                text += f" Results as before, but for rounding: {verdict.claim.value}."
        return text

    def _gain(self) -> str:
        """Return `1.19x faster, modelled`, or the reduction of another objective."""
        how = {"us": "faster, modelled", "cpu_ms": "faster on this CPU"}
        return f"{self.ratio:.2f}x {how.get(self.objective, f'fewer {_UNITS.get(self.objective)}')}"

    def _change_tables(self) -> list[Table]:
        """Return the table of changes, each with the result with and without it."""
        machines = list(self.winner.score.figures)
        what = _LABELS[self.objective]
        heads = ("change", "now", "then", *(f"{m} {what} without it" for m in machines))
        changes = Table("", heads)
        knobs = {knob.name: knob for knob in self.subject.knobs}
        for name, value in self.winner.settings.items():
            less = self.winner.without.get(name)
            cells = [
                self._figure(less.figures[m][self.objective]) if less else "-" for m in machines
            ]
            changes.rows.append(
                (_place_of(knobs[name]), str(knobs[name].value), str(value), *cells)
            )
        figures_of = Table("", ("figure", "now", "then", "ratio"))
        for machine, figures in self.winner.score.figures.items():
            before = self.start.figures.get(machine, {})
            for key, after in figures.items():
                was = before.get(key)
                cells = ("-" if was is None else _shown_cost(key, was), _shown_cost(key, after))
                ratio = "" if was is None else times(after, was)
                figures_of.rows.append((f"{machine} {_LABELS[key]}", *cells, ratio))
        return [changes, figures_of] if changes.rows else [figures_of]

    def _figure(self, value: float) -> str:
        return _shown_cost(self.objective, value)

    def _rankings(self) -> list[Table]:
        if len(self.winner.score.figures) < 2:
            return []
        machines = list(self.winner.score.figures)
        heads = ("no other is better on all machines", *machines)
        table = Table("", heads)
        for settings, score in self.pareto()[:_MAX_SHOWN]:
            text = ", ".join(f"{n}={v}" for n, v in settings.items()) or "as it stands"
            cells = [self._figure(figures[self.objective]) for figures in score.figures.values()]
            table.rows.append((text, *cells))
        return [table]

    def _searched(self) -> str:
        counts = Counter(score.status for _, score in self.scores)
        what = ", ".join(f"{n:,} {status}" for status, n in counts.most_common())
        lines = [f"{plural(len(self.scores), 'candidate')} ({what}) by {self.method} search."]
        if self.timed_out_after is not None:
            again = f"`--budget {self.timed_out_after} --method {self.method}`"
            lines.append(f"  the time given was used up; {again} gives this answer at any load")
        for name, values in self.space.items():
            lines.append(f"  {name}: {', '.join(map(str, values))}")
        by_reason: dict[str, list[str]] = {}
        for name, why in self.left_alone.items():
            by_reason.setdefault(why, []).append(name)
        lines += [f"  left alone: {quoted_names(n, 'and')} ({why})" for why, n in by_reason.items()]
        for settings, verdict in self.failed:
            text = ", ".join(f"{n}={v}" for n, v in settings.items()) or "the program as it stands"
            lines.append(f"  wrong on this CPU: {text}: {verdict.why}")
        return "\n".join(lines)

    @cached_property
    def patch(self) -> str:
        """The change of the script as a unified diff; empty for a program that ships."""
        if not self.winner.settings:
            return ""
        before, after = self.subject.target, self.subject.varied(self.winner.settings)
        if before.text is None or after.text is None:
            return ""
        lines = difflib.unified_diff(
            before.text.splitlines(keepends=True),
            after.text.splitlines(keepends=True),
            before.name,
            before.name,
            n=0,
        )
        return "".join(lines)

    # For programs

    def diagnostics(self) -> list[Diagnostic]:
        """Return a note at each number that should change."""
        knobs = {knob.name: knob for knob in self.subject.knobs}
        found: list[Diagnostic] = []
        for name, value in self.winner.settings.items():
            loc = knobs[name].loc
            if loc is not None:
                what = self._gain()
                found.append(BetterValue(loc, name, knobs[name].value, value, what).diagnostic)
        return found

    def to_data(self) -> JsonObject:
        verdict = self.winner.verdict
        return {
            "objective": self.objective,
            "method": self.method,
            "interrupted": self.interrupted,
            "timed_out_after": self.timed_out_after,
            "start": self._with_interval(_data({}, self.start), 0),
            "best": {
                **self._with_interval(_data(self.winner.settings, self.winner.score), 1),
                "ratio": round(self.ratio, 4),
                "passed": verdict.passed if verdict else None,
                "validated": verdict.validated if verdict else None,
                "claim": (verdict.claim if verdict else Claim.NOT_TRIED).value,
                "patch": self.patch,
            },
            "pareto": [_data(settings, score) for settings, score in self.pareto()],
            "comparisons": [comparison.to_data() for comparison in self.comparisons],
            "varied": {name: list(values) for name, values in self.space.items()},
            "left_alone": dict(self.left_alone),
            "failed": [{"settings": dict(s), "why": v.why} for s, v in self.failed],
            "candidates": [_data(settings, score) for settings, score in self.scores],
        }

    def _with_interval(self, data: JsonObject, side: int) -> JsonObject:
        """Return the figures of the first machine, including the modelled time."""
        if len(self.profiles) < 2 or "figures" not in data:
            return data
        bounds = [Profile.from_json(text, "").interval for text in self.profiles[side]]
        known = bool(bounds) and all(len(b) == 2 for b in bounds)
        between = [round(sum(b[i] for b in bounds), 4) for i in (0, 1)] if known else None
        data["figures"][self.machines[0]]["interval_us"] = between
        return data


_LABELS = {"us": "us", "gm_bytes": "GM bytes", "tasks": "tasks", "cpu_ms": "CPU ms"}


def _shown_cost(key: str, value: float) -> str:
    if key == "gm_bytes":
        return byte_text(int(value))
    return f"{value:,.0f}" if key == "tasks" else number(value)


def _place_of(knob: Knob) -> str:
    """Return `K_CHUNK (line 12)`; names of arguments include their line already."""
    return f"{knob.name} (line {knob.loc.line})" if knob.loc and "@" not in knob.name else knob.name


def _data(settings: Settings, score: Score) -> JsonObject:
    data: JsonObject = {"settings": dict(settings), "status": score.status}
    if score.why:
        data["why"] = score.why
    if score.figures:
        data["figures"] = {m: dict(f) for m, f in score.figures.items()}
    return data
