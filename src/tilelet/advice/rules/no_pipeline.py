"""A loop of a scope whose loads and computing could overlap."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source
from tilelet.diag.catalogue.advice import NoPipeline


def find(subject: Subject) -> Iterator[Advice]:
    """Innermost loops with loads; whether it fits and helps, the model says."""
    source = subject.source
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or source.loop(loop) != "range":
            continue
        if any(isinstance(n, ast.For) for s in loop.body for n in ast.walk(s)):
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
    """Windows of tensors that the loop reads, others in each iteration."""
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


RULE = Rule(
    "no-pipeline",
    NoPipeline,
    find,
    (
        "Load engines and compute units of a core work side by side; without a second buffer "
        "one waits for the other. In the tuned scope 3 every loop over the inner dimension is "
        "a pipeline."
    ),
    """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 512], pl.BF16],
        w: pl.Tensor[[512, 512], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
    ):
        for d in pl.range(0, 512, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(x[:, 0:64], w[0:64, d : d + 128], out_dtype=pl.FP32)
                for k in pl.pipeline(64, 512, 64, stage=2):
                    acc = pl.matmul_acc(acc, x[:, k : k + 64], w[k : k + 64, d : d + 128])
                out[:, d : d + 128] = acc
        return out
    """,
    legality=(
        "None beyond memory: the stages of `pl.pipeline` execute the statements of each "
        "iteration in order."
    ),
    needs_proof=True,
)
