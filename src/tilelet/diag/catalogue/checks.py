"""Checks of a recorded run (E11xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import UserError
from tilelet.diag.text import did_you_mean, near


class UnknownCheck(UserError):
    """There is no check of this name.

    `tilelet check --only` and `tilelet.check(only=...)` take names of checks, separated by commas.
    The message lists them.
    """

    code = "E1101"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no check `{name}`",
            notes=[f"checks: {', '.join(known)}"],
            helps=did_you_mean(near(name, known)),
        )
