"""Scopes that say themselves where a task begins and ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source
from tilelet.diag.catalogue.advice import ExplicitScope


def find(subject: Subject) -> Iterator[Advice]:
    """`pl.incore` nearly everywhere: one finding for the whole script."""
    explicit: list[tuple[Source, ast.With]] = []
    automatic = 0
    for source in (subject.source, *subject.parts):
        for scope in source.scopes:
            header = source.of(scope.items[0].context_expr)
            if "auto_incore" in header or "auto_chunk" in header:
                automatic += 1
            elif source.call_of(scope.items[0].context_expr) == "incore":
                explicit.append((source, scope))
    if len(explicit) > max(2, automatic):
        source, scope = explicit[0]
        yield subject.advice(ExplicitScope(source.loc(scope), len(explicit), automatic), [])


RULE = Rule(
    "explicit-scope",
    ExplicitScope,
    find,
    "Asked for by the analysis of a published decode layer.",
    """
    @pl.jit
    def kernel(x: pl.Tensor[[256, 512], pl.FP32], out: pl.Out[pl.Tensor[[256, 512], pl.FP32]]):
        a = pl.create_tensor([256, 512], pl.FP32)
        b = pl.create_tensor([256, 512], pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
            for r in pl.parallel(0, 256, 16, chunk=2):
                a[r : r + 16, :] = pl.exp(x[r : r + 16, :])
        with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
            for r in pl.parallel(0, 256, 16, chunk=2):
                b[r : r + 16, :] = pl.neg(x[r : r + 16, :])
        with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):
            for r in pl.parallel(0, 256, 16, chunk=2):
                out[r : r + 16, :] = pl.add(a[r : r + 16, :], b[r : r + 16, :])
        return out
    """,
    is_about_text=True,
)
