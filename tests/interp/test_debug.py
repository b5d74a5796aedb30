"""`breakpoint()` in a kernel."""

from __future__ import annotations

import io
import sys
from bdb import BdbQuit

import numpy as np
import pytest
from tests.interp.build import Build, index, ramp, run, tensor

from tilelet.ir.core import Program


def program() -> Program:
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())

    def work(s):
        tile = s.window(x, [4, 8], [0, 0], valid_shape=[2, 3])
        s.op("breakpoint", values=(x, tile, n), names=("x", "tile", "n"))
        return []

    b.for_(3, lambda l, i: l.scope(work) and [])
    return b.program()


def test_without_a_terminal_the_values_are_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    data = ramp(4, 8)
    data[3, 7] = np.nan
    run(program(), x=data, n=5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("breakpoint at kernel.py:")
    assert lines[1:] == [
        "  x    = float32[4, 8] [1, 2, 3, 4, ...] min 1 max 31, 1 NaN",
        "  tile = float32[2, 3] [1, 2, 3, 9, ...] min 1 max 11",
        "  n    = 5",
    ]


def test_a_hook_sees_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def hook() -> None:
        frame = sys._getframe(1)
        seen.append(dict(frame.f_locals))
        assert frame.f_code.co_filename == "kernel.py"

    monkeypatch.setattr(sys, "breakpointhook", hook)
    run(program(), x=ramp(4, 8), n=5)
    assert len(seen) == 3
    np.testing.assert_array_equal(seen[0]["tile"], ramp(4, 8)[:2, :3])
    assert seen[0]["n"] == 5


def test_leaving_the_debugger_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        raise BdbQuit

    monkeypatch.setattr(sys, "breakpointhook", leave)
    with pytest.raises(BdbQuit):
        run(program(), x=ramp(4, 8), n=5)


def test_counting_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", lambda: pytest.fail("stopped"))
    assert run(program(), execute=False, x=ramp(4, 8), n=5).tasks.total == 3
