"""The tuner: find knobs, search with the model, verify the winner on the CPU."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.tuner import (
    ChangesProblem,
    NothingFits,
    NothingToVary,
    UnknownKnob,
)
from tilelet.runtime.progress import progress
from tilelet.tuning import search
from tilelet.tuning.evaluate import (
    LOST,
    Question,
    Score,
    Verdict,
    measure,
    model,
    profile,
    verify,
)
from tilelet.tuning.knobs import Knob, Setting, Settings, TunableProgram, subject_of
from tilelet.tuning.results import Results
from tilelet.tuning.tune_result import TuneResult, Winner
from tilelet.tuning.values import values_for
from tilelet.tuning.workers import Lost, Workers, workers

OBJECTIVES = US, GM_BYTES, TASKS, CPU_MS = "us", "gm_bytes", "tasks", "cpu_ms"
METHODS: Mapping[str, search.Method] = {
    "exhaustive": search.exhaustive_search,
    "descent": search.descent,
    "random": search.random_search,
}
_PROBES = 3
"""Number of values tried before a knob is given up."""

_MIN_SHARE = 1e-9  # avoids the logarithm of 0 for programs without tasks


@dataclass(frozen=True)
class Request:
    """Options of a search.

    vary        values of knobs by name; an empty tuple leaves them to the tuner. Empty: all
                knobs
    candidates  maximum number of modelled candidates
    seconds     time limit
    method      of `METHODS`; None: the exhaustive one if all candidates may be modelled
    seed        of the search; `question.seed` is that of the inputs
    results     file for scores, from which a search resumes
    verify      maximum number of best candidates run on the CPU until one passes
    """

    question: Question
    vary: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict[str, tuple[Setting, ...]])
    objective: str = US
    candidates: int = 200
    seconds: float = math.inf
    method: str | None = None
    seed: int = 0
    jobs: int | None = None
    executor: Executor | str | None = None
    results: Path | None = None
    verify: int = 5


def tune(request: Request) -> TuneResult:
    """Search for better values. Ctrl-C ends the search with the results so far."""
    jobs = 1 if request.objective == CPU_MS else request.jobs
    with workers(jobs, request.executor) as pool:
        return _Tuner(request, pool).run()


class _OutOfBudget(Exception):  # noqa: N818 - it is how a search ends
    pass


class _Tuner:
    def __init__(self, request: Request, pool: Workers) -> None:
        self._request = request
        self._pool = pool
        self._subject: TunableProgram = subject_of(request.question.target)
        self._results = Results(self._question({}), request.results)
        self._deadline = time.monotonic() + request.seconds
        self._asked: dict[str, tuple[Settings, Score]] = {}  # in the order of the search
        self._left_alone: dict[str, str] = {}
        self._interrupted = False
        self._timed_out_after: int | None = None

    def run(self) -> TuneResult:
        try:
            return self._run()
        finally:
            self._pool.close()

    def _run(self) -> TuneResult:
        if self._results.get({}) is None:
            self._pool.begin_with(self._evaluate, self._question({}))
        start = self._ask([{}], unlimited=True)[0]
        space: dict[str, tuple[Setting, ...]] = {}
        method = "descent"
        try:
            space = self._space(start)
            fits = search.size(space) <= self._request.candidates
            method = self._request.method or ("exhaustive" if fits else "descent")
            self._search(METHODS[method], space, start)
        except _OutOfBudget:
            pass
        except KeyboardInterrupt:
            self._interrupted = True
        ranking = self._ranking(start)
        if not ranking:
            scores = [score for _, score in self._asked.values()]
            raise NothingFits(self._name, len(scores), _reasons(scores))
        return self._outcome(start, space, method, ranking)

    # What to vary

    def _space(self, start: Score) -> dict[str, tuple[Setting, ...]]:
        """Return the values of every knob that can be varied."""
        knobs = {knob.name: knob for knob in self._subject.knobs}
        asked = _expand(self._request.vary, knobs, self._name)
        space: dict[str, tuple[Setting, ...]] = {}
        for knob in [knobs[name] for name in asked] if asked else knobs.values():
            space[knob.name] = asked.get(knob.name) or values_for(knob, start.sizes)
            if knob.value not in space[knob.name]:
                space[knob.name] = (knob.value, *space[knob.name])
        if start.signature:
            self._leave_alone(space, knobs, start, named=bool(asked))
        if not any(len(values) > 1 for values in space.values()):
            raise NothingToVary(self._name, self._left_alone)
        return space

    def _leave_alone(
        self,
        space: dict[str, tuple[Setting, ...]],
        knobs: Mapping[str, Knob],
        start: Score,
        *,
        named: bool,
    ) -> None:
        """Drop knobs that are problem sizes, have no effect, or accept no other value."""
        probes = {name: _nearest(values, knobs[name].value) for name, values in space.items()}
        pairs = [(name, value) for name, values in probes.items() for value in values]
        scores = self._ask([{name: value} for name, value in pairs], unlimited=True)
        by_name: dict[str, list[Score]] = {name: [] for name in space}
        for (name, value), score in zip(pairs, scores):
            if named and score.signature not in ((), start.signature):
                raise ChangesProblem(name, value)
            by_name[name].append(score)
        for name, found in by_name.items():
            why = _why_left_alone(found, start)
            if why:
                self._left_alone[name] = why
                if not named:
                    del space[name]

    # Searching

    def _search(
        self, method: search.Method, space: dict[str, tuple[Setting, ...]], start: Score
    ) -> None:
        now = {knob.name: knob.value for knob in self._subject.knobs if knob.name in space}
        batches = method(space, now, self._request.seed)
        try:
            batch = next(batches)
            while True:
                scores = self._ask([self._changed(c) for c in batch])
                batch = batches.send([self._cost(score, start) for score in scores])
        except StopIteration:
            return

    def _changed(self, settings: Settings) -> dict[str, Setting]:
        """Return only settings that differ from the original, which identifies a candidate."""
        now = {knob.name: knob.value for knob in self._subject.knobs}
        return {name: value for name, value in settings.items() if value != now[name]}

    def _ask(self, candidates: Sequence[Settings], *, unlimited: bool = False) -> list[Score]:
        """Return scores of candidates; workers evaluate new ones."""
        if not unlimited and time.monotonic() > self._deadline:
            self._timed_out_after = len(self._asked)
            raise _OutOfBudget
        new = [c for c in candidates if self._results.get(c) is None]
        room = self._request.candidates - len(self._asked)
        if not unlimited and room <= 0 and any(_text(c) not in self._asked for c in candidates):
            raise _OutOfBudget
        if not unlimited:
            new = new[: max(room, 0)]
        with progress(f"{self._name}: {len(self._asked):,} candidates so far"):
            for number, answer in self._pool.map(
                self._evaluate, [(self._question(c),) for c in new]
            ):
                score = Score(LOST, str(answer)) if isinstance(answer, Lost) else answer
                self._results.add(new[number], score)
        scores: list[Score] = []
        for candidate in candidates:
            score = self._results.get(candidate)
            if score is None:  # beyond the budget
                raise _OutOfBudget
            self._asked[_text(candidate)] = candidate, score
            scores.append(score)
        return scores

    def _cost(self, score: Score, start: Score) -> float:
        """Return the mean over machines of the objective relative to the start."""
        if not score.is_modelled or (start.signature and score.signature != start.signature):
            return math.inf
        objective = self._request.objective
        shares = [
            max(figures[objective], _MIN_SHARE) / _of_start(start, name, objective)
            for name, figures in score.figures.items()
        ]
        return math.exp(sum(map(math.log, shares)) / len(shares))

    # The winner

    def _ranking(self, start: Score) -> list[Settings]:
        """Return all feasible candidates, best first; ties go to the smallest change."""
        every = [(c, s) for c, s in self._asked.values() if self._cost(s, start) < math.inf]
        every.sort(key=lambda item: (self._cost(item[1], start), len(item[0]), repr(item[0])))
        return [settings for settings, _ in every]

    def _outcome(
        self,
        start: Score,
        space: Mapping[str, tuple[Setting, ...]],
        method: str,
        ranking: Sequence[Settings],
    ) -> TuneResult:
        best, verdict, failed = self._verified(ranking)
        simple = self._simplified(best, start) if not self._interrupted else best
        if simple != best and verdict is not None:
            again = self._verdict(simple)
            best, verdict = (simple, again) if again.passed else (best, verdict)
        elif verdict is None:
            best = simple
        score = self._results.get(best) or start
        profiles: list[list[str]] = []
        if not self._interrupted:
            calls = [(self._question({}),), (self._question(best),)]
            answers = dict(self._pool.map(profile, calls))
            profiles = [a for a in (answers[0], answers[1]) if not isinstance(a, Lost)]
        without = self._without_each(best)
        return TuneResult(
            subject=self._subject,
            machines=self._request.question.machines,
            objective=self._request.objective,
            start=start,
            winner=Winner(best, score, verdict, without),
            space=space,
            left_alone=self._left_alone,
            method=method,
            scores=list(self._asked.values()),
            failed=failed,
            profiles=profiles,
            interrupted=self._interrupted,
            timed_out_after=self._timed_out_after,
        )

    def _verified(
        self, ranking: Sequence[Settings]
    ) -> tuple[Settings, Verdict | None, list[tuple[Settings, Verdict]]]:
        """Return the best candidate with correct results, and those with wrong ones."""
        failed: list[tuple[Settings, Verdict]] = []
        if self._interrupted or not self._request.verify:
            return ranking[0], None, failed
        wrong: set[tuple[str, Setting]] = set()
        for settings in ranking:
            if any(item in wrong for item in settings.items()):
                continue
            verdict = self._verdict(settings)
            if verdict.passed:
                return settings, verdict, failed
            failed.append((settings, verdict))
            if len(failed) >= self._request.verify or not settings:
                break
            # A knob that changes results is not a tile size: exclude it.
            for name, value in settings.items():
                alone = {name: value}
                if alone == settings or not self._verdict(alone).passed:
                    wrong.add((name, value))
        return {}, None, failed

    def _verdict(self, settings: Settings) -> Verdict:
        """Run a candidate on this CPU."""
        questions = self._question(settings), self._question({})
        with progress(f"running {_text(settings) or 'the program as it stands'} on this CPU"):
            ((_, answer),) = self._pool.map(verify, [questions])
        return Verdict(False, False, why=str(answer)) if isinstance(answer, Lost) else answer

    def _simplified(self, best: Settings, start: Score) -> Settings:
        """Remove changes without a gain."""
        self._ask([_without_setting(best, name) for name in best], unlimited=True)  # all at once
        for name in list(best):
            less = _without_setting(best, name)
            score = self._ask([less], unlimited=True)[0]
            now = self._results.get(best)
            if now is not None and self._cost(score, start) <= self._cost(now, start):
                best = less
        return best

    def _without_each(self, best: Settings) -> dict[str, Score]:
        """Return the winner's cost without each of its changes."""
        found: dict[str, Score] = {}
        for name in best:
            score = self._results.get(_without_setting(best, name))
            if score is not None and score.is_modelled:
                found[name] = score
        return found

    # Helpers

    @property
    def _evaluate(self) -> Callable[[Question], Score]:
        return measure if self._request.objective == CPU_MS else model

    @property
    def _name(self) -> str:
        return self._request.question.target.name

    def _question(self, settings: Settings) -> Question:
        target = self._subject.varied(settings) if settings else self._subject.target
        return dataclasses.replace(self._request.question, target=target)


