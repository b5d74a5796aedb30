"""Rule sum-in-memory: interchange loops so that a sum stays on chip.

```
for ob: chunk = ...                              for ob: chunk = ...; chunks[ob] = chunk
        for db: acc[db] += chunk @ w[ob, db]  =>  for db: sum = acc[db]
                                                          for ob: sum += chunks[ob] @ w[ob, db]
                                                          acc[db] = sum
```
Each sum keeps its order, so results are bit-identical. There may be further loops and scopes
between the loops and the sum, such as an automatic scope.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound, names_read
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit
from tilelet.ir.core import Block, Value
from tilelet.ir.types import TensorType, TileType


class SumInMemory(Caution, code="W1305"):
    """A sum is read from global memory, updated, and written back in every iteration."""

    def __init__(self, loc: Loc, outer: Loc, window: str, chunk: str) -> None:
        super().__init__(
            f"`{window}` is read and written again for every `{chunk}`",
            [Label(loc, "updates the sum"), Label(outer, "repeated by this loop")],
            helps=[f"keep all `{chunk}` in memory, and sum in a separate loop"],
        )


@dataclass(frozen=True)
class _Sum:
    """`acc[d] += ...` in a list of statements.

    load     the statement that reads the sum, into the name `so_far`
    value    the addition, in the statement `step`
    store    the statement that writes it; `step` may be the same
    """

    load: ast.Assign
    so_far: str
    value: ast.Call
    step: ast.stmt
    store: ast.stmt


@dataclass(frozen=True)
class _Nest:
    """The nested loops around a sum.

    before   statements of the outer loop before the inner one
    path     loops and scopes around the sum, from the inner loop to the innermost
    chunk    the value that the outer loop defines and the sum uses
    whole    all other statements on the path are scalar
    """

    outer: ast.For
    before: list[ast.stmt]
    path: list[ast.For | ast.With]
    sum: _Sum
    chunk: str
    whole: bool

    @property
    def body(self) -> list[ast.stmt]:
        return self.path[-1].body


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for outer in source.nodes:
        if not isinstance(outer, ast.For) or source.loop(outer) not in ("range", "parallel"):
            continue
        nest = _nest(source, outer)
        if nest is None:
            continue
        scope = next(n for n in nest.path if isinstance(n, ast.With))
        kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
        problem = SumInMemory(
            source.loc(scope),
            source.loc(nest.outer),
            source.of(nest.sum.load.value),
            nest.chunk,
        )
        chunk = _type_of(subject, nest) if nest.whole else None
        edits = _edits(source, nest, chunk) if chunk is not None else None
        yield subject.advice(problem, kernels, edits)


def _nest(source: Source, outer: ast.For) -> _Nest | None:
    path = _path(source, outer.body[-1])
    if path is None or not isinstance(outer.target, ast.Name):
        return None
    found = _sum(source, path[-1].body)
    if found is None:
        return None
    before = outer.body[:-1]
    # The window of the sum must depend on the inner loops only; otherwise nothing is summed.
    made_outside = names_bound(before) | {outer.target.id}
    if names_read([found.load.value]) & made_outside:
        return None
    headers = [n.iter if isinstance(n, ast.For) else n.items[0].context_expr for n in path]
    if names_read(headers) & made_outside:
        return None
    used = names_read([path[0]])  # the addition may be in a scope after that of the product
    chunks = [n for n in sorted(used) if n in _tiles(source, before)]
    touched = names_bound(found.store)
    if len(chunks) != 1 or (names_read(before) | names_bound(before)) & touched:
        return None
    others = [s for n in path[:-1] for s in n.body[:-1]]
    whole = all(isinstance(s, ast.Assign) and not _calls(source, s) for s in others)
    return _Nest(outer, before, path, found, chunks[0], whole)


def _calls(source: Source, node: ast.AST) -> bool:
    return any(source.call_of(n) not in (None, "min", "max") for n in ast.walk(node))


def _path(source: Source, node: ast.stmt) -> list[ast.For | ast.With] | None:
    """Return the chain of last statements from the inner loop to the innermost loop or scope."""
    path: list[ast.For | ast.With] = []
    while isinstance(node, (ast.For, ast.With)):
        if isinstance(node, ast.For) and source.loop(node) not in ("range", "parallel"):
            return None
        path.append(node)
        node = node.body[-1]
    loops = [n for n in path if isinstance(n, ast.For)]
    scopes = [n for n in path if isinstance(n, ast.With) and source.is_scope(n)]
    return path if loops and len(scopes) == 1 else None


def _sum(source: Source, body: list[ast.stmt]) -> _Sum | None:
    """Match the load, the addition and the store of `acc[d] += ...`."""
    store = body[-1]
    stored = store.value if isinstance(store, (ast.Assign, ast.Expr)) else None
    if source.call_of(stored) == "assemble" and isinstance(stored, ast.Call):
        memory, value = stored.args[0], stored.args[1]
    elif isinstance(store, ast.Assign) and isinstance(store.targets[0], ast.Subscript):
        memory, value = store.targets[0].value, store.value
    else:
        return None
    assigns = [n for n in body[:-1] if isinstance(n, ast.Assign)]
    if len(assigns) != len(body) - 1:
        return None
    named = _definition_of(assigns, value)
    step: ast.stmt = named or store
    added = named.value if named else value
    if source.call_of(added) not in ("matmul_acc", "add") or not isinstance(added, ast.Call):
        return None
    so_far = added.args[0]
    load = _definition_of(assigns, so_far)
    if load is None or not isinstance(so_far, ast.Name):
        return None
    loaded = load.value
    if source.call_of(loaded) in ("slice", "load") and isinstance(loaded, ast.Call):
        origin = loaded.args[0]
    elif isinstance(loaded, ast.Subscript):
        origin = loaded.value
    else:
        return None
    if ast.dump(origin) != ast.dump(memory):
        return None
    return _Sum(load, so_far.id, added, step, store)


def _definition_of(assigns: Sequence[ast.Assign], name: ast.expr) -> ast.Assign | None:
    for assign in assigns:
        target = assign.targets[0]
        if isinstance(name, ast.Name) and isinstance(target, ast.Name) and target.id == name.id:
            return assign
    return None


def _tiles(source: Source, statements: Sequence[ast.stmt]) -> set[str]:
    """Return names that scopes among the statements bind."""
    scopes = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.With)]
    return set[str]().union(
        *(names_bound(scope.body) for scope in scopes if source.is_scope(scope))
    )


def _type_of(subject: Subject, nest: _Nest) -> TensorType | TileType | None:
    """Infer the type of the chunk from its definition."""
    lines = [
        n.lineno
        for s in nest.before
        for n in ast.walk(s)
        if isinstance(n, ast.Assign) and nest.chunk in names_bound(n.targets)
    ]
    for run in subject.runs:
        for function in run.run.program.functions.values():
            for value, at in _values(function.body):
                is_tile = isinstance(value.type, (TensorType, TileType))
                if lines and at == lines[-1] and is_tile and _stem(value.name) == _stem(nest.chunk):
                    assert isinstance(value.type, (TensorType, TileType))
                    return value.type
    return None


def _stem(name: str) -> str:
    """Remove numeric suffixes that make names of values unique."""
    return name.rstrip("_0123456789")


def _values(block: Block) -> Iterator[tuple[Value, int]]:
    for op in block.ops:
        for value in op.results:
            yield value, op.loc.line
        for inner in op.blocks:
            yield from _values(inner)


def _edits(source: Source, nest: _Nest, chunk: TensorType | TileType) -> list[Edit] | None:
    """Store the chunks of the outer loop, and interchange the loops of the sum."""
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
    if not isinstance(home, ast.With) or len(count.args) != 1 or count.keywords:
        return None
    total = source.of(count.args[0])
    margin = " " * nest.outer.col_offset
    make = (
        f"{margin}{kept} = {pl}.create_tensor([{rows}, {total} * {columns}], "
        f"dtype={pl}.{chunk.dtype.name})\n"
    )
    keep = (
        " " * home.body[0].col_offset
        + f"{kept} = {pl}.assemble({kept}, {nest.chunk}, [0, {index} * {columns}])\n"
    )
    first, inner = nest.outer.lineno, nest.path[0]
    before = source.lines(first, home.end_lineno or 0) + keep
    rest = source.lines((home.end_lineno or 0) + 1, inner.lineno - 1)
    window = f"{pl}.slice({kept}, [{rows}, {columns}], [0, {index} * {columns}])"
    summing = _sum_loops(source, nest, f"{nest.chunk} = {window}", total)
    text = make + before + rest + summing
    return [source.replace_lines(first, nest.outer.end_lineno or 0, text)]


def _sum_loops(source: Source, nest: _Nest, load_chunk: str, total: str) -> str:
    """Write the loops over the sums, with the loop over the chunks innermost."""
    shift = nest.outer.col_offset - nest.path[0].col_offset
    unit = " " * (nest.outer.body[0].col_offset - nest.outer.col_offset)
    body, found = nest.body, nest.sum
    down_to = source.indented(nest.path[0].lineno, body[0].lineno - 1, shift)
    margin = " " * (body[0].col_offset + shift)
    # Statements that depend on the chunk are repeated for each chunk.
    changing = {nest.chunk, source.of(nest.outer.target)} | names_bound(nest.before)
    once: list[ast.stmt] = []
    each: list[ast.stmt] = []
    for statement in body:
        if statement in (found.step, found.store):
            continue
        if statement is not found.load and names_read(statement) & changing:
            each.append(statement)
            changing |= names_bound(statement)
        else:
            once.append(statement)
    needed = names_read([found.value, *each])
    numbers: list[ast.stmt] = []
    for statement in reversed(nest.before):
        if isinstance(statement, ast.Assign) and names_bound(statement) & needed:
            numbers.insert(0, statement)
            needed |= names_read(statement)
    lines = [f"{margin}{source.of(s)}" for s in once]
    index = source.of(nest.outer.target)
    lines.append(f"{margin}for {index} in {source.language}.range({total}):")
    inside = [*(source.of(s) for s in numbers), load_chunk, *(source.of(s) for s in each)]
    inside.append(f"{found.so_far} = {source.of(found.value)}")
    lines += [f"{margin}{unit}{text}" for text in inside]
    if found.step is not found.store:
        assert isinstance(found.step, ast.Assign)
        lines.append(f"{margin}{source.of(found.step.targets[0])} = {found.so_far}")
        lines.append(f"{margin}{source.of(found.store)}")
    else:
        start, end = source.span(found.store)
        first, last = source.span(found.value)
        text = source.of(found.store).encode()
        stored = text[: first - start] + found.so_far.encode() + text[last - start : end - start]
        lines.append(f"{margin}{stored.decode()}")
    return down_to + "\n".join(lines) + "\n"


RULE = Rule("sum-in-memory", SumInMemory, find, rewrites=True)
