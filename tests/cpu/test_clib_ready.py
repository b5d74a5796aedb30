"""ready.c: the order in which ready tasks are taken, and which are taken together."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import pytest
from tests.cpu.clib import build

TOGETHER, STEP = 4, 128

SOURCE = f"""
#include <stdlib.h>
#include "ready.c"
static const tl_kernel plain = {{.name = "plain", .batch_max = 1}};
static const tl_kernel narrow = {{.name = "narrow", .batch_max = {TOGETHER}, .b_stride = {STEP}}};
static const tl_kernel row = {{.name = "row", .batch_max = 1, .streams = 3, .b_stride = {STEP}}};
static const tl_kernel tile = {{.name = "tile", .batch_max = 1, .same_a = 3, .b_stride = {STEP}}};

tl_rt *new_queue(int64_t seed, int64_t threads) {{
    tl_rt *rt = calloc(1, sizeof *rt);
    tl_run_args *args = calloc(1, sizeof *args);
    args->seed = seed, args->threads = threads;
    rt->args = args, rt->random = 12345 + (uint64_t)seed;
    rt->tasks = calloc(MAX_IN_FLIGHT, sizeof *rt->tasks);
    return rt;
}}
/* Task `number`: of the narrow kernel, with B at `column`; or of the plain one (negative). */
void push(tl_rt *rt, int64_t number, int64_t column, int is_in_order) {{
    tl_task *t = &rt->tasks[number & (MAX_IN_FLIGHT - 1)];
    t->number = (uint64_t)number;
    t->kernel = column < 0 ? &plain : &narrow;
    t->b = column < 0 ? NULL : (const char *)(4096 + column * {STEP});
    t->is_in_order = is_in_order;
    tl_push_ready(rt, t);
}}
/* One of a kernel whose tasks are read together, or run for one A; `of` says what its A is. */
void push_row(tl_rt *rt, int64_t number, int64_t of, int is_tile) {{
    tl_task *t = &rt->tasks[number & (MAX_IN_FLIGHT - 1)];
    t->number = (uint64_t)number;
    t->kernel = is_tile ? &tile : &row;
    t->a = (const char *)of, t->b = (const char *)(4096 + number * {STEP});
    t->is_in_order = 1;
    tl_push_ready(rt, t);
}}
void set_away(tl_rt *rt, int busy, int is_submitting, int is_ahead) {{
    rt->busy = busy, rt->is_submitting = is_submitting, rt->is_ahead = is_ahead;
}}
int take_some(tl_rt *rt, int64_t *numbers, int plain) {{
    tl_task *tasks[TL_SIDE_BY_SIDE];
    int count = tl_take_ready(rt, tasks, TL_SIDE_BY_SIDE, plain);
    for (int i = 0; i < count; i++) numbers[i] = (int64_t)tasks[i]->number;
    return count;
}}
int64_t next_column(const tl_rt *rt, int is_in_order, int count) {{
    tl_task taken = {{.kernel = is_in_order ? &row : &narrow, .is_in_order = is_in_order}};
    const char *b = tl_next_b(rt, &taken, count);
    return b ? (b - (const char *)4096) / {STEP} : -1;
}}
void free_queue(tl_rt *rt) {{
    free(rt->tasks);
    free((void *)rt->args);
    free(rt);
}}
"""

PLAIN = -1


class Queue:
    def __init__(self, seed: int, threads: int) -> None:
        self._library = build(SOURCE)
        self._library.new_queue.restype = ctypes.c_void_p
        self._library.next_column.restype = ctypes.c_int64
        made = self._library.new_queue(ctypes.c_int64(seed), ctypes.c_int64(threads))
        self._at = ctypes.c_void_p(made)

    def push(self, number: int, column: int = PLAIN, *, is_in_order: bool = False) -> None:
        column_, number_ = ctypes.c_int64(column), ctypes.c_int64(number)
        self._library.push(self._at, number_, column_, int(is_in_order))

    def push_row(self, number: int, of: int = 1, *, is_tile: bool = False) -> None:
        number_, of_ = ctypes.c_int64(number), ctypes.c_int64(of)
        self._library.push_row(self._at, number_, of_, int(is_tile))

    def set_away(self, busy: int, *, is_submitting: bool = False, is_ahead: bool = False) -> None:
        self._library.set_away(self._at, busy, int(is_submitting), int(is_ahead))

    def take(self, plain: int = 1) -> list[int]:
        numbers = (ctypes.c_int64 * 8)()
        count = self._library.take_some(self._at, numbers, plain)
        return list(numbers[:count])

    def next_column(self, *, is_in_order: bool = False, count: int = 1) -> int:
        return self._library.next_column(self._at, int(is_in_order), count)

    def close(self) -> None:
        self._library.free_queue(self._at)


@contextmanager
def queue(seed: int = -1, threads: int = 1) -> Generator[Queue]:
    made = Queue(seed, threads)
    try:
        yield made
    finally:
        made.close()


def test_plain_tasks_come_in_turn() -> None:
    with queue() as q:
        for n in (3, 1, 2):
            q.push(n)
        assert [q.take(), q.take(), q.take(), q.take()] == [[3], [1], [2], []]


def test_several_plain_tasks_are_taken_at_once() -> None:
    """A thread takes at most the limit; half of the ready tasks stay for the other threads."""
    with queue(threads=2) as q:
        for n in range(20):
            q.push(n)
        assert q.take(8) == [0, 1, 2, 3, 4]
        assert q.take(2) == [5, 6]
        q.push(20, column=3)
        assert [len(q.take(8)) for _ in range(10)] == [3, 2, 2, 1, 1, 1, 1, 1, 1, 1]


def test_plain_tasks_are_taken_up_to_a_product() -> None:
    with queue() as q:
        for n in range(4):
            q.push(n)
        for n in range(4, 20):
            q.push(n, column=n, is_in_order=True)
        assert [q.take(8), q.take(8)] == [[0, 1, 2, 3], [4]]


def test_a_random_schedule_takes_plain_tasks_singly() -> None:
    with queue(seed=3) as q:
        for n in range(20):
            q.push(n)
        assert len(q.take(8)) == 1


def test_a_narrow_task_lets_others_go_first_until_its_company_is_there() -> None:
    with queue() as q:
        q.push(1, column=0)
        q.push(2)
        assert q.take() == [2]
        for n, column in ((3, 2), (4, 1), (5, 3)):
            q.push(n, column)
        q.push(6)
        assert q.take() == [1, 4, 3, 5]  # by columns
        assert q.take() == [6]


def test_a_company_that_stays_incomplete_is_run_when_nothing_else_is_ready() -> None:
    with queue() as q:
        q.push(1, column=7)
        q.push(2, column=8)
        q.push(3)
        assert [q.take(), q.take(), q.take()] == [[3], [1, 2], []]


def test_what_is_left_of_a_long_row_waits_for_more() -> None:
    with queue() as q:
        for n in range(6):
            q.push(n, column=n)
        q.push(9)
        assert [q.take(), q.take(), q.take()] == [[0, 1, 2, 3], [9], [4, 5]]


def test_every_thread_gets_its_share() -> None:
    with queue(threads=2) as q:
        for n in range(4):
            q.push(n, column=n)
        assert [q.take(), q.take(), q.take()] == [[0, 1], [2], [3]]


def test_tasks_whose_memory_is_in_order_come_in_turn() -> None:
    """They are no neighbors in one matrix; one's memory just begins where another's ends."""
    with queue() as q:
        for n in range(TOGETHER):
            q.push(n, column=n, is_in_order=True)
        q.push(9)
        assert q.next_column() == 0
        assert [q.take() for _ in range(6)] == [[0], [1], [2], [3], [9], []]


def test_rows_are_taken_for_so_many_streams() -> None:
    """Rows of one A are taken in turn, and no others."""
    with queue() as q:
        for n in range(5):
            q.push_row(n)
        q.push_row(5, of=2)
        q.push(6)
        q.push_row(7)
        assert [q.take() for _ in range(6)] == [[0, 1, 2], [3, 4], [5], [6], [7], []]


@pytest.mark.parametrize(
    ("away", "taken"),
    [
        ({"busy": 0}, [0, 1]),
        ({"busy": 1}, [0, 1, 2]),
        ({"busy": 0, "is_submitting": True}, [0, 1, 2]),
        ({"busy": 0, "is_submitting": True, "is_ahead": True}, [0, 1]),
    ],
)
def test_a_thread_with_nothing_to_do_gets_some_of_the_rows(
    away: dict[str, int], taken: list[int]
) -> None:
    with queue(threads=2) as q:
        for n in range(4):
            q.push_row(n)
        q.set_away(**away)  # pyright: ignore[reportArgumentType]
        assert q.take() == taken


def test_tasks_of_one_a_are_shared_out() -> None:
    """Every thread gets an equal share, busy or not, and at most the kernel's limit."""
    with queue(threads=2) as q:
        for n in range(9):
            q.push_row(n, is_tile=True)
        q.set_away(1)
        assert [q.take() for _ in range(5)] == [[0, 1, 2], [3, 4, 5], [6, 7], [8], []]


