"""Rule explicit-scope."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import plural


class ExplicitScope(Caution, code="W1324"):
    """The script sets the boundaries of every task explicitly."""

    def __init__(self, first: Loc, explicit: int, automatic: int) -> None:
        super().__init__(
            f"{plural(explicit, 'explicit scope')}, {automatic or 'no'} automatic",
            [Label(first, "one of them")],
            helps=[
                "an automatic scope around a loop with `chunk=` makes the task size a parameter"
            ],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Report scripts that use `pl.incore` nearly everywhere, once per script."""
    explicit: list[tuple[Source, ast.With]] = []
    automatic = 0
    for source in (subject.source, *subject.parts):
        for scope in source.scopes:
            header = source.of(scope.items[0].context_expr)
            if "auto_incore" in header or "auto_chunk" in header:
                automatic += 1
            elif source.call_of(scope.items[0].context_expr) == "incore":
                explicit.append((source, scope))
    if len(explicit) > max(2, automatic):
        source, scope = explicit[0]
        yield subject.advice(ExplicitScope(source.loc(scope), len(explicit), automatic), [])


RULE = Rule("explicit-scope", ExplicitScope, find, is_about_text=True)
