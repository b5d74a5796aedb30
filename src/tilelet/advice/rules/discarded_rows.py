"""Rows or columns of a product that nobody reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound, number_of
from tilelet.advice.windows import Window, loads_in, texts_of
from tilelet.diag.catalogue.advice import DiscardedRows

_AXES = "rows", "columns"


def find(subject: Subject) -> Iterator[Advice]:
    """A product that is stored whole, and of which fewer rows or columns are read back."""
    source = subject.source
    loads = [w for w in loads_in(source, source.tree) if isinstance(w.node, ast.Subscript)]
    loads += [
        Window(source.of(n.args[0]), n, offset, shape)
        for n in source.slices()  # with whatever valid extents
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
            continue  # somebody reads it whole
        for axis, (what, extent) in enumerate(zip(_AXES, extents)):
            used = _used(source, reads, axis)
            if used is None or not 0 < used < extent:
                continue
            for product in _products_stored(source, name):
                places = source.loc(product), source.loc(reads[0].node)
                problem = DiscardedRows(*places, name, used, extent, what)
                statement = next(n for n in source.around(product) if isinstance(n, ast.stmt))
                yield subject.advice(problem, subject.kernels_in(*source.scope_lines(statement)))


def _numbers(source: Source, shape: ast.expr) -> list[int] | None:
    """The extents of a matrix."""
    if not isinstance(shape, (ast.List, ast.Tuple)) or len(shape.elts) != 2:
        return None
    found = [number_of(extent, source.numbers) for extent in shape.elts]
    return None if None in found else [n for n in found if n is not None]


def _used(source: Source, reads: Sequence[Window], axis: int) -> int | None:
    """From the first to the last element that anybody reads; None if the text does not say."""
    starts: list[int] = []
    ends: list[int] = []
    for window in reads:
        if window.shape is None or len(window.shape) != 2:
            return None
        texts = window.offset[axis], window.shape[axis]
        start, extent = (number_of(ast.parse(t, mode="eval").body, source.numbers) for t in texts)
        if start is None or extent is None:
            return None  # perhaps another part in every iteration
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


RULE = Rule(
    "discarded-rows",
    DiscardedRows,
    find,
    "The published attention pads 8 query heads to 16 rows: half of each product is lost.",
    """
    @pl.jit
    def kernel(
        q: pl.Tensor[[16, 128], pl.BF16],
        keys: pl.Tensor[[128, 512], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
    ):
        for d in pl.range(0, 512, 128):
            with pl.at(level=pl.Level.CORE_GROUP):  # sixteen rows of queries, two groups of heads
                scores = pl.matmul(q[:, :], keys[:, d : d + 128], out_dtype=pl.FP32)
                out = pl.assemble(out, pl.exp(scores), [0, d])
        return out
    """,
)
