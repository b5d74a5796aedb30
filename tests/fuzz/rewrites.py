"""Rewritable programs whose lengths, tables and branches data decides, and what rules make of them.

    python -m tests.fuzz.rewrites --seconds 600 --seed 7

Every block of a program has the shape that some rule looks for; offsets, bounds, guards and
operands are drawn, so that the rule's condition often holds nearly and not quite. Every rewriting
of every rule is then compared with the program as it stands, interpreter against interpreter, on
many inputs. Where both were claimed to be equal for all inputs, a difference is a failure.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.rules import RULES
from tilelet.advice.source import Source
from tilelet.checks.findings import Status
from tilelet.checks.registry import CHECKS
from tilelet.checks.verdict import Subject as Checked
from tilelet.checks.verdict import verdict_on
from tilelet.device.machine.description import Machine, load_machine
from tilelet.device.run import Recorded
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.editing import Edit, OverlapError
from tilelet.equivalence.data_control import integer_trials
from tilelet.equivalence.proof import Equivalence
from tilelet.equivalence.trials import difference
from tilelet.interp.control import for_step
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Lowering, Step
from tilelet.ir.core import Op, Program
from tilelet.ir.views import ForView
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes

ROWS, WIDTH, TALL = 4, 8, 8
INPUTS = 8
"""Input sets on which a rewritten program is compared with the original."""

ORDERED_EVERY = 8
"""Of this many programs, one has the order of its tasks proved too: that takes most of the time."""

HEAD = f"""\
import tilelet.language as pl

@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[{TALL}, {WIDTH}], pl.FP32],
        y: pl.Tensor[[{WIDTH}, {WIDTH}], pl.FP32],
        n: pl.Tensor[[4], pl.INT32],
        table: pl.Tensor[[{TALL}], pl.INT32],
        limit: pl.Scalar[pl.INT32],
        z: pl.InOut[pl.Tensor[[{ROWS}, {WIDTH}], pl.FP32]],
        w: pl.InOut[pl.Tensor[[{ROWS}, {WIDTH}], pl.FP32]],
    ):
