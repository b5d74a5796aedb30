"""Tilelet: run, check and profile tile kernels written in the `pl` language, on any CPU.

Kernels import `tilelet.language as pl`; nothing heavy is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelet.runtime.profiling import profile as profile

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`tilelet.profile`, imported when it is first used."""
    if name == "profile":
        from tilelet.runtime.profiling import profile

        return profile
    raise AttributeError(f"module 'tilelet' has no attribute {name!r}")
