"""A run does not wait for threads that get no processor before all tasks are done."""

from __future__ import annotations

import pytest
from tests.cpu.clib import BUILDS, build

TASKS = 40
FLAGS = (*BUILDS["native"], "-Wno-enum-compare", "-pthread")

# Threads start when `gate` is opened; `before` counts those that do so while the run goes on.
SOURCE = f"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static int32_t gate, has_returned, begun, late;
typedef struct {{ void *(*run)(void *); void *argument; }} thread;
static void *wait_at_gate(void *given) {{
    thread own = *(thread *)given;
    free(given);
    for (int i = 0; i < 20000 && !__atomic_load_n(&gate, __ATOMIC_ACQUIRE); i++) usleep(1000);
    if (__atomic_load_n(&has_returned, __ATOMIC_ACQUIRE))
        __atomic_add_fetch(&late, 1, __ATOMIC_RELAXED);
    void *result = own.run(own.argument);
    __atomic_add_fetch(&begun, 1, __ATOMIC_RELEASE);
    return result;
}}
static int start_at_gate(pthread_t *t, const pthread_attr_t *attributes, void *(*run)(void *),
                         void *argument) {{
    thread *given = malloc(sizeof *given);
    *given = (thread){{run, argument}};
    (void)attributes;
    return pthread_create(t, NULL, wait_at_gate, given);
}}
#define drop drop_window
#include "buffers.c"
#undef drop
#define find find_use
#include "depend.c"
#undef find
#include "ready.c"
#include "record.c"
#include "workspace.c"
#include "window.c"
#define pthread_create start_at_gate
#include "rt.c"

static int32_t done;
static int run(tl_ctx *c, const tl_win *w, const tl_word *x) {{
    (void)c, (void)w, (void)x;
    __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED);
    return TL_OK;
}}
static int control(tl_ctx *c, const tl_win *w, const tl_word *x) {{
    (void)w, (void)x;
    for (int i = 0; i < {TASKS}; i++) {{
        tl_task *t = tl_begin(c, 0, 0);
        if (!t) return TL_STOPPED;
        tl_submit(c, t, 0, NULL, 0);
    }}
    return TL_OK;
}}
static const tl_kernel kernels[] = {{
    {{.run = run, .name = "count", .directions = "", .batch_max = 1, .streams = 1, .same_a = 1,
      .iterations = 1}},
    {{0}},
}};
static const tl_program program = {{.kernels = kernels, .kernel_count = 1, .control = control}};

/* Number of tasks done; negative if a thread that came late, or in time, was not treated so. */
int try_run(int is_late, int threads) {{
    int32_t cancel = 0;
    int64_t counts[1] = {{0}};
    tl_fault fault;
    tl_run_args args = {{.threads = threads, .seed = -1, .memory = 1 << 30, .cancel = &cancel,
                         .counts = counts, .fault = &fault}};
    done = begun = late = has_returned = 0;
    __atomic_store_n(&gate, !is_late, __ATOMIC_RELEASE);
    if (tl_run(&program, &args)) return -1;
    __atomic_store_n(&has_returned, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&begun, __ATOMIC_ACQUIRE) < threads - 1) usleep(1000);
    return is_late && late != threads - 1 ? -2 : done;
}}
"""


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("is_late", [False, True])
def test_threads_that_start_after_the_run(threads: int, is_late: bool) -> None:
    for _ in range(3):
        assert build(SOURCE, FLAGS).try_run(int(is_late), threads) == TASKS