"""


class Text:
    """Draws the statements of a program."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._names = 0

    def program(self) -> str:
        count = f"count = pl.read(n, [{self.draw.randrange(4)}])\n"
        makers = [f"{t} = pl.create_tensor([{ROWS}, {WIDTH}], pl.FP32)\n" for t in ("s", "t")]
        blocks = [self.block() for _ in range(self.draw.randint(1, 3))]
        body = "".join([count, *makers, *blocks]) + "return z, w\n"
        return HEAD + textwrap.indent(body, " " * 8)

    def block(self) -> str:
        kinds = [
            *(self.fill, self.fill_and_rows, self.fill_and_sum, self.rows, self.two_scopes),
            *(self.shared, self.twins, self.one_scope, self.launches, self.stored_and_loaded),
            *(self.products, self.sum_in_memory, self.read_modify_write, self.early_exit),
        ]
        return self.draw.choice(kinds)()

    # Parts

    def one(self, *choices: str) -> str:
        return self.draw.choice(choices)

    def tensor(self) -> str:
        return self.one("z", "z", "w", "s", "t")

    def bound(self, most: int = ROWS) -> str:
        fixed = str(most)
        return self.one(
            *(fixed, fixed, fixed, str(most - 1), "count", "count", f"pl.min(count, {most})"),
            *("limit", f"pl.max(count, {most})"),
        )

    def row(self, name: str = "r") -> str:
        return self.one(
            *(name, name, name, name, f"{name} % {ROWS}", f"{ROWS - 1} - {name}", f"{name} // 2"),
            *(f"pl.read(table, [{name}])", f"pl.min({name}, count)"),
        )

    def value(self, row: str, source: str = "") -> str:
        source = source or self.one("x", "x", "y", "z", "w", "s")
        tile = f"{source}[{row} : {row} + 1, :]"
        valid = f"valid_shape=[1, pl.min(pl.max(count, 0), {WIDTH})]"
        return self.one(
            *(tile, tile, f"pl.exp({tile})", f"pl.mul({tile}, 2.0)"),
            f"pl.add({tile}, x[{row} : {row} + 1, :])",
            f"pl.slice({source}, [1, {WIDTH}], [{row}, 0], {valid})",
            f"pl.sel(pl.cmps({tile}, 0.0, cmp_type=4), {tile}, y[0:1, :])",
        )

    def guard(self, text: str) -> str:
        condition = self.one(
            *("", "", "", "", "if count > 3:", "if r < count:", "if limit > r:"),
            *("if pl.read(table, [r]) > 2:", "if pl.read(n, [1]) == count:"),
        )
        return f"{condition}\n{textwrap.indent(text, '    ')}" if condition else text

    def scope(self, *lines: str) -> str:
        return "with pl.at(level=pl.Level.CORE_GROUP):\n" + "".join(f"    {s}\n" for s in lines)

    def loop(self, text: str, bound: str = "", name: str = "r", kind: str = "") -> str:
        header = f"for {name} in pl.{kind or self.one('range', 'range', 'parallel')}"
        return f"{header}({bound or self.bound()}):\n{textwrap.indent(text, '    ')}"

    def set_row(self, tensor: str, row: str, value: str) -> str:
        return self.one(
            f"{tensor}[{row} : {row} + 1, :] = {value}",
            f"{tensor} = pl.assemble({tensor}, {value}, [{row}, 0])",
        )

    def in_row(self, text: str, row: str) -> str:
        """The row as a name of its own, or as it is."""
        return f"row = {row}\n" + text.replace("ROW", "row")

    # Blocks, each with the shape that some rule looks for

    def fill(self, tensor: str = "") -> str:
        tensor = tensor or self.tensor()
        value = self.one("0.0", "0.0", "1.0")
        tile = f"pl.full([1, {WIDTH}], dtype=pl.FP32, value={value})"
        return self.loop(self.scope(f"{tensor} = pl.assemble({tensor}, {tile}, [r, 0])"), str(ROWS))

    def rows(self, tensor: str = "") -> str:
        tensor = tensor or self.tensor()
        text = self.guard(self.scope(self.set_row(tensor, "ROW", self.value("r"))))
        return self.loop(self.in_row(text, self.row()))

    def fill_and_rows(self) -> str:
        tensor = self.tensor()
        return self.fill(tensor) + self.rows(tensor)

    def fill_and_sum(self) -> str:
        tensor = self.tensor()
        so_far = f"{tensor}[ROW : ROW + 1, :]"
        added = self.one(
            f"pl.add({so_far}, {self.value('r', 'x')})", f"pl.maximum({so_far}, y[0:1, :])"
        )
        text = self.guard(self.scope(self.set_row(tensor, "ROW", added)))
        return self.fill(tensor) + self.loop(self.in_row(text, self.row()))

    def two_scopes(self) -> str:
        tensor, through = self.tensor(), self.one("a", "s", "t")
        if through == "a":
            first, second = f"a = {self.value('r', 'x')}", "a"
        else:
            first = self.set_row(through, "r", self.value("r", "x"))
            second = self.one(f"{through}[r : r + 1, :]", f"{through}[ROW : ROW + 1, :]")
        last = self.set_row(tensor, "ROW", f"pl.add({second}, x[r : r + 1, :])")
        text = self.scope(first) + self.one("", "", "", "# and on\n") + self.scope(last)
        return self.loop(self.in_row(text, self.row()))

    def shared(self) -> str:
        a, b = self.draw.sample(["z", "w", "s", "t"], 2)
        load = "tile = x[r : r + 1, :]"
        first = self.scope(load, self.set_row(a, "ROW", "pl.exp(tile)"))
        other = self.one("tile", f"pl.neg({a}[ROW : ROW + 1, :])", f"{a}[r : r + 1, :]")
        second = self.scope(load, self.set_row(b, "r", f"pl.maximum(tile, {other})"))
        return self.loop(self.in_row(first + second, self.row()))

    def twins(self) -> str:
        bound, kind = self.bound(), self.one("range", "parallel")
        a, b = self.draw.sample(["z", "w", "s", "t"], 2)
        first = self.scope(self.set_row(a, "r", self.value("r", "x")))
        row = self.one("r", "r", f"{ROWS - 1} - r", "ROW")
        read = f"pl.neg({a}[{row} : {row} + 1, :])".replace("ROW", f"({self.row()})")
        second = self.scope(self.set_row(b, "r", read))
        return self.loop(first, bound, kind=kind) + self.loop(second, bound, kind=kind)

    def one_scope(self) -> str:
        tensor, maker = self.tensor(), f"both = pl.create_tensor([2, {WIDTH}], pl.FP32)\n"
        lines = ["both = pl.assemble(both, pl.exp(x[r : r + 1, :]), [0, 0])"]
        if self.draw.random() < 0.8:
            lines.append("both = pl.assemble(both, x[r : r + 1, :], [1, 0])")
        at = self.one("0", "1", "count % 2", "limit % 2")
        lines.append(self.set_row(tensor, "ROW", f"pl.slice(both, [1, {WIDTH}], [{at}, 0])"))
        text = self.scope(*lines)
        inside = self.draw.random() < 0.6
        loop = self.loop(self.in_row((maker if inside else "") + text, self.row()))
        return loop if inside else maker + loop

    def launches(self) -> str:
        start = self.scope(f"so_far = {self.value('0', 'x')}")
        step = self.one("pl.maximum(so_far, x[r : r + 1, :])", "pl.add(so_far, x[r : r + 1, :])")
        loop = self.loop(self.scope(f"so_far = {step}"), self.bound(), kind="range")
        return start + loop + self.scope(self.set_row(self.tensor(), "0", "so_far"))

    def stored_and_loaded(self) -> str:
        a, b = self.draw.sample(["z", "w", "s", "t"], 2)
        lines = [self.set_row(a, "ROW", self.value("r", "x"))]
        if self.draw.random() < 0.4:
            lines.append(self.set_row(self.one(a, b), self.one("r", "0", "ROW"), "y[0:1, :]"))
        at = self.one("ROW", "ROW", "ROW", "r", "0")
        lines.append(self.set_row(b, "r", f"pl.neg({a}[{at} : {at} + 1, :])"))
        return self.loop(self.in_row(self.guard(self.scope(*lines)), self.row()))

    def early_exit(self) -> str:
        tensor, end = self.tensor(), self.one("r >= count", "pl.read(table, [r]) > limit")
        write = self.set_row(tensor, self.one("r", "r", "r // 2"), self.value("r", "x"))
        lines = [f"for r in pl.range({ROWS}):", f"    if {end}:", "        break", f"    {write}"]
        return self.one("", self.fill(tensor)) + self.scope(*lines)

    def products(self) -> str:
        first = self.one("0.0", "0.0", "1.0")
        filled = f"pl.full([{ROWS}, {WIDTH}], dtype=pl.FP32, value={first})"
        start = f"acc = {self.one(filled, 'pl.mul(z, 2.0)')}"
        bound = self.one("2", "2", "2", "count", "pl.min(count, 2)", "1, 2")
        part = WIDTH // 2
        rows = f"k * {part} : k * {part} + {part}"
        product = f"pl.matmul(x[0:{ROWS}, {rows}], y[{rows}, :])"
        lines = [start, f"for k in pl.range({bound}):"]
        lines.append(f"    acc = pl.add({self.one('acc, ' + product, product + ', acc')})")
        lines.append(f"{self.one('z', 'w')}[0:{ROWS}, :] = acc")
        return self.scope(*lines)

    def sum_in_memory(self) -> str:
        tensor = self.one("z", "w", "s")
        row = self.one("d", "d", f"(d + k) % {ROWS}", "pl.read(table, [d])")
        chunk = self.scope("chunk = pl.mul(x[k : k + 1, :], 2.0)")
        step = self.scope(
            f"so_far = pl.slice({tensor}, [1, {WIDTH}], [{row}, 0])",
            "added = pl.add(so_far, chunk)",
            f"{tensor} = pl.assemble({tensor}, added, [{row}, 0])",
        )
        inner = self.loop(step, self.one(str(ROWS), "count", "k + 1", "limit"), "d", "range")
        return self.loop(chunk + inner, self.one("3", "3", "count", "limit"), "k", "range")

    def read_modify_write(self) -> str:
        tensor = self.one("z", "w", "s")
        row = self.one("d", "d", "d", f"(d + k) % {ROWS}", "pl.read(table, [d])")
        window = f"{tensor}[ROW : ROW + 1, :]"
        step = self.one(
            f"pl.maximum({window}, x[k : k + 1, :])", f"pl.add({window}, x[k : k + 1, :])"
        )
        other = self.one("", "", "", f"w[0:1, :] = {tensor}[0:1, :]")
        lines = [s for s in (other, self.set_row(tensor, "ROW", step)) if s]
        body = self.in_row(self.scope(*lines), row)
        inner = self.loop(body, self.one(str(ROWS), "count", "k + 1"), "d", "range")
        return self.loop(inner, self.one("3", "3", "count", "limit"), "k", "range")


