"""All evaluators of scalars agree with `ops/scalar.py` on generated expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.recording import recorded
from tests.interp.build import Build, tensor

import tilelet.language as pl
from tilelet.analysis.affine import affine_of
from tilelet.analysis.intervals import Intervals
from tilelet.analysis.scalars import ScalarValues, binary_column, fast_binary
from tilelet.device import load_machine, simulate
from tilelet.diag.core import UserError
from tilelet.dtypes import BOOL, INDEX, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, DType
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Function, Op, Value
from tilelet.ir.fold import evaluate
from tilelet.ir.types import ScalarType

DTYPES = (INDEX, INT64, INT32, INT16, INT8, UINT8, UINT16, UINT32)
ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "shl", "shr")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def numbers(dtype: DType) -> st.SearchStrategy[int]:
    low, high = dtype.limits
    edges = [low, low + 1, -8, -3, -1, 0, 1, 2, 3, 7, 64, high - 1, high]
    near = st.sampled_from([n for n in edges if low <= n <= high])
    return near | st.integers(max(low, -40), min(high, 40)) | st.integers(low, high)


@st.composite
def chains(draw: st.DrawFn) -> tuple[DType, list[int], list[tuple[str, int, int | None]]]:
    """Draw ops on operands of one type and earlier results: (op, left, right or a constant)."""
    dtype = draw(st.sampled_from(DTYPES))
    given_ = draw(st.lists(numbers(dtype), min_size=2, max_size=3))
    ops: list[tuple[str, int, int | None]] = []
    for made in range(len(given_), len(given_) + draw(st.integers(1, 5))):
        name = draw(st.sampled_from(ARITHMETIC))
        right = draw(st.none() | st.integers(0, made - 1))
        ops.append((name, draw(st.integers(0, made - 1)), right))
    return dtype, given_, ops


def kernel(
    dtype: DType, count: int, ops: list[tuple[str, int, int | None]], constants: list[int]
) -> tuple[Function, list[Op]]:
    b = Build()
    values: list[Any] = [b.param(f"s{i}", ScalarType(dtype)) for i in range(count)]
    for (name, left, right), constant in zip(ops, constants):
        rhs: Any = values[right] if right is not None else constant
        values.append(b.op(f"scalar.{name}", lhs=values[left], rhs=rhs))
    out = b.param("out", tensor([1]))
    b.scope(lambda s: [s.put(out, s.op("full", shape=[1, 1], dtype=pl.FP32, value=0.0), [0])])
    function = b.program().functions["main"]
    return function, [o for o in function.body.ops if o.name.startswith("scalar.")]


def by_reference(ops: list[Op], values: dict[Value, Any]) -> bool:
    """Evaluate the ops by their definitions into `values`; return False if one is undefined."""
    for op in ops:
        operands = [values[a] if isinstance(a, Value) else a for a in op.args.values()]
        assert isinstance(op.result.type, ScalarType)
        try:
            values[op.result] = evaluate(op.spec, operands, op.result.type.dtype)
        except UserError:
            return False
    return True


@settings(max_examples=400)
@given(chains(), st.data())
def test_evaluators_agree_with_the_definition(chain: Any, data: st.DataObject) -> None:
    dtype, given_, steps = chain
    constants = [data.draw(numbers(dtype)) for _ in steps]
    function, ops = kernel(dtype, len(given_), steps, constants)
    params = function.params[: len(given_)]
    expected: dict[Value, Any] = dict(zip(params, given_))
    defined = by_reference(ops, expected)

    values = ScalarValues(dict(zip(params, given_)))
    intervals = Intervals(tuple(params))
    definition = {o.result: o for o in ops}
    for op in ops:
        values.bind(op)
        intervals.bind(op)
    for op in ops:
        wanted = expected.get(op.result)
        if wanted is None:
            continue
        assert values.get(op.result) == wanted
        interval = intervals.get(op.result)
        if interval is not None and _in_wide_range(expected, ops):
            shift = sum(factor * given_[position] for position, factor in interval.factors)
            assert interval.low + shift <= wanted <= interval.high + shift
        form = affine_of(op.result, definition)
        assert form is not None
        total = form.constant + sum(f * expected[term] for term, f in form.terms)
        modulus = 1 << dtype.bits
        assert (total - wanted) % modulus == 0
    assert defined or any(values.get(op.result) is None for op in ops)


def _in_wide_range(expected: dict[Value, Any], ops: list[Op]) -> bool:
    """Whether all exact results fit 64 bits, which interval arithmetic on indices assumes."""
    seen = [v for op in ops for v in (*op.operands, op.result)]
    return all(abs(expected.get(v, 1 << 62)) < 1 << 20 for v in seen)


@settings(max_examples=300)
@given(st.sampled_from(DTYPES), st.sampled_from(ARITHMETIC + COMPARISONS), st.data())
def test_columns_and_short_cuts(dtype: DType, name: str, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(numbers(dtype), numbers(dtype)), min_size=1, max_size=6))
    result = BOOL if name in COMPARISONS else dtype
    _, (op,) = kernel(dtype, 2, [(name, 0, 1)], [0])
    wanted: list[Any] = []
    for pair in pairs:
        values: dict[Value, Any] = dict(zip(op.operands, pair))
        wanted.append(values[op.result] if by_reference([op], values) else None)
        fast = fast_binary(op)
        if fast is not None and wanted[-1] is not None:
            assert fast(*pair) in (wanted[-1], NotImplemented)
    a, b = (np.array([p[i] for p in pairs], np.int64) for i in range(2))
    found = binary_column(f"scalar.{name}", a, b, result)
    if None in wanted:
        assert found is None
    else:
        assert found is not None
        assert found.tolist() == [int(w) for w in wanted]


@pl.program
class Truncated:
    """The number of iterations depends on truncated division."""

    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self,
        lengths: pl.Tensor[[4], pl.INT32],
        x: pl.Tensor[[64, 64], pl.FP32],
        y: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
    ):
        for b in pl.range(4):
            n = pl.read(lengths, [b])
            with pl.incore():
                for i in pl.range((n - 8) // 3 + 5):
                    row = i + (n - 9) % 4 + 3
                    y = pl.assemble(y, pl.slice(x, [1, 64], [row, 0]), [i, 0])
        return y


def test_the_model_divides_as_the_language_does() -> None:
    """(1 - 8) // 3 is -2 in the language; rounding down would give -3 and one iteration less."""
    lengths = np.array([1, 2, 8, 20], np.int32)
    arguments = {
        "lengths": lengths,
        "x": np.zeros((64, 64), np.float32),
        "y": np.zeros((64, 64), np.float32),
    }
    tasks, program = recorded(Truncated, **arguments)
    line = simulate(tasks, program, load_machine("a2a3"))
    read = [line.stream.costs[c].read for c in line.stream.cost]
    rows = [int(sum(r.values())) // (64 * 4) for r in read]
    truncated = [int((int(n) - 8) / 3) + 5 for n in lengths]
    assert rows == truncated == [3, 3, 5, 9]
    executed = dict(arguments, x=np.ones((64, 64), np.float32))
    Interpreter().run(program, executed)
    assert np.flatnonzero(executed["y"].any(1)).tolist() == list(range(max(truncated)))