def test_what_this_thread_will_multiply_by_next() -> None:
    """Other threads take theirs first. Contiguous rows of B are read ahead for any kernel."""
    with queue(threads=3) as q:
        for n in range(6):
            q.push_row(n)
        q.push(6, column=6, is_in_order=True)
        assert q.next_column(is_in_order=True) == 2
        assert q.next_column(is_in_order=True, count=2) == 4
        assert q.next_column(is_in_order=True, count=3) == 6
        assert q.next_column(is_in_order=True, count=4) == -1
        assert q.next_column() == -1


def test_what_the_next_task_multiplies_by() -> None:
    with queue() as q:
        assert q.next_column() == -1
        q.push(1)
        for n in range(TOGETHER):
            q.push(2 + n, column=40 + n)
        assert q.next_column() == 40
        q.take()
        q.take()
        assert q.next_column() == -1


@pytest.mark.parametrize("seed", [-1, 1, 2, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_task_is_taken_once(seed: int, threads: int) -> None:
    """This holds with rings full of gaps, and with tasks taken out of order."""
    rng = np.random.default_rng(seed + 10)
    waiting: set[int] = set()
    number = 0
    with queue(seed, threads) as q:
        for _ in range(4000):
            # Slots of active tasks form a ring: a number must not meet one 1024 older.
            if len(waiting) < 700 and (not waiting or number - min(waiting) < 1000):
                number += 1
                waiting.add(number)
                column = PLAIN if rng.random() < 0.5 else int(rng.integers(60))
                if rng.random() < 0.3:
                    q.push_row(number, int(rng.integers(1, 3)))
                else:
                    q.push(number, column, is_in_order=bool(rng.random() < 0.3))
            if rng.random() < 0.45 or number - min(waiting) >= 1000:
                taken = q.take(int(rng.integers(1, 9)))
                assert taken
                assert waiting.issuperset(taken)
                waiting.difference_update(taken)
        while waiting:
            waiting.difference_update(q.take())
        assert q.take() == []
