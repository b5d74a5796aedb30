"""Rule no-pipeline."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import plural


class NoPipeline(Caution, code="W1322"):
    """A loop in a scope loads its operands, but the loads do not overlap with computation."""

    def __init__(self, loop: Loc, name: str, loads: int) -> None:
        super().__init__(
            f"the loop over `{name}` has {plural(loads, 'load')} and waits for each",
            [Label(loop)],
            helps=["`pl.pipeline` overlaps them with computation"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find innermost loops with loads; the model decides whether a pipeline fits and helps."""
    source = subject.source
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or source.loop(loop) != "range":
            continue
        # Inner loops would be pipelined instead, and a pipeline cannot be left.
        if any(isinstance(n, (ast.For, ast.Break)) for s in loop.body for n in ast.walk(s)):
            continue
        if not source.is_in_scope(loop):
            continue
        loads = _loads(source, loop)
        kernels = subject.kernels_in(*source.scope_lines(loop))
        if not loads or not kernels:
            continue
        assert isinstance(loop.iter, ast.Call)
        function = loop.iter.func
        assert isinstance(function, ast.Attribute)
        arguments = [source.of(a) for a in loop.iter.args]
        arguments += [f"{k.arg}={source.of(k.value)}" for k in loop.iter.keywords]
        text = f"{source.of(function.value)}.pipeline({', '.join([*arguments, 'stage=2'])})"
        problem = NoPipeline(source.loc(loop), source.of(loop.target), len(loads))
        yield subject.advice(problem, kernels, [source.replace(loop.iter, text)])


def _loads(source: Source, loop: ast.For) -> list[ast.AST]:
    """Return the windows that depend on the loop variable and are read in the loop."""
    found: list[ast.AST] = []
    for node in ast.walk(loop):
        tensor: ast.AST | None = None
        if source.call_of(node) in ("slice", "load") and isinstance(node, ast.Call) and node.args:
            tensor = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            tensor = node.value
        if isinstance(tensor, ast.Name) and tensor.id in source.tensors:
            found.append(node)
    return found


RULE = Rule("no-pipeline", NoPipeline, find, rewrites=True, needs_proof=True)
