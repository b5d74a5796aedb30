/* Workspace of a run, independent of what it computes. Allocating it zeroed and freeing it takes
 * longer than a short run, so the workspace of the last run is kept. */
#include <stdlib.h>

#include "state.h"

enum {
    FEW_TASKS = 64, /* a run with more tasks has touched much memory, which is freed ... */
    FEW_RUNS = 2    /* ... unless the program has run more often, and will probably run again */
};

static tl_workspace *kept; /* atomic */
static uint64_t runs;      /* atomic */

static void free_workspace(tl_workspace *s) {
    if (!s) return;
    free(s->tasks);
    free(s->found);
    free(s->windows);
    free(s->arguments);
    free(s->of_blocks);
    free(s->scalars);
    free(s->of_blocks_scalars);
    for (int64_t i = 0; i < s->threads; i++) {
        free(s->scratch[i].scratch);
        free(s->scratch[i].matmul);
    }
    free(s->scratch);
    free(s);
}

/* Scratch memory of the threads. */
static int has_scratch(tl_workspace *s, int64_t threads) {
    if (threads <= s->threads) return 1;
    tl_scratch *more = realloc(s->scratch, (size_t)threads * sizeof *more);
    if (!more) return 0;
    s->scratch = more;
    size_t bytes = ((size_t)s->program->scratch_bytes + 2 * ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    for (; s->threads < threads; s->threads++) {
        tl_scratch *one = &more[s->threads];
        if (posix_memalign((void **)&one->scratch, ALIGNMENT, bytes)) return 0;
        if (posix_memalign(&one->matmul, ALIGNMENT, TL_MATMUL_SCRATCH_BYTES)) {
            free(one->scratch);
            return 0;
        }
    }
    return 1;
}

static tl_task *new_tasks(void) {
    void *tasks;
    size_t bytes = MAX_IN_FLIGHT * sizeof(tl_task);
    return posix_memalign(&tasks, ALIGNMENT, bytes) ? NULL : memset(tasks, 0, bytes);
}

static tl_workspace *new_workspace(const tl_program *program) {
    size_t windows = (size_t)program->max_windows, scalars = (size_t)program->max_scalars;
    tl_workspace *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->program = program;
    s->tasks = new_tasks();
    s->found = calloc(MAX_IN_FLIGHT, sizeof *s->found);
    s->windows = calloc(MAX_IN_FLIGHT * windows + 1, sizeof *s->windows);
    s->arguments = calloc(windows + 1, sizeof *s->arguments);
    s->of_blocks = calloc(windows + 1, sizeof *s->of_blocks);
    s->scalars = calloc(MAX_IN_FLIGHT * scalars + 1, sizeof *s->scalars);
    s->of_blocks_scalars = calloc(scalars + 1, sizeof *s->of_blocks_scalars);
    if (s->tasks && s->found && s->windows && s->arguments && s->of_blocks && s->scalars &&
        s->of_blocks_scalars)
        return s;
    free_workspace(s);
    return NULL;
}

tl_workspace *tl_take_workspace(const tl_program *program, int64_t threads) {
    tl_workspace *s = __atomic_exchange_n(&kept, NULL, __ATOMIC_ACQ_REL);
    if (s && s->program != program) { /* of another program: may be too small */
        free_workspace(s);
        s = NULL;
    }
    if (!s) s = new_workspace(program);
    if (!s || has_scratch(s, threads)) return s;
    free_workspace(s);
    return NULL;
}

void tl_leave_workspace(tl_workspace *s, uint64_t submitted) {
    uint64_t before = __atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
    if (s && (submitted <= FEW_TASKS || before >= FEW_RUNS)) {
        /* Task numbers restart: clear everything that refers to those of this run. */
        uint64_t used = submitted < MAX_IN_FLIGHT ? submitted + 1 : MAX_IN_FLIGHT;
        memset(s->tasks, 0, used * sizeof *s->tasks);
        s = __atomic_exchange_n(&kept, s, __ATOMIC_ACQ_REL);
    }
    free_workspace(s);
}
