"""Ops as the first programs of the language name them.

`pl.op.tensor.add`, `pl.op.block.load`, and `pl.op.add` for what is now `pl.add`.
"""

# Names of this module are its surface, as those of the package.
# ruff: noqa: PLC0414
from __future__ import annotations

import sys
from typing import Any

from tilelet.language import block as block
from tilelet.language import tensor as tensor
from tilelet.language import tile as tile


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(sys.modules["tilelet.language"], name)
