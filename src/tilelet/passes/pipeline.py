"""The passes, in order. Each is a pure function `Program -> Program`."""

from __future__ import annotations

from collections.abc import Callable

from tilelet.ir.core import Program
from tilelet.passes.alias_windows import alias_windows
from tilelet.passes.directions import directions
from tilelet.passes.outline import outline
from tilelet.passes.simplify import simplify
from tilelet.passes.split_chunks import split_chunks

Pass = Callable[[Program], Program]

PASSES: tuple[Pass, ...] = (
    # Chunk loops first: they decide where the scopes end, and so how many tasks there are.
    split_chunks,
    # Every scope is now a leaf: make it a kernel and a call.
    outline,
    # Needs the spilled results that outlining creates; removes most of their copies.
    alias_windows,
    # Needs the final parameters of every kernel.
    directions,
    simplify,
)


def run_passes(program: Program, after: Callable[[str, Program], None] | None = None) -> Program:
    """Run every pass; `after` sees the program after each (dumps, verification)."""
    for one in PASSES:
        program = one(program)
        if after:
            after(one.__name__, program)
    return program
