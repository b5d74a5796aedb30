"""What scripts of several ranks import, in terms of Tilelet."""

from __future__ import annotations

from typing import Any

from tilelet.runtime.programs.compiler import CompiledProgram

__all__ = ["DistributedCompiledProgram"]

DistributedCompiledProgram = CompiledProgram


def _tensor_from_continuous(tensor: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
    """An operand of a callback, which is a tensor already."""
    return tensor
