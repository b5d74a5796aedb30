/* The task runtime. One lock guards the ready queue and the edges between tasks; dependencies are
 * worked out by the control thread alone (depend.c). Threads: the caller's, which runs the control
 * program and helps with tasks whenever it has to wait, and `threads - 1` workers. */
#include "rt.h"

#include <pthread.h>
#include <stdlib.h>

#include "depend.h"
#include "matmul.h"

enum {
    UNDER_WAY = 1024,      /* tasks submitted and not done, at most; a power of two */
    SPINS = 2000,          /* looks at the queue before a thread goes to sleep */
    POOLED_BYTES = 64 << 20, /* dead temporaries kept for reuse */
    SIZE_CLASSES = 256
};
#define NEVER UINT64_MAX
#define ALIGNMENT 64

typedef struct edge {
    tl_task *to;
    struct edge *next;
} edge;

struct tl_task {
    uint64_t number; /* from 1 */
    const tl_kernel *kernel; /* NULL: a join */
    int64_t blocks;
    int32_t pending; /* tasks it waits for */
    int32_t is_done; /* atomic */
    uint64_t mark;   /* the task that last looked at this one for a dependency */
    edge *successors;
    tl_win *windows;
    tl_word *scalars;
};

struct tl_rt {
    const tl_program *program;
    const tl_run_args *args;
    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    int32_t sleepers, control_sleeps; /* waiting for `work`, for `progress` */
    int32_t closing;                  /* no more tasks will come */
    tl_task *tasks;                   /* UNDER_WAY of them, used in a ring */
    uint64_t submitted;               /* tasks so far; control thread only */
    uint64_t finished;                /* atomic */
    tl_task **ready;                  /* a ring of UNDER_WAY */
    uint64_t ready_head, ready_tail;  /* tail: atomic for those who spin */
    edge *free_edges;
    void *edge_blocks;                /* all memory of edges, chained */
    tl_task **found;                  /* predecessors of the task being submitted */
    uint32_t found_count;
    tl_win *touched;                  /* what it touches of its arguments */
    uint64_t stop_at; /* atomic: the first task known to have failed; later ones do not run */
    tl_fault fault;   /* its fault */
    uint64_t random;
    tl_buf *pool[SIZE_CLASSES];       /* dead temporaries by size class */
    tl_buf *empty;                    /* those whose memory was given back */
    tl_buf *all;                      /* every temporary ever made, chained by `older` */
    int64_t pooled_bytes, live_bytes;
};

/* --- small things ------------------------------------------------------------------------------ */

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

static tl_task *task_of(tl_rt *rt, uint64_t number) {
    return &rt->tasks[number & (UNDER_WAY - 1)];
}

static int is_done(void *runtime, uint64_t number) {
    tl_task *t = task_of(runtime, number);
    return t->number != number || LOAD(t->is_done);
}

static int cancelled(const tl_rt *rt) { return *rt->args->cancel != 0; }

int tl_stopping(const tl_rt *rt) { return LOAD(rt->stop_at) != NEVER || cancelled(rt); }

static uint64_t next_random(tl_rt *rt) {
    rt->random ^= rt->random << 13;
    rt->random ^= rt->random >> 7;
    rt->random ^= rt->random << 17;
    return rt->random;
}

/* --- memory ------------------------------------------------------------------------------------ */

/* Eight classes for each power of two. */
static int size_class(int64_t bytes) {
    if (bytes <= 512) return 0;
    int log = 63 - __builtin_clzll((uint64_t)(bytes - 1));
    return (log - 9) * 8 + (int)((bytes - 1) >> (log - 3) & 7) + 1;
}

static int64_t class_bytes(int class) {
    if (class == 0) return 512;
    int log = (class - 1) / 8 + 9, part = (class - 1) % 8;
    return ((int64_t)(part + 9)) << (log - 3);
}


/* With the lock held: a buffer nobody refers to any more. */
static void to_pool(tl_rt *rt, tl_buf *b) {
    int64_t bytes = class_bytes(size_class(b->bytes));
    rt->live_bytes -= bytes;
    tl_forget_uses(b);
    tl_buf **list = &rt->pool[size_class(b->bytes)];
    if (rt->pooled_bytes + bytes > POOLED_BYTES) {
        free(b->base);
        b->base = NULL;
        list = &rt->empty;
    } else {
        rt->pooled_bytes += bytes;
    }
    b->next = *list;
    *list = b;
}

