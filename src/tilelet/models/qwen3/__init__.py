"""Qwen3 as tile programs: layers from the naive versions of April 2026 to fast ones, and whole
models from a checkpoint to tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tilelet.models.qwen3.model import Model


def load(directory: str | Path, **options: Any) -> Model:
    """Load the model in a directory; `options` are those of `tilelet.models.qwen3.model.load`."""
    from tilelet.models.qwen3 import model

    return model.load(directory, **options)
