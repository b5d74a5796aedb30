"""Rule one-scope-tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.diag.core import Caution, Label, Loc


class OneScopeTensor(Caution, code="W1320"):
    """A tensor in global memory is used by one scope only."""

    def __init__(self, loc: Loc, scope: Loc, tensor: str) -> None:
        super().__init__(
            f"`{tensor}` is in global memory, but only one scope uses it",
            [Label(loc, "created here"), Label(scope, "used here")],
            helps=["create it inside the scope, where it is a tile on chip"],
        )


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
    """Return the scope that contains all uses of a tensor, or None."""
    own = set(source.inside(maker))
    around = [set(source.around(n)) for n in source.names(name) if n not in own]
    if not around:
        return None
    return next((s for s in source.scopes if all(s in outer for outer in around)), None)


RULE = Rule("one-scope-tensor", OneScopeTensor, find, rewrites=True, needs_proof=True)
