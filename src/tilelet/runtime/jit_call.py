"""What a `@pl.jit` function does when it is called, compiled or lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelet.ir.core import Program
from tilelet.runtime.compiler import (
    CompiledProgram,
    compile_program,
    dump_folder,
    run_directory,
)
from tilelet.runtime.config import RunConfig

# Compiled programs by the identity of the frontend's; the program is kept, so ids stay unique.
_COMPILED: dict[int, tuple[Program, CompiledProgram]] = {}


def call(jit_fn: Any, args: Sequence[Any], config: RunConfig | None = None) -> Any:
    """`kernel(*args, config=...)`: specialise, compile once, run; results are in the arguments."""
    return compile(jit_fn, args, config)(*args, config=config)


def compile(  # noqa: A001
    jit_fn: Any, args: Sequence[Any], config: RunConfig | None = None
) -> CompiledProgram:
    """`kernel.compile(*args)`: the program for the shapes and types of these arguments."""
    return compiled(jit_fn.specialize(*args), config)


def lower(jit_fn: Any, args: Sequence[Any]) -> Program:
    """`kernel.lower(*args)`: the IR after all passes."""
    return compile(jit_fn, args).program


def compiled(program: Program, config: RunConfig | None = None) -> CompiledProgram:
    """The program after all passes, compiled at most once."""
    known = _COMPILED.get(id(program))
    folder = dump_folder(run_directory(program.name, config), config)
    if known is not None and folder is None:
        return known[1]
    result = compile_program(program, folder, config)
    _COMPILED[id(program)] = (program, result)
    return result
