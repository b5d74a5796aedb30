"""Rule discarded-rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound, number_of
from tilelet.advice.windows import SourceWindow, loads_in, texts_of
from tilelet.diag.core import Caution, Label, Loc


class DiscardedRows(Caution, code="W1323"):
    """Rows or columns of a product are computed but never read."""

    def __init__(
        self, product: Loc, use: Loc, tensor: str, used: int, extent: int, what: str
    ) -> None:
        """`what`: "rows" or "columns"."""
        remedy = {
            "rows": "use the other rows: two groups of heads can share a product",
            "columns": "multiply only with the columns that are read",
        }
        super().__init__(
            f"{extent - used} of {extent} {what} of this product are discarded",
            [
                Label(product, f"{extent} {what}"),
                Label(use, f"{used} {what} of `{tensor}` are read"),
            ],
            helps=[remedy[what]],
        )


_AXES = "rows", "columns"


def find(subject: Subject) -> Iterator[Advice]:
    """Find products that are stored whole but only partly read back."""
    source = subject.source
    loads = [w for w in loads_in(source, source.tree) if isinstance(w.node, ast.Subscript)]
    loads += [
        SourceWindow(source.of(n.args[0]), n, offset, shape)
        for n in source.slices()  # valid extents do not matter
        if (shape := texts_of(n.args[1])) and (offset := texts_of(n.args[2]))
    ]
    for maker in source.nodes:
        if not isinstance(maker, ast.Assign) or source.call_of(maker.value) != "create_tensor":
            continue
        assert isinstance(maker.value, ast.Call)
        (name,) = names_bound(maker) or {""}
        extents = _numbers(source, maker.value.args[0])
        reads = [window for window in loads if window.tensor == name]
        if extents is None or not reads:
            continue
        if len(source.uses(name)) > len(reads) + len(source.stores(name)):
            continue  # read as a whole
        for axis, (what, extent) in enumerate(zip(_AXES, extents)):
            used = _used_extent(source, reads, axis)
            if used is None or not 0 < used < extent:
                continue
            for product in _products_stored(source, name):
                places = source.loc(product), source.loc(reads[0].node)
                problem = DiscardedRows(*places, name, used, extent, what)
                statement = next(n for n in source.around(product) if isinstance(n, ast.stmt))
                yield subject.advice(problem, subject.kernels_in(*source.scope_lines(statement)))


def _numbers(source: Source, shape: ast.expr) -> list[int] | None:
    """Return the extents of a matrix."""
    if not isinstance(shape, (ast.List, ast.Tuple)) or len(shape.elts) != 2:
        return None
    found = [number_of(extent, source.numbers) for extent in shape.elts]
    return None if None in found else [n for n in found if n is not None]


def _used_extent(source: Source, reads: Sequence[SourceWindow], axis: int) -> int | None:
    """Return the range of elements that are read; None if the text does not tell."""
    starts: list[int] = []
    ends: list[int] = []
    for window in reads:
        if window.shape is None or len(window.shape) != 2:
            return None
        texts = window.offset[axis], window.shape[axis]
        start, extent = (number_of(ast.parse(t, mode="eval").body, source.numbers) for t in texts)
        if start is None or extent is None:
            return None  # each iteration may read a different part
        starts.append(start)
        ends.append(start + extent)
    return max(ends) - min(starts)


def _products_stored(source: Source, name: str) -> Iterator[ast.Call]:
    for store in source.stores(name):
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


RULE = Rule("discarded-rows", DiscardedRows, find)
