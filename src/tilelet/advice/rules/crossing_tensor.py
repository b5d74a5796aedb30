"""Rule crossing-tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.tables import byte_text


class CrossingTensor(Caution, code="W1325"):
    """A tensor is written by one loop of tasks and only read by another."""

    def __init__(self, write: Loc, read: Loc, tensor: str, moved: int) -> None:
        super().__init__(
            f"`{tensor}` goes through global memory from one loop of tasks to another: "
            f"{byte_text(moved)}",
            [Label(write, "written here"), Label(read, "read here")],
            helps=["merge the loops, if each task of the second needs one task of the first"],
        )


_MIN_SHARE = 0.0001
"""Minimum share of the bytes that a program moves."""


def find(subject: Subject) -> Iterator[Advice]:
    """Find tensors that one loop of tasks writes and another one reads."""
    source = subject.source
    total = sum(t.read + t.written for p in subject.profiles for t in p.tensors)
    for name in sorted(_created_tensors(source)):
        stores = [n for n in source.stores(name) if not _is_fill(source, n)]
        writers = {id(s): s for n in stores if (s := _task_loop(source, n))}
        reads = [n for n in source.slices() if source.of(n.args[0]) == name]
        readers = {id(s): s for n in reads if (s := _task_loop(source, n))}
        fills = {id(n.args[0]) for n in source.stores(name) if _is_fill(source, n)}
        uses = [u for u in source.uses(name) if id(u) not in fills]
        every = [s for u in uses if (s := _task_loop(source, u))]
        if len(writers) != 1 or len(readers) != 1 or set(writers) == set(readers):
            continue
        if any(id(s) not in {*writers, *readers} for s in every):
            continue
        rows = [t for p in subject.profiles for t in p.tensors if _stem(t.name) == _stem(name)]
        moved = sum(t.read + t.written for t in rows)
        if moved < _MIN_SHARE * total:
            continue
        (writer,), (reader,) = writers.values(), readers.values()
        if writer.lineno <= reader.lineno <= (writer.end_lineno or 0):
            continue  # an outer iteration passes it to an inner loop
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


def _created_tensors(source: Source) -> set[str]:
    makers = [
        n
        for n in source.nodes
        if isinstance(n, ast.Assign) and source.call_of(n.value) == "create_tensor"
    ]
    return set[str]().union(*(names_bound(n) for n in makers))


def _task_loop(source: Source, node: ast.AST) -> ast.For | None:
    """Return the innermost loop around a node that launches tasks."""
    loops = [n for n in source.around(node) if isinstance(n, ast.For)]
    return next((n for n in loops if not source.is_in_scope(n)), None)


RULE = Rule("crossing-tensor", CrossingTensor, find)
