"""depend.c against sets of bytes: every conflict is ordered, and nothing else."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.cpu.clib import build

from tilelet.cpu.run.native import Win

SOURCE = """
#include "depend.c"
const int64_t buffer_bytes = sizeof(tl_buf);
void set_base(tl_buf *b, char *base) { b->base = base; }
"""

IS_DONE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)
FOUND = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
ROWS, COLUMNS, ITEM = 64, 96, 4


def window(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Win:
    w = Win(data=4096 + offset * ITEM, rank=len(shape), itemsize=ITEM)
    for i, (n, s) in enumerate(zip(shape, strides)):
        w.shape[i] = w.valid[i] = w.reach[i] = n
        w.stride[i] = s
    return w


def elements(w: Win) -> frozenset[int]:
    at = np.array([(w.data - 4096) // ITEM])
    for i in range(w.rank):
        at = (at[:, None] + np.arange(w.reach[i]) * w.stride[i]).ravel()
    return frozenset(at.tolist())


def a_tile(rng: np.random.Generator) -> Win:
    row, column = rng.integers(8) * 8, rng.integers(6) * 16
    return window(int(row * COLUMNS + column), (8, 16), (COLUMNS, 1))


def a_rectangle(rng: np.random.Generator) -> Win:
    rows, columns = int(rng.integers(1, 20)), int(rng.integers(1, 30))
    row, column = rng.integers(ROWS - rows + 1), rng.integers(COLUMNS - columns + 1)
    return window(int(row * COLUMNS + column), (rows, columns), (COLUMNS, 1))


def a_span(rng: np.random.Generator) -> Win:
    """Part of the tensor viewed as one row, which in general is not a box of the tensor."""
    length = int(rng.integers(1, 400))
    return window(int(rng.integers(ROWS * COLUMNS - length)), (length,), (1,))


def a_comb(rng: np.random.Generator) -> Win:
    """Every third column of all rows: a stride that the tensor does not have."""
    return window(int(rng.integers(3)), (ROWS, COLUMNS // 3), (COLUMNS, 3))


def all_of_it(_: np.random.Generator) -> Win:
    return window(0, (ROWS, COLUMNS), (COLUMNS, 1))


@dataclass
class Model:
    """Elements used by each task."""

    touched: dict[int, frozenset[int]] = field(default_factory=dict)
    writes: dict[int, bool] = field(default_factory=dict)
    before: dict[int, frozenset[int]] = field(default_factory=dict)  # all required predecessors

    def conflicts(self, task: int, first_open: int) -> set[int]:
        own, writes = self.touched[task], self.writes[task]
        earlier = range(first_open, task)
        return {
            t for t in earlier if (writes or self.writes[t]) and not own.isdisjoint(self.touched[t])
        }


KINDS = {
    "tiles": [a_tile],
    "rectangles": [a_rectangle],
    "tiles and all": [a_tile, a_tile, a_tile, a_tile, all_of_it],
    "spans first": [a_span, a_tile, a_rectangle],
    "everything": [a_tile, a_rectangle, a_span, a_comb, all_of_it],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_conflicts_are_found(kind: str, seed: int) -> None:
    library = build(SOURCE)
    rng = np.random.default_rng([seed, *kind.encode()])
    buffer = ctypes.create_string_buffer(ctypes.c_int64.in_dll(library, "buffer_bytes").value)
    library.set_base(buffer, ctypes.c_void_p(4096))
    library.tl_set_grid(buffer, ctypes.byref(all_of_it(rng)))
    library.tl_use_of.restype = ctypes.c_int64
    model = Model()
    first_open = 1
    found: set[int] = set()
    is_done = IS_DONE(lambda _, t: t < first_open)
    note = FOUND(lambda _, t: found.add(t))
    for task in range(1, 1000):
        w = KINDS[kind][rng.integers(len(KINDS[kind]))](rng)
        model.touched[task], model.writes[task] = elements(w), bool(rng.integers(2))
        use = library.tl_use_of(buffer, ctypes.byref(w), is_done, None)
        assert use >= 0
        found.clear()
        writes = int(model.writes[task])
        library.tl_depend(buffer, ctypes.c_uint32(use), writes, note, None)
        assert not library.tl_note(
            buffer, ctypes.c_uint32(use), writes, ctypes.c_uint64(task), is_done, None
        )
        direct = {t for t in found if t >= first_open}
        implied = frozenset().union(*(model.before[t] for t in direct), direct)
        model.before[task] = frozenset(t for t in implied if t >= first_open)
        wanted = model.conflicts(task, first_open)
        assert wanted <= implied, f"task {task} does not wait for {wanted - implied}"
        if kind in ("tiles", "rectangles", "tiles and all"):
            assert direct <= wanted, f"task {task} waits for {direct - wanted} in vain"
        if rng.integers(10) == 0 and task - first_open > 600:
            first_open = task - int(rng.integers(600))
    library.tl_free_uses(buffer)
