"""Sampling (E155x)."""

from __future__ import annotations

from tilelet.diag.catalogue.models import shown
from tilelet.diag.core import UserError


class BadSampling(UserError):
    """A sampling setting is out of range.

    `temperature` is at least 0, where 0 selects the largest logit; `top_k` is at least 0, where 0
    keeps all tokens; `top_p` is above 0 and at most 1, where 1 keeps all tokens; `seed` is a 64-bit
    integer.
    """

    code = "E1550"

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is `{shown(repr(found))}`; it must be {wanted}")


class WrongSamplerInput(UserError):
    """A sampler was called with logits or settings of the wrong size.

    Logits are `[batch, vocabulary]` in the dtype that the sampler was created with, with one
    setting and one step per row.
    """

    code = "E1551"

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"the sampler got {found}, expected {wanted}")


class BadLogits(UserError):
    """A row of logits has no finite maximum, so no token can be sampled from it.

    The row contains NaN or +infinity, or only -infinity, usually because weights or activations
    overflowed. Greedy selection accepts such a row and treats NaN as the largest value.
    """

    code = "E1552"

    def __init__(self, row: int) -> None:
        super().__init__(
            f"row {row} of the logits contains NaN or infinity, or only -infinity",
            helps=["`tilelet layer` shows which layer produces the first non-finite value"],
        )
