"""Rule stale-constant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.prose import prose
from tilelet.advice.source import Source
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit


class StaleConstant(Caution, code="W1316"):
    """A comment or docstring gives an outdated value of a constant."""

    def __init__(self, loc: Loc, name: str, said: int, value: int) -> None:
        super().__init__(
            f"the text says that `{name}` is {said}, but it is {value}",
            [Label(loc)],
            helps=[f"write {value}"],
        )


_MENTION = re.compile(r"\b([A-Z][A-Z0-9_]{2,})\s*(?:=|is|:|of)\s*(\d+)\b")


def find(subject: Subject) -> Iterator[Advice]:
    """Find text such as `BATCH_TILE=4` for a constant with another value."""
    for source in (subject.source, *subject.parts):
        yield from _stale(subject, source)


def _stale(subject: Subject, source: Source) -> Iterator[Advice]:
    values = subject.source.numbers
    for loc, start, text in prose(source):
        for found in _MENTION.finditer(text):
            name, said = found.group(1), int(found.group(2))
            if name in values and values[name] != said:
                at = start + len(text[: found.start(2)].encode())
                edit = Edit(at, at + len(found.group(2)), str(values[name]))
                line = loc.line + text[: found.start()].count("\n")
                problem = StaleConstant(Loc(source.path, line), name, said, values[name])
                yield subject.advice(problem, [], [edit] if source is subject.source else None)


RULE = Rule("stale-constant", StaleConstant, find, rewrites=True, is_about_text=True)
