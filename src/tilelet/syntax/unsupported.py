"""Names of the language that Tilelet knows but does not support, with their errors."""

from __future__ import annotations

from collections.abc import Callable

from tilelet.diag.catalogue.unsupported import (
    ExternalKernel,
    MxFormat,
    UnsupportedDType,
    UnsupportedOp,
)
from tilelet.diag.core import Loc, UserError

Error = Callable[[Loc, str], UserError]


def _op(instead: str = "") -> Error:
    return lambda loc, name: UnsupportedOp(loc, f"pl.{name}", instead)


def _mx(loc: Loc, name: str) -> UserError:
    return MxFormat(loc, f"pl.{name}")


def _dtype(loc: Loc, name: str) -> UserError:
    return UnsupportedDType(loc, f"pl.{name}")


def _extern(loc: Loc, name: str) -> UserError:
    return ExternalKernel(loc, f"pl.{name}")


UNSUPPORTED: dict[str, Error] = {
    "aiv_count": _op("pass the number of blocks as a constant"),
    # Block-scaled formats.
    "MX_A_ND": _mx,
    "HF4": _dtype,
    # Ops whose semantics are not settled, or that need memory placed by hand.
    "tile.view": _op("use `pl.slice`, `pl.reshape` or `pl.reinterpret_view`"),
    "alloc": _op("memory is placed by the plan of `tilelet check`; make tiles by `pl.create_tile`"),
    "extern": _extern,
}

_NAMESPACES = ("tensor.", "tile.", "system.")


def check(name: str, loc: Loc) -> None:
    """Raise the error for `name` ("tile.view", "alloc") if it is not supported."""
    error = _find(name)
    if error is not None:
        raise error(loc, name)


def _find(name: str) -> Error | None:
    for namespace in _NAMESPACES:
        short = name.removeprefix(namespace)
        if short in UNSUPPORTED:
            return UNSUPPORTED[short]
    return None
