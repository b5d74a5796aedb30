"""Scopes that stand one after the other, and how they become one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Subject
from tilelet.advice.source import Body, Source, names_bound, names_needed
from tilelet.device.report.profile import KernelRow
from tilelet.diag.editing import Edit


def neighbors(
    subject: Subject,
) -> Iterator[tuple[ast.With, ast.With, list[KernelRow], list[Edit]]]:
    """Scopes that stand one behind the other, their kernels, and how they become one."""
    source = subject.source
    for body in source.bodies():
        for i, first in enumerate(body):
            second = _next_scope(source, body, i)
            if second is None or not isinstance(first, ast.With):
                continue
            kernels = subject.kernels_in(first.lineno, second.end_lineno or 0)
            if kernels and _same_kind(source, first, second):
                yield first, second, kernels, merged(source, body, first, second)


def _next_scope(source: Source, body: Body, i: int) -> ast.With | None:
    """The scope behind the i-th statement, if that is one, and between them are numbers only or
    tensors that are made there.
    """
    if not source.is_scope(body[i]):
        return None
    for other in body[i + 1 :]:
        if isinstance(other, ast.With) and source.is_scope(other):
            moved = [s for s in body[i + 1 : body.index(other)] if _is_kept(source, s)]
            return None if names_bound(moved) & names_needed(other.body) else other
        if not (is_number(source, other) or is_made(source, other) or _is_kept(source, other)):
            return None
    return None


def _is_kept(source: Source, node: ast.stmt) -> bool:
    """`q_proj = pl.assemble(q_proj, acc, ...)` outside scopes: where a result belongs."""
    return isinstance(node, ast.Assign) and source.call_of(node.value) == "assemble"


def is_made(source: Source, node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and source.call_of(node.value) == "create_tensor"


def is_number(source: Source, node: ast.stmt) -> bool:
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


def merged(source: Source, body: Body, first: ast.With, second: ast.With) -> list[Edit]:
    """Both bodies, and what is between them, in the scope of the first.

    A tensor that is made between them goes in front of both: in the scope it would be a tile. What
    says where the first one's result belongs goes behind them.
    """
    inner = first.body[0].col_offset - first.col_offset
    between = body[body.index(first) + 1 : body.index(second)]
    made = [s for s in between if is_made(source, s)]
    after = [s for s in between if _is_kept(source, s)]
    end_of_first = first.end_lineno or 0
    kept = "".join(
        source.indented(line, line, inner)
        for line in range(end_of_first + 1, second.lineno)
        if not any(s.lineno <= line <= (s.end_lineno or 0) for s in (*made, *after))
    )
    header_end = second.body[0].lineno - 1
    comments = _comments_above(source, header_end, second.lineno)
    rest = source.lines(header_end + 1 - comments, second.end_lineno or 0)
    rest += "".join(source.lines(s.lineno, s.end_lineno or 0) for s in after)
    edits = [source.replace_lines(end_of_first + 1, second.end_lineno or 0, kept + rest)]
    if made:
        moved = "".join(source.lines(s.lineno, s.end_lineno or 0) for s in made)
        edits.append(source.replace_lines(first.lineno, first.lineno - 1, moved))
    return edits


def _comments_above(source: Source, last: int, header: int) -> int:
    """Comment lines between the header of a scope and its first statement."""
    count = 0
    while last - count > header and source.lines(last - count, last - count).strip().startswith(
        "#"
    ):
        count += 1
    return count
