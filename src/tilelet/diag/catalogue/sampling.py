"""Sampling (E155x)."""

from __future__ import annotations

from tilelet.diag.catalogue.models import shown_name
from tilelet.diag.core import UserError


class BadSampling(UserError, code="E1550"):
    """A sampling setting is out of range."""

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is `{shown_name(repr(found))}`; it must be {wanted}")


class WrongSamplerInput(UserError, code="E1551"):
    """A sampler was called with logits or settings of the wrong size."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"the sampler got {found}, expected {wanted}")


class BadLogits(UserError, code="E1552"):
    """A row of logits has no finite maximum, so no token can be sampled from it."""

    def __init__(self, row: int) -> None:
        super().__init__(
            f"row {row} of the logits contains NaN or infinity, or only -infinity",
            helps=["`tilelet layer` shows which layer produces the first non-finite value"],
        )
