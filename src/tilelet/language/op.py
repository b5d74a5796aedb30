"""`pl.op`: ops under the names that the first programs of the language use.

`pl.op.tensor.add`, `pl.op.block.load`, and `pl.op.add` for today's `pl.add`.
"""

# The names of this module are its interface.
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
