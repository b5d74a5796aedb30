/* The task runtime. Threads: the caller's, which runs the control program and executes tasks
 * whenever it has to wait, and `threads - 1` workers. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "clock.h"
#include "state.h"

enum {
    PLENTY = 32, /* tasks per thread */
    /* A thread takes up to TOGETHER tasks without products at once, as many as run in TURN_NS. */
    TOGETHER = 8,
    TURN_NS = 40 * 1000,
    SPINS = 2000 /* polls of the ready tasks before a thread goes to sleep */
};

/* --- helpers ----------------------------------------------------------------------------------- */

static tl_task *task_of(tl_rt *rt, uint64_t number) {
    return &rt->tasks[number & (MAX_IN_FLIGHT - 1)];
}

static int is_done(void *runtime, uint64_t number) {
    tl_task *t = task_of(runtime, number);
    return t->number != number || LOAD(t->is_done);
}

int tl_stopping(const tl_rt *rt) { return LOAD(rt->stop_at) != NEVER || cancelled(rt); }

/* --- running tasks ----------------------------------------------------------------------------- */

/* With the lock held. Of several faults the earliest in program order is kept, as in a sequential
 * run. */
static void note_fault(tl_rt *rt, const tl_fault *fault, uint64_t number) {
    if (number < rt->stop_at) {
        rt->fault = *fault;
        rt->fault.task = number;
        STORE(rt->stop_at, number);
    }
}

/* Whether a task must not run any more. */
static int is_called_off(const tl_ctx *c, const tl_task *t) {
    return cancelled(c->rt) || t->number > LOAD(c->rt->stop_at);
}

static int enter(tl_ctx *c, const tl_task *t, int phase) {
    if (!t->kernel || is_called_off(c, t)) return 0;
    c->phase = phase;
    c->block = t->block;
    c->blocks = t->blocks;
    int kind = t->kernel->run(c, t->windows, t->scalars);
    return kind == TL_STOPPED ? 0 : kind;
}

typedef struct {
    int kind;
    tl_fault fault;
} outcome;

static void note(outcome *o, int kind, const tl_ctx *c) {
    o->kind = kind;
    if (kind) o->fault = c->fault;
}

/* Tasks of one kernel: each up to its products; then all products in parallel, the first of every
 * task before the second; then each to its end. `then` is the B of the next tasks. */
static void run_together(tl_ctx *c, tl_task *const *tasks, int count, const char *then,
                         outcome *outcomes) {
    tl_product handed[TL_SIDE_BY_SIDE][TL_PRODUCTS], products[TL_SIDE_BY_SIDE * TL_PRODUCTS];
    int counts[TL_SIDE_BY_SIDE]; /* number of products; 0: the task has ended */
    int64_t total = 0, room = tasks[0]->kernel->scratch_bytes;
    char *scratch = c->scratch;
    for (int i = 0; i < count; i++) {
        c->scratch = scratch + i * room;
        c->product_count = 0;
        note(&outcomes[i], enter(c, tasks[i], TL_COLLECT), c);
        counts[i] = outcomes[i].kind ? 0 : c->product_count;
        memcpy(handed[i], c->products, (size_t)counts[i] * sizeof handed[i][0]);
    }
    for (int p = 0; p < TL_PRODUCTS; p++)
        for (int i = 0; i < count; i++)
            if (p < counts[i] && handed[i][p].pieces) products[total++] = handed[i][p];
    if (total) c->rt->program->run_products(products, total, then, c->matmul);
    for (int i = 0; i < count; i++) {
        if (!counts[i]) continue;
        c->scratch = scratch + i * room;
        if (TL_GUARDED) memcpy(c->products, handed[i], (size_t)counts[i] * sizeof handed[i][0]);
        tl_guard(c->products, counts[i], 1);
        note(&outcomes[i], enter(c, tasks[i], TL_FINISH), c);
        tl_guard(c->products, counts[i], 0);
    }
    c->scratch = scratch;
}

