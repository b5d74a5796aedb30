"""Rule launch-in-loop: one scope around the loop makes one task of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.rules.one_scope_tensor import only_scope
from tilelet.advice.source import Source, names_bound, names_needed
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit
from tilelet.diag.text import quoted_names


class LaunchInLoop(Caution, code="W1321"):
    """A loop launches a task in every iteration, and each waits for the one before."""

    def __init__(self, loop: Loc, scope: Loc, name: str, carried: Sequence[str]) -> None:
        what = f", which carries {quoted_names(carried[:3], 'and')}" if carried else ""
        super().__init__(
            f"every iteration of the loop over `{name}` launches a task{what}",
            [Label(scope, "launched here"), Label(loop, "by this loop")],
            helps=["put the scope around the loop"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or source.loop(loop) != "range" or loop.orelse:
            continue
        scope = loop.body[-1]
        if not isinstance(scope, ast.With) or not source.is_scope(scope):
            continue
        if source.is_in_scope(loop) or not all(_may_move(source, s, scope) for s in loop.body[:-1]):
            continue
        kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
        carried = sorted((names_bound(scope.body) & names_needed(scope.body)) - source.tensors)
        if not kernels or not carried:
            continue  # independent iterations should stay separate tasks
        problem = LaunchInLoop(source.loc(loop), source.loc(scope), source.of(loop.target), carried)
        yield subject.advice(problem, kernels, [_edit(source, loop, scope)])


def _may_move(source: Source, statement: ast.stmt, scope: ast.With) -> bool:
    """Whether a statement defines scalars, or a tensor that only this scope uses."""
    if not isinstance(statement, ast.Assign):
        return False
    if source.call_of(statement.value) == "create_tensor":
        names = names_bound(statement)
        return len(names) == 1 and only_scope(source, statement, *names) is scope
    calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call)]
    return all(source.call_of(call) in ("min", "max") for call in calls)


def _edit(source: Source, loop: ast.For, scope: ast.With) -> Edit:
    """Move `with` before `for`; the body keeps its lines."""
    inner = loop.body[0].col_offset - loop.col_offset
    header = source.indented(
        scope.lineno, scope.body[0].lineno - 1, loop.col_offset - scope.col_offset
    )
    before = source.indented(loop.lineno, scope.lineno - 1, inner)
    deep = scope.body[0].col_offset - scope.col_offset
    body = source.indented(scope.body[0].lineno, scope.end_lineno or 0, inner - deep)
    return source.replace_lines(loop.lineno, loop.end_lineno or 0, header + before + body)


RULE = Rule("launch-in-loop", LaunchInLoop, find, rewrites=True, needs_proof=True)
