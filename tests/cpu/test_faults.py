"""No program can crash the process; errors and their places are the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.differential import agree, outcome
from tests.interp.build import Build, index, ramp, tensor

import tilelet.language as pl
from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag.core import UserError
from tilelet.dtypes import INT32
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

HUGE = [-1, -(2**62), 2**62, 2**63 - 1, -(2**63), 13]


def _copy_rows(in_kernel: bool) -> Program:
    """Return `out[0:4] = x[n:n+4]`, with the window taken in the kernel or the control program."""
    b = Build()
    x, out = b.param("x", tensor([16, 8])), b.param("out", tensor([4, 8]))
    n = b.param("n", index())
    part = None if in_kernel else b.window(x, [4, 8], [n, 0])

    def body(s: Build) -> list[Value]:
        tile = s.window(x, [4, 8], [n, 0]) if part is None else s.whole(part)
        return [s.put(out, tile, [0, 0])]

    b.scope(body)
    return b.program()


@pytest.mark.parametrize("in_kernel", [True, False])
def test_window_outside(in_kernel: bool) -> None:
    program = _copy_rows(in_kernel)
    for n in HUGE:
        _, error, _ = outcome(
            CpuEngine(), run_passes(program), {"x": ramp(16, 8), "out": ramp(4, 8), "n": n}
        )
        assert "E0501" in error
        agree(program, x=ramp(16, 8), out=ramp(4, 8), n=n)


@pytest.mark.parametrize("place", ["kernel", "tile", "valid"])
def test_what_nothing_reads_is_still_outside(place: str) -> None:
    """Windows and valid regions that were dropped unread used to be accepted.

    Only views of the control program may reach past the end: see test_overhang.
    """
    b = Build()
    x, out, n = (
        b.param("x", tensor([16, 8])),
        b.param("out", tensor([16, 8])),
        b.param("n", index()),
    )

    def body(s: Build) -> list[Value]:
        tile = s.whole(x)
        if place == "kernel":
            s.window(x, [4, 8], [n, 0])
        elif place == "tile":
            s.op("slice", x=tile, shape=[4, 8], offset=[n, 0])
        elif place == "valid":
            s.op("set_validshape", x=tile, rows=s.op("scalar.add", lhs=n, rhs=4), cols=8)
        return [s.put(out, tile, [0, 0])]

    b.scope(body)
    program = b.program()
    for n_ in (12, 13, 2**40):
        arguments = {"x": ramp(16, 8), "out": ramp(16, 8), "n": n_}
        _, error, _ = outcome(CpuEngine(), run_passes(program), arguments)
        assert bool(error) == (n_ > 12)
        agree(program, **arguments)


def test_store_outside() -> None:
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([16, 8]))
    n = b.param("n", index())
    b.scope(lambda s: [s.put(out, s.whole(x), [n, 0])])
    program = b.program()
    for value in HUGE:
        agree(program, x=ramp(4, 8), out=ramp(16, 8), n=value)


@pytest.mark.parametrize("value", [-1, 5, 2**40])
def test_valid_extent_too_large(value: int) -> None:
    b = Build()
    x, out = b.param("x", tensor([16, 8])), b.param("out", tensor([4, 8]))
    n = b.param("n", index())
    b.scope(lambda s: [s.put(out, s.window(x, [4, 8], [0, 0], valid_shape=[n, 8]), [0, 0])])
    agree(b.program(), x=ramp(16, 8), out=ramp(4, 8), n=value)


@pytest.mark.parametrize("in_kernel", [True, False])
@pytest.mark.parametrize("value", [-1, 8, 2**62])
def test_element_outside(in_kernel: bool, value: int) -> None:
    b = Build()
    x, n = b.param("x", tensor([8], INT32)), b.param("n", index())

    def body(s: Build) -> list[Value]:
        return [s.op("write", x=x, indices=[0], value=s.op("read", x=x, indices=[n]))]

    if in_kernel:
        b.scope(body)
    else:
        body(b)
    agree(b.program(), x=ramp(8, dtype=INT32), n=value)


@pytest.mark.parametrize("op", ["scalar.floordiv", "scalar.mod"])
@pytest.mark.parametrize("in_kernel", [True, False])
def test_division_by_zero(op: str, in_kernel: bool) -> None:
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())
    row = None if in_kernel else b.op(op, lhs=4, rhs=n)
    b.scope(lambda s: [s.put(x, s.window(x, [1, 8], [0, 0]), [row or s.op(op, lhs=4, rhs=n), 0])])
    agree(b.program(), x=ramp(4, 8), n=0)


@pytest.mark.parametrize("in_kernel", [True, False])
def test_step_of_zero(in_kernel: bool) -> None:
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())

    def loop(s: Build) -> list[Value]:
        s.for_(4, lambda t, i: [], step=n)
        return []

    if in_kernel:
        b.scope(lambda s: [*loop(s), s.put(x, s.whole(x), [0, 0])])
    else:
        loop(b)
    agree(b.program(), x=ramp(4, 8), n=0)


def test_memory_that_nobody_has() -> None:
    b = Build()
    n = b.param("n", index())
    x = b.param("x", tensor([4, 8]))
    big = b.op("create_tensor", shape=[n, 8], dtype=x.type.dtype)
    b.scope(lambda s: [s.put(x, s.window(big, [4, 8], [0, 0]), [0, 0])])
    program = b.program()
    for rows in (0, -3):
        agree(program, x=ramp(4, 8), n=rows)
    for rows in (2**40, 2**62, 2**63 - 1):
        _, error, _ = outcome(CpuEngine(), run_passes(program), {"x": ramp(4, 8), "n": rows})
        assert "E0607" in error


def test_empty_region_has_no_maximum() -> None:
    b = Build()
    x, out, n = b.param("x", tensor([4, 8])), b.param("out", tensor([4, 1])), b.param("n", index())
    b.scope(
        lambda s: [
            s.put(out, s.op("row_max", x=s.window(x, [4, 8], [0, 0], valid_shape=[4, n])), [0, 0])
        ]
    )
    program = b.program()
    for value in (0, 3):
        agree(program, x=ramp(4, 8), out=np.zeros((4, 1), np.float32), n=value)


def test_index_in_data_outside() -> None:
    b = Build()
    x, at = b.param("x", tensor([4, 8])), b.param("at", tensor([4, 8], INT32))
    b.scope(lambda s: [s.put(x, s.op("gather", x=s.whole(x), dim=-1, index=s.whole(at)), [0, 0])])
    agree(b.program(), x=ramp(4, 8), at=np.full((4, 8), 8, np.int32))


@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_first_fault_in_program_order_counts(
    threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of many tasks fail, and then the control program: the earliest fault is reported."""
    monkeypatch.setenv("TILELET_THREADS", threads)
    b = Build()
    x, limits = b.param("x", tensor([64, 8])), b.param("limits", tensor([64], INT32))

    def iteration(s: Build, i: Value) -> list[Value]:
        n = s.op("read", x=limits, indices=[i])
        s.scope(lambda t: [t.put(x, t.window(x, [1, 8], [n, 0]), [i, 0])])
        return []

    b.for_(64, iteration)
    b.op("read", x=limits, indices=[b.op("scalar.add", lhs=b.param("n", index()), rhs=64)])
    rows = np.arange(64, dtype=np.int32)
    rows[[20, 40]] = 70, 80
    agree(b.program(), x=ramp(64, 8), limits=rows, n=0)


