"""A tile that a scope stores in global memory and loads again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Edit, Source, names_bound
from tilelet.diag.catalogue.advice import StoredAndLoaded


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for scope in source.scopes:
        for i, store in enumerate(scope.body):
            stored = _stored(source, store)
            if stored is None:
                continue
            tensor, value, window = stored
            for load in scope.body[i + 1 :]:
                if isinstance(load, ast.Assign) and _loaded(source, load.value) == (tensor, window):
                    kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
                    edits = _edits(source, store, value, load, tensor)
                    problem = StoredAndLoaded(source.loc(load), source.loc(store), tensor)
                    yield subject.advice(problem, kernels, edits)
                if names_bound(load) & ({tensor} | _names(window)):
                    break


def _names(window: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(window, mode="eval")) if isinstance(n, ast.Name)}


def _stored(source: Source, node: ast.stmt) -> tuple[str, ast.expr, str] | None:
    """Tensor, value and window of a store: `t = pl.assemble(t, v, [r, c])`."""
    call = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
    if source.call_of(call) != "assemble" or not isinstance(call, ast.Call) or len(call.args) != 3:
        return None
    tensor, value, offsets = call.args
    return (tensor.id, value, source.of(offsets)) if isinstance(tensor, ast.Name) else None


def _loaded(source: Source, node: ast.expr) -> tuple[str, str] | None:
    """Tensor and window of a load: `pl.slice(t, [rows, columns], [r, c])`."""
    if source.call_of(node) != "slice" or not isinstance(node, ast.Call) or len(node.args) != 3:
        return None
    tensor, _, offsets = node.args
    return (tensor.id, source.of(offsets)) if isinstance(tensor, ast.Name) else None


def _edits(
    source: Source, store: ast.stmt, value: ast.expr, load: ast.Assign, tensor: str
) -> list[Edit]:
    """The value keeps a name; a tensor that nobody else looks at goes away."""
    name = value.id if isinstance(value, ast.Name) else f"{tensor}_tile"
    named = [] if isinstance(value, ast.Name) else [f"{name} = {source.of(value)}"]
    makers = _makers(source, tensor)
    edits = [source.replace(load.value, _tile(source, load.value, name, makers))]
    if _is_private(source, tensor, [store, load, *makers]):
        edits += [source.remove(maker) for maker in makers]
        if named:
            return [*edits, source.replace(store, named[0])]
        return [*edits, source.remove(store)]
    margin = " " * store.col_offset
    if named:
        edits.append(source.replace(value, name))
        edits.append(source.replace_lines(store.lineno, store.lineno - 1, f"{margin}{named[0]}\n"))
    return edits


def _tile(source: Source, load: ast.expr, name: str, makers: Sequence[ast.stmt]) -> str:
    """The tile that was stored, or the part of it that was loaded."""
    assert isinstance(load, ast.Call)
    _, shape, offsets = load.args
    whole = [n.value.args[0] for n in makers if isinstance(n, ast.Assign) and _has_shape(n.value)]
    is_part = any(source.of(w) != source.of(shape) for w in whole)
    if not load.keywords and not (is_part and source.of(offsets) == "[0, 0]"):
        return name
    more = "".join(f", {k.arg}={source.of(k.value)}" for k in load.keywords)
    return f"{source.language}.slice({name}, {source.of(shape)}, [0, 0]{more})"


def _has_shape(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and bool(node.args)


def _makers(source: Source, tensor: str) -> list[ast.stmt]:
    return [
        n
        for n in source.nodes
        if isinstance(n, ast.Assign)
        and names_bound(n) == {tensor}
        and source.call_of(n.value) == "create_tensor"
    ]


def _is_private(source: Source, tensor: str, own: Sequence[ast.stmt]) -> bool:
    """Whether a tensor is made in the script and used by these statements only."""
    inside = {id(n) for statement in own for n in ast.walk(statement)}
    uses = source.names(tensor)
    return bool(_makers(source, tensor)) and all(id(n) in inside for n in uses)
