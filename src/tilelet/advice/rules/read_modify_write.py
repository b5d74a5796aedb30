"""Rule read-modify-write: move a loop into the scope that updates a window.

```
for k: for n: with scope: acc[n] = f(acc[n], k)   =>   for n: with scope: t = acc[n]
                                                                         for k: t = f(t, k)
                                                                         acc[n] = t
```
Every window gets the same operations in the same order, so results are bit-identical.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import is_number
from tilelet.advice.source import Source, names_bound, names_read
from tilelet.advice.windows import SourceWindow, loads_in, store_of
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit


class ReadModifyWrite(Caution, code="W1327"):
    """Tasks of a loop read a window of a tensor, update it, and write it back."""

    def __init__(self, store: Loc, loop: Loc, tensor: str, variable: str) -> None:
        super().__init__(
            f"every iteration of `{variable}` reads a window of `{tensor}` and writes it back",
            [Label(store, "written here"), Label(loop, "by tasks of this loop")],
            helps=["move the loop into the scope, and store once, after the loop"],
        )


@dataclass(frozen=True)
class _Nest:
    """A loop, and the scope in it that updates a window which does not depend on the loop.

    numbers  scalar statements between the loop and the scope
    inner    loops between the loop and the scope
    value    the value that `store`, the last statement of the scope, writes
    """

    loop: ast.For
    numbers: list[ast.Assign]
    inner: list[ast.For]
    scope: ast.With
    loads: list[SourceWindow]
    store: ast.stmt
    window: SourceWindow
    value: ast.expr


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or source.loop(loop) != "range" or loop.orelse:
            continue
        nest = _nest(source, loop)
        if nest is None:
            continue
        kernels = subject.kernels_in(nest.scope.lineno, nest.scope.end_lineno or 0)
        if kernels:
            problem = ReadModifyWrite(
                source.loc(nest.store), source.loc(loop), nest.window.tensor, source.of(loop.target)
            )
            edits = [source.replace_lines(*_lines(loop), _interchange(source, nest))]
            yield subject.advice(problem, kernels, edits)


def _nest(source: Source, loop: ast.For) -> _Nest | None:
    if source.is_in_scope(loop):
        return None
    numbers: list[ast.Assign] = []
    inner: list[ast.For] = []
    node: ast.stmt = loop
    while isinstance(node, ast.For) and source.loop(node) in ("range", "parallel"):
        numbers += [s for s in node.body[:-1] if isinstance(s, ast.Assign)]
        if not all(is_number(source, s) for s in node.body[:-1]):
            return None
        node = node.body[-1]
        if isinstance(node, ast.For):
            inner.append(node)
    if not isinstance(node, ast.With) or not source.is_scope(node):
        return None
    last = node.body[-1]
    stored = store_of(source, last)
    if stored is None:
        return None
    window, value = stored
    loads = [w for w in loads_in(source, node) if w.tensor == window.tensor]
    if not loads or not all(w.is_at(window) for w in loads):
        return None
    touching = [n for n in source.names(window.tensor) if _is_inside(source, n, loop)]
    known = {id(n) for at in (*(w.node for w in loads), last) for n in ast.walk(at)}
    if any(id(n) not in known for n in touching):
        return None
    if _moves(loop, inner, numbers, window) or window.names & names_bound(node.body):
        return None
    return _Nest(loop, numbers, inner, node, loads, last, window, value)


def _is_inside(source: Source, node: ast.AST, loop: ast.For) -> bool:
    return any(n is loop for n in source.around(node))


def _moves(
    loop: ast.For, inner: Sequence[ast.For], numbers: Sequence[ast.Assign], window: SourceWindow
) -> bool:
    """Whether the window's offset or an inner loop depends on the loop."""
    needed = window.names | names_read([n.iter for n in inner])
    for number in reversed(numbers):
        if names_bound(number) & needed:
            needed |= names_read(number.value)
    return bool(names_bound(loop.target) & needed)


