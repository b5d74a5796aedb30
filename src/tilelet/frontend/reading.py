"""Meanings of ambiguous spellings."""

from __future__ import annotations

from tilelet.dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """One choice for every ambiguous spelling. The default is the language of today.

    swap_windows  a transposing load states the window of the transposed tensor
    whole_scopes  an auto scope is one kernel, whatever stands in it
    as_stored     a tensor declared `pl.DN` is taken as it lies in memory
    """

    swap_windows: bool = False
    whole_scopes: bool = False
    as_stored: bool = False


TODAY = Reading()