/* With the lock held. */
static void finish(tl_rt *rt, tl_task *t, const outcome *o) {
    if (o->kind) note_fault(rt, &o->fault, t->number);
    for (edge *e = t->successors; e; e = e->next)
        if (--e->to->pending == 0) tl_push_ready(rt, e->to);
    STORE(t->is_done, 1);
    STORE(rt->finished, rt->finished + 1);
    if (rt->control_sleeps) pthread_cond_signal(&rt->progress);
}

/* Whether the end of a task should be known before its thread runs others. */
static int is_awaited(tl_rt *rt, tl_task *t) {
    if (LOAD(rt->is_waiting)) return 1;
    return LOAD(t->successors) && LOAD(rt->ready.count) < (uint64_t)rt->args->threads;
}

/* Run tasks without products one after the other; with the lock held, which is released meanwhile.
 * If there were as many as allowed, adapt that limit to their duration. */
static void run_in_turn(tl_ctx *c, tl_task *const *tasks, int count) {
    tl_rt *rt = c->rt;
    outcome outcomes[TOGETHER];
    int finished = 0;
    unlock(rt);
    int64_t begin = count >= c->plain ? now_ns() : 0;
    for (int i = 0; i < count; i++) {
        note(&outcomes[i], enter(c, tasks[i], TL_WHOLE), c);
        if (i + 1 == count || !(outcomes[i].kind || is_awaited(rt, tasks[i]))) continue;
        lock(rt);
        for (; finished <= i; finished++) finish(rt, tasks[finished], &outcomes[finished]);
        unlock(rt);
    }
    if (begin) {
        int64_t each = (now_ns() - begin) / count + 1;
        c->plain = each * TOGETHER < TURN_NS ? TOGETHER : (int32_t)(TURN_NS / each + 1);
    }
    lock(rt);
    for (; finished < count; finished++) finish(rt, tasks[finished], &outcomes[finished]);
}

/* Take tasks (up to `plain` without products) and run them; called with the lock held, which is
 * released meanwhile. 0 if none is ready. */
static int work(tl_ctx *c, int plain) {
    tl_rt *rt = c->rt;
    tl_task *tasks[TL_SIDE_BY_SIDE > TOGETHER ? TL_SIDE_BY_SIDE : TOGETHER];
    outcome outcomes[TL_SIDE_BY_SIDE];
    int count = tl_take_ready(rt, tasks, TL_SIDE_BY_SIDE, plain);
    if (!count) return 0;
    rt->busy++;
    if (!tasks[0]->b) {
        c->then = NULL;
        run_in_turn(c, tasks, count);
        rt->busy--;
        return 1;
    }
    const char *then = tl_next_b(rt, tasks[0], count);
    unlock(rt);
    c->then = then;
    if (count == 1 && !TL_GUARDED) /* checks detect repeated execution */
        note(&outcomes[0], enter(c, tasks[0], TL_WHOLE), c);
    else
        run_together(c, tasks, count, then, outcomes);
    lock(rt);
    rt->busy--;
    for (int i = 0; i < count; i++) finish(rt, tasks[i], &outcomes[i]);
    return 1;
}

/* With the lock held: let the task wait for its unfinished predecessors; return whether it can run
 * at once. */
static int add_edges(tl_rt *rt, tl_task *t, edge *edges) {
    for (edge *e = edges, *next; e; e = next) {
        next = e->next;
        tl_task *before = e->from;
        if (before->is_done) {
            e->next = rt->free_edges;
            rt->free_edges = e;
            continue;
        }
        e->next = NULL;
        if (before->successors)
            before->last_successor->next = e;
        else
            STORE(before->successors, e);
        before->last_successor = e;
        t->pending++;
    }
    return t->pending == 0;
}

