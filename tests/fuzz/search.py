"""Searches for refuted claims, seed by seed, with counts that survive a restart.

    python -m tests.fuzz.rewrites --programs 20000 --counts counts.json

A counts file holds the seed, the number of the next program, and what was seen so far.
"""

from __future__ import annotations

import argparse
import gc
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SHOWN_EVERY = 30.0
_MAX_SHOWN = 5


@dataclass
class Tally:
    """Outcomes of a search; `wrong` has the seed and the evidence of each refuted claim."""

    programs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, str, str]] = field(default_factory=list)

    def lines(self) -> list[str]:
        rows = [f"  {count:>8} {outcome}" for outcome, count in sorted(self.outcomes.items())]
        return [f"{self.programs} programs", *rows, f"{len(self.wrong)} wrong"]


@dataclass
class Counts:
    """Progress of a search, kept in a file if there is one."""

    seed: int
    tally: Tally
    next: int = 0

    def save(self, path: Path | None) -> None:
        if path is None:
            return
        data = {
            "seed": self.seed,
            "next": self.next,
            "programs": self.tally.programs,
            "outcomes": dict(sorted(self.tally.outcomes.items())),
            "wrong": self.tally.wrong,
        }
        whole = path.with_suffix(".new")
        whole.write_text(json.dumps(data, indent=1))
        whole.replace(path)

    def load(self, path: Path | None) -> None:
        if path is None or not path.exists():
            return
        data = json.loads(path.read_text())
        self.seed, self.next = data["seed"], data["next"]
        self.tally.programs = data["programs"]
        self.tally.outcomes.update(data["outcomes"])
        self.tally.wrong.extend(tuple(w) for w in data["wrong"])


def search(
    judge: Callable[[int], None],
    tally: Tally,
    name: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Judge seed after seed, filling `tally`; return 1 if a claim is refuted."""
    parser = argparse.ArgumentParser(f"tests.fuzz.{name}")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="else a new one, which is printed")
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="no more than so many")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="continue from these counts")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    counts = Counts(seed, tally)
    counts.load(options.counts)
    print(f"SEED={counts.seed}", flush=True)
    gc.freeze()  # exclude imported objects from collections
    gc.set_threshold(100_000)
    begun = shown = time.monotonic()
    while tally.programs < options.programs and time.monotonic() - begun < options.seconds:
        judge(counts.seed * 1_000_003 + counts.next)
        counts.next += 1
        if time.monotonic() - shown > _SHOWN_EVERY:
            shown = time.monotonic()
            counts.save(options.counts)
            print(f"{tally.programs} programs, {len(tally.wrong)} wrong", flush=True)
    counts.save(options.counts)
    for found, outcome, evidence in tally.wrong[:_MAX_SHOWN]:
        print(f"--- {found}: {outcome}\n{evidence}")
    print("\n".join(tally.lines()))
    return int(bool(tally.wrong))
