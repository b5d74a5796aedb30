"""A tensor in global memory that one scope alone uses: inside the scope it is a tile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_bound
from tilelet.diag.catalogue.advice import OneScopeTensor


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for body in source.bodies():
        for maker in body:
            if not isinstance(maker, ast.Assign) or source.is_in_scope(maker):
                continue
            if source.call_of(maker.value) != "create_tensor" or len(names_bound(maker)) != 1:
                continue
            (name,) = names_bound(maker)
            scope = only_scope(source, maker, name)
            if scope is None:
                continue
            margin = " " * scope.body[0].col_offset
            line = scope.body[0].lineno
            moved = source.replace_lines(line, line - 1, f"{margin}{source.of(maker)}\n")
            problem = OneScopeTensor(source.loc(maker), source.loc(scope), name)
            kernels = subject.kernels_in(scope.lineno, scope.end_lineno or 0)
            yield subject.advice(problem, kernels, [source.remove(maker), moved])


def only_scope(source: Source, maker: ast.stmt, name: str) -> ast.With | None:
    """The one scope that has all uses of a tensor."""
    own = set(source.inside(maker))
    around = [set(source.around(n)) for n in source.names(name) if n not in own]
    if not around:
        return None
    return next((s for s in source.scopes if all(s in outer for outer in around)), None)


RULE = Rule(
    "one-scope-tensor",
    OneScopeTensor,
    find,
    (
        "The scores and exponentials of the published attention go out to global memory and "
        "back in every block of the context."
    ),
    """
    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        for k in pl.range(0, 512, 64):
            with pl.at(level=pl.Level.CORE_GROUP):
                both = pl.create_tensor([32, 64], pl.FP32)
                both = pl.assemble(both, pl.exp(x[:, k : k + 64]), [0, 0])
                both = pl.assemble(both, pl.neg(x[:, k : k + 64]), [16, 0])
                out[:, k : k + 64] = pl.slice(pl.mul(both, both), [16, 64], [0, 0])
        return out
    """,
    legality=(
        "Only the one scope uses the tensor, and every execution of the scope writes "
        "what it reads: nothing is handed from one execution to the next."
    ),
    needs_proof=True,
)