void tl_publish(tl_rt *rt) {
    if (!rt->held_count) return;
    lock(rt);
    for (uint32_t i = 0; i < rt->held_count; i++)
        if (add_edges(rt, rt->held[i], rt->held_edges[i])) tl_push_ready(rt, rt->held[i]);
    unlock(rt);
    rt->held_count = rt->held_ready = 0;
    if (rt->held_limit < MAX_HELD / 2) rt->held_limit *= 2;
}

void tl_retire(tl_rt *rt) {
    for (; rt->retired < rt->submitted; rt->retired++) {
        tl_task *t = task_of(rt, rt->retired + 1);
        if (!LOAD(t->is_done)) return;
        for (int i = 0; t->kernel && i < t->kernel->windows; i++)
            tl_drop_reference(rt, t->windows[i].buf);
        if (!t->successors) continue;
        t->last_successor->next = rt->free_edges;
        rt->free_edges = t->successors;
        t->successors = NULL;
    }
}

int tl_help(tl_ctx *c, int plain) {
    tl_rt *rt = c->rt;
    tl_publish(rt);
    if (LOAD(rt->ready.count) == 0) return 0;
    int32_t goes_on = rt->is_submitting; /* not after the control program has ended */
    STORE(rt->is_submitting, 0);
    lock(rt);
    int has_worked = work(c, plain);
    unlock(rt);
    STORE(rt->is_submitting, goes_on);
    return has_worked;
}

void tl_wait_for_progress(tl_ctx *c, uint64_t finished_before) {
    tl_rt *rt = c->rt;
    tl_publish(rt);
    rt->held_limit = 1; /* the threads have run out of tasks */
    int32_t goes_on = rt->is_submitting;
    STORE(rt->is_submitting, 0);
    STORE(rt->is_waiting, 1);
    int is_over = 0;
    for (int i = 0; i < SPINS && !is_over; i++) {
        is_over = LOAD(rt->finished) != finished_before || LOAD(rt->ready.count) != 0;
        relax();
    }
    if (!is_over) {
        lock(rt);
        while (rt->finished == finished_before && rt->ready.count == 0) {
            rt->control_sleeps = 1;
            pthread_cond_wait(&rt->progress, &rt->lock);
        }
        rt->control_sleeps = 0;
        unlock(rt);
    }
    STORE(rt->is_waiting, 0);
    STORE(rt->is_submitting, goes_on);
}

/* A new thread often starts on its creator's processor and waits there for milliseconds until it is
 * migrated. So pin it to another processor at start, then unpin it. Only glibc has this thread
 * attribute. */
#ifdef __GLIBC__
static void start_elsewhere(const cpu_set_t *processors, pthread_attr_t *attributes) {
    cpu_set_t others = *processors;
    int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE) return;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others)) pthread_attr_setaffinity_np(attributes, sizeof others, &others);
}
#endif

/* With the lock held, which is released meanwhile. A task that benefits from a batch waits briefly
 * for it if more tasks are about to be submitted. */
static void wait_for_company(tl_rt *rt) {
    uint64_t enough = TL_SIDE_BY_SIDE * (uint64_t)rt->args->threads;
    if (!tl_only_batchable(rt) || rt->ready.count >= enough || !LOAD(rt->is_submitting)) return;
    unlock(rt);
    for (int i = 0; i < SPINS && LOAD(rt->is_submitting) && LOAD(rt->ready.count) < enough; i++)
        relax();
    lock(rt);
}

/* A thread may get a processor only when the run has ended. The run does not wait for it then: it
 * finds its door closed, and frees it. */
typedef struct {
    tl_ctx *c;
    pthread_t thread;
    int32_t is_passed; /* atomic: by the thread that enters, or by the run that ends */
} door;

static int pass(door *d) { return !__atomic_exchange_n(&d->is_passed, 1, __ATOMIC_ACQ_REL); }

