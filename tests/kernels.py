"""Small programs for tests, run on the frontend's IR and after all passes, which must agree."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.ir.printer import print_program
from tilelet.ir.types import TensorType
from tilelet.ir.verify import verify
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes


def lowered(program: Program) -> Program:
    """Return the program after all passes, verified after each."""
    verify(program)
    return run_passes(program, after=lambda _, p: verify(p))


def run(program: Any, **arguments: Any) -> dict[str, Any]:
    """Run on copies of the arguments; return the arguments as the program left them.

    Checks on the way that passes keep the result, and that the printed text means the same.
    """
    if hasattr(program, "specialize"):
        names = [p.name for p in program.parameters]
        program = program.specialize(*(arguments[n] for n in names))
    before = execute(program, arguments)
    stages: Mapping[str, Program] = {
        "passes": lowered(program),
        "printed text": parse(print_program(program)),
    }
    for what, stage in stages.items():
        after = execute(stage, arguments)
        for name, array in before.items():
            if isinstance(array, np.ndarray):
                np.testing.assert_array_equal(
                    array.view(np.uint8), after[name].view(np.uint8), err_msg=f"{name} after {what}"
                )
    return before


def execute(program: Program, arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = {n: copy.deepcopy(a) for n, a in arguments.items()}
    Interpreter().run(program, given)
    return given


def task_counts(program: Program, arguments: Mapping[str, Any]) -> dict[str, int]:
    return Interpreter().run(lowered(program), arguments, execute=False).tasks.counts()


def round_trip(program: Program) -> str:
    """The printed program, checked to be a fixed point of print and parse."""
    text = print_program(program)
    again = print_program(parse(text))
    assert text == again
    return text


def zero_arguments(program: Program) -> dict[str, Any]:
    """Return arguments of zeros for the entry; dynamic dimensions are 16, scalars 0."""
    given: dict[str, Any] = {}
    for p in program.main.params:
        if isinstance(p.type, TensorType):
            shape = tuple(d if isinstance(d, int) else 16 for d in p.type.shape)
            given[p.name] = np.zeros(shape, p.type.dtype.numpy)
        else:
            given[p.name] = 0
    return given
