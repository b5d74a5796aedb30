"""Comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

from tilelet.advice.source import Source
from tilelet.diag.core import Loc


def prose(source: Source) -> Iterator[tuple[Loc, int, str]]:
    """Comments and docstrings with their places, and the bytes they start at."""
    starts = [0]
    for line in source.text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
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
            before = lines[row - 1][:column].encode()
            yield Loc(source.path, row, len(before)), starts[row - 1] + len(before), token.string
