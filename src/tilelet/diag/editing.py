"""Edits of source text at byte offsets, which is how `ast` and fixes give places."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from tilelet.dataclasses import dataclass
from tilelet.diag.core import Fix


@dataclass(frozen=True)
class Edit:
    """Replacement text for the bytes from `start` to `end`."""

    start: int
    end: int
    text: str


class OverlapError(Exception):
    """Two edits change the same bytes."""


class SourceText:
    """A text whose parts are addressed by byte offset, by line, or by `ast` node."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of every line, and of the end."""
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def offset(self, line: int, col: int) -> int:
        """Return the offset of a column, counted in bytes, of a line, counted from 1."""
        return self.line_starts[line - 1] + col

    def span(self, node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
        end = self.offset(node.end_lineno or 0, node.end_col_offset or 0)
        return self.offset(node.lineno, node.col_offset), end

    def of(self, node: ast.expr | ast.stmt | ast.arg) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def lines(self, first: int, last: int) -> str:
        """Return the lines `first` to `last`, inclusive, counted from 1."""
        return self.data[self.line_starts[first - 1] : self.line_starts[last]].decode()

    def replace(self, node: ast.expr | ast.stmt | ast.arg, text: str) -> Edit:
        return Edit(*self.span(node), text)

    def fix(self, fix: Fix) -> Edit:
        """Return the edit that a diagnostic proposes."""
        at = fix.loc
        return Edit(self.offset(at.line, at.col), self.offset(at.end_line, at.end_col), fix.text)

    def edited(self, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
        """Return the text from `start` to `end` with edits applied; they must not overlap."""
        text = self.data[start:end]
        last = start + len(text) + 1
        for edit in sorted(edits, key=lambda e: e.start, reverse=True):
            if edit.end > last:
                raise OverlapError
            text = text[: edit.start - start] + edit.text.encode() + text[edit.end - start :]
            last = edit.start
        return text.decode()
