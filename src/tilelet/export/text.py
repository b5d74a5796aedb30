"""Source files with comments, and line wrapping of statements."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from functools import cached_property

from tilelet.diag.editing import SourceText
from tilelet.frontend.source import SourceFile

# Directives to tools, which do not apply to rewritten text.
_FOR_TOOLS = re.compile(r"#\s*(fmt|noqa|type|pyright|ruff|pylint)\b")


class FileText(SourceText):
    """The text of a file, and its comments by line."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source.text)
        self.source = source
        self._lines = source.text.split("\n")

    @cached_property
    def comments(self) -> dict[int, str]:
        """Comments by line, without directives to tools."""
        found: dict[int, str] = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if token.type == tokenize.COMMENT and not _FOR_TOOLS.match(token.string):
                    found[token.start[0]] = token.string
        except (tokenize.TokenError, SyntaxError):
            return found
        return found

    def is_alone(self, line: int) -> bool:
        """Whether a comment is alone on its line."""
        return self._lines[line - 1].lstrip().startswith("#")

    def leading(self, after: int, before: int) -> list[str]:
        """Return the comments between two statements, preceded by an empty line if there is one."""
        found = [
            self.comments[n]
            for n in range(after + 1, before)
            if n in self.comments and self.is_alone(n)
        ]
        is_apart = any(not self._lines[n - 1].strip() for n in range(after + 1, before))
        return ["", *found] if is_apart else found

    def trailing(self, stmt: ast.stmt, last: int | None = None) -> str:
        """Return the comment after a statement, or after its header that ends at `last`."""
        line = last if last is not None else stmt.end_lineno or stmt.lineno
        comment = self.comments.get(line)
        return f"  {comment}" if comment and not self.is_alone(line) else ""


def one_line(text: str) -> str:
    """Join a multi-line expression into one line."""
    joined = re.sub(r"\s*\n\s*", " ", text.strip())
    return re.sub(r",\s*([\])}])", r"\1", re.sub(r"([(\[{]) ", r"\1", joined))


def wrap_statement(text: str, indent: str, width: int = 100) -> list[str]:
    """Wrap a statement at call arguments into lines of at most `width`.

    Lines that cannot be broken are left as they are.
    """
    if len(indent) + len(text) <= width:
        return [indent + text]
    opened = _outermost(text)
    if opened is None:
        return [indent + text]
    start, end = opened
    arguments = split_arguments(text[start + 1 : end])
    inner = indent + "    "
    lines = [indent + text[: start + 1]]
    packed = inner + ", ".join(arguments)
    if len(packed) <= width:
        lines.append(packed)
    else:
        for argument in arguments:
            lines += wrap_statement(f"{argument},", inner, width)
    return [*lines, indent + text[end:]]


def _outermost(text: str) -> tuple[int, int] | None:
    """Return the span of the longest outermost brackets."""
    best: tuple[int, int] | None = None
    depth, start = 0, 0
    for i, c in enumerate(_without_strings(text)):
        if c in "([{":
            if depth == 0:
                start = i
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0 and (best is None or i - start > best[1] - best[0]):
                best = start, i
    return best


def _without_strings(text: str) -> str:
    """Mask string literals, keeping the length."""
    return re.sub(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", lambda m: "x" * len(m[0]), text)


def split_arguments(text: str) -> list[str]:
    """Split a text at commas outside brackets."""
    parts: list[str] = []
    depth = last = 0
    for i, c in enumerate(_without_strings(text)):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:i].strip())
            last = i + 1
    return [p for p in (*parts, text[last:].strip()) if p]


def names_read(nodes: Sequence[ast.AST]) -> list[str]:
    """Return every occurrence of a name that is read."""
    return [
        n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
