"""Tensors and layers of a checkpoint (E156x)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilelet.diag.catalogue.models import shown_name
from tilelet.diag.core import UserError
from tilelet.diag.text import did_you_mean, near, shape_text


class NoCheckpoint(UserError, code="E1560"):
    """A spec takes its data from a checkpoint, but no checkpoint is given."""

    def __init__(self, spec: str, variable: str) -> None:
        super().__init__(
            f"`{spec}` comes from a checkpoint, but none is given",
            helps=[f"set {variable} to the model directory, or pass `checkpoint=` to the spec"],
        )


class NoSuchTensor(UserError, code="E1561"):
    """A checkpoint has no tensor of this name."""

    def __init__(self, name: str, source: str, known: Sequence[str]) -> None:
        layers = {int(m[1]) for n in known if (m := re.search(r"layers\.(\d+)\.", n))}
        notes = [f"its layers are 0 to {max(layers)}"] if layers else []
        super().__init__(
            f"`{shown_name(source)}` has no tensor `{shown_name(name)}`",
            notes=notes,
            helps=did_you_mean(near(name, known)),
        )


class WrongStoredShape(UserError, code="E1562"):
    """A tensor of a checkpoint has a different shape than the spec that uses it."""

    def __init__(
        self,
        name: str,
        found: tuple[int, ...],
        wanted: tuple[int, ...],
        other: str | None = None,
    ) -> None:
        helps = [f"its transpose has this shape: `{shown_name(other)}`"] if other else []
        super().__init__(
            f"`{shown_name(name)}` has shape {shape_text(found)} in the checkpoint, but "
            f"{shape_text(wanted)} in the spec",
            helps=helps,
        )


class WrongStoredDType(UserError, code="E1563"):
    """The dtype of a checkpoint tensor cannot be converted to the dtype of the spec."""

    def __init__(self, name: str, found: str, wanted: str) -> None:
        super().__init__(
            f"`{shown_name(name)}` is {found} in the checkpoint, but {wanted} in the spec",
            helps=[f"make the spec {found}, or convert the data yourself with `init_value=`"],
        )


class BadLayerRequest(UserError, code="E1564"):
    """A request for a single layer has an invalid value."""

    def __init__(self, what: str, found: object, wanted: str) -> None:
        super().__init__(f"{what} is {shown_name(str(found))}; it must be {wanted}")
