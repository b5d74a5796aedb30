"""How far a rewriting was shown to keep the results of a program."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Claim(enum.Enum):
    """What is known of a rewriting's legality, weakest last.

    PROVED      it holds for all inputs: shown from the IR
    TRIED       it holds for the inputs that were tried
    NOT_TRIED   nothing was looked at: there is no rewriting, or it was not run
    """

    PROVED = "proved"
    TRIED = "holds for the inputs tried"
    NOT_TRIED = "not looked at"


def weakest(claims: Iterable[Claim]) -> Claim:
    """The claim that can be made of several rewritings together."""
    order = list(Claim)
    return max(claims, key=order.index, default=Claim.PROVED)