static void *worker(void *argument) {
    door *own = argument;
    if (!pass(own)) {
        free(own);
        return NULL;
    }
    tl_ctx *c = own->c;
    tl_rt *rt = c->rt;
#ifdef __GLIBC__
    if (rt->processors) sched_setaffinity(0, sizeof(cpu_set_t), rt->processors);
#endif
    lock(rt);
    for (;;) {
        wait_for_company(rt);
        if (work(c, c->plain)) continue;
        if (rt->closing) break;
        unlock(rt);
        for (int i = 0; i < SPINS && LOAD(rt->ready.count) == 0; i++) relax();
        lock(rt);
        if (rt->ready.count == 0 && !rt->closing) {
            rt->sleepers++;
            pthread_cond_wait(&rt->work, &rt->lock);
            rt->sleepers--;
        }
    }
    unlock(rt);
    return NULL;
}

/* --- submitting -------------------------------------------------------------------------------- */

static int wait_task(tl_ctx *c, uint64_t number) {
    tl_rt *rt = c->rt;
    for (;;) {
        uint64_t finished = LOAD(rt->finished);
        if (is_done(rt, number)) return TL_OK;
        if (!tl_help(c, 1)) tl_wait_for_progress(c, finished);
    }
}

static tl_task *next_task(tl_ctx *c) {
    tl_rt *rt = c->rt;
    if (tl_stopping(rt)) return NULL;
    if (rt->submitted >= MAX_IN_FLIGHT) {
        wait_task(c, rt->submitted + 1 - MAX_IN_FLIGHT);
        if (rt->submitted - rt->retired == MAX_IN_FLIGHT) tl_retire(rt);
    }
    tl_task *t = task_of(rt, rt->submitted + 1);
    t->number = ++rt->submitted;
    uint64_t slot = t->number & (MAX_IN_FLIGHT - 1);
    t->windows = rt->arguments;
    t->scalars = rt->space->scalars + slot * (uint64_t)rt->program->max_scalars;
    t->is_done = 0;
    t->pending = 0;
    t->block = 0;
    t->blocks = 1;
    t->kernel = NULL;
    t->b = NULL;
    rt->found_count = 0;
    return t;
}

tl_task *tl_begin(tl_ctx *c, int32_t kernel, int32_t call) {
    tl_task *t = next_task(c);
    if (!t) return NULL;
    t->call = call;
    t->kernel = &c->rt->program->kernels[kernel];
    c->rt->args->counts[kernel]++;
    return t;
}

tl_win *tl_task_windows(tl_task *t) { return t->windows; }
tl_word *tl_task_scalars(tl_task *t) { return t->scalars; }

/* Make the task being submitted depend on task `number`. */
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

/* Whether the control thread should execute tasks before it submits more. Tasks that benefit from a
 * batch find each other among those submitted ahead, up to MAX_IN_FLIGHT. */
static int is_ahead(const tl_rt *rt) {
    uint64_t plenty = PLENTY * (uint64_t)rt->args->threads;
    if (rt->has_streams) return rt->submitted - LOAD(rt->finished) > plenty;
    return !rt->has_batches && LOAD(rt->ready.count) > plenty;
}

/* Hand the task to the threads. */
static int64_t launch(tl_ctx *c, tl_task *t) {
    tl_rt *rt = c->rt;
    int64_t id = (int64_t)t->number - 1;
    edge *edges = NULL;
    for (uint32_t i = 0; i < rt->found_count; i++) {
        edge *e = new_edge(rt);
        if (!e) { /* out of memory */
            wait_task(c, rt->found[i]->number);
            continue;
        }
        *e = (edge){rt->found[i], t, edges};
        edges = e;
    }
    rt->held[rt->held_count] = t;
    rt->held_edges[rt->held_count++] = edges;
    rt->held_ready += !edges;
    if (rt->held_ready >= rt->held_limit || rt->held_count == MAX_HELD) tl_publish(rt);
    int helps = rt->is_ahead = is_ahead(rt);
    if (rt->args->seed >= 0) {
        lock(rt);
        helps |= tl_random(rt) % 4 == 0;
        unlock(rt);
    }
    if (helps) tl_help(c, c->plain);
    return id;
}

