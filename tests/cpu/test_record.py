"""The words that the runtime records, decoded to a stream of tasks."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from tests.device.recording import chain, elementwise

import tilelet.language as pl
from tilelet.cpu.emit.program import Compiled, emit_program
from tilelet.cpu.run.native import NativeRecord
from tilelet.cpu.run.record import task_stream
from tilelet.ir.core import Direction, Program
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Buffer, Window


def record_of(words: list[int]) -> NativeRecord:
    array = (ctypes.c_int64 * max(1, len(words)))(*words)
    made = NativeRecord(words=ctypes.cast(array, ctypes.POINTER(ctypes.c_int64)), count=len(words))
    made.kept = array
    return made


def window_words(
    number: int, first_byte: int, shape, strides, valid=None, nbytes=4096
) -> list[int]:
    rank, site = len(shape), 0
    return [number, nbytes, site, first_byte, rank, *shape, *strides, *(valid or shape), *shape]


def decoded(program: Program, tasks: list[list[int]], buffers: dict[int, Buffer]) -> TaskStream:
    compiled = run_passes(program)
    code: Compiled = emit_program(compiled)
    return task_stream(record_of([w for t in tasks for w in t]), compiled, code, buffers)


def task(number: int, task_id: int, *rest: int, ran=1, blocks=0, manual=0, deps=()) -> list[int]:
    return [number, task_id, ran, blocks, manual, len(deps), *deps, *rest]


@pytest.fixture
def buffers() -> dict[int, Buffer]:
    sizes = {"x": 64 * 128 * 4, "y": 64 * 128 * 4}
    return {i: Buffer(name, n, origin="param") for i, (name, n) in enumerate(sizes.items())}


def test_nothing_recorded_is_an_empty_stream(buffers) -> None:
    assert len(decoded(elementwise(), [], buffers)) == 0


def test_windows_scalars_and_order(buffers) -> None:
    whole = (64, 128), (128, 1)
    words = [
        task(0, 7 + i, *window_words(0, 0, *whole), *window_words(1, 0, *whole), i)
        for i in range(3)
    ]
    stream = decoded(elementwise(), words, buffers)
    assert len(stream) == 3
    assert [t.values[2] for t in stream] == [0, 1, 2]
    first = stream[0]
    x, y = first.values[:2]
    assert isinstance(x, Window)
    assert (x.buffer.name, y.buffer.name, x.shape, x.strides) == ("x", "y", (64, 128), (128, 1))
    assert first.directions == (Direction.In, Direction.Out, Direction.In)
    assert (first.ran, first.blocks, first.manual, first.deps) == (True, None, False, ())
    assert len(stream.groups) == 1, "tasks of one call are one group"
    assert stream.counts() == {first.kernel: 3}


def test_parts_of_a_buffer(buffers) -> None:
    part = window_words(0, 512 * 3, (2, 128), (128, 1), valid=(2, 100))
    whole = window_words(1, 0, (64, 128), (128, 1))
    (only,) = decoded(elementwise(), [task(0, 1, *part, *whole, 0)], buffers)
    x = only.values[0]
    assert (x.offset, x.shape, x.valid) == (128 * 3, (2, 128), (2, 100))


def test_dependencies_name_tasks_by_their_place_and_no_task_by_less_than_0(buffers) -> None:
    both = (*window_words(0, 0, (16, 128), (128, 1)), *window_words(1, 0, (16, 128), (128, 1)))
    words = [task(0, 40, *both), task(0, 41, *both), task(0, 50, *both, deps=(41, -1, 40, 41))]
    stream = decoded(chain(), words, buffers)
    assert [t.deps for t in stream] == [(), (), (1, 0)]
    assert stream.deps == {2: (1, 0)}


def test_what_differs_between_tasks_of_a_call_makes_groups(buffers) -> None:
    both = (*window_words(0, 0, (16, 128), (128, 1)), *window_words(1, 0, (16, 128), (128, 1)))
    words = [
        task(0, 1, *both),
        task(0, 2, *both, ran=0),
        task(0, 3, *both, blocks=4),
        task(0, 4, *both, manual=1),
        task(0, 5, *both),
    ]
    stream = decoded(chain(), words, buffers)
    assert [(t.ran, t.blocks, t.manual) for t in stream] == [
        (True, None, False),
        (False, None, False),
        (True, 4, False),
        (True, None, True),
        (True, None, False),
    ]
    assert [list(g.indices) for g in stream.groups] == [[0, 4], [1], [2], [3]]


def test_memory_that_the_program_makes_gets_a_buffer_of_its_own(buffers) -> None:
    x = window_words(0, 0, (16, 128), (128, 1))
    made = window_words(9, 0, (16, 128), (128, 1), nbytes=16 * 128 * 4)
    stream = decoded(chain(), [task(0, 1, *x, *made), task(0, 2, *x, *made)], buffers)
    first, second = (t.values[1].buffer for t in stream)
    assert first is second
    assert first.nbytes == 16 * 128 * 4
    assert first.id not in {b.id for b in buffers.values()}


def test_numbers_come_back_as_what_they_are(buffers) -> None:
    @pl.program
    class Numbers:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            y: pl.InOut[pl.Tensor[[16, 128], pl.FP32]],
            scale: pl.Scalar[pl.FP32],
            count: pl.Scalar[pl.INT32],
            really: pl.Scalar[pl.BOOL],
        ):
            with pl.incore():
                tile = pl.slice(y, [16, 128], [0, 0])
                if really:
                    tile = pl.muls(tile, scale)
                y = pl.assemble(y, pl.adds(tile, count), [0, 0])
            return y

    compiled = run_passes(Numbers)
    order = [p.name for p in compiled.kernels[0].params][1:]
    bits = {
        "scale": int(np.float64(0.5).view(np.int64)), "count": -3, "really": 1
    }  # fmt: skip
    words = [task(0, 1, *window_words(1, 0, (16, 128), (128, 1)), *[bits[n] for n in order])]
    (only,) = decoded(Numbers, words, buffers)
    values = dict(zip(order, only.values[1:]))
    assert values == {"scale": 0.5, "count": -3, "really": True}
    assert values["really"] is True
