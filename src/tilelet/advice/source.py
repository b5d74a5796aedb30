"""The text of a script as rules change it: statements by spans, comments and layout kept."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilelet.diag.core import Loc

Body = list[ast.stmt]

# Scopes that one task executes, and the arguments that do not matter when two become one.
_SCOPES = ("at", "incore", "auto_incore")


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `end` of the text, and what stands there instead."""

    start: int
    end: int
    text: str


class Source:
    """A script, parsed."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._bytes = text.encode()

    @cached_property
    def language(self) -> str:
        """What the script calls the language: `pl`, as a rule."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    if name.name.endswith(".language") and name.asname:
                        return name.asname
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    if name.name == "language":
                        return name.asname or name.name
        return "pl"

    # Places

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def loc(self, node: ast.expr | ast.stmt) -> Loc:
        return Loc(
            self.path,
            node.lineno,
            node.col_offset,
            node.end_lineno or node.lineno,
            node.end_col_offset or 0,
        )

    def lines(self, first: int, last: int) -> str:
        """Whole lines, counted from 1, `last` among them."""
        return self._bytes[self._starts[first - 1] : self._starts[last]].decode()

    # Statements

    def bodies(self) -> Iterator[Body]:
        """Every list of statements of the script, outer ones first."""
        for node in ast.walk(self.tree):
            for name in ("body", "orelse"):
                body = getattr(node, name, None)
                if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                    yield body

    def call_of(self, node: ast.AST | None) -> str | None:
        """`matmul` for a call of `pl.matmul`; None for anything else."""
        if not isinstance(node, ast.Call):
            return None
        parts: list[str] = []
        function = node.func
        while isinstance(function, ast.Attribute):
            parts.append(function.attr)
            function = function.value
        if isinstance(function, ast.Name) and function.id == self.language and parts:
            return ".".join(reversed(parts))
        return None

    def is_scope(self, node: ast.stmt) -> bool:
        """`with pl.at(...)` and its older spellings: what one task executes."""
        if not isinstance(node, ast.With) or len(node.items) != 1:
            return False
        item = node.items[0]
        return item.optional_vars is None and self.call_of(item.context_expr) in _SCOPES

    def scope_lines(self, statement: ast.stmt) -> tuple[int, int]:
        """The lines of the innermost scope around a statement, or else its own."""
        best = statement.lineno, statement.end_lineno or 0
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.With) or not self.is_scope(node):
                continue
            if node.lineno <= statement.lineno <= (node.end_lineno or 0):
                best = node.lineno, node.end_lineno or 0
        return best

    def loop(self, node: ast.stmt) -> str | None:
        """`range` for `for i in pl.range(...)`."""
        return self.call_of(node.iter) if isinstance(node, ast.For) else None

    # Changing

    def edited(self, edits: Iterable[Edit]) -> str:
        """The text after `edits`, which must not overlap."""
        text = self._bytes
        last = len(text) + 1
        for edit in sorted(edits, key=lambda e: e.start, reverse=True):
            assert edit.end <= last, "edits overlap"
            text = text[: edit.start] + edit.text.encode() + text[edit.end :]
            last = edit.start
        return text.decode()

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(*self.span(node), text)

    def replace_lines(self, first: int, last: int, text: str) -> Edit:
        return Edit(self._starts[first - 1], self._starts[last], text)

    def remove(self, node: ast.stmt) -> Edit:
        """Without the statement, and the comment lines just above it."""
        first = node.lineno
        while first > 1 and self.lines(first - 1, first - 1).lstrip().startswith("#"):
            first -= 1
        return self.replace_lines(first, node.end_lineno or node.lineno, "")

    def indented(self, first: int, last: int, by: int) -> str:
        """Lines moved to the right, or to the left."""
        text = self.lines(first, last)
        if by >= 0:
            return textwrap.indent(text, " " * by)
        return "".join(
            line[-by:] if not line[:-by].strip() else line
            for line in text.splitlines(keepends=True)
        )


def names_read(nodes: ast.AST | Sequence[ast.AST]) -> set[str]:
    """Names whose values are used."""
    return _names(nodes, ast.Load)


def names_bound(nodes: ast.AST | Sequence[ast.AST]) -> set[str]:
    """Names that get a value; a subscript that is assigned to changes its name's value."""
    found = _names(nodes, ast.Store)
    for node in _walk(nodes):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= names_read(node.value)
    return found


def _names(nodes: ast.AST | Sequence[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {n.id for n in _walk(nodes) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _walk(nodes: ast.AST | Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in [nodes] if isinstance(nodes, ast.AST) else nodes:
        yield from ast.walk(node)
