"""Small random programs with known effects of every statement."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import tilelet.language as pl
from tilelet.checks.verdict import Subject
from tilelet.device import load_machine
from tilelet.device.run import Recorded
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.passes.pipeline import run_passes

A2A3 = load_machine("a2a3")
ROWS, COLUMNS = 32, 64

Box = tuple[str, int, int, int, int]
"""Tensor, first row, first column, rows, columns."""


@dataclass
class Step:
    """One execution of a scope: `target = sum of sources`."""

    target: Box
    sources: list[Box]
    scope: int  # index of the scope in the text
    no_dep: tuple[str, ...] = ()
    manual: bool = False


@dataclass
class Generated:
    text: str = ""
    steps: list[Step] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)  # kind of loop around each scope


def subject_of(program, arguments=None, period="2026-07", comparison=None) -> Subject:
    """A program (or a `@pl.jit` function), recorded and ready to be checked."""
    source = program if hasattr(program, "functions") else program.specialize()
    compiled = run_passes(source)
    given = arguments or {}
    tasks = Interpreter().run(compiled, given, execute=False).tasks
    find_control_traces(compiled, tasks, given)
    run = Recorded(compiled.name, compiled, tasks)
    return Subject(run, given, A2A3, period, comparison)


def generate(seed: int) -> Generated:
    """Draw scopes, in and out of loops, that add windows of tensors."""
    rnd = random.Random(seed)
    made = Generated()
    lines = [
        "@pl.program",
        "class Program:",
        "    @pl.function(type=pl.FunctionType.Opaque)",
        f"    def main(self, x: pl.Tensor[[{ROWS}, {COLUMNS}], pl.FP32],",
        f"             out: pl.Out[pl.Tensor[[{ROWS}, {COLUMNS}], pl.FP32]]):",
        f"        s = pl.create_tensor([{ROWS}, {COLUMNS}], dtype=pl.FP32)",
        f"        t = pl.create_tensor([{ROWS}, {COLUMNS}], dtype=pl.FP32)",
    ]
    for scope in range(rnd.randint(2, 6)):
        lines += _scope(rnd, made, scope)
    made.text = "\n".join([*lines, "        return out", ""])
    return made


def _scope(rnd: random.Random, made: Generated, scope: int) -> list[str]:
    loop = rnd.choice(["", "", "range", "parallel"])
    trips = rnd.choice([2, 3, 4]) if loop else 1
    step = rnd.choice([0, 4, 8]) if loop else 0
    rows, columns = rnd.choice([4, 8]), rnd.choice([16, 32, 64])
    manual = rnd.random() < 0.2
    no_dep = rnd.choice([(), (), (), ("t",), ("s",)])
    made.kinds[scope] = loop
    target, *sources = (
        (
            name,
            rnd.randrange(0, ROWS - rows - (trips - 1) * step + 1, 4),
            rnd.randrange(0, COLUMNS - columns + 1, 16),
        )
        for name in (rnd.choice(["s", "t", "out"]), *rnd.choices(["x", "s", "t"], k=2))
    )
    used = {target[0], *(s[0] for s in sources)}
    no_dep = tuple(n for n in no_dep if n in used)
    for trip in range(trips):
        boxes = [(n, r + trip * step, c, rows, columns) for n, r, c in (target, *sources)]
        made.steps.append(Step(boxes[0], boxes[1:], scope, no_dep, manual))
    texts = [
        f"{n}[{r} + i * {step} : {r} + i * {step} + {rows}, {c} : {c + columns}]"
        if loop
        else f"{n}[{r} : {r + rows}, {c} : {c + columns}]"
        for n, r, c in (target, *sources)
    ]
    indent = "        "
    lines = []
    if manual:
        lines.append(f"{indent}with pl.manual_scope():")
        indent += "    "
    if loop:
        lines.append(f"{indent}for i in pl.{loop}({trips}):")
        indent += "    "
    names = f", no_dep_args=[{', '.join(no_dep)}]" if no_dep else ""
    lines.append(f"{indent}with pl.at(level=pl.Level.CORE_GROUP{names}):")
    lines.append(f"{indent}    {texts[0]} = pl.add({texts[1]}, {texts[2]})")
    return lines


def parsed(made: Generated):
    return pl.parse(made.text)
