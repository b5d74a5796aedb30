"""Rows or columns of a product that nobody reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.diag.catalogue.advice import DiscardedRows


def find(subject: Subject) -> Iterator[Advice]:
    """A product that is stored whole, and read back in fewer rows only."""
    source = subject.source
    for maker in source.nodes:
        if not isinstance(maker, ast.Assign) or source.call_of(maker.value) != "create_tensor":
            continue
        assert isinstance(maker.value, ast.Call)
        (name,) = names_bound(maker) or {""}
        rows = _rows(source, maker.value.args[0])
        reads = [n for n in source.slices() if source.of(n.args[0]) == name]
        read = [_rows(source, n.args[1]) for n in reads]
        used = max((r for r in read if r is not None), default=0)
        if rows is None or not reads or None in read or not 0 < used < rows:
            continue
        if len(source.uses(name)) > len(reads) + len(source.stores(name)):
            continue  # somebody reads it whole
        for product in _products_stored(source, name):
            problem = DiscardedRows(source.loc(product), source.loc(reads[0]), name, used, rows)
            statement = next(n for n in source.around(product) if isinstance(n, ast.stmt))
            yield subject.advice(problem, subject.kernels_in(*source.scope_lines(statement)))


def _rows(source: Source, shape: ast.expr) -> int | None:
    if not isinstance(shape, (ast.List, ast.Tuple)) or len(shape.elts) != 2:
        return None
    return source.number(shape.elts[0])


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
