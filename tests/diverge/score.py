"""Score `tilelet diverge` on faults written into the text of kernels.

    python -m tests.diverge.score                      the programs in tests/diverge/programs
    python -m tests.diverge.score --folder held_out    programs that nothing was developed on
    python -m tests.diverge.score --folder held_out_2  and later ones, also _3 to _5
    python -m tests.diverge.score --only "paged_gqa: stale" --verbose
    python -m tests.diverge.score --random 5 --seed 1  random changes instead, 5 of each program

Each program has a dictionary `FAULTS`: the text to replace, which occurs once, and its replacement.
A fault is found if it is repaired at a changed statement, or if the changed statement is among at
most `FEW` statements. A caret that blames a statement that was not changed is innocent.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import itertools
import linecache
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.diverge.mutants import Mutant, mutants

from tilelet.diag.core import Loc, UserError, UserErrors
from tilelet.divergence.answer import Answer, Options, answer
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.replay import Replay
from tilelet.runtime import run_jit, session
from tilelet.runtime.handlers.examine import Examine
from tilelet.runtime.session import Session

HERE = Path(__file__).parent
FEW = 5


@dataclass(frozen=True)
class Score:
    """The answer about one fault."""

    fault: str
    grade: str
    has_fault: bool
    size: int
    innocent: bool
    tried: int
    seconds: float

    @property
    def found(self) -> bool:
        return self.has_fault and self.size <= FEW and not self.innocent

    def __str__(self) -> str:
        mark = "ok  " if self.found else "MISS"
        caret = "INNOCENT CARET" if self.innocent else ""
        place = "has the line" if self.has_fault else "without it"
        return (
            f"{mark} {self.fault:44} {self.grade:10} {place:13} of {self.size:2} "
            f"{self.tried:5} repairs {self.seconds:6.1f} s {caret}"
        )


def load(name: str, text: str) -> Any:
    """Import a text as a module whose source can be shown."""
    file = f"<{name}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, None))  # type: ignore[arg-type]
    exec(compile(text, file, "exec"), module.__dict__)
    return module


def case_of(module: Any) -> GoldenCase:
    handler = Examine()
    quiet = io.StringIO()
    near = {"rtol": module.TOLERANCE, "atol": module.TOLERANCE}
    quieted = contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet)
    with session.active(Session(handler)), quieted[0], quieted[1]:
        run_jit(module.kernel, module.SPECS, golden_fn=module.golden, **near)
    return handler.cases[0][1]


def statements(text: str) -> dict[int, int]:
    """Map every line to the first line of its innermost statement."""
    found: dict[int, int] = {}
    for node in ast.walk(ast.parse(text)):  # outer statements first
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[line] = node.lineno
    return found


def changed_lines(text: str, old: str, new: str) -> set[int]:
    """Return the lines of the changed text that differ from the original."""
    before = text.split(old, maxsplit=1)[0].count("\n") + 1
    pairs = old.split("\n"), new.split("\n")
    differ = [i for i, (a, b) in enumerate(zip(*pairs)) if a != b]
    return {before + i for i in differ}


def score(name: str, text: str, old: str, new: str, budget: float) -> tuple[Score, Answer]:
    kernel = text.split("FAULTS =", maxsplit=1)[0]
    assert kernel.count(old) == 1, f"{name}: {old!r} does not occur once"
    broken = kernel.replace(old, new)
    case = case_of(load(name, broken))
    return score_of(name, case, broken, changed_lines(kernel, old, new), budget)


def score_of(
    name: str, case: GoldenCase, broken: str, changed: Collection[int], budget: float
) -> tuple[Score, Answer]:
    by_line = statements(broken)
    true = {by_line[line] for line in changed}
    start = time.perf_counter()
    result = answer(name, case, Options(budget))
    seconds = time.perf_counter() - start
    grade, places = graded(result)
    lines = {by_line[loc.line] for loc in places}
    innocent = grade == "repaired" and bool(lines - true)
    done = Score(name, grade, bool(true & lines), len(lines), innocent, result.tried, seconds)
    return done, result


def graded(result: Answer) -> tuple[str, list[Loc]]:
    """Return the grade of an answer, and the statements that it blames or lists."""
    if result.divergence is not None:
        found = result.divergence
        return found.grade, [s.loc for s in found.listed]
    locs = [d.loc for d in result.diagnostics if d.loc is not None]
    return ("repaired", locs[:1]) if locs else ("not found", [])


def scores(folder: str, only: str, budget: float) -> Iterator[tuple[Score, Answer]]:
    for file in sorted((HERE / folder).glob("*.py")):
        text = file.read_text(encoding="utf-8")
        for fault, (old, new) in load(file.stem, text).FAULTS.items():
            name = f"{file.stem}: {fault}"
            if only in name:
                yield score(name, text, old, new, budget)


def random_scores(
    folder: str, only: str, budget: float, count: int, seed: int
) -> Iterator[tuple[Score, Answer]]:
    """Score random changes that make outputs wrong, `count` of each program."""
    for file in sorted((HERE / folder).glob("*.py")):
        kernel = file.read_text(encoding="utf-8").split("FAULTS =")[0]
        wrong = (m for m in mutants(kernel, seed) if only in file.stem and is_wrong(m))
        for mutant in itertools.islice(wrong, count if only in file.stem else 0):
            name = f"{file.stem}: {mutant.what}"
            case = case_of(load(name, mutant.text))
            yield score_of(name, case, mutant.text, mutant.lines, budget)


def is_wrong(mutant: Mutant) -> bool:
    """Return whether a changed program runs, and its outputs do not match the golden."""
    try:
        case = case_of(load(mutant.what, mutant.text))
        made = Replay(case.program, case.arguments).outputs(None)
    except (UserError, UserErrors, SyntaxError, IndexError, ArithmeticError):
        return False
    return bool(case.expected) and not case.passes(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="programs")
    parser.add_argument("--only", default="", help="part of the name of a fault")
    parser.add_argument("--budget", type=float, default=Options.budget)
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print the answers, too")
    args = parser.parse_args()
    done: list[Score] = []
    given = args.folder, args.only, args.budget
    found_by = random_scores(*given, args.random, args.seed) if args.random else scores(*given)
    for one, result in found_by:
        done.append(one)
        print(one, flush=True)
        if args.verbose:
            print(result)
    found, innocent = sum(s.found for s in done), sum(s.innocent for s in done)
    print(f"{found} of {len(done)} found, {innocent} innocent carets")


if __name__ == "__main__":
    main()
