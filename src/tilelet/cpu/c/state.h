/* State of a run, shared by the files of the runtime. One lock guards the ready tasks and the edges
 * between tasks; dependencies and memory are managed by the control thread alone (depend.c,
 * buffers.c). */
#ifndef TL_STATE_H
#define TL_STATE_H

#include <pthread.h>

#include "depend.h"
#include "rt.h"

enum {
    MAX_IN_FLIGHT = 1024, /* limit of unfinished tasks; a power of two */
    BUCKETS = 512,        /* buckets of ready tasks by batch; a power of two */
    SIZE_CLASSES = 256,
    FAR_BYTES = 64 << 20, /* tensors from here on bypass the caches */
    LOCK_SPINS = 200,
    MAX_HELD = 16 /* tasks that the control thread publishes at once */
};
#define NEVER UINT64_MAX
#define ALIGNMENT 64 /* a cache line */

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

typedef struct edge {
    tl_task *from, *to;
    struct edge *next; /* of the same `from`; before it is published, of the same `to` */
} edge;

/* Each task has cache lines of its own: the first is written by the control thread only. */
struct tl_task {
    uint64_t number;         /* 1-based */
    const tl_kernel *kernel; /* NULL: a join */
    tl_win *windows;
    tl_word *scalars;
    int64_t block, blocks;
    const char *a, *b; /* first bytes of its products' operands, if the kernel has any */
    edge *successors, *last_successor; /* in submission order; the first is atomic */
    struct tl_queue *queue;            /* ring of ready tasks, and its index there */
    uint64_t place;
    tl_task *same_bucket;
    uint64_t mark;       /* control thread: the task that last examined this one for a dependency */
    int32_t is_in_order; /* b has contiguous rows: there are no columns beside it */
    int32_t call;        /* the op that submitted it */
    int32_t pending;     /* tasks it waits for */
    int32_t is_done;     /* atomic */
};

/* A ring of tasks, with gaps where tasks were taken out of order. */
typedef struct tl_queue {
    tl_task *ring[MAX_IN_FLIGHT];
    uint64_t head, tail; /* the head is not a gap */
    uint64_t count;
} tl_queue;

/* Tasks that can run, in the order in which they became ready. */
typedef struct {
    tl_queue immediate, batchable; /* tasks that wait for a batch are in `batchable` */
    uint64_t count;                /* number in both; atomic for spinning threads */
    tl_task *buckets[BUCKETS];
} tl_ready;

typedef struct {
    char *scratch;
    void *matmul;
} tl_scratch;

typedef struct {
    const tl_program *program; /* the program it is large enough for */
    tl_task *tasks, **found;
    tl_win *windows, *arguments, *of_blocks;
    tl_word *scalars, *of_blocks_scalars;
    tl_scratch *scratch; /* per thread */
    int64_t threads;
} tl_workspace;

/* Threads write different groups of fields, which do not share cache lines. */
#define NEXT_LINE(name) char name[ALIGNMENT]

