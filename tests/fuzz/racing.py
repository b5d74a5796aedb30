"""Programs with races by construction, checked against a log of every access.

    python -m tests.fuzz.racing --seconds 600 --seed 7

Tasks read and write windows whose rows loops, inputs and tables decide; tables are written by the
caller, the control program and tasks. The oracle executes the program, logs the bytes that each
task accesses, and asks for every two tasks whether the runtime's graph orders them. If two
conflicting accesses are unordered, the check must report a race, say what it did not look at, or
say that the order cannot matter: the reader does not use what it reads, or all stores write the
same, which the values show. If none are, it must not report one.
"""

from __future__ import annotations

import random
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.fuzz.search import Tally, search

from tilelet.checks.race import Races, check
from tilelet.checks.verdict import Subject
from tilelet.device.machine.description import load_machine
from tilelet.device.run import Recorded
from tilelet.diag.core import UserError, UserErrors
from tilelet.interp.cells import Watcher
from tilelet.interp.definedness import watching_state
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Op, Program, walk
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.arguments import bind_arguments
from tilelet.tasks.window import Window

ROWS, COLUMNS, ENTRIES, MOST_ROW, VIEW_ROWS = 16, 16, 8, 12, 8

HEAD = f"""\
import tilelet.language as pl

@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[{ROWS}, {COLUMNS}], pl.FP32],
        rows: pl.Tensor[[{ENTRIES}], pl.INT32],
        given: pl.InOut[pl.Tensor[[{ENTRIES}], pl.INT32]],
        a: pl.InOut[pl.Tensor[[{ROWS}, {COLUMNS}], pl.FP32]],
        b: pl.InOut[pl.Tensor[[{ROWS}, {COLUMNS}], pl.FP32]],
    ):
        made = pl.create_tensor([{ENTRIES}], dtype=pl.INT32)
        for e in pl.range({ENTRIES}):
            pl.write(made, [e], pl.cast(e, pl.INT32))
        va = pl.slice(a, [{VIEW_ROWS}, {COLUMNS}], [4, 0])
        vb = pl.slice(va, [{VIEW_ROWS}, {COLUMNS // 2}], [0, {COLUMNS // 2}])
"""

