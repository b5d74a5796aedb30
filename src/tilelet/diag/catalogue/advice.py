"""Scripts without advice (E13xx)."""

from __future__ import annotations

from tilelet.diag.core import UserError


class CannotAdvise(UserError, code="E1301"):
    """The script does not run, or runs nothing to analyze."""

    def __init__(self, script: str, why: str) -> None:
        super().__init__(f"no advice for `{script}`: {why}")
