"""Ops as the first programs of the language name them: `pl.op.tensor.add`, `pl.op.block.load`."""

# Names of this module are its surface, as those of the package.
# ruff: noqa: F401, PLC0414
from tilelet.language import tensor as tensor
from tilelet.language import tile as block
from tilelet.language import tile as tile
