"""A scope that makes what the next one uses."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import neighbours
from tilelet.advice.source import names_bound, names_needed
from tilelet.diag.catalogue.advice import RoundTrip


def find(subject: Subject) -> Iterator[Advice]:
    """The first scope makes what the second uses."""
    source = subject.source
    for first, second, kernels, edits in neighbours(subject):
        handed = sorted(names_needed(second.body) & names_bound(first.body))
        if handed:
            problem = RoundTrip(source.loc(first), source.loc(second), handed)
            yield subject.advice(problem, kernels, edits)


RULE = Rule(
    "round-trip",
    RoundTrip,
    find,
    (
        "A task is submitted, handed out and completed in 2 us of runtime, whatever it "
        "does; a value that leaves the chip is stored, and loaded again by the next task "
        "after it has waited for the first."
    ),
    """
    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        for k in pl.range(0, 512, 64):
            with pl.at(level=pl.Level.CORE_GROUP):
                t = pl.exp(x[:, k : k + 64])
                out = pl.assemble(out, pl.add(t, x[:, k : k + 64]), [0, k])
        return out
    """,
    legality=(
        "Nothing runs between the two scopes that reads or writes what they use, and no "
        "other task has to run between them. The statements keep their order."
    ),
    needs_proof=True,
)