def _lines(node: ast.stmt) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _interchange(source: Source, nest: _Nest) -> str:
    """Move the loop inside the inner loops and the scope."""
    unit = " " * (nest.loop.body[0].col_offset - nest.loop.col_offset)
    changing = names_bound(nest.loop.target)
    for number in nest.numbers:
        if names_read(number.value) & changing:
            changing |= names_bound(number)
    margin = " " * nest.loop.col_offset
    lines: list[str] = []

    def add(text: str) -> None:
        lines.append(f"{margin}{text}\n")

    fixed = [n for n in nest.numbers if not names_bound(n) & changing]
    for around in (nest.loop, *nest.inner):
        if around is not nest.loop:
            add(_header(source, around))
            margin += unit
        for number in fixed:
            if number in around.body:
                add(source.of(number))
    add(_header(source, nest.scope))
    margin += unit
    carried, start, body = _body(source, nest)
    add(f"{carried} = {start}")
    add(_header(source, nest.loop))
    margin += unit
    for number in nest.numbers:
        if number not in fixed:
            add(source.of(number))
    lines.append(textwrap.indent(textwrap.dedent(body), margin))
    margin = margin.removesuffix(unit)
    add(_final_store(source, nest, carried))
    return "".join(lines)


def _header(source: Source, node: ast.For | ast.With) -> str:
    """Return the text of a `for` or `with` header."""
    first = source.span(node)[0]
    end = node.iter if isinstance(node, ast.For) else node.items[-1].context_expr
    return source.text.encode()[first : source.span(end)[1]].decode() + ":"


def _body(source: Source, nest: _Nest) -> tuple[str, str, str]:
    """Return the loop-carried name, its initial value, and the statements of the loop."""
    named = _named_load(nest)
    start = source.of(nest.loads[0].node)
    edits: list[Edit] = []
    if named is not None:
        carried = source.of(named.targets[0])
        edits.append(source.remove(named))
    else:
        carried = f"{nest.window.tensor}_tile"
        edits += [source.replace(load.node, carried) for load in nest.loads]
    value = _with(source, nest.value, {id(w.node): carried for w in nest.loads})
    step = _last_value(source, nest)
    if step is not None and named is not None:
        edits.append(source.remove(step))
        value = source.of(step.value)
    inside = [e for e in edits if not _overlaps(e, source.span(nest.store))]
    edits = [*inside, source.replace(nest.store, f"{carried} = {value}")]
    first = nest.scope.body[0].lineno
    while source.lines(first - 1, first - 1).strip().startswith("#"):
        first -= 1
    text = source.edited_lines(first, nest.scope.end_lineno or 0, edits)
    return carried, start, text


def _named_load(nest: _Nest) -> ast.Assign | None:
    """Return the statement `so_far = pl.slice(acc, ...)` if it is the only load and definition."""
    for statement in nest.scope.body:
        is_load = isinstance(statement, ast.Assign) and statement.value is nest.loads[0].node
        if is_load and isinstance(statement, ast.Assign) and len(nest.loads) == 1:
            bound = names_bound(statement)
            others = [s for s in nest.scope.body if s is not statement]
            return statement if not bound & names_bound(others) else None
    return None


def _last_value(source: Source, nest: _Nest) -> ast.Assign | None:
    """Return the statement before the store if it only defines the stored value."""
    if not isinstance(nest.value, ast.Name) or len(nest.scope.body) < 2:
        return None
    step = nest.scope.body[-2]
    uses = [n for n in source.names(nest.value.id) if isinstance(n.ctx, ast.Load)]
    is_it = isinstance(step, ast.Assign) and names_bound(step) == {nest.value.id}
    return step if is_it and isinstance(step, ast.Assign) and len(uses) == 1 else None


def _with(source: Source, node: ast.expr, texts: dict[int, str]) -> str:
    """Return the text of an expression with some subexpressions replaced."""
    start, end = source.span(node)
    text = source.text.encode()[start:end]
    parts = [n for n in ast.walk(node) if id(n) in texts and isinstance(n, ast.expr)]
    for part in sorted(parts, key=lambda n: source.span(n)[0], reverse=True):
        first, last = source.span(part)
        text = text[: first - start] + texts[id(part)].encode() + text[last - start :]
    return text.decode()


def _overlaps(edit: Edit, span: tuple[int, int]) -> bool:
    return edit.start < span[1] and span[0] < edit.end


def _final_store(source: Source, nest: _Nest, carried: str) -> str:
    """Return the store of the final value."""
    start, end = source.span(nest.store)
    first, last = source.span(nest.value)
    whole = source.text.encode()
    return (whole[start:first] + carried.encode() + whole[last:end]).decode()


RULE = Rule("read-modify-write", ReadModifyWrite, find, rewrites=True)
