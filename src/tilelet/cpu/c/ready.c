/* Ready tasks: taken in order, at random, or in batches that read adjacent columns of one matrix or
 * are read together.
 *
 * A task that benefits from a batch lets others run first until the batch is complete. The delay is
 * limited: at most MAX_IN_FLIGHT tasks are unfinished. */
#include "state.h"

enum { LOOK_AHEAD = 64 }; /* tasks */

uint64_t tl_random(tl_rt *rt) {
    rt->random ^= rt->random << 13;
    rt->random ^= rt->random >> 7;
    rt->random ^= rt->random << 17;
    return rt->random;
}

static tl_task **bucket_of(tl_ready *ready, const tl_kernel *kernel, const char *b) {
    uint64_t key = (uint64_t)(uintptr_t)b ^ (uint64_t)(uintptr_t)kernel << 20;
    return &ready->buckets[key * 0x9e3779b97f4a7c15u >> 40 & (BUCKETS - 1)];
}

static tl_task *find(tl_ready *ready, const tl_task *like, const char *b) {
    tl_task *t = *bucket_of(ready, like->kernel, b);
    while (t && (t->b != b || t->a != like->a || t->kernel != like->kernel)) t = t->same_bucket;
    return t;
}

/* Whether it benefits from running with adjacent tasks, if there are any. */
static int is_batchable(const tl_task *t) {
    return t->b && !t->is_in_order && t->kernel->batch_max > 1;
}

static void add(tl_queue *q, tl_task *t) {
    if (q->tail - q->head == MAX_IN_FLIGHT) {
        /* Too many gaps: compact. */
        uint64_t to = q->head;
        for (uint64_t from = q->head; from != q->tail; from++) {
            tl_task *moved = q->ring[from & (MAX_IN_FLIGHT - 1)];
            if (!moved) continue;
            moved->place = to;
            q->ring[to++ & (MAX_IN_FLIGHT - 1)] = moved;
        }
        q->tail = to;
    }
    t->queue = q;
    t->place = q->tail++;
    q->ring[t->place & (MAX_IN_FLIGHT - 1)] = t;
    q->count++;
}

static void drop(tl_task *t) {
    tl_queue *q = t->queue;
    q->ring[t->place & (MAX_IN_FLIGHT - 1)] = NULL;
    while (q->head != q->tail && !q->ring[q->head & (MAX_IN_FLIGHT - 1)]) q->head++;
    q->count--;
}

static tl_task *find_batchable(tl_ready *ready, const tl_task *like, const char *b) {
    tl_task *t = find(ready, like, b);
    return t && t->queue == &ready->batchable ? t : NULL;
}

/* A new task may complete its batch: then the batch stops waiting. */
static void gather(tl_ready *ready, const tl_task *t) {
    tl_task *batch_hint[TL_SIDE_BY_SIDE], *other;
    int64_t step = t->kernel->b_stride;
    const char *b = t->b;
    int count = 0, most = t->kernel->batch_max;
    for (int i = 1; i < most && find_batchable(ready, t, b - step); i++) b -= step;
    for (; count < most && (other = find_batchable(ready, t, b)); b += step)
        batch_hint[count++] = other;
    for (int i = 0; count == most && i < count; i++) {
        drop(batch_hint[i]);
        add(&ready->immediate, batch_hint[i]);
    }
}

void tl_push_ready(tl_rt *rt, tl_task *t) {
    tl_ready *ready = &rt->ready;
    add(is_batchable(t) ? &ready->batchable : &ready->immediate, t);
    STORE(ready->count, ready->count + 1);
    if (is_batchable(t)) {
        tl_task **bucket = bucket_of(ready, t->kernel, t->b);
        t->same_bucket = *bucket;
        *bucket = t;
        gather(ready, t);
    }
    if (rt->sleepers) pthread_cond_signal(&rt->work);
    if (rt->control_sleeps) pthread_cond_signal(&rt->progress);
}

static void take(tl_ready *ready, tl_task *t) {
    drop(t);
    STORE(ready->count, ready->count - 1);
    if (!is_batchable(t)) return;
    tl_task **at = bucket_of(ready, t->kernel, t->b);
    while (*at != t) at = &(*at)->same_bucket;
    *at = t->same_bucket;
}

