"""Type names used in op signatures, as editors show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, Union

if TYPE_CHECKING:
    from tilelet.syntax.types import Scalar, Tensor, Tile

Shaped = TypeVar("Shaped", "Tensor", "Tile")
"""A tensor or a tile; the result is of the same kind."""

Int = Union[int, "Scalar"]
Number = Union[int, float, "Scalar"]
Ints = Sequence[Int]