static void depend_on(tl_rt *rt, const int64_t *deps, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (deps[i] >= 0 && (uint64_t)deps[i] + 1 < rt->submitted) found(rt, (uint64_t)deps[i] + 1);
}

/* Determine the footprint of the task in its arguments, and its dependencies. */
static void find_dependencies(tl_ctx *c, tl_task *t) {
    tl_rt *rt = c->rt;
    const tl_kernel *kernel = t->kernel;
    int out_of_memory = 0;
    tl_win *touched = rt->arguments;
    uint64_t slot = t->number & (MAX_IN_FLIGHT - 1);
    t->windows = rt->space->windows + slot * (uint64_t)rt->program->max_windows;
    memcpy(t->windows, touched, (size_t)kernel->windows * sizeof *touched);
    if (kernel->footprint) kernel->footprint(t->scalars, t->block, touched);
    for (int i = 0; i < kernel->windows; i++) {
        tl_buf *b = touched[i].buf;
        tl_add_reference(b);
        if (b->is_readonly) continue;
        int64_t use = tl_use_of(b, &touched[i], is_done, rt);
        if (use < 0) {
            out_of_memory = 1;
            continue;
        }
        int writes = kernel->directions[i] != 'r';
        tl_depend(b, (uint32_t)use, writes, found, rt);
        out_of_memory |= tl_note(b, (uint32_t)use, writes, t->number, is_done, rt);
    }
    if (kernel->batch_max > 1 || kernel->streams > 1 || kernel->same_a > 1) {
        t->a = touched[kernel->a_window].data;
        const tl_win *b = &touched[kernel->b_window];
        t->b = b->data;
        t->is_in_order = b->rank > 1 && b->stride[b->rank - 2] * b->itemsize == kernel->b_stride;
    }
    if (out_of_memory) /* its dependencies could not be recorded: wait for everything */
        for (uint64_t n = t->number > MAX_IN_FLIGHT ? t->number - MAX_IN_FLIGHT + 1 : 1;
             n < t->number; n++)
            wait_task(c, n);
}

/* Every block is a separate task: those that touch the same memory run in order. The id is that of
 * a join of all. */
static int64_t submit_blocks(tl_ctx *c, tl_task *t, int64_t blocks, const int64_t *deps,
                             int64_t dep_count) {
    tl_rt *rt = c->rt;
    const tl_kernel *kernel = t->kernel;
    uint64_t first = t->number;
    memcpy(rt->of_blocks, t->windows, (size_t)kernel->windows * sizeof *t->windows);
    memcpy(rt->of_blocks_scalars, t->scalars, (size_t)kernel->scalars * sizeof *t->scalars);
    for (int64_t block = 0; block < blocks; block++) {
        if (block > 0) {
            t = next_task(c);
            if (!t) return -1;
            t->kernel = kernel;
            memcpy(t->windows, rt->of_blocks, (size_t)kernel->windows * sizeof *t->windows);
            memcpy(t->scalars, rt->of_blocks_scalars, (size_t)kernel->scalars * sizeof *t->scalars);
        }
        t->block = block;
        t->blocks = blocks;
        depend_on(rt, deps, dep_count);
        find_dependencies(c, t);
        launch(c, t);
    }
    t = next_task(c);
    if (!t) return -1;
    for (uint64_t n = first; n < t->number; n++) found(rt, n);
    return launch(c, t);
}

static int64_t id_of(const tl_task *t) { return (int64_t)t->number - 1; }

int64_t tl_submit(tl_ctx *c, tl_task *t, int64_t blocks, const int64_t *deps, int64_t dep_count) {
    int64_t parts = blocks ? blocks : t->kernel->iterations;
    int64_t id = id_of(t) + (parts > 1 ? parts : 0); /* the join, if any */
    tl_note_task(c, t, t->kernel, 1, id, blocks, deps, dep_count);
    if (parts > 1) return submit_blocks(c, t, parts, deps, dep_count);
    depend_on(c->rt, deps, dep_count);
    find_dependencies(c, t);
    return launch(c, t);
}

