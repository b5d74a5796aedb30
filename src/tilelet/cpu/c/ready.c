/* The ready tasks: in turn, at random, or several that read neighbouring columns of one matrix. */
#include "state.h"

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

void tl_push_ready(tl_rt *rt, tl_task *t) {
    tl_ready *ready = &rt->ready;
    if (ready->tail - ready->head == UNDER_WAY) {
        /* Full of gaps: close them. */
        uint64_t to = ready->head;
        for (uint64_t from = ready->head; from != ready->tail; from++) {
            tl_task *moved = ready->ring[from & (UNDER_WAY - 1)];
            if (!moved) continue;
            moved->place = to;
            ready->ring[to++ & (UNDER_WAY - 1)] = moved;
        }
        ready->tail = to;
    }
    t->place = ready->tail++;
    ready->ring[t->place & (UNDER_WAY - 1)] = t;
    STORE(ready->count, ready->count + 1);
    if (t->b) {
        tl_task **bucket = bucket_of(ready, t->kernel, t->b);
        t->same_bucket = *bucket;
        *bucket = t;
    }
    if (rt->sleepers) pthread_cond_signal(&rt->work);
    if (rt->control_sleeps) pthread_cond_signal(&rt->progress);
}

static void take(tl_ready *ready, tl_task *t) {
    ready->ring[t->place & (UNDER_WAY - 1)] = NULL;
    while (ready->head != ready->tail && !ready->ring[ready->head & (UNDER_WAY - 1)]) ready->head++;
    STORE(ready->count, ready->count - 1);
    if (!t->b) return;
    tl_task **at = bucket_of(ready, t->kernel, t->b);
    while (*at != t) at = &(*at)->same_bucket;
    *at = t->same_bucket;
}

/* A ready task whose products continue those of `t` to the right. */
static tl_task *neighbour_of(tl_ready *ready, const tl_task *t) {
    const char *b = t->b + t->kernel->next_to;
    tl_task *other = *bucket_of(ready, t->kernel, b);
    while (other && (other->b != b || other->a != t->a || other->kernel != t->kernel))
        other = other->same_bucket;
    return other;
}

static tl_task *first_of(tl_rt *rt) {
    tl_ready *ready = &rt->ready;
    uint64_t at = ready->head;
    if (rt->args->seed >= 0) {
        at += tl_random(rt) % (ready->tail - ready->head);
        while (!ready->ring[at & (UNDER_WAY - 1)])
            if (++at == ready->tail) at = ready->head;
    }
    return ready->ring[at & (UNDER_WAY - 1)];
}

int tl_take_ready(tl_rt *rt, tl_task **tasks, int most) {
    tl_ready *ready = &rt->ready;
    if (ready->count == 0) return 0;
    /* Every thread is to have something to do. */
    uint64_t threads = rt->args->threads > 1 ? (uint64_t)rt->args->threads : 1;
    uint64_t fair = (ready->count + threads - 1) / threads;
    if ((uint64_t)most > fair) most = (int)fair;
    int count = 0;
    tl_task *t = first_of(rt);
    do {
        take(ready, t);
        tasks[count++] = t;
        if (!t->b || count >= t->kernel->together) break;
        t = neighbour_of(ready, t);
    } while (t && count < most);
    return count;
}
