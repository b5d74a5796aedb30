"""Python and C agree on structures: sizes, and the offset of every field."""

from __future__ import annotations

import ctypes

import pytest
from tests.cpu import clib

from tilelet.cpu.run import native
from tilelet.device.schedule import structures
from tilelet.device.schedule.library import SOURCES

OF_ENGINE = {
    "tl_word": native.Word,
    "tl_win": native.Win,
    "tl_fault": native.Fault,
    "tl_record": native.NativeRecord,
    "tl_run_args": native.RunArgs,
    "tl_program": native.ProgramTable,
}
CASES = [(SOURCES / "structures.h", s.__name__, s) for s in structures.ALL]
CASES += [(clib.SOURCES / "rt.h", name, s) for name, s in OF_ENGINE.items()]


@pytest.mark.parametrize(("header", "name", "structure"), CASES, ids=lambda x: str(x)[-20:])
def test_c_has_the_same_layout(header, name, structure) -> None:
    fields = [field for field, *_ in structure._fields_]
    wanted = [f"sizeof({name})", *(f"offsetof({name}, {field})" for field in fields)]
    wanted += [f"sizeof((({name} *)0)->{field})" for field in fields]
    text = f'#include <stddef.h>\n#include "{header}"\n'
    text += f"const int64_t layout[] = {{{', '.join(wanted)}}};"
    there = (ctypes.c_int64 * len(wanted)).in_dll(clib.build(text), "layout")
    places = [getattr(structure, field) for field in fields]
    here = [ctypes.sizeof(structure), *(p.offset for p in places), *(p.size for p in places)]
    assert list(there) == here


@pytest.mark.parametrize("structure", structures.ALL)
def test_no_field_is_left_out(structure) -> None:
    """A field of C unknown to Python would make the structure larger, or leave a gap."""
    sizes = [getattr(structure, field).size for field, _ in structure._fields_]
    assert sum(sizes) == ctypes.sizeof(structure)
