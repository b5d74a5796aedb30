"""A block's next operand is prefetched before a product of few rows, and not earlier."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import agree, numbers
from tests.cpu.test_schedules import IN_ORDER
from tests.interp.build import Build, tensor

from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.run.engine import compile_native
from tilelet.diag.core import UserError
from tilelet.dtypes import BF16, FP32, INT32
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, Value
from tilelet.passes.pipeline import run_passes

KEYS, WIDTH = 32, 64


def _attention(rows: int, *, is_place_known: bool = True, room: int = 2 * KEYS) -> Program:
    """Scores of some keys, then the values that belong to them, both from row `n` on."""
    b = Build()
    q, n = b.param("q", tensor([rows, WIDTH], BF16)), b.param("n", tensor([2], INT32))
    keys = b.param("keys", tensor([2 * KEYS, WIDTH], BF16))
    values = b.param("values", tensor([room, WIDTH], BF16))
    out = b.param("out", tensor([rows, WIDTH]))

    def body(s: Build) -> list[Value]:
        query = s.op("cast", x=s.op("neg", x=s.window(q, [rows, WIDTH], [0, 0])), target_type=BF16)
        at = s.op("read", x=n, indices=[0])
        key = s.window(keys, [KEYS, WIDTH], [at, 0])
        scores = s.op("matmul", lhs=query, rhs=key, b_trans=True, out_dtype=FP32)
        weights = s.op("cast", x=scores, target_type=BF16)
        if not is_place_known:
            at = s.op("read", x=n, indices=[1])
        value = s.window(values, [KEYS, WIDTH], [at, 0])
        found = s.op("matmul", lhs=weights, rhs=value, out_dtype=FP32)
        return [s.put(out, found, [0, 0])]

    b.scope(body)
    return b.program()


def _text(program: Program) -> str:
    return "".join(emit_program(run_passes(program)).units)


def test_before_the_product_whose_time_it_takes() -> None:
    text = _text(_attention(2))
    assert text.count("tl_read_ahead(") == 1
    assert text.index("tl_read_ahead(") < text.index("tl_matmul(")
    assert "tl_read_ahead(" not in _text(_attention(16))
    assert "tl_read_ahead(" not in _text(_attention(2, is_place_known=False))


@pytest.mark.parametrize("place", [0, 5, KEYS])
def test_it_changes_nothing(place: int) -> None:
    data: dict[str, Any] = {
        "q": numbers(BF16, 2, WIDTH, special=False),
        "n": np.array([place, 0], np.int32),
    }
    data |= {name: numbers(BF16, 2 * KEYS, WIDTH, special=False) for name in ("keys", "values")}
    agree(_attention(2), **data, out=np.zeros((2, WIDTH), np.float32))


@pytest.mark.parametrize("room", [KEYS, KEYS + 2])
def test_what_is_not_there_is_reported_as_ever(room: int) -> None:
    program = run_passes(_attention(2, room=room))
    given: dict[str, Any] = {"q": np.ones((2, WIDTH), BF16.numpy), "n": np.full(2, KEYS, np.int32)}
    given["keys"] = np.ones((2 * KEYS, WIDTH), BF16.numpy)
    given["values"] = np.ones((room, WIDTH), BF16.numpy)
    given["out"] = np.zeros((2, WIDTH), np.float32)
    with pytest.raises(UserError) as expected:
        Interpreter().run(program, copy.deepcopy(given))
    with pytest.raises(UserError) as found:
        compile_native(program).run(given, 2, IN_ORDER)
    assert str(found.value) == str(expected.value)
