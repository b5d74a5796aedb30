"""Statements that only fill memory with a constant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.source import Source

# Calls allowed in such a statement.
_FILLING = frozenset(
    (
        *("full", "zeros", "tile.full", "cast", "assemble", "store"),
        *("range", "parallel", "unroll", "at", "incore", "auto_incore"),
    )
)


def fill_statements(source: Source) -> Iterator[ast.For | ast.With]:
    for body in source.bodies():
        for statement in body:
            if not isinstance(statement, (ast.For, ast.With)) or not _fills(source, statement):
                continue
            if not _inside_other_fill(source, statement) and len(body) > 1:
                yield statement


def _fills(source: Source, statement: ast.stmt) -> bool:
    calls = [source.call_of(n) for n in source.inside(statement) if isinstance(n, ast.Call)]
    constants = any(call in ("full", "zeros", "tile.full") for call in calls)
    loads = any(
        isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)
        for n in source.inside(statement)
    )
    return (
        constants
        and not loads
        and set(calls) <= _FILLING
        and bool(filled_tensors(source, statement))
    )


def filled_tensors(source: Source, statement: ast.stmt) -> set[str]:
    """Return the tensors that a statement writes."""
    found: set[str] = set()
    for node in source.inside(statement):
        if source.call_of(node) == "assemble" and isinstance(node, ast.Call) and node.args:
            found.add(source.of(node.args[0]))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(source.of(node.value))
    return found


def _inside_other_fill(source: Source, statement: ast.stmt) -> bool:
    around = [n for n in source.around(statement) if isinstance(n, (ast.For, ast.With))]
    return any(_fills(source, n) for n in around)
