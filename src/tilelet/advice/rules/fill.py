"""Rule fill: memory is filled, and every element overwritten before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.fillings import fill_statements, filled_tensors
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import quoted_names


class DeadFill(Caution, code="W1304"):
    """Memory is filled with a constant that is always overwritten before it is read."""

    def __init__(self, loc: Loc, names: Sequence[str]) -> None:
        super().__init__(
            f"the value that {quoted_names(names, 'and')} {'is' if len(names) == 1 else 'are'} "
            "filled with is never read",
            [Label(loc)],
            helps=["remove the fill: all of it is overwritten later"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find removable fills; correctness is checked by the proof."""
    source = subject.source
    for statement in fill_statements(source):
        names = sorted(filled_tensors(source, statement))
        first, last = statement.lineno, statement.end_lineno or 0
        if source.is_in_scope(statement):
            first, last = source.scope_lines(statement)
        problem = DeadFill(source.loc(statement), names)
        edits = [source.remove(statement)]
        yield subject.advice(problem, subject.kernels_in(first, last), edits)


RULE = Rule("fill", DeadFill, find, rewrites=True, needs_proof=True)
