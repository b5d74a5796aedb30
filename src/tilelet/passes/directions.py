"""Infer In, Out or InOut for every parameter from the accesses of the function.

A parameter that is only written is Out, even if written partially; one that is read and written is
InOut. Declared directions are kept.
"""

from __future__ import annotations

from dataclasses import replace

from tilelet.analysis.aliases import infer_directions
from tilelet.ir import structure
from tilelet.ir.core import Function, Program, walk
from tilelet.ir.views import CallView


def directions(program: Program) -> Program:
    """Set the directions of all functions, callees before their callers."""
    done: dict[str, Function] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        fn = program.functions[name]
        for op in walk(fn.body):
            if op.spec is structure.CALL:
                visit(CallView(op).callee)
        done[name] = replace(fn, directions=infer_directions(fn, done))

    for name in program.functions:
        visit(name)
    return program.with_functions({name: done[name] for name in program.functions})