# What rules see: as an advisor has it, without the time of a modelled run


@dataclass(frozen=True)
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
    run: Any = _Run(version.program)
    return Quick(Source("program.py", version.text), [run])


REJECTED = (UserError, UserErrors)
"""What the language does not take."""

_SIZES = ("small-tasks", "tile-size")  # they need a modelled run; `tilelet tune` compares sizes
REWRITES = [r for r in RULES if r.rewrites and not r.is_about_text and r.name not in _SIZES]
"""Rules that change programs; small tasks are those of a modelled run."""


class Reversed:
    """Runs the iterations of parallel loops from the last to the first."""

    def lower(self, low: Lowering, op: Op) -> Step:
        if op.name == "for" and ForView(op).kind == "parallel":
            return for_step(low, op, reversed)
        return low.plain_op(op)


@dataclass
class Version:
    """A text, and the program it becomes, unless that is given."""

    text: str
    made: Program | None = None

    @cached_property
    def program(self) -> Program:
        return self.made or run_passes(parse(self.text))

    def outputs(self, given: Mapping[str, Any], *, backwards: bool = False) -> Any:
        arguments = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()}
        engine = Interpreter(observer=Reversed() if backwards else None)
        try:
            engine.run(self.program, arguments)
        except UserError:
            return None
        return {name: arguments[name] for name in ("z", "w")}


