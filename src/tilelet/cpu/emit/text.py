"""Write C: indented lines, literals, names."""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from tilelet.diag.core import Loc

Dim = int | str
"""An extent or index: a number, or a C expression for one that is known only at run time."""


class Text:
    """Indented lines of C, with insertion points for lines that are known later."""

    def __init__(self, depth: int = 0) -> None:
        self._parts: list[str | Text] = []
        self._depth = depth

    @property
    def lines(self) -> list[str]:
        return [line for p in self._parts for line in ([p] if isinstance(p, str) else p.lines)]

    def add(self, line: str, loc: Loc | None = None) -> None:
        """Add one line; `loc` is the `pl` line it comes from, shown as a comment."""
        place = f"  // {place_text(loc)}" if loc is not None and loc.line else ""
        self._parts.append("    " * self._depth + line + place)

    def reserve(self) -> Text:
        """Return an insertion point here: a text whose lines appear at this place."""
        part = Text(self._depth)
        self._parts.append(part)
        return part

    @contextmanager
    def block(self, head: str = "", loc: Loc | None = None) -> Generator[None]:
        """`head {` ... `}`"""
        self.add(f"{head} {{".lstrip(), loc)
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    @contextmanager
    def indented(self) -> Generator[None]:
        self._depth += 1
        yield
        self._depth -= 1


def place_text(loc: Loc) -> str:
    """Return `file.py:12`, without the folder, so that equal programs give equal C anywhere."""
    return f"{_file_name(loc.file)}:{loc.line}"


@functools.lru_cache
def _file_name(path: str) -> str:
    return PurePath(path).name.replace("\\", "/")


_NOT_IN_WORDS = re.compile(r"\W", flags=re.ASCII)
_MAX_NAME = 40


def identifier(hint: str) -> str:
    """Turn `hint` into a C identifier; different hints give different identifiers."""
    name = _NOT_IN_WORDS.sub("_", hint)
    if name == hint and len(name) <= _MAX_NAME:
        return name or "value"
    mark = f"_{zlib.crc32(hint.encode()):08x}"
    return name[: _MAX_NAME - len(mark)] + mark


def double_text(value: float) -> str:
    """Return an exact double constant."""
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "(-__builtin_inf())" if value < 0 else "__builtin_inf()"
    text = value.hex()
    return f"({text})" if text.startswith("-") else text


def float_text(value: float) -> str:
    """Return an FP32 constant; `value` must be representable."""
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "(-__builtin_inff())" if value < 0 else "__builtin_inff()"
    text = value.hex() + "f"
    return f"({text})" if text.startswith("-") else text


def int_text(value: int) -> str:
    """Return an integer constant of up to 64 bits."""
    if value == -(1 << 63):
        return "INT64_MIN"
    if value >= 1 << 63:
        return f"UINT64_C({value})"
    if -(1 << 31) < value < 1 << 31:
        return str(value) if value >= 0 else f"({value})"
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"


def array_text(items: Sequence[Dim]) -> str:
    """Return a compound literal of extents or indices, to pass to a function."""
    return f"(int64_t[]){{{', '.join(map(str, items))}}}"


def product(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 0 or b == 0:
        return 0
    if a == 1:
        return b
    if b == 1:
        return a
    return f"{a} * {b}"


def total(terms: Sequence[Dim]) -> Dim:
    number = sum(t for t in terms if isinstance(t, int))
    words = [t for t in terms if isinstance(t, str)]
    if not words:
        return number
    return " + ".join([*words, str(number)] if number else words)


def lesser(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two extents."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else f"ts_min({a}, {b})"
