"""Memory that is filled with a constant although every element is written later, or only to be
read back as the start of a sum.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Source, names_bound, names_read
from tilelet.diag.catalogue.advice import DeadFill, ZerosReadBack

# What a statement that only fills may call.
_FILLING = frozenset(
    (
        *("full", "zeros", "tile.full", "cast", "assemble", "store"),
        *("range", "parallel", "unroll", "at", "incore", "auto_incore"),
    )
)


def find(subject: Subject) -> Iterator[Advice]:
    """Only those whose removal is a rewriting: whether it is right, the proof says."""
    source = subject.source
    for statement in _fill_statements(source):
        filled = sorted(_filled(source, statement))
        first, last = statement.lineno, statement.end_lineno or 0
        if source.is_in_scope(statement):
            first, last = source.scope_lines(statement)
        problem = DeadFill(source.loc(statement), filled)
        edits = [source.remove(statement)]
        yield subject.advice(problem, subject.kernels_in(first, last), edits)


def _fill_statements(source: Source) -> Iterator[ast.For | ast.With]:
    for body in source.bodies():
        for statement in body:
            if not isinstance(statement, (ast.For, ast.With)) or not _fills(source, statement):
                continue
            if not _inside_other_fill(source, statement) and len(body) > 1:
                yield statement


def zeros_read_back(subject: Subject) -> Iterator[Advice]:
    """`so_far = pl.slice(acc, ...)` of memory that holds zeros: whether it does, the proof says."""
    source = subject.source
    fills = {name: s for s in _fill_statements(source) for name in _filled(source, s)}
    for scope in source.scopes:
        for load in ast.walk(scope):
            call = load.value if isinstance(load, ast.Assign) else None
            if source.call_of(call) != "slice" or not isinstance(call, ast.Call):
                continue
            name = source.of(call.args[0])
            fill, dtype = fills.get(name), _dtype(source, name)
            if fill is None or dtype is None or len(call.args) != 3 or call.keywords:
                continue
            if name not in names_bound(scope) or fill.lineno > scope.lineno:
                continue  # only who writes the sum, too, waits for the others
            if not _is_seen_once(source, call, fill):
                continue
            shape = source.of(call.args[1])
            zeros = f"{source.language}.full({shape}, dtype={dtype}, value=0.0)"
            kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
            problem = ZerosReadBack(source.loc(call), source.loc(fill), name)
            yield subject.advice(problem, kernels, [source.replace(call, zeros)])


def _is_seen_once(source: Source, load: ast.Call, fill: ast.stmt) -> bool:
    """Whether every loop that repeats the load, but not the fill, moves the window."""
    loops = [n for n in source.around(load) if isinstance(n, ast.For)]
    repeated = [n for n in loops if not n.lineno <= fill.lineno <= (n.end_lineno or 0)]
    needed = names_read(load.args[2])
    for node in reversed([n for loop in repeated for s in loop.body for n in ast.walk(s)]):
        if isinstance(node, ast.Assign) and names_bound(node) & needed:
            needed |= names_read(node.value)
    for loop in repeated:  # the index of an inner loop may depend on that of an outer one
        if names_bound(loop.target) & needed:
            needed |= names_read(loop.iter)
    return all(names_bound(loop.target) & needed for loop in repeated)


def _dtype(source: Source, name: str) -> str | None:
    """The element type of a tensor that the script makes."""
    for node in source.nodes:
        if isinstance(node, ast.Assign) and source.call_of(node.value) == "create_tensor":
            assert isinstance(node.value, ast.Call)
            named = [source.of(k.value) for k in node.value.keywords if k.arg == "dtype"]
            given = [source.of(a) for a in node.value.args[1:2]]
            if names_bound(node) == {name} and (named or given):
                return (named or given)[0]
    return None


def _fills(source: Source, statement: ast.stmt) -> bool:
    calls = [source.call_of(n) for n in ast.walk(statement) if isinstance(n, ast.Call)]
    constants = any(call in ("full", "zeros", "tile.full") for call in calls)
    loads = any(
        isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load) for n in ast.walk(statement)
    )
    return constants and not loads and set(calls) <= _FILLING and bool(_filled(source, statement))


def _filled(source: Source, statement: ast.stmt) -> set[str]:
    """Tensors that the statement writes to."""
    found: set[str] = set()
    for node in ast.walk(statement):
        if source.call_of(node) == "assemble" and isinstance(node, ast.Call) and node.args:
            found.add(source.of(node.args[0]))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(source.of(node.value))
    return found


def _inside_other_fill(source: Source, statement: ast.stmt) -> bool:
    around = [n for n in source.around(statement) if isinstance(n, (ast.For, ast.With))]
    return any(_fills(source, n) for n in around)
