"""Memory that is filled with a constant although every element is written later."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.fillings import fill_statements, filled
from tilelet.diag.catalogue.advice import DeadFill


def find(subject: Subject) -> Iterator[Advice]:
    """Only those whose removal is a rewriting: whether it is right, the proof says."""
    source = subject.source
    for statement in fill_statements(source):
        names = sorted(filled(source, statement))
        first, last = statement.lineno, statement.end_lineno or 0
        if source.is_in_scope(statement):
            first, last = source.scope_lines(statement)
        problem = DeadFill(source.loc(statement), names)
        edits = [source.remove(statement)]
        yield subject.advice(problem, subject.kernels_in(first, last), edits)


RULE = Rule(
    "fill",
    DeadFill,
    find,
    (
        "A fill writes every byte once more, and under the runtime's rules the real "
        "writers wait for it. Fills that nothing reads are 66 of the 1,651 tasks of "
        "the published scope 3 of Qwen3-32B."
    ),
    """
    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        for d in pl.range(0, 512, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.assemble(out, pl.exp(x[:, d : d + 128]), [0, d])
        return out
    """,
    legality=(
        "Every element that the fill writes is overwritten before it is read, for all "
        "trip counts, branches and offsets that data decides; or it is never read and "
        "belongs to no output."
    ),
    needs_proof=True,
)
