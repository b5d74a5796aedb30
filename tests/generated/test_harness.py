"""The checks of generated kernels can fail: each planted bug is noticed by its own check."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.generated import harness
from tests.generated.core import Choices
from tests.generated.generator import FOCUSES, TAPE, Kernel, make

from tilelet.ir.core import Program
from tilelet.ir.rebuild import Rewriter
from tilelet.ir.spec import REGISTRY
from tilelet.tasks.stream import TaskStream


def some_kernels(using: str) -> Iterator[Kernel]:
    """Yield kernels whose text contains `using`."""
    for seed in range(200):
        tape = random.Random(seed).randbytes(TAPE)
        kernel = make(Choices(tape), FOCUSES[seed % len(FOCUSES)])
        if using in kernel.text:
            yield kernel


def complaint(kernel: Kernel, folder: Path) -> str:
    try:
        harness.check(kernel, folder)
    except AssertionError as problem:
        return str(problem)
    return ""


def noticed(what: str, using: str, folder: Path) -> bool:
    """Whether the harness reports this for one of ten kernels that use a construct."""
    return any(what in complaint(k, folder) for k in itertools.islice(some_kernels(using), 10))


@pytest.mark.parametrize("op", ["add", "cast", "row_expand_sub", "matmul", "fillpad", "transpose"])
def test_a_wrong_op_is_noticed(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = REGISTRY[op].reference
    assert reference is not None

    def off_by_one_step(**arguments: Any) -> Any:
        found = np.array(reference(**arguments))
        if found.dtype == np.float32:
            return np.nextafter(found, np.float32(np.inf))
        return found + found.dtype.type(1)

    monkeypatch.setitem(REGISTRY[op].__dict__, "reference", off_by_one_step)
    assert noticed("differs from the oracle", f"pl.{op}(", tmp_path)


class _SwapDifferences(Rewriter):
    """A wrong pass: it swaps the operands of differences."""

    def rewrite(self, op: Any) -> Any:
        if op.name == "sub":
            op = replace(op, args={"lhs": op.args["rhs"], "rhs": op.args["lhs"]})
        return super().rewrite(op)


def swap_differences(program: Program) -> Program:
    return program.with_functions(
        {name: _SwapDifferences().function(fn) for name, fn in program.functions.items()}
    )


def test_a_pass_that_changes_results_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "PASSES", (*harness.PASSES, swap_differences))
    assert noticed("the result before swap_differences", "pl.sub(", tmp_path)


def test_text_that_means_something_else_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_program = harness.print_program
    monkeypatch.setattr(
        harness, "print_program", lambda p: print_program(p).replace("pl.maximum(", "pl.minimum(")
    )
    assert noticed("the program that was printed", "pl.maximum(", tmp_path)


def test_text_that_is_no_fixed_point_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_program = harness.print_program
    calls = iter(range(1000))
    monkeypatch.setattr(harness, "print_program", lambda p: f"{print_program(p)}# {next(calls)}\n")
    assert noticed("print -> parse -> print", "pl.", tmp_path)


def test_a_task_too_many_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskStream, "total", property(lambda self: len(self) + 9))
    assert noticed("tasks (", "chunk=", tmp_path)


def test_tasks_that_only_execution_records_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = harness.described
    calls = iter(range(1000))
    monkeypatch.setattr(
        harness, "described", lambda tasks: described(tasks)[: -1 if next(calls) % 2 else None]
    )
    assert noticed("execute=False records other tasks", "pl.", tmp_path)
