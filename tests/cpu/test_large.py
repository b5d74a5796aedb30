"""Tensors larger than any cache, whose stores go past the caches: the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.interp.build import Build, tensor

from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.run.engine import compile_native
from tilelet.dtypes import BF16, FP32, DType
from tilelet.ir.core import Value
from tilelet.passes.pipeline import run_passes

ROWS, COLUMNS = 4096, 4100  # 64 MB of FP32, in rows that do not begin where cache lines do
TILE_ROWS, TILE_COLUMNS = 64, 1023


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_stores_past_the_caches(dtype: DType, threads: int) -> None:
    """y = 2 x + 1 in tiles at odd columns; columns that no tile covers keep what they had."""
    rows = ROWS * 4 // dtype.itemsize
    b = Build()
    x, y = (b.param(n, tensor([rows, COLUMNS], dtype)) for n in ("x", "y"))

    def iteration(s: Build, i: Value) -> list[Value]:
        for first in range(1, COLUMNS - TILE_COLUMNS, TILE_COLUMNS):

            def body(t: Build, column: int = first) -> list[Value]:
                tile = t.window(x, [TILE_ROWS, TILE_COLUMNS], [i, column])
                made = t.op("add", lhs=t.op("mul", lhs=tile, rhs=2.0), rhs=1.0)
                return [t.put(y, made, [i, column])]

            s.scope(body)
        return []

    b.for_(rows, iteration, step=TILE_ROWS)
    program = run_passes(b.program())
    assert "is_far" in "".join(emit_program(program).units)
    pattern = (np.arange(rows * COLUMNS, dtype=np.uint32) % 251).astype(dtype.numpy)
    given = {"x": pattern.reshape(rows, COLUMNS), "y": np.full((rows, COLUMNS), 7, dtype.numpy)}
    assert given["y"].nbytes >= 64 << 20
    compile_native(program).run(given, threads, -1)
    covered = slice(1, 1 + TILE_COLUMNS * 4)
    expected = (given["x"][:, covered].astype(np.float32) * 2 + 1).astype(dtype.numpy)
    assert np.array_equal(given["y"][:, covered], expected)
    assert (given["y"][:, 0] == 7).all()
    assert (given["y"][:, covered.stop :] == 7).all()
