"""A tensor in global memory that one scope alone uses: inside the scope it is a tile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.diag.catalogue.advice import OneScopeTensor


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for body in source.bodies():
        for maker in body:
            if not isinstance(maker, ast.Assign) or source.is_in_scope(maker):
                continue
            if source.call_of(maker.value) != "create_tensor" or len(names_bound(maker)) != 1:
                continue
            (name,) = names_bound(maker)
            scope = only_scope(source, maker, name)
            if scope is None:
                continue
            margin = " " * scope.body[0].col_offset
            line = scope.body[0].lineno
            moved = source.replace_lines(line, line - 1, f"{margin}{source.of(maker)}\n")
            problem = OneScopeTensor(source.loc(maker), source.loc(scope), name)
            kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
            yield subject.advice(problem, kernels, [source.remove(maker), moved])


def only_scope(source: Source, maker: ast.stmt, name: str) -> ast.With | None:
    """The one scope that has all uses of a tensor."""
    own = {id(n) for n in ast.walk(maker)}
    uses = [n for n in source.names(name) if id(n) not in own]
    for scope in source.scopes:
        inside = {id(n) for n in ast.walk(scope)}
        if uses and all(id(n) in inside for n in uses):
            return scope
    return None
