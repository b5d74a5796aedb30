"""The pass pipeline; each pass is a pure function `Program -> Program`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelet.ir.core import Program
from tilelet.passes.alias_windows import alias_windows
from tilelet.passes.directions import directions
from tilelet.passes.outline import outline
from tilelet.passes.simplify import simplify
from tilelet.passes.split_chunks import split_chunks

Pass = Callable[[Program], Program]

PASSES: tuple[Pass, ...] = (
    # First, because chunk loops decide the scope boundaries and so the number of tasks.
    split_chunks,
    # Every scope is now a leaf: turn it into a kernel and a call.
    outline,
    # Needs the spilled results of outlining; removes most of their copies.
    alias_windows,
    # Needs the final parameters of every kernel.
    directions,
    simplify,
)

AS_WRITTEN = PASSES[:-1]
"""All passes but `simplify`: the result has every statement, also those without effect."""


def run_passes(
    program: Program,
    after: Callable[[str, Program], None] | None = None,
    passes: Sequence[Pass] | None = None,
) -> Program:
    """Run passes (`PASSES`), calling `after` with the program after each one, to dump or verify."""
    for one in PASSES if passes is None else passes:
        program = one(program)
        if after:
            after(one.__name__, program)
    return program
