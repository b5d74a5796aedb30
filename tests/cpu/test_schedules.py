"""The same bits for any number of threads and any legal order of tasks."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import assert_same
from tests.interp.build import Build, ramp, tensor

from tilelet.cpu.run.engine import compile_native
from tilelet.dtypes import INT32
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

THREADS = (1, 2, 4, 8)
IN_ORDER = -1
SEEDS = (IN_ORDER, *range(20))


def check_schedules(
    program: Program, arguments: dict[str, Any], schedules: Iterable[tuple[int, int]]
) -> dict[str, Any]:
    """Run with each number of threads and seed; return the result, which must not vary."""
    native = compile_native(program)
    expected = copy.deepcopy(arguments)
    native.run(expected, 1, IN_ORDER)
    for threads, seed in schedules:
        given = copy.deepcopy(arguments)
        native.run(given, threads, seed)
        for name, array in expected.items():
            if isinstance(array, np.ndarray):
                assert_same(given[name], array, f"{name}, {threads} threads, seed {seed}")
    return expected


def _tangled() -> Program:
    """Tasks that access overlapping parts of three tensors, and memory of their own."""
    b = Build()
    x, y, z = (b.param(n, tensor([32, 16])) for n in ("x", "y", "z"))
    order = b.param("order", tensor([64], INT32))

    def iteration(s: Build, i: Value) -> list[Value]:
        at = s.op("read", x=order, indices=[i])
        half = s.op("scalar.floordiv", lhs=at, rhs=2)

        def mix(t: Build) -> list[Value]:
            a, b_ = t.window(x, [4, 16], [at, 0]), t.window(y, [4, 8], [half, 4])
            total = t.op("add", lhs=t.op("mul", lhs=a, rhs=0.5), rhs=t.op("row_sum", x=b_))
            return [t.put(y, t.window(total, [4, 8], [0, 4]), [at, 2])]

        def fold(t: Build) -> list[Value]:
            a, b_ = t.window(y, [4, 16], [half, 0]), t.window(z, [4, 16], [at, 0])
            return [t.op("sub", lhs=a, rhs=t.op("mul", lhs=b_, rhs=0.25))]

        s.scope(mix)
        (own,) = s.scope(fold)
        s.scope(lambda t: [t.put(x, t.window(own, [4, 8], [0, 0]), [half, 8])])
        s.scope(
            lambda t: [t.put(z, t.op("add", lhs=t.window(z, [2, 16], [at, 0]), rhs=1.0), [at, 0])]
        )
        return []

    b.for_(64, iteration)
    return run_passes(b.program())


@pytest.fixture(scope="module")
def tangled() -> Program:
    return _tangled()


def _arguments() -> dict[str, np.ndarray]:
    order = np.random.default_rng(5).integers(0, 28, 64).astype(np.int32)
    return {"x": ramp(32, 16), "y": -ramp(32, 16), "z": ramp(32, 16) * 3, "order": order}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("seed", SEEDS)
def test_same_bits(tangled: Program, threads: int, seed: int) -> None:
    expected = _arguments()
    Interpreter().run(tangled, expected)
    given = _arguments()
    compile_native(tangled).run(given, threads, seed)
    for name, array in expected.items():
        assert_same(given[name], array, name)