int64_t tl_skip(tl_ctx *c, tl_task *t, int64_t blocks, const int64_t *deps, int64_t dep_count) {
    tl_note_task(c, t, t->kernel, 0, id_of(t), blocks, deps, dep_count);
    t->kernel = NULL;
    depend_on(c->rt, deps, dep_count);
    return launch(c, t);
}

int64_t tl_join(tl_ctx *c, int32_t call, const int64_t *deps, int64_t dep_count) {
    tl_task *t = next_task(c);
    if (!t) return -1;
    t->call = call;
    tl_note_task(c, t, NULL, 1, id_of(t), 0, deps, dep_count);
    depend_on(c->rt, deps, dep_count);
    return launch(c, t);
}

int tl_wait(tl_ctx *c, const tl_win *w, int writing) {
    tl_rt *rt = c->rt;
    if (w->buf->is_readonly) return TL_OK;
    rt->found_count = 0;
    int64_t use = tl_use_of(w->buf, w, is_done, rt);
    if (use < 0) {
        for (uint64_t n = rt->submitted > MAX_IN_FLIGHT ? rt->submitted - MAX_IN_FLIGHT + 1 : 1;
             n <= rt->submitted; n++)
            wait_task(c, n);
    } else {
        /* Marks belong to tasks; none is being submitted here. */
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
    if (c == c->rt->control) tl_publish(c->rt);
    int error = c->rt->args->host(op, tiles, scalars, c->block);
    return error ? tl_fail(c, TL_HOST, site, op, error, 0, 0) : TL_OK;
}

/* --- one run ----------------------------------------------------------------------------------- */

static void prepare_context(tl_ctx *c, tl_rt *rt, int64_t thread) {
    memset(c, 0, sizeof *c);
    c->rt = rt;
    c->blocks = 1;
    c->plain = 1;
    c->cancel = rt->args->cancel;
    c->scratch = rt->space->scratch[thread].scratch;
    c->matmul = rt->space->scratch[thread].matmul;
}

static int prepare(tl_rt *rt, const tl_program *program, const tl_run_args *args, int64_t threads) {
    rt->program = program;
    rt->args = args;
    rt->stop_at = NEVER;
    rt->is_submitting = 1;
    rt->held_limit = 1;
    rt->buffers = args->buffer_count;
    for (int32_t i = 0; i < program->kernel_count; i++) {
        const tl_kernel *kernel = &program->kernels[i];
        rt->has_streams |= kernel->streams > 1 || kernel->same_a > 1;
        rt->has_batches |= kernel->batch_max > 1;
    }
    rt->random = (uint64_t)args->seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    pthread_mutex_init(&rt->lock, NULL);
    pthread_cond_init(&rt->work, NULL);
    pthread_cond_init(&rt->progress, NULL);
    tl_workspace *s = rt->space = tl_take_workspace(program, threads);
    if (!s) return -1;
    rt->tasks = s->tasks;
    rt->found = s->found;
    rt->arguments = s->arguments;
    rt->of_blocks = s->of_blocks;
    rt->of_blocks_scalars = s->of_blocks_scalars;
    return 0;
}

static void clean_up(tl_rt *rt, tl_buf *params) {
    tl_free_buffers(rt);
    for (int64_t i = 0; params && i < rt->args->buffer_count; i++) tl_free_uses(&params[i]);
    for (void **block = rt->edge_blocks; block;) {
        void **next = *block;
        free(block);
        block = next;
    }
    free(params);
    free(rt->processors);
    tl_leave_workspace(rt->space, rt->submitted);
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
        params[i].number = i;
    }
    for (int64_t i = 0; params && i < args->window_count; i++) {
        tl_buf *b = &params[args->buffer_of[i]];
        args->windows[i].buf = b;
        if (!b->grid_axes) tl_set_grid(b, &args->windows[i]);
        int64_t bytes = args->windows[i].itemsize;
        for (int k = 0; k < args->windows[i].rank; k++) bytes *= args->windows[i].shape[k];
        if (bytes > b->bytes) b->bytes = bytes;
    }
    for (int64_t i = 0; params && i < args->window_count; i++)
        args->windows[i].is_far = args->windows[i].buf->bytes >= FAR_BYTES;
    return params;
}

