"""Counting tasks gives the same numbers as recording them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.diag.core import UserError
from tilelet.interp import counting
from tilelet.interp.interpreter import Interpreter
from tilelet.passes.pipeline import run_passes

X = np.zeros((64, 16), np.float32)
LENS = np.array([3, 0, 5, 1], np.int32)
HEAD = """
import tilelet.language as pl

@pl.program
class Program:
    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        x: pl.Tensor[[64, 16], pl.FP32],
        lens: pl.Tensor[[4], pl.INT32],
        out: pl.Out[pl.Tensor[[64, 16], pl.FP32]],
    ):
"""
TASK = """with pl.at(level=pl.Level.CORE_GROUP):
    out[{row} : {row} + 1, :] = pl.add(x[{row} : {row} + 1, :], 1.0)
"""


def program_of(body: str, row: str = "i") -> Any:
    """A program with `body` as control flow, in which TASK is a task on one row."""
    lines: list[str] = []
    for line in body.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        task = [indent + text for text in TASK.format(row=row).splitlines()]
        lines += task if line.strip() == "TASK" else [line]
    text = HEAD + "\n".join(" " * 8 + line for line in lines) + "\n        return out\n"
    return run_passes(pl.parse(text))


def steps(program: Any) -> tuple[dict[str, int], int]:
    """Return each kernel's tasks by counting, and how many of them were executed one by one."""
    arguments = {"x": X, "lens": LENS, "out": X.copy()}
    counted = counting.count_tasks(program, arguments)
    recorded = Interpreter().run(program, arguments, execute=False).tasks
    assert counted.counts() == recorded.counts()
    assert counted.blocks() == recorded.blocks()
    return counted.counts(), len(counted)


UNIFORM = {
    "a loop": ("for i in pl.range(64):\n    TASK", 64, 2),
    "loops in loops": (
        "for i in pl.range(8):\n    for j in pl.range(3, 8, 2):\n        TASK",
        24,
        4,
    ),
    "a branch on an inner index": (
        "for i in pl.range(9):\n    for j in pl.range(4):\n        if j == 0:\n            TASK",
        9,
        2,
    ),
    "backwards": ("for i in pl.range(63, -1, -3):\n    TASK", 22, 2),
    "no iteration": ("for i in pl.range(5, 5):\n    TASK", 0, 0),
    "blocks": (
        "for i in pl.range(6):\n    for b in pl.spmd(4):\n        out[b : b + 1, :] = x[0:1, :]",
        6,
        2,
    ),
}
OTHERS = {
    "bounds by the index": ("for i in pl.range(8):\n    for j in pl.range(i):\n        TASK", 28),
    "a branch on the index": ("for i in pl.range(8):\n    if i > 2:\n        TASK", 5),
    "a number is carried": (
        "n = 0\nfor i in pl.range(8):\n    n = n + i\n    if n > 9:\n        TASK",
        4,
    ),
    "a number is carried on": (
        "n = 0\nfor i in pl.range(8):\n    n = n + i\n    TASK\nfor i in pl.range(n):\n    TASK",
        36,
    ),
    "data": ("for i in pl.range(4):\n    for j in pl.range(pl.read(lens, [i])):\n        TASK", 9),
    "blocks by the index": (
        "for i in pl.range(1, 4):\n    for b in pl.spmd(i):\n        out[b : b + 1, :] = x[0:1, :]",
        3,
    ),
    "while": (
        "for i in pl.range(3):\n    n = 0\n    while n < i:\n        TASK\n        n = n + 1",
        3,
    ),
}


@pytest.mark.parametrize("case", UNIFORM)
def test_loops_that_repeat_themselves_are_run_at_their_ends(case: str) -> None:
    body, tasks, seen = UNIFORM[case]
    found, gone_through = steps(program_of(body))
    assert (sum(found.values()), gone_through) == (tasks, seen)


@pytest.mark.parametrize("case", OTHERS)
def test_loops_that_do_not_are_run_in_full(case: str) -> None:
    body, tasks = OTHERS[case]
    found, _ = steps(program_of(body))
    assert sum(found.values()) == tasks


MADE = """for i in pl.range(8):
    new = pl.create_tensor([7 - i, 16], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        new = pl.assemble(new, pl.slice(x, [1, 16], [0, 0]), [0, 0])
"""


def test_a_mistake_of_the_last_iteration_is_found() -> None:
    with pytest.raises(UserError, match="0"):
        counting.count_tasks(program_of(MADE), {"x": X, "lens": LENS, "out": X.copy()})
