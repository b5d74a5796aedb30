"""Scores of candidates: correctness times the share of the floor, on every machine."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from tilelet.device.machine.description import load_machine
from tilelet.diag.core import UserError
from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table, number
from tilelet.gym.tasks import Task
from tilelet.oracle.judgement import judge_candidate
from tilelet.oracle.reference import Reference, load_reference
from tilelet.tuning.workers import Lost, workers

MACHINES = ("a2a3", "a5")
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Score:
    """The score of one task: modelled time and floor by machine, and the share reached."""

    task: str
    level: int
    status: str
    why: str = ""
    us: Mapping[str, tuple[float, float]] | None = None

    @property
    def value(self) -> float:
        """Mean share of the floor over the machines; 0 unless the candidate is right and safe."""
        if self.status != "right" or not self.us:
            return 0.0
        return sum(min(1.0, floor / us) for us, floor in self.us.values()) / len(self.us)

    def to_data(self) -> JsonObject:
        return {
            "task": self.task,
            "level": self.level,
            "status": self.status,
            "why": self.why,
            "score": round(self.value, 4),
            "us": {m: round(us, 4) for m, (us, _) in (self.us or {}).items()},
            "floor_us": {m: round(floor, 4) for m, (_, floor) in (self.us or {}).items()},
        }


@functools.lru_cache(maxsize=4)
def _reference(name: str, script: str) -> Reference:
    with tempfile.TemporaryDirectory(prefix="tilelet-gym-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(script, encoding="utf-8")
        made = load_reference(path)
        _ = made.first, made.others, made.limits  # while the golden's source can be read
        return made


def score_text(task: Task, text: str, machines: Sequence[str] = MACHINES) -> Score:
    """Score the text of a candidate."""
    try:
        reference = _reference(task.name, task.script)
        with tempfile.TemporaryDirectory(prefix="tilelet-gym-") as folder:
            path = Path(folder) / f"{task.name}.py"
            path.write_text(text, encoding="utf-8")
            found = judge_candidate(path, reference, [load_machine(m) for m in machines])
    except UserError as error:
        return Score(task.name, task.level, "refused", error.diagnostic.message)
    status = found.status
    if status == "right" and found.findings:
        status = "unsafe"
    why = found.why or (found.findings[0].message if found.findings else "")
    us = {one.machine: (one.costs.us, one.floor.us) for one in found.on}
    return Score(task.name, task.level, status, why, us)


def score_folder(
    folder: Path,
    tasks: Mapping[str, Task],
    *,
    jobs: int | None = None,
    executor: Executor | str | None = None,
    machines: Sequence[str] = MACHINES,
) -> list[Score]:
    """Score the files of a folder, each named by its task, in parallel."""
    named = {p.stem: p for p in sorted(folder.glob("*.py"))}
    present = [task for name, task in tasks.items() if name in named]
    calls = [(t, named[t.name].read_text(encoding="utf-8"), tuple(machines)) for t in present]
    scores: dict[str, Score] = {}
    with workers(min(jobs, len(calls)) if jobs and calls else jobs, executor) as pool:
        for number_, answer in pool.map(score_text, calls):
            task = present[number_]
            if isinstance(answer, Lost):
                answer = Score(task.name, task.level, "refused", str(answer))
            scores[task.name] = answer
    return [scores.get(n, Score(n, t.level, NOT_TRIED)) for n, t in tasks.items()]


@dataclass(frozen=True)
class Board:
    """The scores of several entries, best first."""

    entries: Mapping[str, Sequence[Score]]

    def means(self) -> dict[str, float]:
        """Return the mean score of each entry over all tasks, best first."""
        found = {n: sum(s.value for s in e) / max(len(e), 1) for n, e in self.entries.items()}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def parts(self) -> list[str | Table]:
        means = self.means()
        heads = ("entry", "score", "level 1", "level 2", "level 3", "right", "tried")
        table = Table("", heads, left=1)
        for name, mean in means.items():
            scores = self.entries[name]
            levels = [_mean([s.value for s in scores if s.level == level]) for level in (1, 2, 3)]
            right = sum(s.status == "right" for s in scores)
            tried = sum(s.status != NOT_TRIED for s in scores)
            cells = [f"{v:.3f}" for v in (mean, *levels)]
            table.rows.append((name, *cells, str(right), str(tried)))
        best = Table("", ("task", "level", "best entry", "score", "us", "floor us"), left=1)
        for position, first in enumerate(next(iter(self.entries.values()))):
            won, name = max(((e[position], n) for n, e in self.entries.items()), key=_rank)
            us, floor = next(iter((won.us or {}).values()), (0.0, 0.0))
            shown = (
                (name, f"{won.value:.3f}", number(us), number(floor))
                if won.value
                else ("none", "0", "", "")
            )
            best.rows.append((first.task, str(first.level), *shown))
        return [table, best]

    def to_json(self) -> str:
        data = {n: [s.to_data() for s in scores] for n, scores in self.entries.items()}
        means = {n: round(v, 4) for n, v in self.means().items()}
        return json.dumps({"version": 1, "scores": means, "entries": data}, indent=1)


def _rank(entry: tuple[Score, str]) -> tuple[float, str]:
    return entry[0].value, entry[1]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