def test_no_task_runs_after_a_fault_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that the thread took together with the failing one do not run either."""
    b = Build()
    x, out = b.param("x", tensor([104, 8])), b.param("out", tensor([100, 8]))
    starts = b.param("starts", tensor([100], INT32))

    def iteration(s: Build, i: Value) -> list[Value]:
        def body(t: Build) -> list[Value]:
            start = t.op("read", x=starts, indices=[i])
            return [t.put(out, t.window(x, [1, 8], [start, 0]), [i, 0])]

        s.scope(body)
        return []

    b.for_(100, iteration)
    monkeypatch.setenv("TILELET_THREADS", "1")
    program = run_passes(b.program())
    for fault in range(20, 40):
        first = np.arange(100, dtype=np.int32)
        first[fault] = 104
        arguments = {"x": ramp(104, 8) + 1, "out": np.zeros((100, 8), np.float32), "starts": first}
        with pytest.raises(UserError, match="E0501"):
            CpuEngine().run(program, arguments)
        assert (arguments["out"].any(1) == (np.arange(100) < fault)).all()


def test_seven_axes_are_refused() -> None:
    b = Build()
    x = b.param("x", tensor([1] * 7))
    b.scope(lambda s: [s.put(x, s.whole(x), [0] * 7)])
    _, error, _ = outcome(CpuEngine(), run_passes(b.program()), {"x": ramp(*[1] * 7)})
    assert "E0801" in error
    assert "7 axes" in error


@pl.jit
def launches(n: pl.Scalar[pl.UINT64], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    for i in pl.spmd(n):
        out[i : i + 2, :] = pl.full([2, 8], dtype=pl.FP32, value=1.0)
    return out


@pytest.mark.parametrize(("count", "code"), [(0, "E0513"), (2**63, "E0501"), (2**64 - 1, "E0501")])
def test_a_launch_of_more_blocks_than_an_index_counts(count: int, code: str) -> None:
    """No block ran natively."""
    program = launches.specialize(count, ramp(4, 8))
    arguments = {"n": count, "out": ramp(4, 8)}
    _, error, _ = outcome(CpuEngine(), run_passes(program), arguments)
    assert code in error
    agree(program, **arguments)


@pl.jit
def past_a_temporary(n: pl.Scalar[pl.INDEX], out: pl.InOut[pl.Tensor[[4, 8], pl.FP32]]):
    made = pl.create_tensor([4, 8], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        made[:, :] = pl.mul(out[:, :], 2.0)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = made[n : n + 4, :]
    return out


def test_a_window_outside_a_temporary_says_where_it_is_created() -> None:
    program = past_a_temporary.specialize(1, ramp(4, 8))
    _, error, _ = outcome(CpuEngine(), run_passes(program), {"n": 1, "out": ramp(4, 8)})
    assert "`made` is created here" in error
    agree(program, n=1, out=ramp(4, 8))


@pytest.mark.parametrize("side", ["lhs", "rhs"])
@pytest.mark.parametrize("accumulates", [False, True])
def test_products_of_a_partially_valid_batch(side: str, accumulates: bool) -> None:
    """They used to be products of the valid part, without the interpreter's error."""
    b = Build()
    x, out = b.param("x", tensor([2, 8, 8])), b.param("out", tensor([2, 8, 8]))
    n = b.param("n", index())

    def body(s: Build) -> list[Value]:
        part = s.window(x, [2, 8, 8], [0, 0, 0], valid_shape=[n, 8, 8])
        other = s.window(x, [2, 8, 8], [0, 0, 0])
        lhs, rhs = (part, other) if side == "lhs" else (other, part)
        if accumulates:
            acc = s.window(out, [2, 8, 8], [0, 0, 0])
            product = s.op("matmul_acc", acc=acc, lhs=lhs, rhs=rhs)
        else:
            product = s.op("matmul", lhs=lhs, rhs=rhs)
        return [s.put(out, product, [0, 0, 0])]

    b.scope(body)
    program = b.program()
    for valid in (1, 2):
        arguments = {"x": ramp(2, 8, 8), "out": ramp(2, 8, 8), "n": valid}
        _, error, _ = outcome(CpuEngine(), run_passes(program), arguments)
        assert ("E0510" in str(error)) == (valid < 2)
        agree(program, **arguments)
