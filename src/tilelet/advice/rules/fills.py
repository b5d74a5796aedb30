"""Memory that is filled with a constant although every element is written later."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Source
from tilelet.diag.catalogue.advice import DeadFill

# What a statement that only fills may call.
_FILLING = frozenset(
    (
        *("full", "zeros", "tile.full", "cast", "assemble", "store"),
        *("range", "parallel", "unroll", "at", "incore", "auto_incore"),
    )
)


def find(subject: Subject) -> Iterator[Advice]:
    """Only those whose removal is a rewriting: whether it is right, the proof says."""
    source = subject.source
    for body in source.bodies():
        for statement in body:
            if not isinstance(statement, (ast.For, ast.With)) or not _fills(source, statement):
                continue
            if _inside_other_fill(source, statement) or len(body) == 1:
                continue
            filled = sorted(_filled(source, statement))
            kernels = subject.kernels_in(statement.lineno, statement.end_lineno or 0)
            problem = DeadFill(source.loc(statement), filled)
            yield subject.advice(problem, kernels, [source.remove(statement)])


def _fills(source: Source, statement: ast.stmt) -> bool:
    calls = [source.call_of(n) for n in ast.walk(statement) if isinstance(n, ast.Call)]
    constants = any(call in ("full", "zeros", "tile.full") for call in calls)
    loads = any(
        isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load) for n in ast.walk(statement)
    )
    return constants and not loads and set(calls) <= _FILLING and bool(_filled(source, statement))


def _filled(source: Source, statement: ast.stmt) -> set[str]:
    """Tensors that the statement writes to."""
    found: set[str] = set()
    for node in ast.walk(statement):
        if source.call_of(node) == "assemble" and isinstance(node, ast.Call) and node.args:
            found.add(source.of(node.args[0]))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(source.of(node.value))
    return found


def _inside_other_fill(source: Source, statement: ast.stmt) -> bool:
    for node in ast.walk(source.tree):
        if node is statement or not isinstance(node, (ast.For, ast.With)):
            continue
        if any(n is statement for n in ast.walk(node)) and _fills(source, node):
            return True
    return False
