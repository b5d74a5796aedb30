/* The faster order in which to read several matrices once: at the same time, a row of each in turn,
 * or one after the other.
 *
 * Which one is faster depends on the hardware prefetchers: two threads of a Zen 4 read 46-58 GB/s at
 * the same time and 38-44 one after the other, two threads of a Zen 5 read 23 and 50
 * (docs/measurements.md). So both orders are timed, now and then: what else runs on the machine
 * changes, too. The order changes no result. */
#ifndef TL_READING_H
#define TL_READING_H

#include <stdint.h>

#include "clock.h"

typedef enum { TOGETHER_BY_ROWS, IN_SEQUENCE, ORDERS } reading_order;

enum {
    TIMED_BYTES = 1 << 18, /* less may be in a cache, and takes too little time to measure */
    FIRST_TRIALS = 16,
    TRIAL_PERIOD = 128
};

typedef struct {
    reading_order order;
    int64_t bytes;
    int64_t begin; /* 0: not timed */
} reading;

static struct {
    uint64_t count;
    int64_t cost[ORDERS]; /* picoseconds per byte, a minimum that slowly grows; 0: unknown */
} readings;               /* atomic fields; lost updates only delay a better choice */

static reading begin_reading(int64_t bytes) {
    int64_t cost[ORDERS];
    for (int i = 0; i < ORDERS; i++) cost[i] = __atomic_load_n(&readings.cost[i], __ATOMIC_RELAXED);
    reading_order best = cost[IN_SEQUENCE] < cost[TOGETHER_BY_ROWS];
    if (bytes < TIMED_BYTES) return (reading){best, bytes, 0};
    uint64_t number = __atomic_fetch_add(&readings.count, 1, __ATOMIC_RELAXED);
    if (number >= FIRST_TRIALS && number % TRIAL_PERIOD >= ORDERS) return (reading){best, bytes, 0};
    return (reading){number % ORDERS, bytes, now_ns()};
}

static void end_reading(const reading *r) {
    if (!r->begin) return;
    int64_t cost = (now_ns() - r->begin) * 1000 / r->bytes + 1;
    int64_t before = __atomic_load_n(&readings.cost[r->order], __ATOMIC_RELAXED);
    int64_t grown = before + before / 8 + 1;
    __atomic_store_n(&readings.cost[r->order], before && grown < cost ? grown : cost,
                     __ATOMIC_RELAXED);
}

#endif
