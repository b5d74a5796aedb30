"""A loop whose iterations could run side by side."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.diag.catalogue.advice import SequentialLoop


def find(subject: Subject) -> Iterator[Advice]:
    """Loops of the control program; whether iterations are independent, the race check says."""
    source = subject.source
    for node in source.nodes:
        if not isinstance(node, ast.For) or source.loop(node) != "range":
            continue
        scopes = [n for n in ast.walk(node) if isinstance(n, ast.With) and source.is_scope(n)]
        kernels = subject.kernels_in(node.lineno, node.end_lineno or 0)
        if not scopes or not kernels or source.is_in_scope(node):
            continue
        assert isinstance(node.iter, ast.Call)
        function = node.iter.func
        assert isinstance(function, ast.Attribute)
        text = f"{source.of(function.value)}.parallel"
        problem = SequentialLoop(source.loc(node.iter), source.of(node.target))
        yield subject.advice(problem, kernels, [source.replace(function, text)])


RULE = Rule(
    "sequential-loop",
    SequentialLoop,
    find,
    ("Runtimes since May 2026 order iterations of `pl.range` that touch the same tensor."),
    """
    @pl.jit
    def kernel(x: pl.Tensor[[256, 512], pl.FP32], out: pl.Out[pl.Tensor[[256, 512], pl.FP32]]):
        middle = pl.create_tensor([256, 512], pl.FP32)
        for r in pl.parallel(0, 256, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                middle[r : r + 16, :] = pl.exp(x[r : r + 16, :])
        for r in pl.parallel(0, 256, 32):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 32, :] = pl.neg(middle[r : r + 32, :])
        return out
    """,
    legality=(
        "No two iterations touch the same bytes, one of them writing, for all trip "
        "counts and offsets that data decides."
    ),
    needs_newer=True,
    needs_proof=True,
)
