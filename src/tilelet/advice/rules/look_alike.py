"""Rule look-alike."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.prose import prose
from tilelet.advice.source import Source
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit


class LookAlike(Caution, code="W1317"):
    """A comment or docstring contains a character that looks like a character of the language."""

    severity = "note"

    def __init__(self, loc: Loc, character: str, meant: str) -> None:
        super().__init__(
            f"`{character}` (U+{ord(character):04X}) looks like `{meant}`",
            [Label(loc)],
            helps=[f"write `{meant}`"],
        )


# Look-alike characters, and the intended ones.
_LOOK_ALIKES = {
    "\u00d7": "x",
    "\u2217": "*",
    "\u2212": "-",
    "\u2013": "-",
    "\u2264": "<=",
    "\u2265": ">=",
    "\uff08": "(",
    "\uff09": ")",
    "\uff0c": ",",
    "\uff1a": ":",
}


def find(subject: Subject) -> Iterator[Advice]:
    """Find look-alike characters in comments and docstrings."""
    for source in (subject.source, *subject.parts):
        yield from _look_alike(subject, source)


def _look_alike(subject: Subject, source: Source) -> Iterator[Advice]:
    for loc, start, text in prose(source):
        for place, character in enumerate(text):
            if character in _LOOK_ALIKES:
                at = start + len(text[:place].encode())
                meant = _LOOK_ALIKES[character]
                edit = Edit(at, at + len(character.encode()), meant)
                line = loc.line + text[:place].count("\n")
                problem = LookAlike(Loc(source.path, line), character, meant)
                yield subject.advice(problem, [], [edit] if source is subject.source else None)
                break  # one per comment


RULE = Rule("look-alike", LookAlike, find, rewrites=True, is_about_text=True)
