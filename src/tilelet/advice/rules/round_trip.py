"""Rule round-trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import neighbors
from tilelet.advice.source import names_bound, names_needed
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import quoted_names


class RoundTrip(Caution, code="W1301"):
    """A scope passes values to the next one through global memory."""

    def __init__(self, first: Loc, second: Loc, names: Sequence[str]) -> None:
        super().__init__(
            f"{quoted_names(names, 'and')} {'goes' if len(names) == 1 else 'go'} through global "
            "memory from this scope to the next",
            [Label(first, "produced here"), Label(second, "used here")],
            helps=["merge the two scopes"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find consecutive scopes of which the second uses results of the first."""
    source = subject.source
    for first, second, kernels, edits in neighbors(subject):
        handed = sorted(names_needed(second.body) & names_bound(first.body))
        if handed:
            problem = RoundTrip(source.loc(first), source.loc(second), handed)
            yield subject.advice(problem, kernels, edits)


RULE = Rule("round-trip", RoundTrip, find, rewrites=True, needs_proof=True)