static void drop_reference(tl_rt *rt, tl_buf *b, int locked) {
    if (!b || !b->is_temporary || __atomic_sub_fetch(&b->references, 1, __ATOMIC_ACQ_REL)) return;
    if (!locked) pthread_mutex_lock(&rt->lock);
    to_pool(rt, b);
    if (!locked) pthread_mutex_unlock(&rt->lock);
}

static void add_reference(tl_buf *b) {
    if (b && b->is_temporary) __atomic_add_fetch(&b->references, 1, __ATOMIC_RELAXED);
}

void tl_retain(const tl_win *w) { add_reference(w->buf); }
void tl_release(tl_ctx *c, const tl_win *w) { drop_reference(c->rt, w->buf, 0); }

void tl_assign(tl_ctx *c, tl_win *variable, const tl_win *w) {
    tl_buf *old = variable->buf;
    add_reference(w->buf);
    if (variable != w) *variable = *w;
    drop_reference(c->rt, old, 0);
}

static tl_buf *from_pool(tl_rt *rt, int class) {
    pthread_mutex_lock(&rt->lock);
    tl_buf *b = rt->pool[class];
    if (b) {
        rt->pool[class] = b->next;
        rt->pooled_bytes -= class_bytes(class);
        rt->live_bytes += class_bytes(class);
    }
    pthread_mutex_unlock(&rt->lock);
    return b;
}

static tl_buf *new_buffer(tl_rt *rt, int class) {
    void *memory;
    if (posix_memalign(&memory, ALIGNMENT, (size_t)class_bytes(class))) return NULL;
    pthread_mutex_lock(&rt->lock);
    tl_buf *b = rt->empty;
    if (b) {
        rt->empty = b->next;
    } else if ((b = calloc(1, sizeof *b))) {
        b->is_temporary = 1;
        b->older = rt->all;
        rt->all = b;
    }
    if (b) rt->live_bytes += class_bytes(class);
    pthread_mutex_unlock(&rt->lock);
    if (b) b->base = memory;
    else free(memory);
    return b;
}

static int help(tl_ctx *c);
static void wait_for_progress(tl_ctx *c, uint64_t finished_before);

int tl_create(tl_ctx *c, int site, tl_win *out, const int64_t *shape, int rank, int itemsize,
              uint64_t pattern) {
    tl_rt *rt = c->rt;
    int64_t bytes = itemsize;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 1) {
            tl_fail(c, TL_EXTENT, site, rank, i, 0, 0);
            memcpy(&c->fault.n[2], shape, (size_t)rank * sizeof *shape);
            return TL_EXTENT;
        }
        if (__builtin_mul_overflow(bytes, shape[i], &bytes)) bytes = INT64_MAX;
    }
    tl_buf *b = NULL;
    if (bytes < INT64_MAX / 4) {
        int class = size_class(bytes);
        int64_t needed = class_bytes(class);
        /* Tasks under way may be all that keeps memory in use. */
        for (;;) {
            uint64_t finished = LOAD(rt->finished);
            if (LOAD(rt->live_bytes) + needed <= rt->args->memory || finished == rt->submitted)
                break;
            if (tl_stopping(rt)) return TL_STOPPED;
            if (!help(c)) wait_for_progress(c, finished);
        }
        if (LOAD(rt->live_bytes) + needed <= rt->args->memory && class < SIZE_CLASSES) {
            b = from_pool(rt, class);
            if (!b) b = new_buffer(rt, class);
        }
    }
    if (!b)
        return tl_fail(c, TL_MEMORY, site, bytes, rt->args->memory - LOAD(rt->live_bytes), 0, 0);
    b->bytes = bytes;
    b->references = 1;
    b->name = site;
    tl_fill(b->base, bytes, pattern);
    out->data = b->base;
    out->buf = b;
    out->rank = rank;
    out->itemsize = itemsize;
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        out->shape[i] = out->valid[i] = out->reach[i] = shape[i];
        out->stride[i] = step;
        step *= shape[i];
    }
    return TL_OK;
}

/* --- running tasks ----------------------------------------------------------------------------- */

