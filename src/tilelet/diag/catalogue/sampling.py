"""Choosing tokens (E155x)."""

from __future__ import annotations

from tilelet.diag.catalogue.models import shown
from tilelet.diag.core import UserError


class BadSampling(UserError):
    """A setting of how tokens are chosen is out of its range.

    `temperature` is at least 0, and 0 takes the largest logit; `top_k` is at least 0, and 0 keeps
    all tokens; `top_p` is above 0 and at most 1, which keeps all; `seed` has 64 bits.
    """

    code = "E1550"

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is `{shown(repr(found))}`; it must be {wanted}")


class WrongSamplerInput(UserError):
    """A sampler was called with logits or settings of another size than it was made for.

    Logits are `[batch, vocabulary]` in the dtype that the sampler was made with, and there are as
    many settings and steps as rows.
    """

    code = "E1551"

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"the sampler was given {found}, and wants {wanted}")


class BadLogits(UserError):
    """A row of logits has no largest finite number, so no token can be drawn from it.

    It holds NaN or +infinity, or nothing but -infinity: usually weights or activations that
    overflowed. Greedy selection takes such a row, with a NaN as the largest number.
    """

    code = "E1552"

    def __init__(self, row: int) -> None:
        super().__init__(
            f"row {row} of the logits holds NaN, infinity, or no number at all",
            helps=["`tilelet layer` shows which layer gives the first number that is not finite"],
        )