def inputs(seed: int) -> Iterator[dict[str, Any]]:
    """Arguments, in the order in which a script would have them: the first are the plainest."""
    for trial in range(INPUTS):
        draw = np.random.default_rng([seed, trial])

        def rows(count: int, draw: np.random.Generator = draw) -> NDArray[np.float32]:
            return draw.standard_normal((count, WIDTH)).astype(np.float32)

        n = np.full(4, ROWS) if trial == 0 else draw.integers(0, TALL + 1, 4)
        table = np.arange(TALL) % ROWS if trial == 0 else draw.integers(0, ROWS, TALL)
        yield {
            "x": rows(TALL),
            "y": rows(WIDTH),
            "n": n.astype(np.int32),
            "table": table.astype(np.int32),
            "limit": ROWS if trial == 0 else int(draw.integers(-1, TALL)),
            "z": rows(ROWS),
            "w": rows(ROWS),
        }


@dataclass
class Tally:
    """What was tried, by rule and outcome; `wrong` are claims that inputs refute."""

    programs: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[tuple[int, str, str, str]] = field(default_factory=list)

    def lines(self) -> list[str]:
        total = Counter[str]()
        for (_, outcome), count in self.outcomes.items():
            total[outcome] += count
        shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(total.items()))
        lines = [f"{self.programs} programs, {sum(total.values())} rewritings: {shown}"]
        for name in sorted({rule for rule, _ in self.outcomes}):
            own = {o: c for (rule, o), c in sorted(self.outcomes.items()) if rule == name}
            lines.append(f"  {name}: " + ", ".join(f"{c} {o}" for o, c in own.items()))
        return [*lines, f"{len(self.wrong)} wrong"]


