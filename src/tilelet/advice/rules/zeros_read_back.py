"""Rule zeros-read-back."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.fillings import fill_statements, filled_tensors
from tilelet.advice.source import Source, names_bound, names_read
from tilelet.advice.windows import SourceWindow, loads_in, stores_in
from tilelet.diag.core import Caution, Label, Loc


class ZerosReadBack(Caution, code="W1319"):
    """Zeros are written to global memory only to be read back as the initial value of a sum."""

    def __init__(self, load: Loc, fill: Loc, tensor: str) -> None:
        super().__init__(
            f"this reads only the zeros that `{tensor}` was filled with",
            [Label(load, "read here"), Label(fill, "filled here")],
            helps=["start with zeros on chip, and remove the fill"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find `so_far = pl.slice(acc, ...)` of filled memory.

    The proof checks that nothing was written in between.
    """
    source = subject.source
    fills = {name: s for s in fill_statements(source) for name in filled_tensors(source, s)}
    for scope in source.scopes:
        for load in loads_in(source, scope):
            fill, dtype = fills.get(load.tensor), source.dtypes.get(load.tensor)
            if fill is None or dtype is None or load.shape is None:
                continue
            if load.tensor not in names_bound(scope) or fill.lineno > scope.lineno:
                continue  # only tasks that also write the sum wait for each other
            if not _is_seen_once(source, load, fill):
                continue
            value = _value(source, fill, load.tensor)
            full = f"{source.language}.full({load.shape_text}, dtype={dtype}, value={value})"
            kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
            problem = ZerosReadBack(source.loc(load.node), source.loc(fill), load.tensor)
            yield subject.advice(problem, kernels, [source.replace(load.node, full)])


def _is_seen_once(source: Source, load: SourceWindow, fill: ast.stmt) -> bool:
    """Whether the window depends on every loop that repeats the load but not the fill."""
    loops = [n for n in source.around(load.node) if isinstance(n, ast.For)]
    repeated = [n for n in loops if not n.lineno <= fill.lineno <= (n.end_lineno or 0)]
    needed = load.names
    for node in reversed([n for loop in repeated for s in loop.body for n in ast.walk(s)]):
        if isinstance(node, ast.Assign) and names_bound(node) & needed:
            needed |= names_read(node.value)
    for loop in repeated:  # an inner index may depend on an outer one
        if names_bound(loop.target) & needed:
            needed |= names_read(loop.iter)
    return all(names_bound(loop.target) & needed for loop in repeated)


def _value(source: Source, fill: ast.stmt, tensor: str) -> str:
    """Return the fill constant as text, preferably from the store to this tensor."""
    own = [value for at, value, _ in stores_in(source, fill) if at.tensor == tensor]
    for node in [n for part in (*own, fill) for n in ast.walk(part)]:
        if source.call_of(node) in ("full", "tile.full") and isinstance(node, ast.Call):
            named = [k.value for k in node.keywords if k.arg == "value"]
            given = named or node.args[2:3]
            return source.of(given[0]) if given else "0.0"
    return "0.0"


RULE = Rule("zeros-read-back", ZerosReadBack, find, rewrites=True, needs_proof=True)
