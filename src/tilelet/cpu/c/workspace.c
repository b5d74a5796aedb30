/* What a run needs whatever it computes. To get it from the system and to give it back takes longer
 * than a short run: that of the last one is kept. */
#include <stdlib.h>

#include "state.h"

enum { FEW_TASKS = 64 }; /* a run of more has touched much memory, which goes back to the system */

static tl_workspace *kept; /* atomic */

int tl_allocate_scratch(const tl_program *program, char **scratch, void **matmul) {
    size_t bytes = ((size_t)program->scratch_bytes + 2 * ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    return posix_memalign((void **)scratch, ALIGNMENT, bytes) ||
           posix_memalign(matmul, ALIGNMENT, TL_MATMUL_SCRATCH_BYTES);
}

static void free_workspace(tl_workspace *s) {
    if (!s) return;
    free(s->tasks);
    free(s->found);
    free(s->windows);
    free(s->touched);
    free(s->of_blocks);
    free(s->scalars);
    free(s->of_blocks_scalars);
    free(s->scratch);
    free(s->matmul);
    free(s);
}

tl_workspace *tl_take_workspace(const tl_program *program) {
    tl_workspace *s = __atomic_exchange_n(&kept, NULL, __ATOMIC_ACQ_REL);
    if (s && s->program == program) return s;
    free_workspace(s); /* of another program in this library: it may be too small */
    size_t windows = (size_t)program->max_windows, scalars = (size_t)program->max_scalars;
    s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->program = program;
    s->tasks = calloc(MAX_IN_FLIGHT, sizeof *s->tasks);
    s->found = calloc(MAX_IN_FLIGHT, sizeof *s->found);
    s->windows = calloc(MAX_IN_FLIGHT * windows + 1, sizeof *s->windows);
    s->touched = calloc(windows + 1, sizeof *s->touched);
    s->of_blocks = calloc(windows + 1, sizeof *s->of_blocks);
    s->scalars = calloc(MAX_IN_FLIGHT * scalars + 1, sizeof *s->scalars);
    s->of_blocks_scalars = calloc(scalars + 1, sizeof *s->of_blocks_scalars);
    int failed = tl_allocate_scratch(program, &s->scratch, &s->matmul);
    if (!failed && s->tasks && s->found && s->windows && s->touched && s->of_blocks && s->scalars &&
        s->of_blocks_scalars)
        return s;
    free_workspace(s);
    return NULL;
}

void tl_leave_workspace(tl_workspace *s, uint64_t submitted) {
    if (s && submitted <= FEW_TASKS) {
        /* Task numbers begin anew: nothing may remind of those of this run. */
        memset(s->tasks, 0, (submitted + 1) * sizeof *s->tasks);
        s = __atomic_exchange_n(&kept, s, __ATOMIC_ACQ_REL);
    }
    free_workspace(s);
}
