"""The script's own comparison, as checks need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilelet.dataclasses import dataclass

if TYPE_CHECKING:
    from tilelet.checks.boxes import Bits
    from tilelet.divergence.case import GoldenCase


@dataclass(frozen=True)
class GoldenComparison:
    """How the script compares the outputs with its golden.

    golden     the golden function, if any
    outputs    names of the parameters that may be compared
    marked     parameters that the script marks as outputs, which are always compared
    filled     parameters that the script initializes
    own        outputs compared by a function of the script
    judge      compares outputs as the script does: (actual, expected) by name -> passed
    case       creates the inputs and calls the golden, for checks that execute the program
    ignored    (arguments, elements by parameter) -> those that the golden does not write or the
               script's own comparison does not look at
    """

    rtol: float
    atol: float
    golden: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None
    case: Callable[[], GoldenCase] | None = None
    ignored: Callable[[Mapping[str, Any], Mapping[str, Bits]], Mapping[str, Bits]] | None = None
