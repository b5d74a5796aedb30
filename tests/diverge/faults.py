"""Seeded faults: one op of a right program is made wrong, and the checks have to say which.

    python -m tests.diverge.faults                  the table: faults of all classes, two in each
                                                    program, one in whole layers
    python -m tests.diverge.faults --log FILE       and append a line for each fault to a file;
                                                    faults that the file has are not searched again
    python -m tests.diverge.faults --write FILE...  write their table to docs/evidence.md
    python -m tests.diverge.faults --only offset --programs 06 --seed 3 --verbose

A fault counts if the comparison with the golden fails or a check reports it; one that changes no
output by more than the tolerance is not visible to anybody. A fault is placed if `diverge` repairs
its line, or if the first message lists its line among a few statements. Three classes have other
rules. A removed op has no line: the line of its operand counts, or that of the op that now takes
the operand (views count as names of their tensor), and for a store the line of the value that is
no longer stored. A shrunk buffer is placed if the line that creates it is named. A removed edge is
placed if the race is named at accesses of the two tasks.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from tests.diverge import removed_edges
from tests.diverge.removed_edges import Placed
from tests.models.programs import TINY, sizes_of

from tilelet.analysis.aliases import is_tensor
from tilelet.diag.core import Loc, UserError
from tilelet.divergence import edits
from tilelet.divergence.answer import Options, answer
from tilelet.divergence.case import GoldenCase
from tilelet.divergence.edits import Edit, apply_edit, is_float_tile
from tilelet.divergence.replay import Replay
from tilelet.ir.core import FunctionKind, Op, Value, walk
from tilelet.ir.spec import Cost, Trait
from tilelet.models.registry import models
from tilelet.runtime import session
from tilelet.runtime.handlers.examine import Examine
from tilelet.runtime.session import Session
from tilelet.scripts.target import Target

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"
FEW = 5
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


# Programs


def programs(wanted: str = "") -> Iterator[tuple[str, GoldenCase]]:
    """Return the examples, and all Qwen3 programs at a small size."""
    for file in sorted(EXAMPLES.glob("*.py")):
        if wanted in file.stem:
            yield from cases_of(str(file))
    for name, model in models().items():
        for variant in model.variants:
            if wanted in f"{name}:{variant}":
                yield from model_cases(name, variant)


def cases_of(script: str) -> Iterator[tuple[str, GoldenCase]]:
    handler = Examine()
    now = Session(handler)
    quiet = io.StringIO()
    with session.active(now), contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
        Target(script).run(now)
    yield from ((Path(script).stem, case) for _, case in handler.cases)


def model_cases(name: str, variant: str) -> Iterator[tuple[str, GoldenCase]]:
    sizes = sizes_of(f"{name}:{variant}", TINY)
    handler = Examine()
    with session.active(Session(handler)), contextlib.redirect_stderr(io.StringIO()):
        models()[name].run(variant, **sizes)
    yield from ((f"{name}:{variant}", case) for _, case in handler.cases)


# Classes of faults


def _scale(op: Op) -> Iterator[Edit]:
    """Draw a multiplication in which a number is left out."""
    numbers = [a for a in op.args.values() if isinstance(a, float) and a not in (0.0, 1.0)]
    if numbers and op.spec.cost in (Cost.MUL, Cost.MULS) and is_float_tile(op.results[0]):
        yield from edits.drop_op(op)


def _unary(op: Op) -> Iterator[Edit]:
    """Draw a function that is left out or replaced."""
    if op.spec in edits.unary_specs() and is_float_tile(op.results[0]):
        yield from edits.drop_op(op)
        # These two are the identity on positive numbers.
        yield from (e for e in edits.other_ops(op) if e.ops[0].name not in ("abs", "relu"))


def _shift(op: Op) -> Iterator[Edit]:
    yield from (e for e in edits.offsets(op) if e.cost == 1)


def _store(op: Op) -> Iterator[Edit]:
    if op.results and is_tensor(op.results[0]) and op.spec.writes:
        yield from edits.drop_op(op)


def _shrunk(op: Op) -> Iterator[Edit]:
    """Global memory with half the extent on an axis."""
    shape = op.args.get("shape")
    if op.name != "create_tensor" or not is_tensor(op.result) or not isinstance(shape, tuple):
        return
    for axis, n in enumerate(shape):
        if isinstance(n, int) and n > 1:
            smaller = (*shape[:axis], n // 2, *shape[axis + 1 :])
            made = replace(op, args={**op.args, "shape": smaller})
            yield Edit(op, "shrunk buffer", f"{n // 2} instead of {n} on axis {axis}", (made,))


CLASSES: dict[str, Callable[[Op], Iterator[Edit]]] = {
    "dropped assemble": _store,
    "shifted offset": _shift,
    "wrong pad": edits.pads,
    "swapped operands": edits.swap_operands,
    "shrunk buffer": _shrunk,
    "wrong cast mode": lambda op: edits.cast_modes(op, ("floor", "ceil", "trunc")),
    "missing or wrong function": _unary,
    "missing scale": _scale,
    "lost accumulation": edits.remove_accumulation,
}


# Placing


def places(case: GoldenCase, fault: Edit) -> set[tuple[str, int]]:
    """Return the lines accepted for a fault: its own, or the neighbors of an omitted op."""
    op = fault.op
    found = [op.loc]
    if fault.alias is not None:
        neighbours = {v for v in (*op.operands, *op.results) if not is_tensor(v)}
        neighbours |= _yielded(case, neighbours)
        neighbours |= _views(case, neighbours)
        for function in case.program.functions.values():
            found += [
                other.loc
                for other in walk(function.body)
                if neighbours & {*other.results, *_operands(other)}
            ]
    return {(loc.file, loc.line) for loc in found}


def _yielded(case: GoldenCase, values: set[Value]) -> set[Value]:
    """Return the values that loops and branches yield for these results."""
    found: set[Value] = set()
    for function in case.program.functions.values():
        for op in walk(function.body):
            for block in op.blocks:
                handed = block.terminator.args["values"]
                assert isinstance(handed, tuple)
                pairs = zip(op.results, handed)
                found |= {v for r, v in pairs if r in values and isinstance(v, Value)}
    return found


def _views(case: GoldenCase, values: set[Value]) -> set[Value]:
    """Return other names of these values: operands of views, and views of them."""
    found = set(values)
    for function in case.program.functions.values():
        views = [op for op in walk(function.body) if Trait.TILE_VIEW in op.spec.traits]
        for op in (*views, *reversed(views)):
            if found.intersection((*op.operands, *op.results)):
                found.update(v for v in (*op.operands, *op.results) if not is_tensor(v))
    return found


def _operands(op: Op) -> tuple[Value, ...]:
    return () if op.spec.structural else op.operands


def place(name: str, case: GoldenCase, kind: str, fault: Edit, budget: float) -> Placed:
    """Search for the fault with the checks, as a user would."""
    start = time.perf_counter()
    program = apply_edit(case.program, fault)  # the source does not have the fault
    broken = replace(case, program=program, written=None, source=None)
    check, named, text = _answer(name, broken, budget)
    right = bool(named & places(case, fault))
    return Placed(name, kind, check, right, time.perf_counter() - start, text, _named(fault))


def _named(fault: Edit) -> str:
    return f"{fault.op.name} line {fault.loc.line} {fault.text}"


def _answer(name: str, broken: GoldenCase, budget: float) -> tuple[str, set[tuple[str, int]], str]:
    """Return the first check that reports something, its lines, and its message."""
    try:
        result = answer(name, broken, Options(budget))
    except UserError as error:
        labels = error.diagnostic.labels
        return "bounds", _lines([label.loc for label in labels]), error.diagnostic.message
    if not result.found:
        return "", set(), ""
    first = result.found[0].diagnostic
    named = [first.loc] if first.loc else []
    found = result.divergence
    if found is not None:
        named = [s.loc for s in found.listed] if len(found.listed) <= FEW else []
    check = {
        "E1151": "diverge: repair",
        "E1158": "diverge: bounded",
        "E1159": "diverge: not found",
        "E1152": "map: never written",
        "E1153": "undefined read",
        "E1154": "diverge: double",
        "E1155": "diverge: double",
        "E1157": "race",
    }[first.code]
    lines = _lines(named)
    return check, lines, f"{first.message} {sorted(line for _, line in lines)}"


def _lines(locs: list[Loc]) -> set[tuple[str, int]]:
    return {(loc.file, loc.line) for loc in locs}


def sites(case: GoldenCase, kind: str, rng: random.Random) -> list[Edit]:
    """Return all faults of a class that a program can have, in random order."""
    make = CLASSES[kind]
    found: list[Edit] = []
    for function in case.program.functions.values():
        in_core = function.kind is FunctionKind.InCore
        for op in walk(function.body):
            if not op.spec.structural and (in_core or kind == "shrunk buffer"):
                found += make(op)
    rng.shuffle(found)
    return found


def visible(case: GoldenCase, replay: Replay, fault: Edit) -> bool:
    """Whether the fault changes a result; otherwise it is no fault."""
    try:
        made = replay.outputs(fault)
    except UserError:
        return True
    return not case.passes(made)


def _stops(replay: Replay, fault: Edit) -> bool:
    try:
        replay.outputs(fault)
    except UserError:
        return True
    return False


def seeded(
    seed: int,
    counts: tuple[int, int],
    wanted: str,
    only: str,
    budget: float,
    verbose: bool,
    known: Sequence[Placed] = (),
) -> Iterator[Placed]:
    """Search for the faults of all programs; known results are reused."""
    logged = {(p.program, p.kind, p.fault): p for p in known}
    for name, case in programs(wanted):
        if not case.expected:
            continue
        each = counts["decode:" in name or "prefill:" in name]
        rng = random.Random(f"{seed} {name}")
        replay = Replay(case.program, case.arguments)
        clean = {n: a.copy() for n, a in replay.run.arrays.items()}
        assert case.passes(clean), f"{name} is not right as it stands"
        for kind in CLASSES:
            if only not in kind:
                continue
            found = 0
            for fault in sites(case, kind, rng)[: 6 * each]:
                if found >= each:
                    break
                if kind == "shifted offset" and _stops(replay, fault):
                    continue  # any bounds check finds those
                if kind == "wrong cast mode":
                    if _same(clean, replay.outputs(fault)):
                        continue
                elif not visible(case, replay, fault):
                    continue
                found += 1
                placed = logged.get((name, kind, _named(fault)))
                if placed is not None:
                    yield placed
                    continue
                placed = place(name, case, kind, fault, budget)
                if verbose or not placed.right:
                    print(
                        f"{'ok ' if placed.right else 'NO '}{name} {kind}: {placed.fault} -> "
                        f"{placed.check}: {placed.found} ({placed.seconds:.1f} s)",
                        flush=True,
                    )
                yield placed
        if only in removed_edges.KIND:
            yield from removed_edges.placed(name, case, rng, each)


def _same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[n], b[n], equal_nan=a[n].dtype.kind == "f") for n in a)


def table(placed: list[Placed]) -> str:
    """Return, per class, the number of faults, of correctly placed ones, and of each check."""
    checks = sorted({p.check for p in placed if p.check})
    lines = [
        f"| class | faults | right statement | {' | '.join(checks)} | not noticed |",
        f"|---|---|---|{'---|' * len(checks)}---|",
    ]
    kinds = [k for k in (*CLASSES, removed_edges.KIND) if any(p.kind == k for p in placed)]
    for kind in [*kinds, "all"]:
        mine = [p for p in placed if kind in (p.kind, "all")]
        right = sum(p.right for p in mine)
        by = Counter(p.check for p in mine)
        share = f"{right} ({100 * right / len(mine):.0f} %)"
        cells = [str(by[c] or "") for c in checks]
        lines.append(f"| {kind} | {len(mine)} | {share} | {' | '.join(cells)} | {by[''] or ''} |")
    return "\n".join(lines)


def written(files: list[str]) -> list[Placed]:
    """Return what earlier runs found; the last result of a fault wins."""
    lines = [line for f in files for line in Path(f).read_text(encoding="utf-8").splitlines()]
    return [Placed(**json.loads(line)) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=2, help="faults of a class in a program")
    parser.add_argument("--layers", type=int, default=1, help="and in whole decode and prefill")
    parser.add_argument("--programs", default="", help="part of their names")
    parser.add_argument("--only", default="", help="part of a class's name")
    parser.add_argument("--budget", type=float, default=Options.budget)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--write", nargs="+", metavar="FILE")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    placed: list[Placed] = written(args.write) if args.write else []
    counts = args.each, args.layers
    options = (args.seed, counts, args.programs, args.only, args.budget, args.verbose)
    known = written([args.log]) if args.log and args.log.exists() else []
    for one in () if args.write else seeded(*options, known):
        placed.append(one)
        if args.log and one not in known:
            with args.log.open("a", encoding="utf-8") as log:
                print(json.dumps(asdict(one)), file=log)
    text = table(placed)
    print(text)
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