static tl_task *first_of(tl_rt *rt) {
    tl_ready *ready = &rt->ready;
    tl_queue *q = ready->immediate.count ? &ready->immediate : &ready->batchable;
    uint64_t at = q->head;
    if (rt->args->seed >= 0) {
        if (tl_random(rt) % ready->count >= q->count) q = &ready->batchable;
        at = q->head + tl_random(rt) % (q->tail - q->head);
        while (!q->ring[at & (MAX_IN_FLIGHT - 1)])
            if (++at == q->tail) at = q->head;
    }
    return q->ring[at & (MAX_IN_FLIGHT - 1)];
}

const char *tl_next_b(const tl_rt *rt, const tl_task *taken, int count) {
    const tl_queue *q = rt->ready.immediate.count ? &rt->ready.immediate : &rt->ready.batchable;
    /* The other threads are about to take as many each. */
    int64_t others = (rt->args->threads - 1) * count;
    for (uint64_t i = 0; i < LOOK_AHEAD && q->head + i < q->tail; i++) {
        const tl_task *t = q->ring[(q->head + i) & (MAX_IN_FLIGHT - 1)];
        if (!t || !t->b) continue;
        int is_alike = t->kernel == taken->kernel || (t->is_in_order && taken->is_in_order);
        if (is_alike && others-- <= 0) return t->b;
    }
    return NULL;
}

int tl_only_batchable(const tl_rt *rt) {
    return rt->ready.count && rt->ready.count == rt->ready.batchable.count;
}

/* Number of ready tasks that one thread should take, with `first` already taken. */
static uint64_t fair_share(const tl_rt *rt, const tl_task *first) {
    uint64_t all = rt->ready.count + 1, threads = (uint64_t)rt->args->threads;
    if (first->kernel->streams < 2) return threads > 1 ? (all + threads - 1) / threads : all;
    /* Readers share the bandwidth, so only idle threads count. */
    int64_t idle = rt->args->threads - rt->busy - (LOAD(rt->is_submitting) && !rt->is_ahead);
    return idle > 1 ? (all + (uint64_t)idle - 1) / (uint64_t)idle : all;
}

/* Tasks after `first` whose products are best read together with its own, or run right after them.
 */
static int take_in_order(tl_rt *rt, tl_task *first, tl_task **tasks) {
    tl_ready *ready = &rt->ready;
    uint64_t fair = fair_share(rt, first);
    int most = first->kernel->streams > 1 ? first->kernel->streams : first->kernel->same_a;
    int count = 1;
    while (count < most && (uint64_t)count < fair && ready->immediate.count) {
        tl_task *t = ready->immediate.ring[ready->immediate.head & (MAX_IN_FLIGHT - 1)];
        if (t->kernel != first->kernel || t->a != first->a || !t->is_in_order) break;
        take(ready, t);
        tasks[count++] = t;
    }
    return count;
}

/* Tasks without products after `first`, up to `most`. Half of the ready tasks stay for a fair
 * division of the rest. */
static int take_plain(tl_rt *rt, tl_task **tasks, int most) {
    tl_ready *ready = &rt->ready;
    uint64_t fair = (ready->count + 1) / (2 * (uint64_t)rt->args->threads);
    int count = 1;
    while (count < most && (uint64_t)count < fair && ready->immediate.count) {
        tl_task *t = ready->immediate.ring[ready->immediate.head & (MAX_IN_FLIGHT - 1)];
        if (t->b) break;
        take(ready, t);
        tasks[count++] = t;
    }
    return count;
}

int tl_take_ready(tl_rt *rt, tl_task **tasks, int most, int plain) {
    tl_ready *ready = &rt->ready;
    if (ready->count == 0) return 0;
    /* Leave work for every thread. */
    uint64_t threads = rt->args->threads > 1 ? (uint64_t)rt->args->threads : 1;
    uint64_t fair = (ready->count + threads - 1) / threads;
    if ((uint64_t)most > fair) most = (int)fair;
    int count = 0;
    tl_task *t = first_of(rt);
    do {
        take(ready, t);
        tasks[count++] = t;
        if (!t->b) return rt->args->seed < 0 ? take_plain(rt, tasks, plain) : count;
        if (t->is_in_order) return take_in_order(rt, t, tasks);
        if (!is_batchable(t) || count >= t->kernel->batch_max) break;
        t = find(ready, t, t->b + t->kernel->b_stride);
    } while (t && count < most);
    return count;
}
