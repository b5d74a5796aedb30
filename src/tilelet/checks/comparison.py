"""What a check has to know of the script's own comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelet.divergence.locate import Case


@dataclass(frozen=True)
class Comparison:
    """How the script compares the outputs with its golden.

    golden   the function; None if there is none
    outputs  names of what may be compared
    marked   parameters that the script calls outputs: compared in any case
    filled   parameters that start with data of the script
    own      those of them that a function of the script's own compares
    judge    compares outputs as the script does: (actual, expected) by name -> passed
    case     makes the inputs and calls the golden, for those who execute the program themselves
    """

    rtol: float
    atol: float
    golden: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    judge: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None
    case: Callable[[], Case] | None = None
