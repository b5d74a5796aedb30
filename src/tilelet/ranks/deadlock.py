"""Why no rank can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.diag.catalogue.ranks import RanksDeadlock
from tilelet.diag.core import Loc

if TYPE_CHECKING:
    from tilelet.ranks.scheduler import World


def explain(world: World) -> RanksDeadlock:
    """The message for a run in which nothing can go on."""
    labels: list[tuple[Loc, str]] = []
    for strand in world.strands:
        request = strand.request
        if request is None:
            continue
        labels += [
            (request.loc, f"{strand.title}: sees {c.value}, waits for {c.expected}")
            for c in request.conditions
            if not c.holds
        ]
    return RanksDeadlock(labels, [])
