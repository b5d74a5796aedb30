"""Comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from tilelet.advice.source import Source
from tilelet.diag.core import Loc


def prose(source: Source) -> Iterator[tuple[Loc, int, str]]:
    """Yield comments and docstrings with their locations and byte offsets."""
    lines = source.text.splitlines(keepends=True)
    docstrings = {
        node.body[0].lineno
        for node in source.nodes
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
        and isinstance(node.body[0].value.value, str)
    }
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if token.type == tokenize.COMMENT or is_docstring:
            row, column = token.start
            col = len(lines[row - 1][:column].encode())
            yield Loc(source.path, row, col), source.offset(row, col), token.string
