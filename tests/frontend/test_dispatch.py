"""The dispatch table: complete, without duplicates, and open to new constructs."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Any

import pytest

import tilelet.language as pl
from tilelet.frontend import dispatch
from tilelet.syntax import markers, pipes

# They make plain data, in kernels as elsewhere.
DATA = {"dynamic", "split", "cross_core_slot", "marker"}


@pytest.mark.parametrize("module", [markers, pipes])
def test_every_marker_has_a_rule(module: ModuleType) -> None:
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f)}
    own = {n for n, f in functions.items() if f.__module__ == module.__name__ and n[0] != "_"}
    without = {n for n in own - DATA if dispatch.call_rule(functions[n]) is None}
    assert not without


def test_a_construct_has_one_rule() -> None:
    with pytest.raises(AssertionError, match="has a rule already"):
        dispatch.expression(ast.Call)(lambda ctx, node: None)


class Namespace:
    """A namespace of calls that the language lacks."""

    @staticmethod
    def answer(x: int) -> int:
        raise AssertionError("calls are lowered by their rule")


def test_a_new_call_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_CALLS", dict(dispatch._CALLS))

    @dispatch.call(Namespace.answer)
    def _answer(ctx: Any, node: ast.Call) -> Any:
        return dispatch.evaluate(ctx, node.args[0]) + 1

    @pl.jit
    def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.add(x, Namespace.answer(41))
        return out

    assert "pl.add(x_1, 42)" in str(kernel.specialize())