class Judge:
    """Compares every rewriting of a program with the program."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.tally = Tally()

    def judge(self, seed: int) -> None:
        text = Text(seed).program()
        before = Version(text)
        given = list(inputs(seed))
        try:
            allowed = [(g, out) for g in given if (out := before.outputs(g)) is not None]
        except REJECTED:
            return  # the language does not take it
        self.tally.programs += 1
        if not allowed:
            self.tally.outcomes["-", "no input is allowed"] += 1
            return
        equals: dict[bool, Equivalence] = {}
        found = [(rule.name, advice) for rule, advice in rewritings(quick_subject(before))]
        for name, advice in [*found, *_chain(before, seed)]:
            if advice.rounding not in equals:
                equals[advice.rounding] = Equivalence(before.program, rounding=advice.rounding)
            outcome = self._outcome(
                Version(advice.text or ""),
                before,
                advice,
                allowed,
                equals,
                looks_at_order=seed % ORDERED_EVERY == 0,
            )
            self.tally.outcomes[name, outcome] += 1
            if outcome.startswith("wrong"):
                self.tally.wrong.append((seed, name, text, advice.text or ""))

    def _outcome(
        self,
        after: Version,
        before: Version,
        advice: Advice,
        allowed: Sequence[tuple[dict[str, Any], Any]],
        equals: Mapping[bool, Equivalence],
        *,
        looks_at_order: bool,
    ) -> str:
        try:
            program = after.program
        except REJECTED:
            return "not a program"
        equal = equals[advice.rounding].proof(program).holds
        differs = any(
            difference([[old]], [[after.outputs(g)]], rounding=advice.rounding)
            for g, old in allowed
        )
        if equal and differs:
            return "wrong: proved, and differs"
        if differs:
            tried = list(integer_trials(program, allowed[0][0]))
            olds = [before.outputs(g) for g in (allowed[0][0], *tried)]
            news = [after.outputs(g) for g in (allowed[0][0], *tried)]
            held = not difference([olds], [news], rounding=advice.rounding)
            return "tried, and differs for other inputs" if held else "refuted"
        if not equal:
            return "tried"
        if not looks_at_order:
            return "equal"
        if not self._is_ordered(program, allowed[0][0]):
            return "equal, order not proved"
        backwards = [(old, after.outputs(g, backwards=True)) for g, old in allowed]
        changed = any(difference([[a]], [[b]], rounding=advice.rounding) for a, b in backwards)
        return "wrong: proved, and differs backwards" if changed else "proved"

    def _is_ordered(self, program: Program, given: Mapping[str, Any]) -> bool:
        arguments = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()}
        try:
            tasks = Interpreter().run(program, arguments, execute=False).tasks
            checked = Checked(Recorded("main", program, tasks), given, self._machine)
            (race,) = verdict_on(checked, [CHECKS["race"]]).parts
        except UserError:
            return False
        return race.status is Status.PROVED


@dataclass(frozen=True)
class _Run:
    """As much of a run as rules look at."""

    program: Program

    @property
    def run(self) -> _Run:
        return self


def rewritings(subject: Subject) -> Iterator[tuple[Rule, Advice]]:
    seen: set[str] = {subject.source.text}
    for rule in REWRITES:
        for advice in rule.find(subject):
            if advice.text is not None and advice.text not in seen:
                seen.add(advice.text)
                yield rule, advice


def _chain(version: Version, seed: int) -> Iterator[tuple[str, Advice]]:
    """Rewritings one after the other, each of what the one before made."""
    draw, rounding = random.Random(seed), False
    for depth in range(4):
        try:
            found = [advice for _, advice in rewritings(quick_subject(version))]
        except REJECTED:
            return
        if not found:
            return
        advice = draw.choice(found)
        version = Version(advice.text or "")
        rounding = rounding or advice.rounding
        if depth:
            yield "chain", Advice(advice.problem, text=advice.text, rounding=rounding)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tests.fuzz.rewrites", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="else a new one, which is printed")
    parser.add_argument("--programs", type=int, default=sys.maxsize)
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"SEED={seed}", flush=True)
    judge = Judge(load_machine("a2a3"))
    begun = shown = time.monotonic()
    number = 0
    while judge.tally.programs < options.programs and time.monotonic() - begun < options.seconds:
        judge.judge(seed * 1_000_003 + number)
        number += 1
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            print(judge.tally.lines()[0], f"{len(judge.tally.wrong)} wrong", flush=True)
    for found, rule, before, after in judge.tally.wrong[:5]:
        print(f"--- {found}: {rule}\n{before}\n+++\n{after}")
    print("\n".join(judge.tally.lines()))
    return int(bool(judge.tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
