"""Views of the control program that reach past the end: nothing outside is accessed."""

from __future__ import annotations

import numpy as np
import pytest
from tests import everywhere
from tests.cpu.differential import agree, outcome
from tests.interp.build import Build, index, ramp, tensor

import tilelet.language as pl
from tilelet.analysis.overhang import may_overhang
from tilelet.cpu.run.engine import CpuEngine
from tilelet.dtypes import INT32
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes


@pl.jit
def sums_pages(
    pages: pl.Tensor[[32, 16], pl.FP32],
    table: pl.Tensor[[12], pl.INT32],
    count: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[4, 16], pl.FP32]],
):
    """Up to 8 pages of each table part; the last part has 4 entries only."""
    n = pl.read(count, [0])
    for part in pl.range(n):
        ids = pl.slice(table, [8], [part * 8])
        used = pl.min(8, 12 - part * 8)
        with pl.at(level=pl.Level.CORE_GROUP):
            total = pl.full([4, 16], dtype=pl.FP32, value=0.0)
            for i in pl.range(used):
                page = pl.read(ids, [i])
                total = pl.add(total, pages[page * 4 : page * 4 + 4, :])
            out[:, :] = pl.add(out[:, :], total)
    return out


def test_a_table_of_fixed_width_near_its_end() -> None:
    rng = np.random.default_rng(5)
    pages = rng.standard_normal((32, 16)).astype(np.float32)
    table = rng.integers(0, 8, 12).astype(np.int32)
    arguments = {"pages": pages, "table": table, "out": np.zeros((4, 16), np.float32)}
    found = everywhere.run(sums_pages, **arguments, count=np.array([2], np.int32))
    expected = pages.reshape(8, 4, 16)[table].sum(0)
    np.testing.assert_allclose(found["out"], expected, rtol=1e-5, atol=1e-5)
    # The third part starts at the end: it is empty, and nothing is read.
    behind = np.array([3], np.int32)
    found = everywhere.run(sums_pages, **arguments, count=behind)
    np.testing.assert_allclose(found["out"], expected, rtol=1e-5, atol=1e-5)


def _view(start: str, **more: object) -> tuple[Build, Value, Value, Value]:
    """A view of 4 of 16 rows, or the view of such a view."""
    b = Build()
    x, out = b.param("x", tensor([16, 8])), b.param("out", tensor([4, 8]))
    at = b.param("n", index())
    view = b.window(x, [8, 8], [at, 0], **more)
    if start == "twice":
        view = b.window(view, [4, 8], [at, 0])
    return b, view, out, at


def _loads(rows: int, **more: object) -> Program:
    b, view, out, _ = _view("once")

    def body(s: Build) -> list[Value]:
        return [s.put(out, s.window(view, [rows, 8], [0, 0], **more), [0, 0])]

    b.scope(body)
    return b.program()


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("n", [8, 9, 12, 13, 14, 15, 16, 17, 2**40])
def test_loads_of_what_is_there(rows: int, n: int) -> None:
    program = _loads(rows)
    _, error, _ = outcome(
        CpuEngine(), run_passes(program), {"x": ramp(16, 8), "out": ramp(4, 8), "n": n}
    )
    assert ("E0501" in error) == (n + rows > 16)
    agree(program, x=ramp(16, 8), out=ramp(4, 8), n=n)


@pytest.mark.parametrize("n", [12, 14, 16])
def test_what_limits_a_load_is_asked_of_the_load(n: int) -> None:
    cut = _loads(4, clamp=True)
    agree(cut, x=ramp(16, 8), out=ramp(4, 8), n=n)
    some = _loads(4, valid_shape=[2, 8])
    found = outcome(CpuEngine(), run_passes(some), {"x": ramp(16, 8), "out": ramp(4, 8), "n": n})
    assert ("E0501" in found[1]) == (n + 2 > 16)
    agree(some, x=ramp(16, 8), out=ramp(4, 8), n=n)


@pytest.mark.parametrize("n", [4, 6, 7, 8, 9])
def test_views_of_views_see_no_more(n: int) -> None:
    b, view, out, _ = _view("twice")
    b.scope(lambda s: [s.put(out, s.window(view, [2, 8], [0, 0]), [0, 0])])
    agree(b.program(), x=ramp(16, 8), out=ramp(4, 8), n=n)
    b, view, out, _ = _view("twice", clamp=True)
    b.scope(lambda s: [s.put(out, s.whole(view), [0, 0])])
    agree(b.program(), x=ramp(16, 8), out=ramp(4, 8), n=n)


@pytest.mark.parametrize("n", [8, 12, 15, 20])
def test_stores_through_such_a_view(n: int) -> None:
    b, view, out, _ = _view("once")
    b.scope(lambda s: [s.put(view, s.window(out, [2, 8], [0, 0]), [1, 0])])
    program = b.program()
    arguments = {"x": ramp(16, 8), "out": -ramp(4, 8), "n": n}
    _, error, _ = outcome(CpuEngine(), run_passes(program), dict(arguments))
    assert ("E0501" in error) == (n + 3 > 16)
    agree(program, **arguments)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_single_elements(n: int) -> None:
    b = Build()
    x, out = b.param("x", tensor([10], INT32)), b.param("out", tensor([1], INT32))
    view = b.window(x, [8], [b.param("n", index())])
    b.op("write", x=out, indices=[0], value=b.op("read", x=view, indices=[5]))
    program, given = b.program(), {"x": np.arange(10, dtype=np.int32), "n": n}
    _, error, _ = outcome(CpuEngine(), run_passes(program), {**given, "out": np.zeros(1, np.int32)})
    assert ("E0503" in error) == (n + 5 >= 10)
    agree(program, **given, out=np.zeros(1, np.int32))


def test_the_message_says_how_much_there_is() -> None:
    given = {"x": ramp(16, 8), "out": ramp(4, 8), "n": 13}
    _, error, _ = outcome(CpuEngine(), run_passes(_loads(4)), given)
    assert "a view of `x` that extends past its end: only 3 of its 8 exist" in error


@pl.jit
def assembles_past_the_end(
    x: pl.Tensor[[4, 16], pl.FP32],
    at: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
):
    n = pl.read(at, [0])
    part = pl.create_tensor([8, 16], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        part = pl.assemble(part, pl.exp(x[:, :]), [0, 0])
    out = pl.assemble(out, part, [n, 0])
    return out


def test_what_is_assembled_has_to_fit() -> None:
    """The check applies even where the producer writes only existing rows."""
    one = np.ones(1, np.int32)
    given = {"x": np.zeros((4, 16), np.float32), "out": np.zeros((16, 16), np.float32)}
    program = assembles_past_the_end.specialize(given["x"], one, given["out"])
    _, error, _ = outcome(CpuEngine(), run_passes(program), {**given, "at": 12 * one})
    assert "E0501" in error
    assert "window 12:20" in error


@pytest.mark.parametrize(("stop", "certain"), [(4, True), (5, False)])
def test_what_loops_stay_inside_of_is_certain(stop: int, certain: bool) -> None:
    b = Build()
    x = b.param("x", tensor([16, 8]))

    def body(s: Build, i: Value) -> list[Value]:
        s.window(x, [4, 8], [s.op("scalar.mul", lhs=i, rhs=4), 0])
        return []

    b.for_(stop, body)
    assert may_overhang(b.program().main) is not certain
