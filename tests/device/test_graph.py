"""Dependencies by the runtime's rules, and their C version."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.recording import chain, elementwise, recorded

import tilelet.language as pl
from tilelet.device import load_machine, simulate
from tilelet.device.schedule import native
from tilelet.device.schedule.graph import build_graph
from tilelet.device.schedule.library import library
from tilelet.device.schedule.region_arrays import regions_of
from tilelet.dtypes import FP32
from tilelet.tasks.regions import RegionTable
from tilelet.tasks.window import Buffer, Window

A2A3 = load_machine("a2a3")


def random_stream(draw):
    """Tasks with rectangular windows of two buffers."""
    buffers = [Buffer(f"b{i}", 32 * 64 * 4) for i in range(2)]
    table = RegionTable()
    windows = []
    for _ in range(draw(st.integers(1, 6))):
        row, column = draw(st.integers(0, 28)), draw(st.integers(0, 56))
        rows, columns = draw(st.integers(1, 32 - row)), draw(st.integers(1, 64 - column))
        buffer = buffers[draw(st.integers(0, 1))]
        windows.append(Window(buffer, FP32, row * 64 + column, (rows, columns), (64, 1)))
    numbers = [table.number(window) for window in windows]
    tasks = draw(
        st.lists(
            st.lists(st.tuples(st.sampled_from(numbers), st.integers(0, 3)), max_size=3),
            min_size=1,
            max_size=60,
        )
    )
    counts = [0, *[len(t) for t in tasks]]
    flat = [a for t in tasks for a in t]
    deps = [
        draw(st.lists(st.integers(0, max(0, i - 1)), max_size=2, unique=True)) if i else []
        for i in range(len(tasks))
    ]
    return SimpleNamespace(
        count=len(tasks),
        arg_ptr=np.cumsum(counts),
        arg_region=np.array([a[0] for a in flat], np.int64),
        arg_flags=np.array([a[1] for a in flat], np.int64),
        dep_ptr=np.cumsum([0, *[len(d) for d in deps]]),
        deps=np.array([d for ds in deps for d in ds], np.int64),
        regions=regions_of(table),
        windows=windows,
        numbers=numbers,
        tasks=tasks,
        explicit=deps,
    )


@given(st.data())
@settings(max_examples=60)
def test_c_and_python_give_the_same_edges(data) -> None:
    lib = library()
    if lib is None:
        pytest.skip("no C compiler")
    stream = random_stream(data.draw)
    slow, fast = build_graph(stream), native.build_graph_native(lib, stream)
    np.testing.assert_array_equal(slow.ptr, fast.ptr)
    for n in range(slow.nodes):
        assert sorted(slow.pred[slow.ptr[n] : slow.ptr[n + 1]]) == sorted(
            fast.pred[fast.ptr[n] : fast.ptr[n + 1]]
        )


@given(st.data())
@settings(max_examples=60)
def test_edges_follow_the_rule(data) -> None:
    """A reader waits, perhaps transitively, for every earlier overlapping writer."""
    stream = random_stream(data.draw)
    graph = build_graph(stream)
    window = dict(zip(stream.numbers, stream.windows))
    reach: list[set[int]] = []
    for task, arguments in enumerate(stream.tasks):
        waits = set(graph.producers(task))
        # A direct edge is explicit, or an overlap with a registered window.
        for earlier in waits:
            overlaps = any(
                mine & 1 and theirs & 2 and window[int(a)].overlaps(window[int(b)])
                for a, mine in arguments
                for b, theirs in stream.tasks[earlier]
            )
            assert overlaps or earlier in stream.explicit[task]
        everything = waits.union(*(reach[w] for w in waits)) if waits else set()
        for earlier in range(task):
            needed = any(
                mine & 1 and theirs & 2 and window[int(a)].overlaps(window[int(b)])
                for a, mine in arguments
                for b, theirs in stream.tasks[earlier]
            )
            assert not needed or earlier in everything
        reach.append(everything)


def producers(program, period: str) -> list[list[int]]:
    tasks, compiled = recorded(program)
    line = simulate(tasks, compiled, A2A3, period=period)
    return [line.graph.producers(i) for i in range(len(tasks))]


def test_read_write_of_a_whole_tensor_is_a_chain() -> None:
    assert producers(chain(4), "2026-04") == [[], [0], [1], [2]]


def test_disjoint_windows_are_independent() -> None:
    assert producers(elementwise(4), "2026-04") == [[], [], [], []]


def zero_then_fill(sequential: bool):
    if sequential:

        @pl.program
        class Sequential:
            @pl.function(type=pl.FunctionType.Opaque)
            def main(
                self, x: pl.Tensor[[64, 128], pl.FP32], y: pl.Out[pl.Tensor[[64, 128], pl.FP32]]
            ):
                t = pl.create_tensor([64, 128], dtype=pl.FP32)
                for i in pl.range(3):
                    with pl.incore():
                        t = pl.assemble(t, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0])
                with pl.incore():
                    y = pl.assemble(y, pl.exp(pl.slice(t, [64, 128], [0, 0])), [0, 0])
                return y

        return Sequential

    @pl.program
    class Parallel:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[64, 128], pl.FP32], y: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            t = pl.create_tensor([64, 128], dtype=pl.FP32)
            for i in pl.parallel(3):
                with pl.incore():
                    t = pl.assemble(t, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0])
            with pl.incore():
                y = pl.assemble(y, pl.exp(pl.slice(t, [64, 128], [0, 0])), [0, 0])
            return y

    return Parallel


def test_writers_are_ordered_by_the_rule_of_the_period() -> None:
    """The whole tensor is the argument, so writers overlap: April's rule leaves them unordered."""
    unordered = [[], [], [], [0, 1, 2]]
    assert producers(zero_then_fill(True), "2026-04") == unordered
    assert producers(zero_then_fill(False), "2026-04") == unordered
    assert producers(zero_then_fill(True), "2026-06") == [[], [0], [1], [2]]
    assert producers(zero_then_fill(False), "2026-06") == unordered


def test_many_writers_become_one_join() -> None:
    @pl.program
    class Wide:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self, x: pl.Tensor[[1600, 128], pl.FP32], y: pl.Out[pl.Tensor[[1600, 128], pl.FP32]]
        ):
            t = pl.create_tensor([1600, 128], dtype=pl.FP32)
            for i in pl.parallel(100):
                with pl.incore():
                    t = pl.assemble(t, pl.exp(pl.slice(x, [16, 128], [i * 16, 0])), [i * 16, 0])
            for i in pl.parallel(100):
                with pl.incore():
                    y = pl.assemble(y, pl.exp(pl.slice(t, [16, 128], [i * 16, 0])), [i * 16, 0])
            return y

    tasks, compiled = recorded(Wide)
    graph = simulate(tasks, compiled, A2A3).graph
    assert graph.nodes == 201
    assert len(graph.pred) == 200
    assert graph.producers(150) == list(range(100))
