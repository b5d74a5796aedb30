"""Merging of consecutive scopes."""

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
    """Yield consecutive scopes, their kernels, and the edits that merge them."""
    source = subject.source
    for body in source.bodies():
        for i, first in enumerate(body):
            second = _next_scope(source, body, i)
            if second is None or not isinstance(first, ast.With):
                continue
            kernels = subject.kernels_in(first.lineno, second.end_lineno or 0)
            if kernels and _same_kind(source, first, second):
                yield first, second, kernels, merge_scopes(source, body, first, second)


def _next_scope(source: Source, body: Body, i: int) -> ast.With | None:
    """Return the scope after the i-th statement, if both are scopes and only scalars or new tensors
    are defined between them.
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
    """Whether a statement stores a scope's result: `q_proj = pl.assemble(q_proj, acc, ...)`."""
    return isinstance(node, ast.Assign) and source.call_of(node.value) == "assemble"


def is_made(source: Source, node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and source.call_of(node.value) == "create_tensor"


def is_number(source: Source, node: ast.stmt) -> bool:
    """Whether a statement computes scalars (`d0 = db * K_CHUNK`) and may move into a scope."""
    if not isinstance(node, ast.Assign):
        return False
    calls = [n for n in ast.walk(node.value) if isinstance(n, ast.Call)]
    return all(source.call_of(call) in ("read", "min", "max", "tensor.dim") for call in calls)


def _same_kind(source: Source, a: ast.With, b: ast.With) -> bool:
    """Whether two scope headers are equal except for names."""

    def header(node: ast.With) -> tuple[str | None, list[str]]:
        call = node.items[0].context_expr
        assert isinstance(call, ast.Call)
        named = [f"{k.arg}={source.of(k.value)}" for k in call.keywords if k.arg != "name_hint"]
        return source.call_of(call), [*map(source.of, call.args), *sorted(named)]

    return header(a) == header(b)


def merge_scopes(source: Source, body: Body, first: ast.With, second: ast.With) -> list[Edit]:
    """Move both bodies, and the statements between them, into the first scope.

    Tensors created between them move before both, because inside the scope they would be tiles.
    The statement that stores the first result moves after both.
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
    """Return comment lines between a scope's header and its first statement."""
    count = 0
    while last - count > header and source.lines(last - count, last - count).strip().startswith(
        "#"
    ):
        count += 1
    return count
