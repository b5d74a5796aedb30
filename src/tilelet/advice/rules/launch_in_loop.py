"""A loop that launches a task in every iteration: one scope around it is one task."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.rules.one_scope_tensor import only_scope
from tilelet.advice.source import Edit, Source, names_bound, names_needed
from tilelet.diag.catalogue.advice import LaunchInLoop


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
            continue  # independent iterations are better off as tasks of their own
        problem = LaunchInLoop(source.loc(loop), source.loc(scope), source.of(loop.target), carried)
        yield subject.advice(problem, kernels, [_edit(source, loop, scope)])


def _may_move(source: Source, statement: ast.stmt, scope: ast.With) -> bool:
    """A number, or a tensor that only this scope uses."""
    if not isinstance(statement, ast.Assign):
        return False
    if source.call_of(statement.value) == "create_tensor":
        names = names_bound(statement)
        return len(names) == 1 and only_scope(source, statement, *names) is scope
    calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call)]
    return all(source.call_of(call) in ("min", "max") for call in calls)


def _edit(source: Source, loop: ast.For, scope: ast.With) -> Edit:
    """`with` goes in front of `for`; what was in the scope stays where it is."""
    inner = loop.body[0].col_offset - loop.col_offset
    header = source.indented(
        scope.lineno, scope.body[0].lineno - 1, loop.col_offset - scope.col_offset
    )
    before = source.indented(loop.lineno, scope.lineno - 1, inner)
    deep = scope.body[0].col_offset - scope.col_offset
    body = source.indented(scope.body[0].lineno, scope.end_lineno or 0, inner - deep)
    return source.replace_lines(loop.lineno, loop.end_lineno or 0, header + before + body)


RULE = Rule(
    "launch-in-loop",
    LaunchInLoop,
    find,
    (
        "A reviewer of a published program counts 64 launches in a loop over heads; each task "
        "costs 2 us of runtime, and here waits for the one before."
    ),
    """
    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            so_far = pl.full([16, 64], pl.FP32, 0.0)
            for k in pl.range(0, 512, 64):
                so_far = pl.maximum(so_far, x[:, k : k + 64])
            out = pl.assemble(out, so_far, [0, 0])
        return out
    """,
    legality=(
        "No other task has to run between two iterations, and what the loop carries is "
        "the same on chip as in memory: all of it is valid."
    ),
    needs_proof=True,
)