static void push_ready(tl_rt *rt, tl_task *t) {
    rt->ready[rt->ready_tail & (UNDER_WAY - 1)] = t;
    STORE(rt->ready_tail, rt->ready_tail + 1);
    if (rt->sleepers) pthread_cond_signal(&rt->work);
    if (rt->control_sleeps) pthread_cond_signal(&rt->progress);
}

static tl_task *pop_ready(tl_rt *rt) {
    if (rt->ready_head == rt->ready_tail) return NULL;
    if (rt->args->seed >= 0) {
        uint64_t waiting = rt->ready_tail - rt->ready_head;
        uint64_t chosen = (rt->ready_head + next_random(rt) % waiting) & (UNDER_WAY - 1);
        uint64_t first = rt->ready_head & (UNDER_WAY - 1);
        tl_task *t = rt->ready[chosen];
        rt->ready[chosen] = rt->ready[first];
        rt->ready[first] = t;
    }
    tl_task *t = rt->ready[rt->ready_head & (UNDER_WAY - 1)];
    STORE(rt->ready_head, rt->ready_head + 1);
    return t;
}

/* With the lock held. Of several failures the earliest in program order is the one that counts,
 * because it is the one that would have come first without threads. */
static void note_fault(tl_rt *rt, const tl_fault *fault, uint64_t number) {
    if (number < rt->stop_at) {
        rt->fault = *fault;
        rt->fault.task = number;
        STORE(rt->stop_at, number);
    }
}

static int run_task(tl_ctx *c, tl_task *t) {
    tl_rt *rt = c->rt;
    if (!t->kernel) return 0;
    c->blocks = t->blocks;
    for (c->block = 0; c->block < t->blocks; c->block++) {
        if (cancelled(rt) || t->number > LOAD(rt->stop_at)) return 0;
        int kind = t->kernel->run(c, t->windows, t->scalars);
        if (kind == TL_STOPPED) return 0;
        if (kind) return kind;
    }
    return 0;
}

/* With the lock held. */
static void finish(tl_ctx *c, tl_task *t, int kind) {
    tl_rt *rt = c->rt;
    if (kind) note_fault(rt, &c->fault, t->number);
    if (t->kernel)
        for (int i = 0; i < t->kernel->windows; i++) drop_reference(rt, t->windows[i].buf, 1);
    for (edge *e = t->successors; e;) {
        edge *next = e->next;
        if (--e->to->pending == 0) push_ready(rt, e->to);
        e->next = rt->free_edges;
        rt->free_edges = e;
        e = next;
    }
    t->successors = NULL;
    STORE(t->is_done, 1);
    STORE(rt->finished, rt->finished + 1);
    if (rt->control_sleeps) pthread_cond_signal(&rt->progress);
}

static void work(tl_ctx *c, tl_task *t) {
    int kind = run_task(c, t);
    pthread_mutex_lock(&c->rt->lock);
    finish(c, t, kind);
}

