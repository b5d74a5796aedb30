"""Source text by place: segments of a file, edits in them, comments around them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from functools import cached_property

from tilelet.diag.editing import SourceText
from tilelet.frontend.source import SourceFile

# Comments to tools, about text that is written anew.
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
        """Whether a comment has its line for itself."""
        return self._lines[line - 1].lstrip().startswith("#")

    def leading(self, after: int, before: int) -> list[str]:
        """Comments between two statements, and an empty line if there is one."""
        found = [
            self.comments[n]
            for n in range(after + 1, before)
            if n in self.comments and self.is_alone(n)
        ]
        is_apart = any(not self._lines[n - 1].strip() for n in range(after + 1, before))
        return ["", *found] if is_apart else found

    def trailing(self, stmt: ast.stmt, last: int | None = None) -> str:
        """The comment at the end of a statement's line, or of its header that ends at `last`."""
        line = last if last is not None else stmt.end_lineno or stmt.lineno
        comment = self.comments.get(line)
        return f"  {comment}" if comment and not self.is_alone(line) else ""


def one_line(text: str) -> str:
    """An expression that stood on several lines, on one."""
    joined = re.sub(r"\s*\n\s*", " ", text.strip())
    return re.sub(r",\s*([\])}])", r"\1", re.sub(r"([(\[{]) ", r"\1", joined))


def wrapped(text: str, indent: str, width: int = 100) -> list[str]:
    """A statement as lines of at most `width`, broken at the arguments of calls where it must be.

    What is still too long after that is left as it is.
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
            lines += wrapped(f"{argument},", inner, width)
    return [*lines, indent + text[end:]]


def _outermost(text: str) -> tuple[int, int] | None:
    """The longest bracketed part of a line that is not inside another."""
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
    """Text of the same length in which strings have no brackets and commas."""
    return re.sub(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", lambda m: "x" * len(m[0]), text)


def split_arguments(text: str) -> list[str]:
    """The parts of a text between commas that are in no brackets."""
    parts: list[str] = []
    depth = last = 0
    for i, c in enumerate(_without_strings(text)):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:i].strip())
            last = i + 1
    return [p for p in (*parts, text[last:].strip()) if p]


def names_read(nodes: Sequence[ast.AST]) -> list[str]:
    """Every occurrence of a name that is read."""
    return [
        n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
