/* The state of a run, shared by the files of the runtime. One lock guards the ready tasks, the
 * edges between tasks and the pool of memory; dependencies are worked out by the control thread
 * alone (depend.c). */
#ifndef TL_STATE_H
#define TL_STATE_H

#include <pthread.h>

#include "depend.h"
#include "rt.h"

enum {
    MAX_IN_FLIGHT = 1024, /* tasks submitted and not done, at most; a power of two */
    BUCKETS = 512,        /* of ready tasks by what they may be run together with; a power of two */
    SIZE_CLASSES = 256,
    LOCK_SPINS = 200
};
#define NEVER UINT64_MAX
#define ALIGNMENT 64

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

typedef struct edge {
    tl_task *to;
    struct edge *next;
} edge;

struct tl_task {
    uint64_t number;         /* from 1 */
    const tl_kernel *kernel; /* NULL: a join */
    int64_t block, blocks;
    int32_t call;           /* where it was submitted */
    int32_t pending;        /* tasks it waits for */
    int32_t is_done;        /* atomic */
    uint64_t mark;          /* the task that last looked at this one for a dependency */
    struct tl_queue *queue; /* of ready tasks, and its place there */
    uint64_t place;
    const char *a, *b;   /* where the operands of its products begin, if their kernel has them */
    int32_t is_in_order; /* b has rows one after the other: there are no columns beside it */
    tl_task *same_bucket;
    edge *successors, *last_successor; /* in the order of submission */
    tl_win *windows;
    tl_word *scalars;
};

/* A ring of tasks, with gaps where tasks were taken out of turn. */
typedef struct tl_queue {
    tl_task *ring[MAX_IN_FLIGHT];
    uint64_t head, tail; /* the head is no gap */
    uint64_t count;
} tl_queue;

/* Tasks that can run, in the order in which they became ready. */
typedef struct {
    tl_queue immediate, batchable; /* those that wait for a batch are batchable */
    uint64_t count;                /* of both; atomic for those who spin */
    tl_task *buckets[BUCKETS];
} tl_ready;

typedef struct {
    char *scratch;
    void *matmul;
} tl_scratch;

typedef struct {
    const tl_program *program; /* whose runs it is large enough for */
    tl_task *tasks, **found;
    tl_win *windows, *touched, *of_blocks;
    tl_word *scalars, *of_blocks_scalars;
    tl_scratch *scratch; /* of each thread */
    int64_t threads;
} tl_workspace;

struct tl_rt {
    const tl_program *program;
    const tl_run_args *args;
    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    int32_t sleepers, control_sleeps; /* waiting for `work`, for `progress` */
    int32_t closing;                  /* no more tasks will come */
    int32_t busy;                     /* threads that run tasks */
    /* There are tasks for a while: the control thread helps with any that is ready. What a task needs
     * to know should not be written long before it runs: it would have left the caches by then.
     * Only where weights are read as fast as memory allows: tasks that are better run in a batch
     * find each other among those that were submitted ahead. */
    int32_t has_streams;
    int32_t is_ahead;
    int32_t is_submitting; /* atomic: the control program runs, more may come soon */
    tl_workspace *space;   /* memory of what follows */
    tl_task *tasks;        /* MAX_IN_FLIGHT of them, used in a ring */
    uint64_t submitted;    /* tasks so far; control thread only */
    uint64_t finished;     /* atomic */
    tl_ready ready;
    edge *free_edges;
    void *edge_blocks; /* all memory of edges, chained */
    tl_task **found;   /* predecessors of the task being submitted */
    uint32_t found_count;
    tl_win *touched;   /* what it touches of its arguments */
    tl_win *of_blocks; /* arguments of the blocks being submitted */
    tl_word *of_blocks_scalars;
    uint64_t stop_at; /* atomic: the first task known to have failed; later ones do not run */
    tl_fault fault;   /* its fault */
    uint64_t random;
    void *processors;           /* that threads may run on: a cpu_set_t, or NULL */
    tl_buf *pool[SIZE_CLASSES]; /* dead temporaries by size class */
    tl_buf *empty;              /* those whose memory was given back */
    tl_buf *all;                /* every temporary ever made, chained by `older` */
    int64_t pooled_bytes;
    int64_t live_bytes; /* atomic: written with the lock held, read without */
    int64_t buffers;    /* made so far, those of the arguments included */
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* The lock is held for a fraction of a microsecond at a time: to sleep would take far longer. */
static inline void lock(tl_rt *rt) {
    for (int i = 0; i < LOCK_SPINS; i++) {
        if (pthread_mutex_trylock(&rt->lock) == 0) return;
        relax();
    }
    pthread_mutex_lock(&rt->lock);
}
static inline void unlock(tl_rt *rt) { pthread_mutex_unlock(&rt->lock); }

static inline int cancelled(const tl_rt *rt) { return *rt->args->cancel != 0; }

/* buffers.c: references to temporaries; `locked` says whether the caller holds the lock. */
void tl_add_reference(tl_buf *b);
void tl_drop_reference(tl_rt *rt, tl_buf *b, int locked);
void tl_free_buffers(tl_rt *rt);

/* ready.c, all with the lock held. `tl_take_ready` gives up to `batch_max` tasks that are best run
 * together, the first of them in turn (or at random); `tl_only_batchable` says whether all that
 * are ready wait for a batch. */
void tl_push_ready(tl_rt *rt, tl_task *t);
int tl_take_ready(tl_rt *rt, tl_task **tasks, int most);
int tl_only_batchable(const tl_rt *rt);
/* What this thread, which has taken `count` tasks, will probably multiply by next, if that is read in
 * the same way. */
const char *tl_next_b(const tl_rt *rt, const tl_task *taken, int count);
uint64_t tl_random(tl_rt *rt);

/* record.c: writes a task down, if that is wanted. */
void tl_note_task(tl_ctx *c, const tl_task *t, const tl_kernel *kernel, int is_run, int64_t id,
                  int64_t blocks, const int64_t *deps, int64_t dep_count);

/* workspace.c: NULL if there is no memory; `submitted` is the number of tasks of the run. */
tl_workspace *tl_take_workspace(const tl_program *program, int64_t threads);
void tl_leave_workspace(tl_workspace *s, uint64_t submitted);

/* rt.c: one task, by the control thread, if one is ready; else wait until something has changed. */
int tl_help(tl_ctx *c);
void tl_wait_for_progress(tl_ctx *c, uint64_t finished_before);

#endif
