"""Rule repeated-read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound, names_read
from tilelet.diag.core import Caution, Label, Loc


class RepeatedRead(Caution, code="W1313"):
    """A loop reads the same element of a tensor in every iteration."""

    def __init__(self, loc: Loc, loop: Loc, what: str) -> None:
        super().__init__(
            f"`{what}` is read again in every iteration",
            [Label(loc), Label(loop, "of this loop")],
            helps=["hoist the read out of the loop"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find loop-invariant `pl.read(t, [i])` in loops."""
    source = subject.source
    for node in source.nodes:
        if source.call_of(node) not in ("read", "tensor.read") or not isinstance(node, ast.Call):
            continue
        loop = _repeating_loop(source, node) if len(node.args) >= 2 else None
        if loop is None:
            continue
        kernels = subject.kernels_in(*source.scope_lines(loop))
        kernels = kernels or subject.kernels_in(loop.lineno, loop.end_lineno or 0)
        if kernels:
            problem = RepeatedRead(source.loc(node), source.loc(loop.iter), source.of(node))
            yield subject.advice(problem, kernels)


def _repeating_loop(source: Source, read: ast.Call) -> ast.For | None:
    """Return the innermost loop in which the read is invariant."""
    needed = set[str]().union(*(names_read(a) for a in read.args[1:]))
    for loop in (n for n in source.around(read) if isinstance(n, ast.For)):
        assigns = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Assign)]
        for assign in reversed(assigns):
            if names_bound(assign) & needed:
                needed |= names_read(assign.value)
        is_carried = any(names_bound(a) & names_read(a.value) & needed for a in assigns)
        if is_carried or source.loop(loop) is None or names_bound(loop) & names_read(read.args[0]):
            return None  # the element or its value may change
        if not names_bound(loop.target) & needed:
            return loop
    return None


RULE = Rule("repeated-read", RepeatedRead, find)
