"""Sampling (E155x)."""

from __future__ import annotations

from tilelet.diag.catalogue.models import shown
from tilelet.diag.core import UserError


class BadSampling(UserError):
    """A sampling setting is out of range."""

    code = "E1550"

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is `{shown(repr(found))}`; it must be {wanted}")


class WrongSamplerInput(UserError):
    """A sampler was called with logits or settings of the wrong size."""

    code = "E1551"

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"the sampler got {found}, expected {wanted}")


class BadLogits(UserError):
    """A row of logits has no finite maximum, so no token can be sampled from it."""

    code = "E1552"

    def __init__(self, row: int) -> None:
        super().__init__(
            f"row {row} of the logits contains NaN or infinity, or only -infinity",
            helps=["`tilelet layer` shows which layer produces the first non-finite value"],
        )
