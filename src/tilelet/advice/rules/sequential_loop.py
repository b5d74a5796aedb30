"""Rule sequential-loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.diag.core import Caution, Label, Loc


class SequentialLoop(Caution, code="W1306"):
    """A loop is sequential although its iterations are independent."""

    def __init__(self, loc: Loc, variable: str) -> None:
        super().__init__(
            f"iterations of `{variable}` are independent",
            [Label(loc)],
            helps=["`pl.parallel` lets them run at once"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find sequential loops of the control program; the race check decides independence."""
    source = subject.source
    for node in source.nodes:
        if not isinstance(node, ast.For) or source.loop(node) != "range":
            continue
        scopes = [n for n in ast.walk(node) if isinstance(n, ast.With) and source.is_scope(n)]
        kernels = subject.kernels_in(node.lineno, node.end_lineno or 0)
        if not scopes or not kernels or source.is_in_scope(node):
            continue
        assert isinstance(node.iter, ast.Call)
        function = node.iter.func
        assert isinstance(function, ast.Attribute)
        text = f"{source.of(function.value)}.parallel"
        problem = SequentialLoop(source.loc(node.iter), source.of(node.target))
        yield subject.advice(problem, kernels, [source.replace(function, text)])


RULE = Rule(
    "sequential-loop", SequentialLoop, find, rewrites=True, needs_newer=True, needs_proof=True
)
