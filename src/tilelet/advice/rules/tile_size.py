"""A tile size, chunk or depth of a pipeline that should be half or double of what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Edit, Source, names_read
from tilelet.diag.catalogue.machine_use import TileSize
from tilelet.diag.core import Loc
from tilelet.scripts.target import Target
from tilelet.tuning.knobs import ScriptText

MAX_KNOBS = 8
"""Numbers of a script that are tried, in the order of the text: each takes two modelled runs."""


def find(subject: Subject) -> Iterator[Advice]:
    """Numbers at the top of the script, or that lay out a loop, and that are no extents."""
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
    """Names that say how large parameters are."""
    annotations = [
        node.annotation
        for node in source.nodes
        if isinstance(node, ast.arg) and node.annotation is not None
    ]
    return names_read(annotations)


RULE = Rule(
    "tile-size",
    TileSize,
    find,
    (
        "A task costs 2 us of runtime and a core without a task is idle: the best size is between "
        "the two, and the model knows where. `tilelet tune` searches more values."
    ),
    """
    @pl.jit
    def kernel(x: pl.Tensor[[2048, 64], pl.FP32], out: pl.Out[pl.Tensor[[2048, 64], pl.FP32]]):
        for r in pl.parallel(0, 2048, 32):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 32, :] = pl.exp(x[r : r + 32, :])
        return out
    """,
    legality=(
        "The size only cuts the work: every element is computed once, from the same operands, for "
        "all lengths that data decides. Sums may be cut in another place."
    ),
    needs_proof=True,
    ends_chain=True,
)
