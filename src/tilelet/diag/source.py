"""Source lines by file and number, and spans counted in characters."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path

from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc

# Returns one line (counted from 1) without its line end, or None if it is not available.
SourceReader = Callable[[str, int], "str | None"]


def read_line(file: str, line: int) -> str | None:
    """The default reader: files on disk, and text registered by notebooks and `pl.parse`."""
    text = linecache.getline(file, line)
    return text.rstrip("\r\n") if text else None


@dataclass(frozen=True, slots=True)
class CharacterSpan:
    """A `Loc` with its end filled in and its columns counted in characters, from 0."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int


def span_of(loc: Loc, sources: SourceReader) -> CharacterSpan:
    """Resolve `loc`; without an end it is one character, or the whole line if `col` is 0 too."""
    first = sources(loc.file, loc.line)
    col = _characters(first, loc.col)
    if loc.end_line <= 0:
        if loc.col == 0 and first:
            indent = len(first) - len(first.lstrip())
            return CharacterSpan(
                loc.file, loc.line, indent, loc.line, max(len(first.rstrip()), indent + 1)
            )
        return CharacterSpan(loc.file, loc.line, col, loc.line, col + 1)
    if loc.end_line <= loc.line:
        return CharacterSpan(
            loc.file, loc.line, col, loc.line, max(_characters(first, loc.end_col), col + 1)
        )
    end_col = _characters(sources(loc.file, loc.end_line), loc.end_col)
    return CharacterSpan(loc.file, loc.line, col, loc.end_line, max(end_col, 1))


def _characters(text: str | None, byte_col: int) -> int:
    """`ast` counts columns in UTF-8 bytes; people and editors count characters."""
    if text is None or text.isascii():
        return byte_col
    return len(text.encode()[:byte_col].decode(errors="ignore"))


def display_path(file: str) -> str:
    """Return `file` relative to the working directory if it is inside, else unchanged."""
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd())) if path.is_absolute() else file
    except (ValueError, OSError):  # outside, or the working directory is gone
        return file
