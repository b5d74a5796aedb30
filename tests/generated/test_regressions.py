"""Bugs that generated kernels found, each with the smallest program that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels import lowered, round_trip, run

import tilelet.language as pl

X = np.arange(64, dtype=np.float32).reshape(8, 8) - 30
N = np.array([[3]], np.int32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pl.jit.incore
def shifted(x: pl.Tensor, n: pl.Scalar[pl.INDEX], s: pl.Scalar[pl.FP32], out: pl.Out[pl.Tensor]):
    t = pl.slice(x, [4, 8], [n, 0])
    if s == 0.1:
        t = pl.neg(t)
    out[:] = t
    return out


@pl.jit
def passes_scalars(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[4, 8], pl.FP32]],
):
    out = shifted(x, pl.read(n, [0, 0]), 0.1, out)
    return out


def test_a_kernel_gets_scalars_of_the_declared_type() -> None:
    result = run(passes_scalars, x=X, n=N, out=zeros(4, 8))
    np.testing.assert_array_equal(result["out"], -X[3:7])


@pl.jit
def never_written(
    x: pl.Tensor[[8, 8], pl.FP32],
    first: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
    other: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        first[:] = pl.neg(x)
    for _ in pl.range(4, 4):
        with pl.at(level=pl.Level.CORE_GROUP):
            other[:] = pl.abs(x)
    return first


def test_a_printed_program_may_have_lost_a_write_that_never_runs() -> None:
    program = lowered(never_written.specialize())
    round_trip(program)
    assert [op.args["callee"] for op in program.main.body.ops if op.name == "call"] == [
        "never_written_incore_0"
    ]


@pl.jit
def window_in_a_branch(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    if pl.read(n, [0, 0]) > 2:
        for r in pl.range(0, 8, 4):
            with pl.at(level=pl.Level.CORE_GROUP):
                y = pl.mul(pl.slice(x, [4, 8], [r, 0]), 2.0)
            out = pl.assemble(out, y, [r, 0])
    return out


def test_a_branch_that_hands_on_the_same_value_either_way_has_no_result() -> None:
    run(window_in_a_branch, x=X, n=N, out=zeros(8, 8))
    program = lowered(window_in_a_branch.specialize())
    round_trip(program)
    branches = [op for op in program.main.body.ops if op.name == "if"]
    assert [op.results for op in branches] == [()]


@pl.jit
def signed_zeros(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        if pl.read(n, [0, 0]) == 3:
            zero = -0.0
        else:
            zero = 0.0
        out[:] = pl.expands(x, zero)
    return out


def test_two_zeros_are_two_constants() -> None:
    result = run(signed_zeros, x=X, n=N, out=zeros(8, 8))
    assert np.all(np.signbit(result["out"]))
    result = run(signed_zeros, x=X, n=N + 1, out=zeros(8, 8))
    assert not np.any(np.signbit(result["out"]))


@pl.jit
def adds_zero(x: pl.Tensor[[8, 8], pl.FP32], out: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = pl.expands(x, x[0, 0] + 0.0)
    return out


def test_adding_zero_to_a_float_is_not_nothing() -> None:
    x = np.full((8, 8), -0.0, np.float32)
    assert not np.any(np.signbit(run(adds_zero, x=x, out=zeros(8, 8))["out"]))


@pl.jit
def float_literals(x: pl.Tensor[[8, 8], pl.FP32], out: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.expands(x, x[0, 0] * 0.1)
        if x[0, 1] == 0.1:
            t = pl.neg(t)
        limit = 0.1
        for i in pl.range(2):
            if x[0, 1] == limit:
                t = pl.write(t, [0, i], 7.0)
            limit = limit * 1.0
        out[:] = t
    return out


def test_a_literal_beside_a_scalar_has_its_type() -> None:
    x = np.full((8, 8), 3.3, np.float32)
    x[0, 1] = 0.1
    result = run(float_literals, x=x, out=zeros(8, 8))["out"]
    assert result[1, 1] == -(np.float32(3.3) * np.float32(0.1))
    assert list(result[0, :2]) == [7, 7]


@pl.jit
def constant_start(x: pl.Tensor[[8, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        start = pl.const(2, pl.INDEX)
        out[:] = pl.neg(x[start : start + 4, :])
    return out


def test_the_length_of_a_window_from_a_pinned_constant_is_constant() -> None:
    result = run(constant_start, x=X, out=zeros(4, 8))
    np.testing.assert_array_equal(result["out"], -X[2:6])


@pl.jit
def rebinds_a_carried_name(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        for i, (acc,) in pl.range(3, init_values=(pl.neg(x),)):
            total = pl.yield_(pl.add(acc, 1.0))
            if pl.read(n, [0, 0]) > i:
                acc = pl.abs(acc)
        out[:] = total
    return out


@pl.jit
def unrolled_branches(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.neg(x)
        for i in pl.unroll(3):
            out[:] = pl.add(t, 1.0)
            if pl.read(n, [0, 0]) > i:
                t = pl.abs(t)
    return out


@pytest.mark.parametrize("kernel", [rebinds_a_carried_name, unrolled_branches])
def test_results_that_nothing_reads_are_not_made(kernel: Any) -> None:
    round_trip(kernel.specialize())
    run(kernel, x=X, n=N, out=zeros(8, 8))


@pl.jit
def joins_two_spaces(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.matmul_acc(x[:, :], pl.load(x, [0, 0], [8, 8]), x[:, :])
        if pl.read(n, [0, 0]) > 2:
            acc = pl.neg(acc)
        out[:] = acc
    return out


@pl.jit
def carries_two_spaces(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.matmul_acc(x[:, :], pl.load(x, [0, 0], [8, 8]), x[:, :])
        left = pl.read(n, [0, 0])
        while left > 2:
            acc = pl.neg(acc)
            left = left - 1
        out[:] = acc
    return out


@pytest.mark.parametrize("kernel", [joins_two_spaces, carries_two_spaces])
def test_a_name_may_stand_for_tiles_of_two_memories(kernel: Any) -> None:
    """A product in Acc on one path, its negative in Vec on the other."""
    result = run(kernel, x=X, n=N, out=zeros(8, 8))
    np.testing.assert_array_equal(result["out"], -(X + X @ X))


@pl.jit
def joined_before_copies(
    x: pl.Tensor[[8, 8], pl.FP32],
    n: pl.Tensor[[1, 1], pl.INT32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    k = pl.cast(pl.read(n, [0, 0]), pl.INDEX)
    if k > 2:
        m = k + 1
    else:
        m = k + 2
    for i in pl.unroll(2):
        m = k * i
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i : i + 1, :] = x[m : m + 1, :]
    with pl.at(level=pl.Level.CORE_GROUP):
        out[m : m + 1, :] = x[0:1, :]
    return out


STATIC = True


@pl.jit
def leaves_before_a_decided_branch(
    x: pl.Tensor[[8, 8], pl.FP32],
    out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.neg(x)
        out[:] = t
    if STATIC:
        with pl.at(level=pl.Level.CORE_GROUP):
            t = pl.abs(x)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:1, :] = t[0:1, :]
    return out


def test_what_no_copy_of_a_loop_reads_is_not_handed_on() -> None:
    """The printed copies show that `m` of the branch is not read, but that of the loop is."""
    program = joined_before_copies.specialize()
    round_trip(program)
    run(program, x=X, n=N, out=zeros(8, 8))


def test_what_no_taken_branch_reads_does_not_leave_its_scope() -> None:
    program = leaves_before_a_decided_branch.specialize()
    round_trip(program)
    kernel = next(iter(lowered(program).kernels))
    assert [p.name for p in kernel.params] == ["x", "out"]  # `t` is not spilled
    run(program, x=X, out=zeros(8, 8))
