"""Many programs in one library: the C compiler is started once for all of them.

Its start, the reading of the headers and the linking take longer than the code of a small program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.fuzz import quick

from tilelet.cpu.emit.program import Compiled, emit_program
from tilelet.cpu.run import build, native
from tilelet.cpu.run.engine import NativeProgram
from tilelet.ir.core import Program

_HEADER = '#include "kernel.h"\n'
_DEFINED = re.compile(r"^(?:static )?(?:int|void) (\w+)\(", re.MULTILINE)
_FIXED = ("kernels", "control", native.TABLE)


def _named(name: str, number: int) -> str:
    """Name of a program in the common text."""
    return f"p{number}_{name}"


def merged(units: Sequence[str]) -> str:
    """Return one text of several programs with distinct names."""
    parts = [_HEADER]
    for number, text in enumerate(units):
        names = sorted({*_DEFINED.findall(text), *_FIXED})
        parts += [f"#define {name} {_named(name, number)}" for name in names]
        parts.append(text.replace(_HEADER, ""))
        parts += [f"#undef {name}" for name in names]
    return "\n".join(parts) + "\n"


def emitted(program: Program) -> Compiled:
    """Return a program (after all passes) as one unit of C."""
    return emit_program(program, parts=1)


def load_together(
    programs: Sequence[tuple[Program, Compiled]], optimise: str
) -> list[NativeProgram]:
    """Return the programs, compiled as one text and loaded."""
    text = merged(["\n".join(code.units) for _, code in programs])
    tables = [_named(native.TABLE, number) for number in range(len(programs))]
    library = quick.load(text) if optimise == quick.LEVEL else build.load([text], tables, optimise)
    return [
        NativeProgram(program, code, library, table)
        for (program, code), table in zip(programs, tables)
    ]
