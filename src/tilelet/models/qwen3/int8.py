"""Layer matrices in INT8: each column, the weights of one output, has its own scale.

A column's scale is its largest magnitude divided by 127, so that every weight is within half a
scale of its value. The scales, in FP32, are the bytes of `FACTOR_ROWS` additional rows below the
numbers: one array holds both, and programs take the scales from it as a view (`make_matrix` in
published.py). In a matrix stored in blocks of columns every block has its scales below it.

Norms, the router of a mixture of experts, the embedding and the output head are unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tilelet import dtypes
from tilelet.diag.catalogue.models import BadTile
from tilelet.dtypes import Array
from tilelet.models.qwen3.published import FACTOR_ROWS
from tilelet.models.qwen3.weights import ROUTER, LayerArray, column_blocks

LARGEST = 127
# Outputs converted at a time.
_BLOCK = 256


def in_int8(arrays: Mapping[str, LayerArray]) -> dict[str, LayerArray]:
    """Return the same arrays with the matrices in INT8."""
    return {name: _convert_array(name, array) for name, array in arrays.items()}


def _convert_array(name: str, array: LayerArray) -> LayerArray:
    if array.dtype is not None or name == ROUTER:
        return array
    rows, columns = array.shape
    inputs = array.stored[1]
    if inputs * columns % FACTOR_ROWS:
        raise BadTile("the product of a matrix's sizes", inputs * columns, "a multiple of 4")
    shape = (rows + rows // inputs * FACTOR_ROWS, columns)
    return dataclasses.replace(array, shape=shape, dtype=dtypes.INT8, fill=fill_int8)


def fill_int8(out: Array, stored: Sequence[Array]) -> None:
    """Store matrices `[out, in]` as `[in, out]` with their scales, one below the other."""
    rows = len(out) // len(stored)
    for i, piece in enumerate(stored):
        for part, outputs in column_blocks(out[i * rows : (i + 1) * rows], piece):
            _fill_block(part, outputs)


def _fill_block(out: Array, stored: Array) -> None:
    numbers, factors = out[:-FACTOR_ROWS], out[-FACTOR_ROWS:].reshape(-1).view(np.float32)
    for r in range(0, len(stored), _BLOCK):
        block = stored[r : r + _BLOCK].astype(np.float32)
        scale = np.abs(block).max(axis=1) / np.float32(LARGEST)
        factors[r : r + _BLOCK] = scale
        scale[scale == 0] = 1  # a column of zeros
        numbers[:, r : r + _BLOCK] = np.rint(block / scale[:, None]).T
