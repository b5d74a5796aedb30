"""Scopes that stand one after the other and could be one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Body, Edit, Source, names_bound, names_read
from tilelet.diag.catalogue.advice import RoundTrip, SharedOperand


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for body in source.bodies():
        for i, first in enumerate(body):
            second = _next_scope(source, body, i)
            if second is None or not isinstance(first, ast.With):
                continue
            kernels = subject.kernels_in(first.lineno, second.end_lineno or 0)
            if not kernels or not _same_kind(source, first, second):
                continue
            handed = sorted(_needed(second) & names_bound(first.body))
            shared = sorted(_sliced(source, first) & _sliced(source, second))
            edits = [merged(source, first, second)]
            if handed:
                problem = RoundTrip(source.loc(first), source.loc(second), handed)
                yield subject.advice(problem, kernels, edits)
            elif shared:
                problem = SharedOperand(source.loc(first), source.loc(second), shared)
                yield subject.advice(problem, kernels, edits)


def _next_scope(source: Source, body: Body, i: int) -> ast.With | None:
    """The scope behind the i-th statement, if that is one and only numbers are between them."""
    if not source.is_scope(body[i]):
        return None
    for other in body[i + 1 :]:
        if isinstance(other, ast.With) and source.is_scope(other):
            return other
        if not _is_number(source, other):
            return None
    return None


def _is_number(source: Source, node: ast.stmt) -> bool:
    """`d0 = db * K_CHUNK`: may as well stand in a scope. A tensor made there would be a tile."""
    if not isinstance(node, ast.Assign):
        return False
    calls = [n for n in ast.walk(node.value) if isinstance(n, ast.Call)]
    return all(source.call_of(call) in ("read", "min", "max", "tensor.dim") for call in calls)


def _same_kind(source: Source, a: ast.With, b: ast.With) -> bool:
    """Whether both headers say the same, names aside."""

    def header(node: ast.With) -> tuple[str | None, list[str]]:
        call = node.items[0].context_expr
        assert isinstance(call, ast.Call)
        named = [f"{k.arg}={source.of(k.value)}" for k in call.keywords if k.arg != "name_hint"]
        return source.call_of(call), [*map(source.of, call.args), *sorted(named)]

    return header(a) == header(b)


def merged(source: Source, first: ast.With, second: ast.With) -> Edit:
    """Both bodies, and what is between them, in the scope of the first."""
    inner = first.body[0].col_offset - first.col_offset
    end_of_first = first.end_lineno or 0
    between = source.indented(end_of_first + 1, second.lineno - 1, inner)
    header_end = second.body[0].lineno - 1
    comments = _comments_above(source, header_end, second.lineno)
    body = source.lines(header_end + 1 - comments, second.end_lineno or 0)
    return source.replace_lines(end_of_first + 1, second.end_lineno or 0, between + body)


def _comments_above(source: Source, last: int, header: int) -> int:
    """Comment lines between the header of a scope and its first statement."""
    count = 0
    while last - count > header and source.lines(last - count, last - count).strip().startswith(
        "#"
    ):
        count += 1
    return count


def _needed(scope: ast.With) -> set[str]:
    """Names that a scope uses before it gives them values of its own."""
    needed: set[str] = set()
    bound: set[str] = set()
    for statement in scope.body:
        if isinstance(statement, ast.For):
            bound |= names_bound(statement.target)
        inner = names_bound(statement) if isinstance(statement, (ast.For, ast.With)) else set[str]()
        first = {n for n in names_read(statement) if n not in bound}
        # A loop may bind a name in front of its use: only what is bound nowhere inside counts.
        needed |= first - inner
        needed |= {n for n in first & inner if _is_read_first(statement, n)}
        bound |= names_bound(statement)
    return needed


def _is_read_first(statement: ast.stmt, name: str) -> bool:
    """Whether a name is used in a statement before the statement binds it."""
    uses = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
    uses.sort(key=lambda n: (n.lineno, isinstance(n.ctx, ast.Store), n.col_offset))
    return bool(uses) and isinstance(uses[0].ctx, ast.Load)


def _sliced(source: Source, scope: ast.With) -> set[str]:
    """Windows that a scope loads, as they are written."""
    found: set[str] = set()
    for node in ast.walk(scope):
        is_load = isinstance(node, ast.Call) and source.call_of(node) in ("slice", "load")
        if is_load or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)):
            found.add(ast.unparse(node))
    return found