VIEWS = {"va": COLUMNS, "vb": COLUMNS // 2}
"""Views of `a`, one of them of the other, and their columns."""


class Text:
    """Draws a program."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._loops = 0
        self._names: list[str] = []

    def program(self) -> str:
        kinds = (self.task, self.task, self.task, self.control_write, self.table_task)
        body = "".join(self.draw.choice(kinds)() for _ in range(self.draw.randint(2, 6)))
        return HEAD + textwrap.indent(body + "return a, b\n", " " * 8)

    def control_write(self) -> str:
        table, entry = self.draw.choice(("made", "given")), self.draw.randrange(ENTRIES)
        return (
            f"pl.write({table}, [{entry}], pl.cast({self.draw.randint(0, MOST_ROW)}, pl.INT32))\n"
        )

    def table_task(self) -> str:
        table, first = self.draw.choice(("made", "given")), self.draw.randrange(4)
        step, start = self.draw.choice((0, 1, 2)), self.draw.randint(0, 4)
        return (
            "with pl.at(level=pl.Level.CORE_GROUP):\n"
            f"    for q in pl.range({first}, {first + self.draw.randint(1, 4)}):\n"
            f"        pl.write({table}, [q], pl.cast({start} + q * {step}, pl.INT32))\n"
        )

    def task(self) -> str:
        self._loops += 1
        index, kind = (
            f"i{self._loops}",
            self.draw.choice(("", "range", "range", "parallel", "spmd")),
        )
        target, source = self.draw.choices(("a", "a", "b", "b", *VIEWS), k=2)
        if self.draw.random() < 0.3:
            source = "x"
        height, width = self.draw.choice((1, 2, 4)), self.draw.choice((8, 16))
        if {target, source} & {"vb"}:
            width = VIEWS["vb"]
        lines: list[str] = []
        places: list[tuple[str, int]] = []
        for which, tensor in (("p", target), ("q", source)):
            row, before = self.row(index if kind else "", f"{which}{self._loops}")
            lines += before
            row = f"({row}) % {VIEW_ROWS - height + 1}" if tensor in VIEWS else row
            places.append((row, self.draw.choice((0, VIEWS.get(tensor, COLUMNS) - width))))
        body = [*lines, *self.step(target, source, height, width, places)]
        left_out = f", no_dep_args=[{target}]" if self.draw.random() < 0.3 else ""
        manual = self.draw.random() < 0.15 and kind != "spmd"
        name = ""
        if not kind and not manual:
            if self._names and self.draw.random() < 0.5:
                left_out += f", deps=[{self.draw.choice(self._names)}]"
            name = f"t{self._loops}"
            self._names.append(name)
        called = f" as {name}" if name else ""
        scope = f"with pl.at(level=pl.Level.CORE_GROUP{left_out}){called}:"
        count = self.draw.randint(2, 4)
        if kind == "spmd":
            text = [f"for {index} in pl.spmd({count}):", *(f"    {line}" for line in body)]
        else:
            text = [scope, *(f"    {line}" for line in body)]
            if kind:
                text = [f"for {index} in pl.{kind}({count}):", *(f"    {line}" for line in text)]
        if manual:
            text = ["with pl.manual_scope():", *(f"    {line}" for line in text)]
        return "\n".join(text) + "\n"

    def step(
        self, target: str, source: str, height: int, width: int, places: Sequence[tuple[str, int]]
    ) -> list[str]:
        """Return statements that load a tile and store another, perhaps partially or atomically."""
        (row, column), (origin, first) = places
        loaded = f"{source}[{origin} : {origin} + {height}, {first} : {first} + {width}]"
        if self.draw.random() < 0.2:
            valid = (
                f"valid_shape=[pl.read(rows, [{self.draw.randrange(ENTRIES)}]) % {height} + 1, 8]"
            )
            loaded = f"pl.slice({source}, [{height}, {width}], [{origin}, {first}], {valid})"
        value = f"pl.add({loaded}, x[0:{height}, 0:{width}])"
        if self.draw.random() < 0.6:
            return [f"{target}[{row} : {row} + {height}, {column} : {column} + {width}] = {value}"]
        atomic = self.draw.choice(("", ", atomic=pl.AtomicType.Add"))
        return [f"{target} = pl.assemble({target}, {value}, [{row}, {column}]{atomic})"]

    def row(self, index: str, name: str) -> tuple[str, list[str]]:
        """Return a row, and the statements of the task that compute it."""
        fixed = str(self.draw.randint(0, MOST_ROW))
        if not index or self.draw.random() < 0.2:
            return fixed, []
        if self.draw.random() < 0.4:
            step, first = self.draw.choice(((1, 0), (2, 1), (3, 0), (4, 0), (2, 4)))
            return f"({index} * {step} + {first})", []
        table = self.draw.choice(("rows", "made", "given"))
        return name, [f"{name} = pl.read({table}, [{index} + {self.draw.randrange(4)}])"]


def arguments(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    tables = {
        name: draw.integers(0, MOST_ROW + 1, ENTRIES).astype(np.int32) for name in ("rows", "given")
    }
    tensors = {
        name: draw.standard_normal((ROWS, COLUMNS)).astype(np.float32) for name in ("x", "a", "b")
    }
    return tables | tensors


@dataclass(frozen=True)
class Logged:
    """One access: the elements of a buffer that a block of a task touches, with their values."""

    task: int
    block: int
    buffer: int
    elements: Mapping[int, bytes]
    writes: bool
    atomic: bool

    def conflicts(self, other: Logged) -> bool:
        if self.buffer != other.buffer or not (self.writes or other.writes):
            return False
        return not (self.atomic and other.atomic) and bool(self._common(other))

    def stores_the_same(self, other: Logged) -> bool:
        """Return whether both are stores of equal values."""
        if not (self.writes and other.writes) or self.atomic or other.atomic:
            return False
        return all(self.elements[e] == other.elements[e] for e in self._common(other))

    def _common(self, other: Logged) -> set[int]:
        return self.elements.keys() & other.elements.keys()


def access_log(program: Program, given: Mapping[str, Any]) -> list[Logged]:
    """Execute the program; return every access of its tasks."""
    kernels = {op for f in program.kernels for op in walk(f.body)}
    log: list[Logged] = []
    pending: list[tuple[Window, tuple[int, int, int], bool, bool]] = []

    def complete() -> None:
        """Log the last access; a store is complete when the next access begins."""
        for window, place, writes, atomic in pending:
            offsets = np.full((), window.offset)
            for extent, stride in zip(window.reach, window.strides):
                offsets = offsets[..., None] + np.arange(extent) * stride
            values = [v.tobytes() for v in window.array.reshape(-1)]
            elements = dict(zip(offsets.reshape(-1).tolist(), values))
            log.append(Logged(*place, elements, writes, atomic))
        pending.clear()

    def note(op: Op, window: Window, writes: bool, atomic: bool) -> None:
        complete()
        if op in kernels and 0 not in window.reach:
            place = len(state.tasks), state.block, window.buffer.id
            pending.append((window, place, writes, atomic))

    state = watching_state(program.functions, Watcher(touch=note), values=True)
    copies = {name: np.copy(value) for name, value in given.items()}
    state.code(program.entry).run(bind_arguments(program, copies, execute=True))
    complete()
    return log


def unordered_pairs(log: Sequence[Logged], races: Races) -> list[tuple[Logged, Logged]]:
    """Return conflicting accesses of tasks, or blocks, that no path of the graph orders."""
    graph = races.graph
    before: list[set[int]] = []
    for node in range(graph.nodes):
        producers = [int(p) for p in graph.producers(node)]
        before.append(set(producers).union(*(before[p] for p in producers if p < node)))
    found: list[tuple[Logged, Logged]] = []
    for i, first in enumerate(log):
        for second in log[i + 1 :]:
            if not first.conflicts(second):
                continue
            if first.task == second.task:
                apart = first.block != second.block
            else:
                early, late = sorted((first.task, second.task))
                apart = early not in before[late]
            if apart:
                found.append((first, second))
    return found


class Judge:
    """Compares the race check with the log: `wrong` are races missed and races that are none."""

    def __init__(self) -> None:
        self._machine = load_machine("a2a3")
        self.tally = Tally()

    def judge(self, seed: int) -> None:
        self.tally.programs += 1
        text = Text(seed).program()
        given = arguments(seed)
        try:
            program = run_passes(parse(text))
            copies = {name: np.copy(value) for name, value in given.items()}
            tasks = Interpreter().run(program, copies, execute=False).tasks
            log = access_log(program, given)
        except (UserError, UserErrors):
            self.tally.outcomes["not a program"] += 1
            return
        period = random.Random(seed).choice(sorted(self._machine.runtime))
        subject = Subject(Recorded("main", program, tasks), given, self._machine, period)
        pairs = unordered_pairs(log, Races(subject, period))
        result = check(subject)
        reported = any(f.code in ("E1102", "E1103") for f in result.findings)
        certain = any(f.code == "E1102" for f in result.findings)
        refused = any("not checked" in remark for remark in result.remarks)
        unused = any("does not use what it reads" in remark for remark in result.remarks)
        same = any("write the same" in remark for remark in result.remarks)
        if pairs and not reported:
            if same and all(a.stores_the_same(b) for a, b in pairs):
                unused = True
            outcome = "refused" if refused else "no effect" if unused else "missed"
        elif certain and not pairs:
            outcome = "false alarm"
        else:
            outcome = "race found" if pairs else "no race"
        self.tally.outcomes[outcome] += 1
        if outcome in ("missed", "false alarm"):
            self.tally.wrong.append((seed, outcome, text))


def main(arguments_: Sequence[str] | None = None) -> int:
    judge = Judge()
    return search(judge.judge, judge.tally, "racing", arguments_)


if __name__ == "__main__":
    sys.exit(main())
