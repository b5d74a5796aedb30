"""The properties that every generated kernel must have."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.generated.generator import Kernel

from tilelet.interp.counting import count_tasks
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.ir.printer import print_program
from tilelet.ir.verify import verify
from tilelet.language.text import parse
from tilelet.passes.pipeline import PASSES
from tilelet.tasks.stream import Task, TaskStream
from tilelet.tasks.window import Window

_serial = itertools.count()


def check(kernel: Kernel, folder: Path) -> None:
    """Raise AssertionError if a property does not hold."""
    arguments = kernel.arguments()
    program = compile_text(kernel, folder, arguments)
    verify(program)
    expected = copy.deepcopy(arguments)
    tasks = kernel.evaluate(expected)
    first = run(program, arguments)
    compare(first, expected, "the oracle")
    check_printing(program, arguments, first, "the frontend")
    for one in PASSES:
        program = one(program)
        verify(program)
        compare(run(program, arguments), first, f"the result before {one.__name__}")
    check_printing(program, arguments, first, "the passes")
    check_tasks(program, arguments, tasks)


def compile_text(kernel: Kernel, folder: Path, arguments: dict[str, Any]) -> Program:
    """Return the program, imported from a file as a user's module is."""
    name = f"generated_{next(_serial)}"
    path = folder / f"{name}.py"
    path.write_text(kernel.text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        if kernel.style == "program":
            return module.Generated
        return module.main.specialize(*(arguments[p.name] for p in kernel.params))
    finally:
        del sys.modules[name]
        path.unlink()


def run(program: Program, arguments: dict[str, Any]) -> dict[str, Any]:
    given = copy.deepcopy(arguments)
    Interpreter().run(program, given)
    return given


def compare(found: dict[str, Any], expected: dict[str, Any], what: str) -> None:
    """Compare bit for bit, except for the sign and payload of NaN, which no op defines."""
    for name, wanted in expected.items():
        got = found[name]
        assert got.dtype == wanted.dtype
        same = got.view(f"u{got.itemsize}") == wanted.view(f"u{got.itemsize}")
        if not np.issubdtype(wanted.dtype, np.integer):
            same |= np.isnan(got.astype(np.float32)) & np.isnan(wanted.astype(np.float32))
        if not np.all(same):
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            message = (
                f"`{name}` differs from {what} in {int((~same).sum())} of {same.size} elements; "
                f"at {at}: {got[at]!r}, expected {wanted[at]!r}"
            )
            raise AssertionError(message)


def check_printing(
    program: Program, arguments: dict[str, Any], expected: dict[str, Any], stage: str
) -> None:
    text = print_program(program)
    again = parse(text)
    verify(again)
    assert print_program(again) == text, f"print -> parse -> print changes the text after {stage}"
    compare(run(again, arguments), expected, f"the program that was printed after {stage}")


def check_tasks(program: Program, arguments: dict[str, Any], expected: range) -> None:
    executed = Interpreter().run(program, copy.deepcopy(arguments)).tasks
    recorded = Interpreter().run(program, copy.deepcopy(arguments), execute=False).tasks
    assert executed.total in expected, (
        f"{executed.total} tasks ({executed.counts()}), not {expected}"
    )
    assert described(recorded) == described(executed), "execute=False records other tasks"
    counted = count_tasks(program, copy.deepcopy(arguments))
    assert (counted.counts(), counted.blocks()) == (executed.counts(), executed.blocks())


def described(tasks: TaskStream) -> list[tuple[Any, ...]]:
    """Return everything about the tasks that does not depend on addresses."""
    buffers: dict[int, int] = {}

    def argument(value: Any) -> Any:
        if not isinstance(value, Window):
            return value
        number = buffers.setdefault(id(value.buffer), len(buffers))
        return (number, value.offset, value.shape, value.strides, value.valid)

    def one(task: Task) -> tuple[Any, ...]:
        values = tuple(argument(v) for v in task.values)
        return (task.kernel, values, task.directions, task.deps, task.blocks, task.ran)

    return [one(t) for t in tasks]
