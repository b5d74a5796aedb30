"""L2 cells that tasks touch: the C version agrees with the Python version."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.recording import elementwise, projection, recorded

from tilelet.analysis.intervals import Interval
from tilelet.device import load_machine, simulate
from tilelet.device.kernel.footprint import Footprint
from tilelet.device.schedule import native
from tilelet.device.schedule.l2_cells import Cells, ParameterAccesses, build_cells
from tilelet.device.schedule.library import library
from tilelet.device.schedule.region_arrays import RegionArrays, regions_of
from tilelet.dtypes import BF16, FP32
from tilelet.tasks.regions import RegionTable
from tilelet.tasks.window import Buffer, Window, row_major

LINE = 512


@st.composite
def windows(draw) -> Window:
    """Return a window of a matrix, of one of its rows, or of either reversed."""
    rows, columns = draw(st.integers(1, 64)), draw(st.sampled_from([8, 100, 1024]))
    dtype = draw(st.sampled_from([FP32, BF16]))
    buffer = Buffer("x", rows * columns * dtype.itemsize)
    whole = Window(buffer, dtype, 0, (rows, columns), row_major((rows, columns)))
    kind = draw(st.sampled_from(["whole", "box", "row", "backwards"]))
    if kind == "box":
        r, c = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
        shape = (draw(st.integers(1, rows - r)), draw(st.integers(1, columns - c)))
        return whole.slice((r, c), shape)
    if kind == "row":
        return Window(buffer, dtype, 0, (columns,), (1,))
    if kind == "backwards":
        return Window(buffer, dtype, (rows - 1) * columns, (rows, columns), (-columns, 1))
    return whole


@st.composite
def parts(draw) -> tuple[list[ParameterAccesses], RegionArrays, int]:
    table = RegionTable()
    tasks = draw(st.integers(1, 12))
    numbers = [table.number(w) for w in draw(st.lists(windows(), min_size=1, max_size=5))]
    found: list[ParameterAccesses] = []
    for _ in range(draw(st.integers(0, 4))):
        mine = sorted(draw(st.sets(st.integers(0, tasks - 1), min_size=1)))
        column = [draw(st.sampled_from(numbers)) for _ in mine]
        extents = None
        if draw(st.booleans()):
            ends = [sorted(draw(st.tuples(st.integers(-3, 80), st.integers(-3, 80)))) for _ in "ab"]
            extents = tuple(Interval(low, high) for low, high in ends)
        shifts = tuple(draw(st.none() | st.just(np.arange(len(mine)) * 3.0)) for _ in extents or ())
        touched = Footprint(0, draw(st.booleans()), extents, draw(st.sampled_from([64, 2048])))
        amount = np.array([draw(st.integers(0, 9000)) for _ in mine], np.int64)
        arrays = (np.array(mine, np.int64), np.array(column, np.int64))
        found.append(ParameterAccesses(*arrays, touched, shifts, amount))
    return found, regions_of(table), tasks


def assert_same(a: Cells, b: Cells) -> None:
    for field in dataclasses.fields(Cells):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), field.name)


@given(parts())
@settings(max_examples=150)
def test_c_and_python_give_the_same_cells(
    case: tuple[list[ParameterAccesses], RegionArrays, int],
) -> None:
    lib = library()
    if lib is None:
        pytest.skip("no C compiler")
    some, regions, tasks = case
    slow = build_cells(some, regions, LINE, tasks)
    assert_same(slow, native.build_cells_native(lib, some, regions, LINE, tasks))
    assert (slow.rows > 0).all()
    assert (slow.columns > 0).all()
    assert (slow.base >= 0).all()


@pytest.mark.parametrize("program", [elementwise(20), projection(tasks=6)])
def test_a_run_is_the_same_without_a_compiler(program, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_machine("a2a3")
    tasks, compiled = recorded(program)
    fast = simulate(tasks, compiled, machine)
    for module in ("native_walk", "simulate"):
        monkeypatch.setattr(f"tilelet.device.schedule.{module}.library", lambda: None)
    slow = simulate(tasks, compiled, machine)
    for name in ("task", "core", "dispatch", "start", "end", "finish", "hbm_read", "hbm_written"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), name)
