"""Generated kernels: chains, loops, branches and partly valid tiles of random ops."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cpu.differential import agree, numbers
from tests.interp.build import Build, index, tensor

from tilelet.dtypes import BF16, FP16, FP32, INT32, DType
from tilelet.ir.core import Program, Value
from tilelet.ir.types import TileType

DTYPES = [FP32, BF16, FP16, INT32]
TWO = ["add", "sub", "mul", "maximum", "minimum"]
ONE = ["neg", "abs", "relu"]
ROWS = ["row_sum", "row_max", "row_min"]
COLUMNS = ["col_sum", "col_max"]


class Generator:
    """Draws one kernel. All tiles have the shape [m, n], or are vectors of it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.m = draw(st.integers(1, 9))
        self.n = draw(st.integers(1, 21))
        self.dtype: DType = draw(st.sampled_from(DTYPES))
        self.partial = draw(st.booleans())
        self.b = Build()
        self.rows, self.columns = (self.b.param(x, index()) for x in ("rows", "columns"))
        self.flag = self.b.param("flag", index())
        shape = [self.m, self.n]
        self.inputs = [self.b.param(f"x{i}", tensor(shape, self.dtype)) for i in range(2)]
        self.out = self.b.param("out", tensor(shape, self.dtype))
        self.row_out = self.b.param("row_out", tensor([self.m, 1], self.dtype))

    def pick(self, choices: list[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def load(self, s: Build) -> Value:
        x = self.pick(self.inputs)
        limits = [self.rows, self.columns] if self.partial else None
        return s.window(x, [self.m, self.n], [0, 0], valid_shape=limits)

    def step(self, s: Build, tiles: list[Value]) -> Value:
        """One more tile of the full shape."""
        kind = self.pick(["two", "two", "one", "number", "row", "col", "load", "cast", "write"])
        a, b = self.pick(tiles), self.pick(tiles)
        if kind == "two":
            return s.op(self.pick(TWO), lhs=a, rhs=b)
        if kind == "one":
            return s.op(self.pick(ONE), x=a)
        if kind == "number":
            return s.op(self.pick(TWO), lhs=a, rhs=self.pick([0, 1, 3, -2]))
        if kind == "row":
            return s.op(self.pick(TWO), lhs=a, rhs=s.op(self.pick(ROWS), x=b))
        if kind == "col":
            return s.op(self.pick(TWO), lhs=s.op(self.pick(COLUMNS), x=b), rhs=a)
        if kind == "cast":
            middle = s.op(
                "cast",
                x=a,
                target_type=self.pick(DTYPES),
                mode=self.pick(["rint", "round", "floor"]),
            )
            return s.op("cast", x=middle, target_type=self.dtype, mode="rint")
        if kind == "write" and not self.partial:
            small = s.window(b, [1, self.n], [self.m - 1, 0])
            return s.put(a, small, [0, 0])
        return self.load(s)

    def chain(self, s: Build, tiles: list[Value], length: int) -> list[Value]:
        for _ in range(length):
            tiles = [*tiles, self.step(s, tiles)]
        return tiles

    def body(self, s: Build) -> list[Value]:
        tiles = self.chain(s, [self.load(s)], self.draw(st.integers(1, 4)))
        if self.draw(st.booleans()):
            tiles = [*tiles, *self.loop(s, tiles)]
        if self.draw(st.booleans()):
            tiles = [*tiles, *self.branch(s, tiles)]
        tiles = self.chain(s, tiles, self.draw(st.integers(0, 3)))
        out = s.put(self.out, tiles[-1], [0, 0])
        if self.draw(st.booleans()):
            # Memory that was just written, and a load from before the write.
            again = s.window(self.out, [self.m, self.n], [0, 0])
            out = s.put(self.out, s.op("add", lhs=again, rhs=self.pick(tiles)), [0, 0])
        s.put(self.row_out, s.op("row_max", x=self.pick(tiles)), [0, 0])
        return [out]

    def loop(self, s: Build, tiles: list[Value]) -> Any:
        carried = [self.pick(tiles) for _ in range(self.draw(st.integers(1, 3)))]

        def iteration(t: Build, _: Value, *inside: Value) -> list[Value]:
            found = self.chain(t, [*tiles, *inside], self.draw(st.integers(1, 3)))
            return [self.pick([*inside, *found[-2:]]) for _ in inside]

        return s.for_(self.flag, iteration, carried)

    def branch(self, s: Build, tiles: list[Value]) -> Any:
        cond = s.op("scalar.gt", lhs=self.flag, rhs=1)
        return s.if_(cond, lambda t: [self.chain(t, tiles, 2)[-1]], lambda t: [self.pick(tiles)])

    def program(self) -> tuple[Program, dict[str, Any]]:
        self.b.scope(self.body)
        shape = (self.m, self.n)
        arguments: dict[str, Any] = {
            "rows": self.draw(st.integers(1, self.m)),
            "columns": self.draw(st.integers(1, self.n)),
            "flag": self.draw(st.integers(0, 3)),
            "out": numbers(self.dtype, *shape, seed=7, special=False),
            "row_out": numbers(self.dtype, self.m, 1, seed=7, special=False),
        }
        for i in range(2):
            arguments[f"x{i}"] = numbers(self.dtype, *shape, seed=i)
        return self.b.program(), arguments


# No shrinking: every step would compile another program.
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_generated_kernels(data: st.DataObject) -> None:
    program, arguments = Generator(data.draw).program()
    agree(program, **arguments)


def test_the_generator_makes_tiles() -> None:
    """Guards against a generator that draws only trivial programs."""
    assert TileType((1, 1), FP32) != TileType((1, 1), BF16)
    assert np.isnan(numbers(FP32, 9, 21)).any()


def test_through_integers_and_back() -> None:
    """Fused conversions to an integer and back: -0.3 becomes +0 (gcc makes it -0 if allowed to)."""
    for dtype in (FP32, BF16, FP16):
        b = Build()
        x, out = b.param("x", tensor([4, 33], dtype)), b.param("out", tensor([4, 33], dtype))

        def body(s: Build, x: Value = x, out: Value = out, dtype: DType = dtype) -> list[Value]:
            whole = s.op("cast", x=s.whole(x), target_type=INT32, mode="rint")
            return [s.put(out, s.op("cast", x=whole, target_type=dtype, mode="rint"), [0, 0])]

        b.scope(body)
        values = numbers(dtype, 4, 33, scale=0.4)
        agree(b.program(), x=values, out=np.zeros_like(values))
