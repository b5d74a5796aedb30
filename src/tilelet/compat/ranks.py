"""Names that scripts of several ranks import."""

from __future__ import annotations

from typing import Any

from tilelet.runtime.programs.compiler import CompiledProgram

__all__ = ["DistributedCompiledProgram"]

DistributedCompiledProgram = CompiledProgram


def _tensor_from_continuous(tensor: object) -> Any:  # pyright: ignore[reportUnusedFunction]
    """Return an operand of a callback, which already is a tensor."""
    return tensor
