"""reading.h: the faster of two orders in which to read matrices is chosen by timing both."""

from __future__ import annotations

import random

from tests.cpu.clib import build

SOURCE = """
#define TL_CLOCK_H
#include <stdint.h>
static int64_t now = 1;
static int64_t now_ns(void) { return now; }
#include "reading.h"
/* Read once, where each order takes so many nanoseconds; returns the order. */
int read_once(int64_t bytes, int64_t together, int64_t in_sequence) {
    reading r = begin_reading(bytes);
    now += r.order == IN_SEQUENCE ? in_sequence : together;
    end_reading(&r);
    return r.order;
}
void restart(void) { readings = (typeof(readings)){0}; }
"""
TOGETHER, IN_SEQUENCE = 0, 1
LARGE = 1 << 20


def orders(times: tuple[int, int], count: int = 1000, noise: float = 0.0) -> list[int]:
    """The orders of `count` readings that take `times` nanoseconds, sometimes much longer."""
    library, rng = build(SOURCE), random.Random(0)
    drawn = ([t * 50 if rng.random() < noise else t for t in times] for _ in range(count))
    return [library.read_once(LARGE, *(int(t) for t in each)) for each in drawn]


def test_the_faster_order_is_chosen_and_the_other_one_tried_now_and_then() -> None:
    for times, best in (((20_000, 30_000), TOGETHER), ((30_000, 20_000), IN_SEQUENCE)):
        build(SOURCE).restart()
        chosen = orders(times)
        assert set(chosen[:16]) == {TOGETHER, IN_SEQUENCE}
        assert chosen.count(best) > 0.98 * len(chosen)


def test_interrupted_readings_do_not_count() -> None:
    build(SOURCE).restart()
    chosen = orders((30_000, 20_000), noise=0.4)
    assert chosen[16:].count(IN_SEQUENCE) > 0.95 * len(chosen[16:])


def test_the_choice_follows_the_machine() -> None:
    build(SOURCE).restart()
    orders((20_000, 30_000))
    assert orders((40_000, 30_000), 4000)[-100:].count(IN_SEQUENCE) > 90


def test_small_matrices_are_not_timed() -> None:
    library = build(SOURCE)
    library.restart()
    for _ in range(100):
        assert library.read_once(LARGE // 16, 30_000, 20_000) == TOGETHER
    orders((30_000, 20_000), 16)
    assert library.read_once(LARGE // 16, 30_000, 20_000) == IN_SEQUENCE