static int run_control(tl_ctx *c) {
    tl_rt *rt = c->rt;
    int kind = rt->program->control(c, rt->args->windows, rt->args->scalars);
    tl_fault fault = c->fault;
    STORE(rt->is_submitting, 0);
    while (LOAD(rt->finished) != rt->submitted) {
        uint64_t finished = LOAD(rt->finished);
        if (finished != rt->submitted && !tl_help(c, c->plain)) tl_wait_for_progress(c, finished);
    }
    lock(rt);
    /* The control program's own fault comes after all tasks it has submitted. */
    if (kind && kind != TL_STOPPED) note_fault(rt, &fault, rt->submitted + 1);
    unlock(rt);
    if (rt->stop_at != NEVER) {
        *rt->args->fault = rt->fault;
        return rt->fault.kind;
    }
    return cancelled(rt) ? TL_STOPPED : TL_OK;
}

/* Fewer threads are acceptable. */
static int64_t start_workers(tl_rt *rt, door **doors, tl_ctx *contexts, int64_t count) {
    int64_t started = 0;
    if (count == 0) return 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
#ifdef __GLIBC__
    cpu_set_t *processors = malloc(sizeof *processors);
    if (processors && sched_getaffinity(0, sizeof *processors, processors)) {
        free(processors); /* more processors than the set can represent */
        processors = NULL;
    }
    if (processors) start_elsewhere(processors, &attributes);
    rt->processors = processors;
#endif
    for (; started < count; started++) {
        door *d = doors[started] = calloc(1, sizeof *d);
        if (!d) break;
        d->c = &contexts[started + 1];
        if (pthread_create(&d->thread, &attributes, worker, d)) {
            free(d);
            break;
        }
    }
    pthread_attr_destroy(&attributes);
    return started;
}

static void end_workers(tl_rt *rt, door **doors, int64_t count) {
    lock(rt);
    rt->closing = 1;
    pthread_cond_broadcast(&rt->work);
    unlock(rt);
    for (int64_t i = 0; i < count; i++) {
        pthread_t thread = doors[i]->thread;
        if (pass(doors[i])) {
            pthread_detach(thread);
            continue;
        }
        pthread_join(thread, NULL);
        free(doors[i]);
    }
}

__attribute__((visibility("default"))) int tl_run(const tl_program *program,
                                                  const tl_run_args *args) {
    tl_rt rt = {0};
    int64_t started = 0, threads = args->threads > 1 ? args->threads : 1;
    tl_ctx *contexts = calloc((size_t)threads, sizeof *contexts);
    door **doors = calloc((size_t)threads, sizeof *doors);
    int failed = prepare(&rt, program, args, threads) || !contexts || !doors;
    tl_buf *params = bind_params(args);
    failed |= !params;
    for (int64_t i = 0; !failed && i < threads; i++) prepare_context(&contexts[i], &rt, i);
    int result = TL_MEMORY;
    rt.control = contexts;
    if (failed) {
        memset(args->fault, 0, sizeof *args->fault);
        args->fault->kind = TL_MEMORY;
        args->fault->site = -1;
    } else {
        started = start_workers(&rt, doors, contexts, threads - 1);
        result = run_control(&contexts[0]);
        end_workers(&rt, doors, started);
    }
    free(contexts);
    free(doors);
    clean_up(&rt, params);
    return result;
}
