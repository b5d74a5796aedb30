"""A scalar that is read again and again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source
from tilelet.diag.catalogue.machine_use import RepeatedRead


def find(subject: Subject) -> Iterator[Advice]:
    """`pl.read(t, [i])` in a loop that does not change what it reads."""
    source = subject.source
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or source.loop(loop) is None:
            continue
        changing = _changing(loop)
        for statement in loop.body:
            for node in ast.walk(statement):
                if source.call_of(node) not in ("read", "tensor.read") or not isinstance(
                    node, ast.Call
                ):
                    continue
                if _innermost(source, node) is not loop:
                    continue
                used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                if used & changing or len(node.args) < 2:
                    continue
                kernels = subject.kernels_in(*source.scope_lines(loop))
                if kernels:
                    problem = RepeatedRead(source.loc(node), source.loc(loop.iter), source.of(node))
                    yield subject.advice(problem, kernels)


def _changing(loop: ast.For) -> set[str]:
    return {
        n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _innermost(source: Source, node: ast.AST) -> ast.For | None:
    return next((n for n in source.around(node) if isinstance(n, ast.For)), None)


RULE = Rule(
    "repeated-read",
    RepeatedRead,
    find,
    "A scalar read of global memory takes hundreds of cycles when it misses.",
    """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 512], pl.FP32],
        lengths: pl.Tensor[[16], pl.INT32],
        out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
    ):
        for b in pl.range(16):
            with pl.at(level=pl.Level.CORE_GROUP):
                length = pl.read(lengths, [b])
                for k in pl.range(0, 512, 64):
                    if length > k:
                        out[b : b + 1, k : k + 64] = pl.exp(x[b : b + 1, k : k + 64])
        return out
    """,
)