struct tl_rt {
    const tl_program *program;
    const tl_run_args *args;
    tl_workspace *space; /* allocation of the following arrays */
    tl_task *tasks;      /* MAX_IN_FLIGHT of them, used as a ring */
    tl_task **found;     /* predecessors of the task being submitted */
    /* Its arguments, and then their footprints. They are written here first: those of an earlier
     * task in the same slot may be in another thread's cache, and reading them back would wait. */
    tl_win *arguments;
    tl_win *of_blocks; /* arguments of the blocks being submitted */
    tl_word *of_blocks_scalars;
    const tl_ctx *control; /* context of the control thread */
    void *processors;      /* processors that threads may use: a cpu_set_t, or NULL */
    /* Whether weights are read at memory speed, and whether tasks run in batches. */
    int32_t has_streams, has_batches;
    uint64_t stop_at;      /* atomic: the first task known to have failed; later ones do not run */
    int32_t is_submitting; /* atomic: the control program runs, more tasks may come soon */
    int32_t is_waiting;    /* atomic: the control thread waits for a task to finish */
    NEXT_LINE(control_only);
    uint64_t submitted; /* number of tasks so far */
    uint64_t retired;   /* number of tasks that hold no references any more */
    uint32_t found_count;
    /* Tasks that are not published yet, and the number of these that can run: taking the lock for
     * each would make the threads wait for each other. */
    uint32_t held_count, held_ready, held_limit;
    tl_task *held[MAX_HELD];
    edge *held_edges[MAX_HELD]; /* from their predecessors */
    edge *free_edges;
    void *edge_blocks;          /* allocations of edges, linked */
    tl_buf *pool[SIZE_CLASSES]; /* pooled temporaries by size class */
    tl_buf *empty;              /* temporaries whose memory was freed */
    tl_buf *all;                /* all temporaries, linked by `older` */
    int64_t pooled_bytes, live_bytes;
    int64_t buffers; /* number of buffers so far, including the arguments' */
    /* Enough tasks are queued: the control thread executes any that is ready. A task's record
     * should not be written long before the task runs: it would have left the caches by then. */
    int32_t is_ahead;
    NEXT_LINE(guarded);
    pthread_mutex_t lock;
    int32_t sleepers, control_sleeps; /* threads waiting for `work`, for `progress` */
    int32_t closing;                  /* no more tasks will be submitted */
    int32_t busy;                     /* threads that run tasks */
    uint64_t finished;                /* atomic */
    uint64_t random;
    tl_ready ready;
    NEXT_LINE(seldom);
    pthread_cond_t work, progress;
    tl_fault fault; /* fault of the task `stop_at` */
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* The lock is held for a fraction of a microsecond: sleeping would take far longer. */
static inline void lock(tl_rt *rt) {
    for (int i = 0; i < LOCK_SPINS; i++) {
        if (pthread_mutex_trylock(&rt->lock) == 0) return;
        relax();
    }
    pthread_mutex_lock(&rt->lock);
}
static inline void unlock(tl_rt *rt) { pthread_mutex_unlock(&rt->lock); }

static inline int cancelled(const tl_rt *rt) { return *rt->args->cancel != 0; }

/* buffers.c: references to temporaries, counted by the control thread. */
void tl_add_reference(tl_buf *b);
void tl_drop_reference(tl_rt *rt, tl_buf *b);
void tl_free_buffers(tl_rt *rt);

/* ready.c, all with the lock held. `tl_take_ready` returns up to `batch_max` tasks that should run
 * together, the first of them in order (or at random), or up to `plain` tasks without products to
 * run one after the other; `tl_only_batchable` returns whether all ready tasks wait for a batch. */
void tl_push_ready(tl_rt *rt, tl_task *t);
int tl_take_ready(tl_rt *rt, tl_task **tasks, int most, int plain);
int tl_only_batchable(const tl_rt *rt);
/* The B that this thread, which has taken `count` tasks, will probably read next in the same way.
 */
const char *tl_next_b(const tl_rt *rt, const tl_task *taken, int count);
uint64_t tl_random(tl_rt *rt);

/* record.c: record a task, if requested. */
void tl_note_task(tl_ctx *c, const tl_task *t, const tl_kernel *kernel, int is_run, int64_t id,
                  int64_t blocks, const int64_t *deps, int64_t dep_count);

/* workspace.c: NULL if out of memory; `submitted` is the number of tasks of the run. */
tl_workspace *tl_take_workspace(const tl_program *program, int64_t threads);
void tl_leave_workspace(tl_workspace *s, uint64_t submitted);

/* rt.c, on the control thread: publish the tasks that it holds; drop the references of tasks that
 * are done; run ready tasks, as in `tl_take_ready`; or wait until something changes. */
void tl_publish(tl_rt *rt);
void tl_retire(tl_rt *rt);
int tl_help(tl_ctx *c, int plain);
void tl_wait_for_progress(tl_ctx *c, uint64_t finished_before);

#endif
