"""Tensors and layers of a checkpoint (E156x)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilelet.diag.catalogue.models import shown
from tilelet.diag.core import UserError
from tilelet.diag.text import did_you_mean, near, shape_text


class NoCheckpoint(UserError):
    """A spec takes its data from a checkpoint, but nothing says from which.

    `TensorSpec(..., from_checkpoint=NAME)` looks in the model directory (or `.safetensors` file)
    that `checkpoint=` of the spec names, or else the environment variable TILELET_CHECKPOINT.
    """

    code = "E1560"

    def __init__(self, spec: str, variable: str) -> None:
        super().__init__(
            f"`{spec}` comes from a checkpoint, and none is named",
            helps=[f"set {variable} to the model directory, or give the spec `checkpoint=`"],
        )


class NoSuchTensor(UserError):
    """A checkpoint has no tensor of this name.

    Names are those of the files, such as `model.layers.17.self_attn.q_proj.weight`; `.T` behind it
    gives the transpose. Check the number of the layer, and whether names start with `model.`.
    """

    code = "E1561"

    def __init__(self, name: str, source: str, known: Sequence[str]) -> None:
        layers = {int(m[1]) for n in known if (m := re.search(r"layers\.(\d+)\.", n))}
        notes = [f"its layers are 0 to {max(layers)}"] if layers else []
        super().__init__(
            f"`{shown(source)}` has no tensor `{shown(name)}`",
            notes=notes,
            helps=did_you_mean(near(name, known)),
        )


class WrongStoredShape(UserError):
    """A tensor of a checkpoint has another shape than the spec that takes it.

    Files hold matrices as `[out, in]`: programs that compute `x @ w` want the transpose, which `.T`
    behind the name gives. Leading dimensions of 1 may be added or left out.
    """

    code = "E1562"

    def __init__(
        self,
        name: str,
        found: tuple[int, ...],
        wanted: tuple[int, ...],
        other: str | None = None,
    ) -> None:
        helps = [f"its transpose has this shape: `{shown(other)}`"] if other else []
        super().__init__(
            f"`{shown(name)}` has shape {shape_text(found)} in the checkpoint, "
            f"and the spec {shape_text(wanted)}",
            helps=helps,
        )


class WrongStoredDType(UserError):
    """A tensor of a checkpoint is of a type that does not become that of the spec.

    Floats of 16, 32 and 64 bits are converted, rounded to nearest; integers, 8-bit floats and BOOL
    must be what the spec says, because nobody has said how to scale them.
    """

    code = "E1563"

    def __init__(self, name: str, found: str, wanted: str) -> None:
        super().__init__(
            f"`{shown(name)}` is {found} in the checkpoint, and the spec wants {wanted}",
            helps=[f"make the spec {found}, or convert it yourself with `init_value=`"],
        )


class BadLayerRequest(UserError):
    """What was asked of a single layer makes no sense.

    A layer runs on at least one position; captured activations come from tokens of the model's own
    vocabulary; a file is written as `.safetensors`.
    """

    code = "E1564"

    def __init__(self, what: str, found: object, wanted: str) -> None:
        super().__init__(f"{what} is {shown(str(found))}; it must be {wanted}")
