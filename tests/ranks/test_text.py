"""The printed form of a program of several ranks is a program."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import ring, rows, world

import tilelet.language as pl
from tilelet.runtime.programs.compiler import compile_program


@pytest.mark.parametrize("passed", [False, True])
def test_it_is_read_back_and_runs(passed: bool) -> None:
    x = rows(3)
    compiled = ring.compile(x, x, config=world(3))
    text = str(compiled.program if passed else compiled.source)
    assert "pld.tensor.put(" in text
    assert "device=r" in text
    again = compile_program(pl.parse(text), config=world(3))
    y = np.zeros_like(x)
    again(x, y)
    assert np.array_equal(y, np.roll(x, 1, axis=0))
    if passed:
        assert str(again.program) == text
