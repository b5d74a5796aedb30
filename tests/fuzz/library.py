"""Many programs in one library: the C compiler is started once for all of them.

Its start, the reading of the headers and the linking take longer than the code of a small program.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from unittest.mock import patch

from tilelet.cpu import build, native
from tilelet.cpu.engine import NativeProgram
from tilelet.cpu.program import emit_program
from tilelet.ir.core import Program

_HEADER = '#include "kernel.h"\n'
_DEFINED = re.compile(r"^(?:static )?(?:int|void) (\w+)\(", re.MULTILINE)
_FIXED = ("kernels", "control", "tl_main")


def merged(units: Sequence[str]) -> str:
    """One text of several programs, each with names of its own."""
    parts = [_HEADER]
    for number, text in enumerate(units):
        names = sorted({*_DEFINED.findall(text), *_FIXED})
        parts += [f"#define {name} p{number}_{name}" for name in names]
        parts.append(text.replace(_HEADER, ""))
        parts += [f"#undef {name}" for name in names]
    # Every library has one; those of the programs have names of their own here.
    parts.append('__attribute__((visibility("default"))) const int tl_main = 0;')
    return "\n".join(parts) + "\n"


def text_of(program: Program) -> str:
    """The C text of a program (after all passes)."""
    return "\n".join(emit_program(program, parts=1).units)


def load_together(programs: Sequence[Program], optimise: str) -> list[NativeProgram]:
    """The programs, compiled as one text and loaded."""
    with patch.object(build, "OPTIMISE", optimise):
        library = build.load([merged([text_of(program) for program in programs])])
    return [_member(program, library, number) for number, program in enumerate(programs)]


def _member(program: Program, library: ctypes.CDLL, number: int) -> NativeProgram:
    run = library.tl_run
    run.argtypes = [ctypes.POINTER(native.ProgramTable), ctypes.POINTER(native.RunArgs)]
    run.restype = ctypes.c_int
    table = native.ProgramTable.in_dll(library, f"p{number}_tl_main")
    with (
        patch.object(build, "load", lambda _: library),
        patch.object(native, "entry_point", lambda _: (run, table)),
    ):
        return NativeProgram(program)
