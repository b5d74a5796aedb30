"""August 2026 style: kernels called with tensors, compiled programs reused, programs printed."""

import pypto.language as pl
import torch
from pypto import ir
from pypto.runtime import RunConfig, run


@pl.jit
def add(a: pl.Tensor, b: pl.Tensor, c: pl.Out[pl.Tensor]):
    m, n = a.shape
    for r in pl.range(0, m, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            c[r : r + 16, 0:n] = pl.add(a[r : r + 16, 0:n], b[r : r + 16, 0:n])
    return c


@pl.program
class Add:
    @pl.function(type=pl.FunctionType.InCore)
    def tile_add(
        self,
        a: pl.Tensor[[32, 32], pl.FP32],
        b: pl.Tensor[[32, 32], pl.FP32],
        c: pl.Out[pl.Tensor[[32, 32], pl.FP32]],
    ) -> pl.Tensor[[32, 32], pl.FP32]:
        ta = pl.load(a, [0, 0], [32, 32])
        tb = pl.load(b, [0, 0], [32, 32])
        return pl.store(pl.add(ta, tb), [0, 0], c)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        a: pl.Tensor[[32, 32], pl.FP32],
        b: pl.Tensor[[32, 32], pl.FP32],
        c: pl.Out[pl.Tensor[[32, 32], pl.FP32]],
    ) -> pl.Tensor[[32, 32], pl.FP32]:
        c = self.tile_add(a, b, c)
        return c


def main() -> None:
    torch.manual_seed(0)
    config = RunConfig(platform="a2a3sim")
    for rows in (32, 64):
        a, b = torch.randn(rows, 48), torch.randn(rows, 48)
        c = torch.zeros(rows, 48)
        add(a, b, c, config=config)
        assert torch.equal(c, a + b)

    lowered = add.lower(a, b, c)
    assert lowered.get_function(lowered.entry) is not None
    compiled = add.compile(a, b, c, config=config)
    again = torch.zeros(64, 48)
    compiled(a, b, again)
    assert torch.equal(again, c)
    assert compiled.output_indices == [2]

    x, y, z = torch.randn(32, 32), torch.randn(32, 32), torch.zeros(32, 32)
    compiled = run(Add, x, y, z, config=config)
    assert torch.equal(z, x + y)
    z.zero_()
    compiled(x, y, z)
    assert torch.equal(z, x + y)
    assert torch.equal(compiled(x, y), x + y)
    z.zero_()
    ir.compile(Add, platform="a2a3sim")(x, y, z, config=config)
    assert torch.equal(z, x + y)
    assert set(Add.functions) == {"tile_add", "main"}
    assert pl.parse(Add.as_python()).as_python() == Add.as_python()
    print("OK")


if __name__ == "__main__":
    main()
