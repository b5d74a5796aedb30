"""`make fuzz`: programs, texts and inputs without end, judged in processes of their own.

A case is a program with one set of inputs; every program is tried with several. Valid programs come
from tests/generated, of all kinds: the interpreter must compute what the oracle
says, and the native engine the same bits with any number of threads and in any order of tasks.
Changed texts and spoilt inputs must give an error with a code or a result, the same on both.
Where `tcc` is installed it compiles most of them, which is an order of magnitude quicker; what
fails is judged again with the default compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import quick
from tests.fuzz.cases import KINDS, Case, draw
from tests.fuzz.pool import Pool, judged
from tests.fuzz.reduce import reduced
from tests.fuzz.search import Counts, Tally
from tests.fuzz.verdict import FAILURES, Verdict

from tilelet.cpu.run import sanitize
from tilelet.native.toolchain import find_compiler

TOGETHER = 16  # cases that are compiled as one text
# Compiling is most of the work, and takes three times as long with the default -O3.
LEVELS = ("-O0",) * 14 + ("-O1", "-O3")
# The quick compiler changes that; the default one still compiles a sample.
QUICK_LEVELS = (quick.LEVEL,) * 60 + ("-O0", "-O0", "-O1", "-O3")
ALIKE = 1  # number of similar failures that are reduced


class Run:
    """One run of the target."""

    def __init__(self, options: argparse.Namespace, worker: str) -> None:
        self.seed = options.seed
        self.focus = options.focus
        self.folder = Path(options.output) / f"fuzz_{self.seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.begun = time.monotonic()
        self.until = self.begun + options.seconds
        self.most = options.programs
        self.counts = Counts(self.seed, Tally())
        self.counts.load(options.counts)
        self.seed, self.counts_file = self.counts.seed, options.counts
        self.kinds: Counter[str] = Counter()
        self.alike: Counter[str] = Counter()
        self.failures: list[tuple[Case, Verdict]] = []
        cache = options.cache or str(self.folder / "cache")
        # One thread of NumPy, because processes use all cores.
        self.environment = {"TILELET_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        if options.sanitize:
            self.environment |= {"TILELET_SANITIZE": "1", **sanitize.environment(find_compiler())}
            self.environment["UBSAN_OPTIONS"] = "halt_on_error=1"  # a crash, which is noticed
        self.levels = LEVELS
        if quick.command() and not options.sanitize:
            self.levels = QUICK_LEVELS
            self.environment[quick.FOLDER] = str(self.folder / "quick")
        self.jobs = options.jobs
        self.worker = worker

    def batches(self) -> Iterator[tuple[list[Case], str]]:
        while time.monotonic() < self.until and self.counts.next < self.most:
            number = self.counts.next
            count = min(TOGETHER, self.most - number)
            self.counts.next += count
            cases = [draw(self.seed, number + i, self.focus) for i in range(count)]
            yield cases, self.levels[number // TOGETHER % len(self.levels)]

    def search(self) -> None:
        if self.levels is QUICK_LEVELS:
            quick.prepare(Path(self.environment[quick.FOLDER]))
        pool = Pool(self.jobs, self.environment, self.worker)
        second = Pool(1, self.environment, self.worker)
        shown = self.begun
        try:
            for case, verdict in pool.judge(self.batches()):
                if verdict.is_failure and self.levels is QUICK_LEVELS:
                    (verdict,) = judged(second, [case])
                self.count(case, verdict)
                if time.monotonic() - shown > 30:
                    shown = time.monotonic()
                    self.counts.save(self.counts_file)
                    print(self.so_far(), flush=True)
        finally:
            self.counts.save(self.counts_file)
            pool.close()
            second.close()

    def count(self, case: Case, verdict: Verdict) -> None:
        tally = self.counts.tally
        tally.programs += 1
        tally.outcomes[f"{case.family}: {verdict.kind}"] += verdict.inputs
        self.kinds[verdict.kind] += verdict.inputs
        if verdict.is_failure:
            tally.wrong.append((case.origin.get("number", 0), verdict.signature, verdict.detail))
            self.note(case, verdict)

    def note(self, case: Case, verdict: Verdict) -> None:
        self.alike[verdict.signature] += 1
        number = case.origin.get("number", 0)
        path = self.folder / f"case_{number}.json"
        path.write_text(json.dumps(case.to_json()))
        if self.alike[verdict.signature] <= ALIKE:
            print(f"case {number}: {verdict.signature}", flush=True)
            self.failures.append((case, verdict))

    def so_far(self) -> str:
        seconds = time.monotonic() - self.begun
        total = sum(self.kinds.values())
        shown = ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items()))
        programs = self.counts.tally.programs
        return f"{seconds:.0f} s: {programs} programs; {total} cases in this run: {shown}"

    def reduce_all(self) -> None:
        pool = Pool(1, self.environment, self.worker)
        try:
            for case, verdict in self.failures:
                self.reduce(pool, case, verdict)
        finally:
            pool.close()

    def reduce(self, pool: Pool, case: Case, verdict: Verdict) -> None:
        def fails(cases: Sequence[Case]) -> int | None:
            for i, found in enumerate(judged(pool, cases)):
                if found.kind == verdict.kind:
                    return i
            return None

        smallest = reduced(case, fails)
        number = case.origin.get("number", 0)
        text = smallest.kernel().text
        (self.folder / f"smallest_{number}.py").write_text(text)
        (self.folder / f"smallest_{number}.json").write_text(json.dumps(smallest.to_json()))
        print(f"\n--- case {number}, reduced: {self.folder}/smallest_{number}.py")
        print(f"{verdict.kind}: {verdict.detail}\n\n{text}", flush=True)


def replay(path: Path, run: Run) -> int:
    """Judge a stored case, and reduce it if it fails."""
    case = Case.from_json(json.loads(path.read_text()))
    pool = Pool(1, run.environment, run.worker)
    try:
        (verdict,) = judged(pool, [case])
        print(f"{case.kernel().text}\n{verdict.kind}: {verdict.detail}")
        if verdict.is_failure:
            run.reduce(pool, case, verdict)
    finally:
        pool.close()
    return int(verdict.is_failure)


def main(arguments: Sequence[str] | None = None, worker: str = "tests.fuzz.worker") -> int:
    parser = argparse.ArgumentParser("make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="else a new one, which is printed")
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="no more than so many")
    parser.add_argument("--focus", choices=KINDS, default="", help="else all of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", default="build_output", help="where the run directory is made")
    parser.add_argument(
        "--cache", default="", help="of compiled programs; else in the run directory"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="watch memory and undefined behavior; slower"
    )
    parser.add_argument("--counts", type=Path, metavar="FILE", help="continue from these counts")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="judge one case again")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = secrets.randbelow(1 << 31)
    run = Run(options, worker)
    if options.replay:
        return replay(options.replay, run)
    print(f"SEED={run.seed}", flush=True)
    run.search()
    print(run.so_far())
    print("\n".join(run.counts.tally.lines()))
    for signature, count in run.alike.most_common():
        print(f"{count} times {signature}")
    run.reduce_all()
    return int(any(run.kinds[kind] for kind in FAILURES))


if __name__ == "__main__":
    sys.exit(main())
