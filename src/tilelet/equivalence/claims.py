"""Claims about the correctness of rewritings."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Claim(enum.Enum):
    """Evidence for a rewriting's correctness, weakest last.

    PROVED      correct for all inputs of the program's sizes, shown from the IR
    TRIED       correct for the inputs and sizes tried
    NOT_TRIED   not examined: there is no rewriting, or it was not run
    """

    PROVED = "proved"
    TRIED = "holds for the inputs tried"
    NOT_TRIED = "not looked at"


def weakest(claims: Iterable[Claim]) -> Claim:
    """Return the claim for several rewritings together."""
    order = list(Claim)
    return max(claims, key=order.index, default=Claim.PROVED)
