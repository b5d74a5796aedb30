"""Formulas that look like a known one with a part missing, and reads that could be done once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Source
from tilelet.diag.catalogue.advice import MissingRoot, RepeatedRead
from tilelet.ir.core import Block, Op, Value
from tilelet.ir.types import TensorType, TileType

_ROOTS = ("sqrt", "rsqrt")
_PASSING = ("reshape", "cast", "add", "mul", "div", "recip", "row_expand", "neg")


def missing_root(subject: Subject) -> Iterator[Advice]:
    """RMSNorm or LayerNorm that multiplies by `mean(x^2) + eps` itself.

    A mean of squares plus a small constant is made only to take its root.
    """
    for run in subject.runs:
        for function in run.run.program.kernels:
            makers, users = _graph(function.body)
            for op in makers.values():
                if not _is_mean_plus_eps(op, makers):
                    continue
                reached = _reached(op.results[0], users)
                if reached and not any(o.name.rpartition(".")[2] in _ROOTS for o in reached):
                    kernels = [k for k in run.summary.kernels if k.name == function.name]
                    yield subject.advice(MissingRoot(op.loc), kernels)


def _graph(block: Block) -> tuple[dict[Value, Op], dict[Value, list[Op]]]:
    """Who makes a value, and who uses it, through loops too."""
    makers: dict[Value, Op] = {}
    users: dict[Value, list[Op]] = {}

    def walk(inner: Block) -> None:
        for op in inner.ops:
            for result in op.results:
                makers[result] = op
            for argument in op.args.values():
                for value in argument if isinstance(argument, tuple) else (argument,):
                    if isinstance(value, Value):
                        users.setdefault(value, []).append(op)
            for nested in op.blocks:
                walk(nested)

    walk(block)
    return makers, users


def _is_mean_plus_eps(op: Op, makers: dict[Value, Op]) -> bool:
    """`add(mul(sum, 1 / n), eps)` of a small `eps`, after squares were summed."""
    if op.name.rpartition(".")[2] != "add":
        return False
    values = list(op.args.values())
    small = [v for v in values if isinstance(v, float) and 0 < v < 1e-2]
    sums = [v for v in values if isinstance(v, Value)]
    if not small or not sums or not isinstance(sums[0].type, (TileType, TensorType)):
        return False
    mean = makers.get(sums[0])
    if mean is None or mean.name.rpartition(".")[2] not in ("mul", "div"):
        return False
    return any(isinstance(v, (int, float)) and v not in (0, 1) for v in mean.args.values())


def _reached(value: Value, users: dict[Value, list[Op]]) -> list[Op]:
    """Ops that use a value, directly or after being passed on."""
    found: list[Op] = []
    waiting = [value]
    while waiting:
        for op in users.get(waiting.pop(), []):
            if op in found:
                continue
            found.append(op)
            if op.name.rpartition(".")[2] in _PASSING:
                waiting += op.results
    return found


def repeated_reads(subject: Subject) -> Iterator[Advice]:
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
