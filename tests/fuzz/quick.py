"""tcc, where installed, for most cases: a program takes a millisecond instead of seventy.

It has no vectors. So the functions that generated code is inlined with are compiled once, with the
runtime, by the usual compiler, and the programs are compiled against their declarations.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilelet.cpu.emit.kernel import LINE_BYTES
from tilelet.cpu.run import build
from tilelet.native.toolchain import FLAGS, find_compiler, machine_flags

LEVEL = "quick"  # in place of a level of optimization
FOLDER = "TILELET_FUZZ_QUICK"  # environment variable: the folder of the runtime
_COMMAND = "TCC"  # environment variable: the compiler, if not `tcc`
_BASE = "libbase.so"
_STANDARD = ("math", "stddef", "stdint", "string")
_VECTORS = re.compile(r"\btl_\w+x[48]\b|\btl_bytes\b|\btl_words\b")
_ATTRIBUTES = re.compile(r"__attribute__\(\(.*?\)\)")
_INCLUDES = "".join(f"#include <{name}.h>\n" for name in _STANDARD)
_MACROS = (
    "#define __builtin_inf() ((double)INFINITY)\n"
    f"#define TL_IVDEP\n#define TL_LINE {LINE_BYTES}\n#define TL_CANCELLED(c) (*(c)->cancel != 0)\n"
)


class RefusedError(Exception):
    """tcc rejected a program. That is not a finding, because tcc does not accept all of C."""


def command() -> str | None:
    """Return the compiler, if there is one."""
    return shutil.which(os.environ.get(_COMMAND, "tcc"))


def prepare(folder: Path) -> None:
    """Compile the runtime as a library, and write the matching header."""
    folder.mkdir(parents=True, exist_ok=True)
    header, functions = split(_preprocessed(folder))
    (folder / "kernel.h").write_text(header)
    (folder / "functions.c").write_text(functions)
    sources = [folder / "functions.c", *sorted(build.SOURCES.glob("*.c"))]
    flags = [f for f in (*FLAGS, *machine_flags()) if not f.startswith("-fvisibility")]
    names = [str(s) for s in sources]
    arguments = ["-O2", "-shared", f"-Wl,-soname,{_BASE}", *names, "-lm", "-lpthread"]
    _run([*find_compiler().command, *flags, *arguments, "-o", str(folder / _BASE)])


def _preprocessed(folder: Path) -> str:
    """Return the declarations of `kernel.h` that are our own."""
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    for name in _STANDARD:
        (empty / f"{name}.h").write_text("")
    paths = [f"-I{empty}", f"-I{build.SOURCES}", str(build.SOURCES / "kernel.h")]
    return _run([*find_compiler().command, *FLAGS, *machine_flags(), "-E", "-P", *paths])


def split(text: str) -> tuple[str, str]:
    """Return declarations without vectors, and the names of declared functions."""
    header, functions = [_INCLUDES + _MACROS], [_INCLUDES]
    for item in _items(text):
        if item.startswith("#") or (item.startswith("typedef") and "vector_size" in item):
            functions.append(item)
        elif item.startswith("static") and item.endswith("}"):
            declared, body = item.split("{", 1)
            declared = _ATTRIBUTES.sub("", declared).replace("inline", "")
            declared = declared.removeprefix("static").strip()
            has_vectors = _VECTORS.search(declared)
            functions.append(item if has_vectors else f"{declared} {{{body}")
            header += [] if has_vectors else [f"{declared};"]
        else:
            # A vector in a structure becomes an unaligned array of the same size.
            header.append(re.sub(r"\btl_f32x8 (\w+)", r"float \1[8]", item))
            functions.append(_loose(item))
    return "\n".join(header) + "\n", "\n".join(functions) + "\n"


def _loose(item: str) -> str:
    if not _VECTORS.search(item):
        return item
    kind = "typedef float tl_loose __attribute__((vector_size(32), aligned(4)));\n"
    return kind + _VECTORS.sub("tl_loose", item)


def _items(text: str) -> Iterator[str]:
    """Return the declarations and definitions of a text without comments."""
    begin = depth = 0
    for found in re.finditer(r"^#.*$|[{};]", text, re.MULTILINE):
        what = found.group()
        depth += {"{": 1, "}": -1}.get(what, 0)
        item = text[begin : found.end()].strip()
        is_body = what == "}" and item.startswith("static")
        if depth == 0 and (what[0] in "#;" or is_body):
            yield item
            begin = found.end()


def load(text: str) -> ctypes.CDLL:
    """Return the library of a text, linked with the compiled runtime."""
    compiler, folder = command(), Path(os.environ[FOLDER])
    assert compiler is not None
    ctypes.CDLL(str(folder / _BASE), ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as made:
        unit, library = Path(made, "unit.c"), Path(made, "unit.so")
        unit.write_text(text, encoding="utf-8")
        paths = [f"-I{folder}", str(unit), str(folder / _BASE)]
        _run([compiler, "-w", "-shared", *paths, "-o", str(library)])
        return ctypes.CDLL(str(library))


def _run(arguments: Sequence[str]) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(f"{arguments[0]}: {done.stderr[:2000]}")
    return done.stdout
