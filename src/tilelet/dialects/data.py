"""The features of each dialect, a public PyPTO release identified by its month.

`2026-04.json` and `2026-08.json` list the names of the language and their parameters, those after
`|` keyword-only. Further restrictions on names and on the rest of the language are listed here,
with the reason and what to write instead. Restrictions on a single op are in `OpSpec.limits`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.portability import UnknownDialect


@dataclass(frozen=True)
class Gone:
    """A name or parameter that a dialect does not have, with the reason and an alternative."""

    why: str
    instead: str


@dataclass(frozen=True)
class Dialect:
    """One release.

    name               its month
    about              one line for the page
    gone               what it does not have, by `name` or `name(parameter)`
    declares_outputs   written parameters must be declared `pl.Out` or `pl.InOut`
    tuples             helpers may return several values
    aliases            an op may be called by another name
    free_hints         `name_hint=` may be a variable
    operators          `+` and the like work on tensors
    limits_ops         the limits in `OpSpec.limits` apply
    """

    name: str
    about: str
    gone: Mapping[str, Gone] = field(default_factory=dict[str, Gone])
    declares_outputs: bool = False
    tuples: bool = True
    aliases: bool = False
    free_hints: bool = False
    operators: bool = True
    limits_ops: bool = False

    @functools.cached_property
    def names(self) -> Mapping[str, str]:
        text = (Path(__file__).parent / f"{self.name}.json").read_text(encoding="utf-8")
        return json.loads(text)

    def has(self, name: str) -> bool:
        """Return whether `pl.name` exists; members of enums and modules are not checked."""
        head, _, rest = name.partition(".")
        if name in self.gone:
            return False
        if head in ("tensor", "tile", "system", "array") and rest and rest[0].islower():
            return name in self.names
        return head in self.names

    def parameters(self, name: str) -> list[str] | None:
        """Return the parameter names of `pl.name`, or None if it takes any or is not listed."""
        text = self.names.get(name, "")
        found = [p for p in text.split() if p != "|"]
        return found or None


_CORE_GROUP = "pl.at(level=pl.Level.CORE_GROUP)"
_JUNE = "it was removed in June 2026"
_LOOP = "a loop over the chunks, `pl.at` in it, and a loop over a chunk inside"

APRIL = Dialect(
    "2026-04",
    "the end of April 2026: `pl.incore`, chunked loops, programs as classes",
    gone={
        "MaskPattern": Gone("the enum is a member of `pl.tile`", "pl.tile.MaskPattern"),
    },
)
AUGUST = Dialect(
    "2026-08",
    "August 2026: `pl.at`, `pl.spmd`, `@pl.jit`",
    gone={
        "incore": Gone(_JUNE, _CORE_GROUP),
        "auto_incore": Gone(_JUNE, f"{_CORE_GROUP}, and {_LOOP}"),
        "chunked_loop_optimizer": Gone(_JUNE, _LOOP),
        "auto_chunk": Gone(_JUNE, _LOOP),
        "MaskPattern": Gone("the enum is a member of `pl.tile`", "pl.tile.MaskPattern"),
        "range(chunk)": Gone(_JUNE, _LOOP),
        "parallel(chunk)": Gone(_JUNE, _LOOP),
        "unroll(chunk)": Gone(_JUNE, _LOOP),
        "at(split)": Gone(_JUNE, "optimizations=[pl.split(MODE)]"),
        "at(optimization)": Gone(_JUNE, "optimizations=[...]"),
    },
    declares_outputs=True,
    tuples=False,
    operators=False,
    limits_ops=True,
)
DIALECTS = {dialect.name: dialect for dialect in (APRIL, AUGUST)}


def dialect_named(name: str) -> Dialect:
    """Return the dialect of that month."""
    if name not in DIALECTS:
        raise UnknownDialect(name, list(DIALECTS))
    return DIALECTS[name]
