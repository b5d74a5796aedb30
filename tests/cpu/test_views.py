"""Views of views: a reshaped part of a tile begins where the part does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import agree, numbers
from tests.interp.build import Build, tensor

from tilelet.dtypes import FP32, INT32
from tilelet.ir.core import Value


@pytest.mark.parametrize(
    ("part", "shape"), [((1, 4), (4, 1)), ((1, 4), (2, 2)), ((2, 8), (4, 4)), ((4, 1), (1, 4))]
)
@pytest.mark.parametrize(
    ("op", "dtype", "more"), [("reshape", FP32, {}), ("reinterpret_view", INT32, {"dtype": INT32})]
)
def test_of_a_part_of_a_tile(
    op: str, dtype: Any, more: dict[str, Any], part: tuple[int, int], shape: tuple[int, int]
) -> None:
    b = Build()
    x, n = b.param("x", tensor([9, 8])), b.param("n", tensor([1], INT32))
    out, whole = b.param("out", tensor(shape, dtype)), b.param("whole", tensor([9, 8]))

    def body(s: Build) -> list[Value]:
        tile = s.op("neg", x=s.window(x, [9, 8], [0, 0]))
        at = s.op("read", x=n, indices=[0])
        piece = s.window(tile, part, [at, 0])
        view = s.op(op, x=piece, shape=shape, **more)
        return [s.put(out, view, [0, 0]), s.put(whole, tile, [0, 0])]

    b.scope(body)
    data = numbers(FP32, 9, 8, special=False)
    arrays = {"x": data, "n": np.array([3], np.int32), "whole": np.zeros_like(data)}
    found = agree(b.program(), **arrays, out=np.zeros(shape, np.int32 if more else np.float32))
    expected = -data[3 : 3 + part[0], : part[1]].copy()
    bits = expected.reshape(shape).view(np.int32)
    np.testing.assert_array_equal(found["out"].view(np.int32), bits)
