"""Tells rounding from a wrong result by running programs in double precision.

Functions such as exp of exp amplify rounding beyond any fixed tolerance. Programs that are equal
but for rounding differ in doubles by what doubles round, amplified in the same way. The bound of
that is known: `WideTrace` carries it for FP32, and every term of it is proportional to the unit
roundoff.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.fuzz.rewritable import Reversed

from tilelet.divergence.record import follow
from tilelet.divergence.rounding_bounds import Wide, WideTrace
from tilelet.interp.lowering import Lowering, Step
from tilelet.ir.core import Op, Program

_DOUBLE_TO_FP32 = 2.0**-29
"""Ratio of the unit roundoffs."""


class Doubles(WideTrace):
    """Computes doubles with error bounds, running parallel loops in either direction."""

    def __init__(self, program: Program, *, backwards: bool = False) -> None:
        super().__init__(program)
        self._backwards = Reversed() if backwards else None

    def lower(self, low: Lowering, op: Op) -> Step:
        if self._backwards is not None and self._backwards.reverses(op):
            return self._backwards.lower(low, op)
        return super().lower(low, op)

    def outputs(self, given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Wide | None]:
        windows = follow(self, given).parameters
        return {name: self.memory(windows[name]) for name in names}


def is_rounding(
    before: Program,
    after: Program,
    given: Mapping[str, Any],
    outputs: tuple[Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]],
    *,
    backwards: bool = False,
) -> bool:
    """Return whether rounding explains the difference between the outputs of two programs.

    The programs must agree in double precision, and the outputs within the bounds of FP32.
    """
    names = tuple(outputs[0])
    old = Doubles(before).outputs(given, names)
    new = Doubles(after, backwards=backwards).outputs(given, names)
    with np.errstate(all="ignore"):
        return all(_agree(old[n], new[n], outputs[0][n], outputs[1][n]) for n in names)


def _agree(old: Wide | None, new: Wide | None, a: NDArray[Any], b: NDArray[Any]) -> bool:
    if old is None or new is None:
        return False
    allowed = old.bound + new.bound
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    in_double = np.abs(old.value - new.value) <= _DOUBLE_TO_FP32 * allowed
    in_fp32 = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= allowed
    return bool((is_same | (in_double & in_fp32 & np.isfinite(allowed))).all())
