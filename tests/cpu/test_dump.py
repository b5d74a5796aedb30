"""`pl.dump` and `pl.static_print`: printed by both engines alike."""

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.diag.core import UserErrors
from tilelet.runtime import RunConfig


@pl.jit
def noisy(
    x: pl.Tensor[[4, 8], pl.FP32], n: pl.Scalar[pl.INT32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]
):
    pl.static_print("compiling for", x, f"{2 + 3:03d}")
    pl.dump("begin", n, x)
    for r in pl.range(0, 4, 2):
        with pl.at(level=pl.Level.CORE_GROUP):
            tile = pl.add(x[r : r + 2, :], 1.0)
            pl.dump(r, tile)
            out[r : r + 2, :] = tile
    pl.dump(out, r + 1 if False else 7)
    return out


@pytest.mark.parametrize("engine", ["cpu", "interp"])
def test_what_is_printed(engine, capsys):
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    out = np.zeros_like(x)
    noisy(x, 5, out, config=RunConfig(engine=engine))
    np.testing.assert_array_equal(out, x + 1)
    lines = capsys.readouterr().out.splitlines()
    if lines[0].startswith("compiling"):  # printed only when it is compiled
        assert lines.pop(0) == "compiling for x: pl.Tensor[[4, 8], pl.FP32] 005"
    texts = [line for line in lines if line.startswith("  ")]
    assert texts == [
        "  begin",
        "  n = 5",
        "  x = float32[4, 8] [0, 1, 2, 3, ...] min 0 max 31",
        "  r = 0",
        "  tile = float32[2, 8] [1, 2, 3, 4, ...] min 1 max 16",
        "  r = 2",
        "  tile = float32[2, 8] [17, 18, 19, 20, ...] min 17 max 32",
        "  out = float32[4, 8] [1, 2, 3, 4, ...] min 1 max 32",
        "  r + 1 if False else 7 = 7",
    ]
    places = [line for line in lines if not line.startswith("  ")]
    assert all("test_dump.py:" in place for place in places)


@pytest.mark.parametrize("engine", ["cpu", "interp"])
def test_of_a_tile_its_valid_part_and_beside_products(engine, capsys):
    @pl.jit
    def product(
        a: pl.Tensor[[16, 32], pl.FP32],
        b: pl.Tensor[[32, 16], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            part = pl.slice(a, [16, 16], [0, 0], valid_shape=[3, 5])
            pl.dump(part)
            acc = pl.matmul(a[:, 0:16], b[0:16, :])
            for k in pl.range(16, 32, 16):
                pl.dump(k)
                acc = pl.matmul_acc(acc, a[:, k : k + 16], b[k : k + 16, :])
            pl.dump(acc)
            out[:, :] = acc
        return out

    a, b = np.ones((16, 32), np.float32), np.ones((32, 16), np.float32)
    out = product(a, b, config=RunConfig(engine=engine))
    np.testing.assert_array_equal(out, 32)
    texts = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert texts == [
        "  part = float32[3, 5] [1, 1, 1, 1, ...] min 1 max 1",
        "  k = 16",
        "  acc = float32[16, 16] [32, 32, 32, 32, ...] min 32 max 32",
    ]


def test_it_is_printed_in_every_warm_call(capsys):
    @pl.jit
    def one(x: pl.InOut[pl.Tensor[[4, 8], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            tile = pl.add(x[:, :], 1.0)
            pl.dump(tile)
            x[:, :] = tile
        return x

    x = np.zeros((4, 8), np.float32)
    for _ in range(5):
        one(x)
    texts = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert texts == [
        f"  tile = float32[4, 8] [{', '.join([str(k)] * 4)}, ...] min {k} max {k}"
        for k in range(1, 6)
    ]


def test_counting_prints_nothing_and_the_text_can_be_parsed_again(capsys):
    x = np.zeros((4, 8), np.float32)
    compiled = noisy.compile(x, 5, x)
    capsys.readouterr()
    assert compiled.task_counts({"x": x, "n": 5, "out": x}) == {"noisy_incore_0": 2}
    assert capsys.readouterr().out == ""
    text = compiled.as_python()
    assert "pl.dump(" in text
    pl.parse(text)


def test_what_cannot_be_printed():
    @pl.jit
    def wrong(x: pl.InOut[pl.Tensor[[4, 8], pl.FP32]]):
        pl.dump(pl.Level.CORE_GROUP)
        return x

    with pytest.raises(UserErrors, match="a tensor, a tile, a number or a text"):
        wrong(np.zeros((4, 8), np.float32))
