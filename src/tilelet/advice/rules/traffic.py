"""What is computed or moved without need: rows that nobody reads, tensors between loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.diag.catalogue.advice import CrossingTensor, DiscardedRows

_LEAST_SHARE = 0.0001
"""Of all bytes that a program moves: what is less is not worth a line."""


def discarded_rows(subject: Subject) -> Iterator[Advice]:
    """A product that is stored whole, and read back in fewer rows only."""
    source = subject.source
    for maker in source.nodes:
        if not isinstance(maker, ast.Assign) or source.call_of(maker.value) != "create_tensor":
            continue
        assert isinstance(maker.value, ast.Call)
        (name,) = names_bound(maker) or {""}
        rows = _rows(source, maker.value.args[0])
        reads = [n for n in _slices(source) if source.of(n.args[0]) == name]
        read = [_rows(source, n.args[1]) for n in reads]
        used = max((r for r in read if r is not None), default=0)
        if rows is None or not reads or None in read or not 0 < used < rows:
            continue
        if len(_uses(source, name)) > len(reads) + len(_stores(source, name)):
            continue  # somebody reads it whole
        for product in _products_stored(source, name):
            problem = DiscardedRows(source.loc(product), source.loc(reads[0]), name, used, rows)
            statement = next(n for n in source.around(product) if isinstance(n, ast.stmt))
            yield subject.advice(problem, subject.kernels_in(*source.scope_lines(statement)))


def _rows(source: Source, shape: ast.expr) -> int | None:
    if not isinstance(shape, (ast.List, ast.Tuple)) or len(shape.elts) != 2:
        return None
    return source.number(shape.elts[0])


def _slices(source: Source) -> list[ast.Call]:
    calls = [n for n in source.nodes if isinstance(n, ast.Call)]
    return [n for n in calls if source.call_of(n) == "slice" and len(n.args) >= 3]


def _stores(source: Source, name: str) -> list[ast.Call]:
    calls = [n for n in source.nodes if isinstance(n, ast.Call)]
    stores = [n for n in calls if source.call_of(n) == "assemble" and len(n.args) == 3]
    return [n for n in stores if source.of(n.args[0]) == name]


def _uses(source: Source, name: str) -> list[ast.Name]:
    return [n for n in source.names(name) if isinstance(n.ctx, ast.Load)]


def _products_stored(source: Source, name: str) -> Iterator[ast.Call]:
    for store in _stores(source, name):
        value = store.args[1]
        if isinstance(value, ast.Name):
            makers = [
                n
                for n in source.nodes
                if isinstance(n, ast.Assign) and names_bound(n) == {value.id}
            ]
            value = makers[0].value if makers else value
        if source.call_of(value) in ("matmul", "matmul_acc") and isinstance(value, ast.Call):
            yield value


def crossing_tensors(subject: Subject) -> Iterator[Advice]:
    """A tensor that one loop writes and one other loop reads, both with tasks."""
    source = subject.source
    total = sum(t.read + t.written for p in subject.profiles for t in p.tensors)
    for name in sorted(_made(source)):
        stores = [n for n in _stores(source, name) if not _is_fill(source, n)]
        writers = {id(s): s for n in stores if (s := _task_loop(source, n))}
        reads = [n for n in _slices(source) if source.of(n.args[0]) == name]
        readers = {id(s): s for n in reads if (s := _task_loop(source, n))}
        fills = {id(n.args[0]) for n in _stores(source, name) if _is_fill(source, n)}
        uses = [u for u in _uses(source, name) if id(u) not in fills]
        every = [s for u in uses if (s := _task_loop(source, u))]
        if len(writers) != 1 or len(readers) != 1 or set(writers) == set(readers):
            continue
        if any(id(s) not in {*writers, *readers} for s in every):
            continue
        rows = [t for p in subject.profiles for t in p.tensors if _stem(t.name) == _stem(name)]
        moved = sum(t.read + t.written for t in rows)
        if moved < _LEAST_SHARE * total:
            continue
        (writer,), (reader,) = writers.values(), readers.values()
        if writer.lineno <= reader.lineno <= (writer.end_lineno or 0):
            continue  # one iteration of an outer loop hands it to an inner one
        kernels = [
            *subject.kernels_in(writer.lineno, writer.end_lineno or 0),
            *subject.kernels_in(reader.lineno, reader.end_lineno or 0),
        ]
        if len(kernels) >= 2:
            problem = CrossingTensor(source.loc(writer), source.loc(reads[0]), name, moved)
            yield subject.advice(problem, kernels)


def _is_fill(source: Source, store: ast.Call) -> bool:
    calls = [source.call_of(n) for n in ast.walk(store.args[1]) if isinstance(n, ast.Call)]
    return bool(calls) and set(calls) <= {"full", "zeros", "cast"}


def _stem(name: str) -> str:
    return name.rstrip("_0123456789")


def _made(source: Source) -> set[str]:
    makers = [
        n
        for n in source.nodes
        if isinstance(n, ast.Assign) and source.call_of(n.value) == "create_tensor"
    ]
    return set[str]().union(*(names_bound(n) for n in makers))


def _task_loop(source: Source, node: ast.AST) -> ast.For | None:
    """The innermost loop outside all scopes around a node: its iterations launch tasks."""
    loops = [n for n in source.around(node) if isinstance(n, ast.For)]
    return next((n for n in loops if not source.is_in_scope(n)), None)
