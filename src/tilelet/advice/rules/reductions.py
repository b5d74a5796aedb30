"""A sum in global memory that every iteration reads and writes again.

```
for ob: chunk = ...                              for ob: chunk = ...; chunks[ob] = chunk
        for db: acc[db] += chunk @ w[ob, db]  =>  for db: sum = acc[db]
                                                          for ob: sum += chunks[ob] @ w[ob, db]
                                                          acc[db] = sum
```
Each sum keeps its order, so the result keeps its bits.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Edit, Source, names_bound, names_read
from tilelet.diag.catalogue.advice import SumInMemory
from tilelet.ir.core import Block, Value
from tilelet.ir.types import TensorType, TileType


@dataclass(frozen=True)
class _Nest:
    """The two loops, and what their bodies consist of.

    before   statements of the outer loop in front of the inner one
    numbers  assignments in the inner loop in front of its scope
    load, step, store  the statements that read the sum, add to it, and write it
    chunk    the name that the outer loop makes and the step uses
    """

    outer: ast.For
    inner: ast.For
    before: list[ast.stmt]
    numbers: list[ast.stmt]
    scope: ast.With
    load: ast.Assign
    step: ast.Assign
    store: ast.stmt
    chunk: str


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for body in source.bodies():
        for statement in body:
            if isinstance(statement, ast.For) and source.loop(statement) in ("range", "parallel"):
                nest = _nest(source, statement)
                if nest is None:
                    continue
                first, last = nest.scope.lineno, nest.scope.end_lineno or 0
                kernels = subject.kernels_in(first, last)
                sum_name = source.of(nest.load.value)
                problem = SumInMemory(
                    source.loc(nest.scope), source.loc(nest.outer), sum_name, nest.chunk
                )
                chunk = _type_of(subject, nest)
                one_scope = all(isinstance(n, ast.Assign) for n in nest.numbers)
                edits = _edits(source, nest, chunk) if chunk is not None and one_scope else None
                yield subject.advice(problem, kernels, edits)


def _nest(source: Source, outer: ast.For) -> _Nest | None:
    inner = outer.body[-1]
    if not isinstance(inner, ast.For) or source.loop(inner) not in ("range", "parallel"):
        return None
    *numbers, scope = inner.body
    if not isinstance(scope, ast.With) or not source.is_scope(scope):
        return None
    if not isinstance(outer.target, ast.Name):
        return None
    parts = _sum_parts(source, scope)
    if parts is None or not isinstance(inner.target, ast.Name):
        return None
    load, step, store = parts
    before = outer.body[:-1]
    # The window of the sum depends on the inner loop only: else nothing is summed up.
    made_outside = names_bound(before) | {outer.target.id}
    if names_read(load.value) & made_outside:
        return None
    bounds = names_read(inner.iter)
    # The addition may stand in a scope of its own, behind that of the product.
    scopes = [n for n in numbers if source.is_scope(n)]
    used = names_read([step.value, *scopes])
    chunks = [n for n in sorted(used) if n in _tiles(source, before)]
    if len(chunks) != 1 or bounds & made_outside:
        return None
    touched = names_bound(store)
    if (names_read(before) | names_bound(before)) & touched:
        return None
    return _Nest(outer, inner, before, numbers, scope, load, step, store, chunks[0])


def _sum_parts(source: Source, scope: ast.With) -> tuple[ast.Assign, ast.Assign, ast.stmt] | None:
    """The load, the addition and the store of `acc[d] += ...`."""
    store = scope.body[-1]
    stored = store.value if isinstance(store, (ast.Assign, ast.Expr)) else None
    if source.call_of(stored) == "assemble" and isinstance(stored, ast.Call):
        memory, value = stored.args[0], stored.args[1]
    elif isinstance(store, ast.Assign) and isinstance(store.targets[0], ast.Subscript):
        memory, value = store.targets[0].value, store.value
    else:
        return None
    assigns = [n for n in scope.body[:-1] if isinstance(n, ast.Assign)]
    if len(assigns) != len(scope.body) - 1:
        return None
    step = _defining(assigns, value)
    if step is None or source.call_of(step.value) not in ("matmul_acc", "add"):
        return None
    assert isinstance(step.value, ast.Call)
    load = _defining(assigns, step.value.args[0])
    if load is None:
        return None
    loaded = load.value
    if source.call_of(loaded) in ("slice", "load") and isinstance(loaded, ast.Call):
        origin = loaded.args[0]
    elif isinstance(loaded, ast.Subscript):
        origin = loaded.value
    else:
        return None
    return (load, step, store) if ast.dump(origin) == ast.dump(memory) else None


def _defining(assigns: Sequence[ast.Assign], name: ast.expr) -> ast.Assign | None:
    for assign in assigns:
        target = assign.targets[0]
        if isinstance(name, ast.Name) and isinstance(target, ast.Name) and target.id == name.id:
            return assign
    return None


def _tiles(source: Source, statements: Sequence[ast.stmt]) -> set[str]:
    """Names that scopes among the statements make."""
    scopes = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.With)]
    return set[str]().union(
        *(names_bound(scope.body) for scope in scopes if source.is_scope(scope))
    )


def _type_of(subject: Subject, nest: _Nest) -> TensorType | TileType | None:
    """The type of the chunk, by the statement that makes it."""
    line = next(
        (
            n.lineno
            for s in reversed(nest.before)
            for n in ast.walk(s)
            if isinstance(n, ast.Assign) and nest.chunk in names_bound(n.targets)
        ),
        None,
    )
    for run in subject.runs:
        for function in run.run.program.functions.values():
            for value, at in _values(function.body):
                is_tile = isinstance(value.type, (TensorType, TileType))
                if at == line and is_tile and _stem(value.name) == _stem(nest.chunk):
                    assert isinstance(value.type, (TensorType, TileType))
                    return value.type
    return None


def _stem(name: str) -> str:
    """Without what makes names of values differ."""
    return name.rstrip("_0123456789")


def _values(block: Block) -> Iterator[tuple[Value, int]]:
    for op in block.ops:
        for value in op.results:
            yield value, op.loc.line
        for inner in op.blocks:
            yield from _values(inner)


def _edits(source: Source, nest: _Nest, chunk: TensorType | TileType) -> list[Edit] | None:
    """The outer loop keeps its chunks; the loops change places for the sum."""
    if len(chunk.shape) != 2 or not all(isinstance(d, int) for d in chunk.shape):
        return None
    pl, kept, index = source.language, f"{nest.chunk}_all", source.of(nest.outer.target)
    rows, columns = chunk.shape
    home = next(
        (s for s in reversed(nest.before) if source.is_scope(s) and nest.chunk in names_bound(s)),
        None,
    )
    count = nest.outer.iter
    assert isinstance(count, ast.Call)
    if home is None or len(count.args) != 1 or count.keywords:
        return None
    total = source.of(count.args[0])
    margin = " " * nest.outer.col_offset
    unit = " " * (nest.outer.body[0].col_offset - nest.outer.col_offset)
    make = (
        f"{margin}{kept} = {pl}.create_tensor([{rows}, {total} * {columns}], "
        f"dtype={pl}.{chunk.dtype.name})\n"
    )
    assert isinstance(home, ast.With)
    keep = (
        " " * home.body[0].col_offset
        + f"{kept} = {pl}.assemble({kept}, {nest.chunk}, [0, {index} * {columns}])\n"
    )
    first = nest.outer.lineno
    before = source.lines(first, home.end_lineno or 0) + keep
    rest = source.lines((home.end_lineno or 0) + 1, nest.inner.lineno - 1)
    text = make + before + rest + _summing(source, nest, margin, unit, kept, rows, columns)
    return [source.replace_lines(first, nest.outer.end_lineno or 0, text)]


def _summing(
    source: Source, nest: _Nest, margin: str, unit: str, kept: str, rows: object, columns: object
) -> str:
    """The loop over the sums, each with the loop over the chunks inside."""
    pl, index = source.language, source.of(nest.outer.target)
    target = nest.load.targets[0]
    assert isinstance(target, ast.Name)
    needed = names_read(nest.step) | names_read([s for s in nest.scope.body if s is not nest.load])
    numbers = [s for s in nest.before if isinstance(s, ast.Assign) and names_bound(s) & needed]
    per_chunk = [s for s in nest.scope.body if s not in (nest.load, nest.step, nest.store)]
    value = source.of(nest.step.value)
    step_target = source.of(nest.step.targets[0])
    lines = [f"{margin}for {source.of(nest.inner.target)} in {source.of(nest.inner.iter)}:"]
    lines += [f"{margin}{unit}{source.of(s)}" for s in nest.numbers]
    header = source.lines(nest.scope.lineno, nest.scope.body[0].lineno - 1)
    lines += textwrap.indent(textwrap.dedent(header), margin + unit).splitlines()
    deep = margin + 2 * unit
    lines.append(f"{deep}{source.of(nest.load)}")
    lines.append(f"{deep}for {index} in {pl}.range({source.of(nest.outer.iter.args[0])}):")  # type: ignore[attr-defined]
    lines += [f"{deep}{unit}{source.of(s)}" for s in numbers]
    window = f"[{rows}, {columns}], [0, {index} * {columns}]"
    lines.append(f"{deep}{unit}{nest.chunk} = {pl}.slice({kept}, {window})")
    lines += [f"{deep}{unit}{source.of(s)}" for s in per_chunk]
    lines.append(f"{deep}{unit}{target.id} = {value}")
    stored = source.of(nest.store)
    if step_target != target.id:
        lines.append(f"{deep}{step_target} = {target.id}")
    lines.append(f"{deep}{stored}")
    return "\n".join(lines) + "\n"
