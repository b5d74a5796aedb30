"""Scopes that load the same window: K and V, or gate and up."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import neighbours
from tilelet.advice.source import Source, names_bound, names_needed
from tilelet.diag.catalogue.advice import SharedOperand


def find(subject: Subject) -> Iterator[Advice]:
    """Both load the same window: K and V, or gate and up."""
    source = subject.source
    for first, second, kernels, edits in neighbours(subject):
        shared = sorted(_sliced(source, first) & _sliced(source, second))
        if shared and not names_needed(second.body) & names_bound(first.body):
            problem = SharedOperand(source.loc(first), source.loc(second), shared)
            yield subject.advice(problem, kernels, edits)


def _sliced(source: Source, scope: ast.With) -> set[str]:
    """Windows that a scope loads, as they are written."""
    found: set[str] = set()
    for node in ast.walk(scope):
        is_load = isinstance(node, ast.Call) and source.call_of(node) in ("slice", "load")
        if is_load or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)):
            # Copies of a helper's locals have numbers at their ends: `k0_3` and `k0_4`.
            found.add(re.sub(r"(?<=\w)_\d+\b", "", ast.unparse(node)))
    return found


RULE = Rule(
    "shared-operand",
    SharedOperand,
    find,
    "K and V of a published layer both read the normalised rows, as do gate and up.",
    """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 512], pl.BF16],
        wk: pl.Tensor[[512, 4096], pl.BF16],
        wv: pl.Tensor[[512, 4096], pl.BF16],
        k: pl.Out[pl.Tensor[[16, 4096], pl.FP32]],
        v: pl.Out[pl.Tensor[[16, 4096], pl.FP32]],
    ):
        for d in pl.range(0, 4096, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                rows = pl.slice(x, [16, 512], [0, 0])
                k[:, d : d + 128] = pl.matmul(rows, wk[:, d : d + 128], out_dtype=pl.FP32)
                v[:, d : d + 128] = pl.matmul(rows, wv[:, d : d + 128], out_dtype=pl.FP32)
        return k, v
    """,
    legality=(
        "Nothing runs between the two scopes that reads or writes what they use, and no "
        "other task has to run between them. The statements keep their order."
    ),
    needs_proof=True,
)