/* The control thread runs one task, if one is ready. */
static int help(tl_ctx *c) {
    tl_rt *rt = c->rt;
    if (LOAD(rt->ready_tail) == LOAD(rt->ready_head)) return 0;
    pthread_mutex_lock(&rt->lock);
    tl_task *t = pop_ready(rt);
    pthread_mutex_unlock(&rt->lock);
    if (!t) return 0;
    work(c, t);
    pthread_mutex_unlock(&rt->lock);
    return 1;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* Until another task is done, or one is ready. */
static void wait_for_progress(tl_ctx *c, uint64_t finished_before) {
    tl_rt *rt = c->rt;
    for (int i = 0; i < SPINS; i++) {
        if (LOAD(rt->finished) != finished_before) return;
        if (LOAD(rt->ready_tail) != LOAD(rt->ready_head)) return;
        relax();
    }
    pthread_mutex_lock(&rt->lock);
    while (rt->finished == finished_before && rt->ready_head == rt->ready_tail) {
        rt->control_sleeps = 1;
        pthread_cond_wait(&rt->progress, &rt->lock);
    }
    rt->control_sleeps = 0;
    pthread_mutex_unlock(&rt->lock);
}

static void *worker(void *context) {
    tl_ctx *c = context;
    tl_rt *rt = c->rt;
    pthread_mutex_lock(&rt->lock);
    for (;;) {
        tl_task *t = pop_ready(rt);
        if (t) {
            pthread_mutex_unlock(&rt->lock);
            work(c, t);
            continue;
        }
        if (rt->closing) break;
        pthread_mutex_unlock(&rt->lock);
        for (int i = 0; i < SPINS && LOAD(rt->ready_tail) == LOAD(rt->ready_head); i++) relax();
        pthread_mutex_lock(&rt->lock);
        if (rt->ready_head == rt->ready_tail && !rt->closing) {
            rt->sleepers++;
            pthread_cond_wait(&rt->work, &rt->lock);
            rt->sleepers--;
        }
    }
    pthread_mutex_unlock(&rt->lock);
    return NULL;
}

/* --- submitting -------------------------------------------------------------------------------- */

static int wait_task(tl_ctx *c, uint64_t number) {
    tl_rt *rt = c->rt;
    for (;;) {
        uint64_t finished = LOAD(rt->finished);
        if (is_done(rt, number)) return TL_OK;
        if (!help(c)) wait_for_progress(c, finished);
    }
}

static tl_task *next_task(tl_ctx *c) {
    tl_rt *rt = c->rt;
    if (tl_stopping(rt)) return NULL;
    if (rt->submitted >= UNDER_WAY) wait_task(c, rt->submitted + 1 - UNDER_WAY);
    tl_task *t = task_of(rt, rt->submitted + 1);
    t->number = ++rt->submitted;
    t->is_done = 0;
    t->pending = 0;
    t->blocks = 1;
    t->kernel = NULL;
    rt->found_count = 0;
    return t;
}

tl_task *tl_begin(tl_ctx *c, int32_t kernel) {
    tl_task *t = next_task(c);
    if (!t) return NULL;
    t->kernel = &c->rt->program->kernels[kernel];
    c->rt->args->counts[kernel]++;
    return t;
}

tl_win *tl_task_windows(tl_task *t) { return t->windows; }
tl_word *tl_task_scalars(tl_task *t) { return t->scalars; }

/* The task being submitted waits for task `number`. */
static void found(void *runtime, uint64_t number) {
    tl_rt *rt = runtime;
    tl_task *t = task_of(rt, number);
    if (is_done(rt, number) || t->mark == rt->submitted || number == rt->submitted) return;
    t->mark = rt->submitted;
    rt->found[rt->found_count++] = t;
}

static edge *new_edge(tl_rt *rt) {
    if (!rt->free_edges) {
        enum { BLOCK = 4096 };
        void **block = malloc(sizeof(void *) + BLOCK * sizeof(edge));
        if (!block) return NULL;
        *block = rt->edge_blocks;
        rt->edge_blocks = block;
        edge *edges = (edge *)(block + 1);
        for (int i = 0; i < BLOCK; i++) {
            edges[i].next = rt->free_edges;
            rt->free_edges = &edges[i];
        }
    }
    edge *e = rt->free_edges;
    rt->free_edges = e->next;
    return e;
}

/* Hand the task over to the threads. Without memory for its edges it waits here instead. */
static int64_t launch(tl_ctx *c, tl_task *t) {
    tl_rt *rt = c->rt;
    pthread_mutex_lock(&rt->lock);
    for (uint32_t i = 0; i < rt->found_count; i++) {
        tl_task *before = rt->found[i];
        if (before->is_done) continue;
        edge *e = new_edge(rt);
        if (!e) {
            pthread_mutex_unlock(&rt->lock);
            wait_task(c, before->number);
            pthread_mutex_lock(&rt->lock);
            continue;
        }
        e->to = t;
        e->next = before->successors;
        before->successors = e;
        t->pending++;
    }
    int64_t id = (int64_t)t->number - 1;
    if (t->pending == 0) push_ready(rt, t);
    int helps = rt->args->seed >= 0 && next_random(rt) % 4 == 0;
    pthread_mutex_unlock(&rt->lock);
    if (helps) help(c);
    return id;
}

static void depend_on(tl_rt *rt, const int64_t *deps, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (deps[i] >= 0 && (uint64_t)deps[i] + 1 < rt->submitted) found(rt, (uint64_t)deps[i] + 1);
}

int64_t tl_submit(tl_ctx *c, tl_task *t, int64_t blocks, const int64_t *deps, int64_t dep_count) {
    tl_rt *rt = c->rt;
    t->blocks = blocks;
    depend_on(rt, deps, dep_count);
    int out_of_memory = 0;
    const tl_win *touched = t->windows;
    if (t->kernel->footprint) {
        memcpy(rt->touched, t->windows, (size_t)t->kernel->windows * sizeof *rt->touched);
        t->kernel->footprint(t->scalars, rt->touched);
        touched = rt->touched;
    }
    for (int i = 0; i < t->kernel->windows; i++) {
        tl_buf *b = t->windows[i].buf;
        add_reference(b);
        if (b->is_readonly) continue;
        int64_t use = tl_use_of(b, &touched[i], is_done, rt);
        if (use < 0) {
            out_of_memory = 1;
            continue;
        }
        int writes = t->kernel->directions[i] != 'r';
        tl_depend(b, (uint32_t)use, writes, found, rt);
        out_of_memory |= tl_note(b, (uint32_t)use, writes, t->number, is_done, rt);
    }
    if (out_of_memory) /* what it waits for could not be written down: wait for everything */
        for (uint64_t n = t->number > UNDER_WAY ? t->number - UNDER_WAY + 1 : 1; n < t->number; n++)
            wait_task(c, n);
    return launch(c, t);
}

int64_t tl_join(tl_ctx *c, int32_t kernel, const int64_t *deps, int64_t dep_count) {
    tl_task *t = next_task(c);
    if (!t) return -1;
    if (kernel >= 0) c->rt->args->counts[kernel]++;
    depend_on(c->rt, deps, dep_count);
    return launch(c, t);
}

int tl_wait(tl_ctx *c, const tl_win *w, int writing) {
    tl_rt *rt = c->rt;
    if (w->buf->is_readonly) return TL_OK;
    rt->found_count = 0;
    int64_t use = tl_use_of(w->buf, w, is_done, rt);
    if (use < 0) {
        for (uint64_t n = rt->submitted > UNDER_WAY ? rt->submitted - UNDER_WAY + 1 : 1;
             n <= rt->submitted; n++)
            wait_task(c, n);
    } else {
        /* Marks are left by tasks; here none is being submitted. */
        const tl_use *own = &w->buf->uses[use];
        for (uint32_t i = 0; i <= own->overlapping.count; i++) {
            const tl_use *u = i ? &w->buf->uses[own->overlapping.items[i - 1]] : own;
            if (u->writer) wait_task(c, u->writer);
            for (uint32_t k = 0; writing && k < u->readers.count; k++)
                wait_task(c, u->readers.items[k]);
        }
    }
    return tl_stopping(rt) ? TL_STOPPED : TL_OK;
}

int tl_call_host(tl_ctx *c, int site, int64_t op, tl_win *tiles, const tl_word *scalars) {
    if (cancelled(c->rt)) return TL_STOPPED;
    int error = c->rt->args->host(op, tiles, scalars, c->block);
    return error ? tl_fail(c, TL_HOST, site, op, error, 0, 0) : TL_OK;
}

/* --- one run ----------------------------------------------------------------------------------- */

static int prepare_context(tl_ctx *c, tl_rt *rt) {
    memset(c, 0, sizeof *c);
    c->rt = rt;
    c->blocks = 1;
    c->cancel = rt->args->cancel;
    size_t scratch = ((size_t)rt->program->scratch_bytes + 2 * ALIGNMENT) & ~(size_t)(ALIGNMENT - 1);
    return posix_memalign((void **)&c->scratch, ALIGNMENT, scratch) ||
           posix_memalign(&c->matmul, ALIGNMENT, TL_MATMUL_SCRATCH_BYTES);
}

static void free_context(tl_ctx *c) {
    free(c->scratch);
    free(c->matmul);
}

static int prepare(tl_rt *rt, const tl_program *program, const tl_run_args *args) {
    rt->program = program;
    rt->args = args;
    rt->stop_at = NEVER;
    rt->random = (uint64_t)args->seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    pthread_mutex_init(&rt->lock, NULL);
    pthread_cond_init(&rt->work, NULL);
    pthread_cond_init(&rt->progress, NULL);
    rt->tasks = calloc(UNDER_WAY, sizeof *rt->tasks);
    rt->ready = calloc(UNDER_WAY, sizeof *rt->ready);
    rt->found = calloc(UNDER_WAY, sizeof *rt->found);
    rt->touched = calloc((size_t)program->max_windows + 1, sizeof *rt->touched);
    tl_win *windows = calloc((size_t)UNDER_WAY * (size_t)program->max_windows + 1, sizeof *windows);
    tl_word *scalars = calloc((size_t)UNDER_WAY * (size_t)program->max_scalars + 1, sizeof *scalars);
    if (!rt->tasks || !rt->ready || !rt->found || !rt->touched || !windows || !scalars) {
        free(windows);
        free(scalars);
        return -1;
    }
    for (int i = 0; i < UNDER_WAY; i++) {
        rt->tasks[i].windows = windows + (size_t)i * (size_t)program->max_windows;
        rt->tasks[i].scalars = scalars + (size_t)i * (size_t)program->max_scalars;
        rt->tasks[i].is_done = 1;
    }
    return 0;
}

static void clean_up(tl_rt *rt, tl_buf *params) {
    for (tl_buf *b = rt->all; b;) {
        tl_buf *older = b->older;
        free(b->base);
        tl_free_uses(b);
        free(b);
        b = older;
    }
    for (int64_t i = 0; params && i < rt->args->buffer_count; i++) tl_free_uses(&params[i]);
    for (void **block = rt->edge_blocks; block;) {
        void **next = *block;
        free(block);
        block = next;
    }
    free(params);
    if (rt->tasks) {
        free(rt->tasks[0].windows);
        free(rt->tasks[0].scalars);
    }
    free(rt->tasks);
    free(rt->ready);
    free(rt->found);
    free(rt->touched);
    pthread_mutex_destroy(&rt->lock);
    pthread_cond_destroy(&rt->work);
    pthread_cond_destroy(&rt->progress);
}

static tl_buf *bind_params(const tl_run_args *args) {
    tl_buf *params = calloc((size_t)args->buffer_count + 1, sizeof *params);
    for (int64_t i = 0; params && i < args->buffer_count; i++) {
        params[i].base = args->bases[i];
        params[i].is_readonly = args->readonly[i];
        params[i].name = args->names[i];
    }
    for (int64_t i = 0; params && i < args->window_count; i++)
        args->windows[i].buf = &params[args->buffer_of[i]];
    return params;
}

static int run_control(tl_ctx *c) {
    tl_rt *rt = c->rt;
    int kind = rt->program->control(c, rt->args->windows, rt->args->scalars);
    tl_fault fault = c->fault;
    while (LOAD(rt->finished) != rt->submitted) {
        uint64_t finished = LOAD(rt->finished);
        if (finished != rt->submitted && !help(c)) wait_for_progress(c, finished);
    }
    pthread_mutex_lock(&rt->lock);
    /* The control program's own fault came after every task it had submitted. */
    if (kind && kind != TL_STOPPED) note_fault(rt, &fault, rt->submitted + 1);
    pthread_mutex_unlock(&rt->lock);
    if (rt->stop_at != NEVER) {
        *rt->args->fault = rt->fault;
        return rt->fault.kind;
    }
    return cancelled(rt) ? TL_STOPPED : TL_OK;
}

__attribute__((visibility("default"))) int tl_run(const tl_program *program,
                                                  const tl_run_args *args) {
    tl_rt rt = {0};
    int64_t started = 0, threads = args->threads > 1 ? args->threads : 1;
    tl_ctx *contexts = calloc((size_t)threads, sizeof *contexts);
    pthread_t *workers = calloc((size_t)threads, sizeof *workers);
    int failed = prepare(&rt, program, args) || !contexts || !workers;
    tl_buf *params = bind_params(args);
    failed |= !params;
    for (int64_t i = 0; !failed && i < threads; i++) failed |= prepare_context(&contexts[i], &rt);
    int result = TL_MEMORY;
    if (failed) {
        memset(args->fault, 0, sizeof *args->fault);
        args->fault->kind = TL_MEMORY;
        args->fault->site = -1;
    } else {
        /* If the system gives fewer threads, fewer do the work. */
        for (; started < threads - 1; started++)
            if (pthread_create(&workers[started], NULL, worker, &contexts[started + 1])) break;
        result = run_control(&contexts[0]);
        pthread_mutex_lock(&rt.lock);
        rt.closing = 1;
        pthread_cond_broadcast(&rt.work);
        pthread_mutex_unlock(&rt.lock);
        for (int64_t i = 0; i < started; i++) pthread_join(workers[i], NULL);
    }
    for (int64_t i = 0; contexts && i < threads; i++) free_context(&contexts[i]);
    free(contexts);
    free(workers);
    clean_up(&rt, params);
    return result;
}
