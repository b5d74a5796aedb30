"""An engine that runs both the interpreter and native code, and requires equal bits."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tests.cpu.clib import address, build
from tests.cpu.differential import assert_same

from tilelet.cpu.run.engine import CpuEngine, NativeExecution
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.numerics import elementwise
from tilelet.runtime.programs import engines

NAME = "both"
_FUNCTIONS = {np.exp: "exp", np.log: "log", np.sin: "sin", np.cos: "cos"}
_EACH = "(float *y, const float *x, int64_t n) { for (int64_t i = 0; i < n; i++) y[i] = "
_SOURCE = '#include "numbers.h"\n' + "\n".join(
    f"void {name}_all{_EACH}ts_{name}_f32(x[i]); }}" for name in _FUNCTIONS.values()
)


def _of_the_engine(name: str) -> Callable[[np.ndarray], np.ndarray]:
    function = getattr(build(_SOURCE), f"{name}_all")

    def apply(x: np.ndarray) -> np.ndarray:
        x = np.ascontiguousarray(x)
        y = np.empty_like(x)
        function(address(y), address(x), ctypes.c_int64(x.size))
        return y

    return apply


def share_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter compute exp, log, sin and cos as the engine does.

    They may differ by a unit in the last place; without that, whole programs agree in every bit.
    """
    in_double = elementwise._in_double

    def patched(x: np.ndarray, function: Any) -> np.ndarray:
        if function in _FUNCTIONS:
            return elementwise._in_fp32(x, _of_the_engine(_FUNCTIONS[function]))
        return in_double(x, function)

    monkeypatch.setattr(elementwise, "_in_double", patched)


class Both:
    """Runs natively, and interprets a copy of the arguments."""

    runs = 0

    def prepare(self, program: Program) -> None:
        CpuEngine().prepare(program)

    def run(
        self, program: Program, arguments: Mapping[str, Any], *, execute: bool = True
    ) -> NativeExecution:
        expected = {name: copy.deepcopy(value) for name, value in arguments.items()}
        interpreted = Interpreter().run(program, expected, execute=execute)
        done = CpuEngine().run(program, arguments, execute=execute)
        assert done.tasks.counts() == interpreted.tasks.counts()
        for name, array in expected.items():
            if isinstance(array, np.ndarray):
                assert_same(arguments[name], array, name)
        Both.runs += 1
        return done


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of the combined engine."""
    share_functions(monkeypatch)
    monkeypatch.setitem(engines._FACTORIES, NAME, lambda request: Both())
    return NAME
