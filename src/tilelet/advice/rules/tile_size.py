"""Rule tile-size: half and double of every tile size, chunk and pipeline depth are tried."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source, names_read
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit
from tilelet.scripts.target import Target
from tilelet.tuning.knobs import ScriptText


class TileSize(Caution, code="W1330"):
    """Another size of a tile, chunk or pipeline makes the program faster."""

    def __init__(self, loc: Loc, name: str, value: int, better: int) -> None:
        super().__init__(
            f"`{name}` is {value}, and {better} is faster",
            [Label(loc)],
            helps=["`tilelet tune` tries more values, and several at once"],
        )


MAX_KNOBS = 8
"""Maximum number of knobs tried, in source order; each takes two modelled runs."""


def find(subject: Subject) -> Iterator[Advice]:
    """Vary constants of the script and loop options that are not tensor extents."""
    source = subject.source
    extents = _extents(source)
    kernels = [kernel for profile in subject.profiles for kernel in profile.kernels]
    knobs = ScriptText(Target(source.path, text=source.text)).knobs
    for knob in [k for k in knobs if k.name not in extents][:MAX_KNOBS]:
        if not isinstance(knob.value, int) or knob.loc is None:
            continue
        for value in (knob.value * 2, knob.value // 2):
            if value and value != knob.value:
                loc = Loc(source.path, knob.loc.line)
                problem = TileSize(loc, knob.name.partition("@")[0], knob.value, value)
                yield subject.advice(
                    problem, kernels, [Edit(*knob.span, str(value))], rounding=True
                )


def _extents(source: Source) -> set[str]:
    """Return the names in parameter annotations."""
    annotations = [
        node.annotation
        for node in source.nodes
        if isinstance(node, ast.arg) and node.annotation is not None
    ]
    return names_read(annotations)


RULE = Rule("tile-size", TileSize, find, rewrites=True, needs_proof=True, ends_chain=True)