def _without_setting(settings: Settings, name: str) -> Settings:
    return {n: v for n, v in settings.items() if n != name}


def _expand(
    vary: Mapping[str, tuple[Setting, ...]], knobs: Mapping[str, Knob], program: str
) -> dict[str, tuple[Setting, ...]]:
    """Return the requested values; `chunk` means every `chunk@…`."""
    found: dict[str, tuple[Setting, ...]] = {}
    for name, values in vary.items():
        meant = [k for k in knobs if k == name or k.startswith(f"{name}@")]
        if not meant:
            raise UnknownKnob(name, list(knobs), program)
        found.update(dict.fromkeys(meant, values))
    return found


def _nearest(values: Sequence[Setting], value: Setting) -> list[Setting]:
    """Return other values, half and double first."""
    others = [v for v in values if v != value]
    if isinstance(value, str):
        return others[:_PROBES]

    def distance(other: Setting) -> float:
        return abs(math.log2(int(other) / value) - 0.5) if isinstance(other, int) else 0.0

    half = [v for v in others if isinstance(v, int) and 2 * v == value]
    rest = sorted((v for v in others if v not in half), key=distance)
    return [*half, *rest][:_PROBES]


def _why_left_alone(scores: Sequence[Score], start: Score) -> str:
    """Return why a knob cannot be varied, or ""."""
    if not scores:
        return "no other value to try"
    known = [s for s in scores if s.signature]
    same = [s for s in known if s.signature == start.signature]
    if known and not same:
        return "a size of the program's parameters, or its inputs depend on it"
    if same and all(s.digest == start.digest for s in same):
        return "nothing depends on it"
    if not same:
        return f"no other value works: {scores[0].why}"
    return ""


def _of_start(start: Score, machine: str, objective: str) -> float:
    figures = start.figures.get(machine)
    return max(figures[objective], _MIN_SHARE) if figures else 1.0


def _reasons(scores: Iterable[Score]) -> list[str]:
    counts = Counter(f"{score.status}: {score.why}" for score in scores)
    return [f"{count} x {text}" for text, count in counts.most_common(3)]


def _text(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
