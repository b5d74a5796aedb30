/* One execution of a kernel through its pipes. `kernel/pipes.py` is the definition; this repeats it
 * operation by operation, so that both give the same bits. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "structures.h"

#define NOBODY -1
#define ALIKE 1e-6 /* see pipes.py */
#define IS_SCALAR 1
#define IS_POP 2
#define ROUNDS -1

/* Numbers of a cost: for each level the occupancy of its pipe and the latency of its result; then
 * exchanged, macs, served, and bytes moved. */
#define LEVELS 3
#define LATENCY LEVELS
#define SUMS (2 * LEVELS)
#define NBYTES (SUMS + 3)
#define NUMBERS (NBYTES + 1)

typedef struct {
    const WalkInput *in;
    int64_t level;
    /* `state` is what a loop examines: times, then sums, then bytes by parameter and direction */
    double *state, *times, *sums, *moved, *begin;
    int64_t *touched, *current, *writer;
    int64_t touches, pipelined, length;
} Walk;

static double later(double a, double b) { return b > a ? b : a; }

static double waited(const Walk *w, int64_t writer, int64_t reader) {
    const WalkInput *in = w->in;
    if (writer == NOBODY || (writer == reader && !in->is_vector[reader])) return 0.0;
    return in->core_of[writer] == in->core_of[reader] ? in->sync : in->across;
}

static int64_t place(const Walk *w, int64_t tile) {
    return w->in->first[tile] + 2 * w->current[tile];
}

static void begun(Walk *w, int64_t pipe, double start) {
    if (w->begin[pipe] < 0) w->begin[pipe] = start;
}

static void scalar_step(Walk *w, int64_t step, double busy) {
    const WalkInput *in = w->in;
    double *times = w->times;
    int64_t pipe = in->pipe[step], unit = in->scalar + in->core_of[pipe];
    double start = times[unit];
    for (int64_t i = in->read_ptr[step]; i < in->read_ptr[step + 1]; i++) {
        int64_t tile = in->reads[i];
        start = later(start, times[place(w, tile)] + waited(w, w->writer[tile], pipe));
    }
    begun(w, pipe, start);
    double end = start + busy;
    times[unit] = end;
    times[in->busy_at + pipe] = times[in->busy_at + pipe] + busy;
    for (int64_t i = in->write_ptr[step]; i < in->write_ptr[step + 1]; i++) {
        int64_t tile = in->writes[i];
        times[place(w, tile)] = end;
        w->writer[tile] = pipe;
    }
    times[in->last] = later(times[in->last], end);
}

static void count(Walk *w, int64_t cost) {
    const double *numbers = w->in->numbers + NUMBERS * cost;
    for (int i = 0; i < 3; i++) w->sums[i] += numbers[SUMS + i];
    int64_t into = w->in->into[cost];
    if (into >= 0) {
        w->touches += !w->touched[into];
        w->touched[into] = 1;
        w->moved[into] += numbers[NBYTES];
    }
}

static void step_of(Walk *w, int64_t step, int64_t cost) {
    const WalkInput *in = w->in;
    const double *numbers = in->numbers + NUMBERS * cost;
    double *times = w->times, busy = numbers[w->level];
    if (in->flags[step] & IS_SCALAR) {
        scalar_step(w, step, busy);
        return;
    }
    int64_t pipe = in->pipe[step], unit = in->scalar + in->core_of[pipe];
    int64_t reads = in->read_ptr[step + 1], writes = in->write_ptr[step + 1];
    times[unit] = times[unit] + in->issue;
    double free_at = later(times[unit], times[pipe]), start = free_at;
    for (int64_t i = in->read_ptr[step]; i < reads; i++) {
        int64_t tile = in->reads[i];
        start = later(start, times[place(w, tile)] + waited(w, w->writer[tile], pipe));
    }
    for (int64_t i = in->write_ptr[step]; i < writes; i++) {
        int64_t tile = in->writes[i];
        if (in->next[i]) w->current[tile] = (w->current[tile] + 1) % in->depth[tile];
        int64_t at = place(w, tile);
        start = later(start, later(times[at], times[at + 1]));
    }
    begun(w, pipe, start);
    double end = start + busy;
    times[pipe] = (in->flags[step] & IS_POP) && w->pipelined ? free_at + busy : end;
    times[in->busy_at + pipe] = times[in->busy_at + pipe] + busy;
    for (int64_t i = in->read_ptr[step]; i < reads; i++) {
        int64_t at = place(w, in->reads[i]) + 1;
        times[at] = later(times[at], end + in->sync);
    }
    double done = end + numbers[LATENCY + w->level];
    for (int64_t i = in->write_ptr[step]; i < writes; i++) {
        times[place(w, in->writes[i])] = done;
        w->writer[in->writes[i]] = pipe;
    }
    if (in->write_ptr[step] == writes) times[in->last] = later(times[in->last], done);
    count(w, cost);
}

static int is_clock(const WalkInput *in, int64_t i) { return i < in->busy_at || i >= in->scalar; }

/* Whether all times that advance do so equally, except for scalar units that run ahead. */
static int settled(const Walk *w, const double *before, const double *after) {
    const WalkInput *in = w->in;
    double pace = 0.0;
    for (int64_t i = 0; i < in->size; i++)
        if (is_clock(in, i)) pace = later(pace, after[i] - before[i]);
    for (int64_t i = 0; i < in->size; i++) {
        double d = after[i] - before[i];
        if (!is_clock(in, i) || d == 0.0) continue;
        int alike = fabs(d - pace) <= ALIKE;
        for (int64_t unit = in->scalar; unit < in->last; unit++)
            alike |= fabs(d - (after[unit] - before[unit])) <= ALIKE;
        if (!alike) return 0;
    }
    return 1;
}

static int64_t skip(Walk *w, const double *before, const double *after, int64_t blocks) {
    if (blocks < 1 || !settled(w, before, after)) return 0;
    for (int64_t i = 0; i < w->length; i++)
        w->state[i] = w->state[i] + (after[i] - before[i]) * (double)blocks;
    return blocks;
}

static int follow(Walk *w, const int64_t *code, const int64_t *end);

/* Run iterations, starting at `done`; return the number completed, or -1. */
static int64_t follow_run(Walk *w, int64_t done, int64_t stop, int64_t period, const int64_t *body,
                          const int64_t *end, double *before, double *after) {
    int64_t kept = 0, touches[2] = {0, 0};
    while (done < stop) {
        if (done % period == 0 && stop - done > period) {
            double *oldest = before;
            before = after;
            after = oldest;
            memcpy(after, w->state, (size_t)w->length * sizeof(double));
            touches[0] = touches[1];
            touches[1] = w->touches;
            if (++kept > 2 && touches[0] == touches[1])
                done += skip(w, before, after, (stop - done - 1) / period) * period;
        }
        if (follow(w, body, end)) return -1;
        done++;
    }
    return done;
}

/* A loop: ROUNDS, iterations, period, whether pipelined, runs; each run: end, length, body. */
static const int64_t *follow_loop(Walk *w, const int64_t *code) {
    int64_t total = code[1], period = code[2], runs = code[4], done = 0;
    double *history = malloc(2 * (size_t)w->length * sizeof(double));
    if (!history) return NULL;
    w->pipelined += code[3];
    const int64_t *run = code + 5;
    for (int64_t i = 0; i < runs; i++, run += 2 + run[1]) {
        const int64_t *body = run + 2;
        done =
            follow_run(w, done, run[0], period, body, body + run[1], history, history + w->length);
        if (done < 0) {
            free(history);
            return NULL;
        }
    }
    free(history);
    if (done < total) {
        double factor = (double)total / (double)done;
        for (int64_t i = 0; i < w->length; i++) w->state[i] *= factor;
    }
    w->pipelined -= code[3];
    return run;
}

static int follow(Walk *w, const int64_t *code, const int64_t *end) {
    while (code < end) {
        if (*code != ROUNDS) {
            step_of(w, code[0], code[1]);
            code += 2;
        } else if (!(code = follow_loop(w, code))) {
            return 1;
        }
    }
    return 0;
}

/* Walk the course once per level; returns 1 if out of memory.
 *
 * For each level it reports: the end; times without those of tiles; when each pipe began, -1 if it
 * did not; sums; bytes by parameter and direction, -1 if there is no such transfer. */
__attribute__((visibility("default"))) int tl_walk(const WalkInput *in) {
    int64_t sides = 2 * in->params, length = in->size + 3 + sides;
    size_t bytes = (size_t)(length + sides + 2 * in->tiles) * 8;
    double *state = malloc(bytes), *out = in->out;
    if (!state) return 1;
    Walk w = {.in = in, .state = state, .times = state, .length = length};
    w.sums = state + in->size;
    w.moved = w.sums + 3;
    w.touched = (int64_t *)(state + length);
    w.current = w.touched + sides;
    w.writer = w.current + in->tiles;
    int failed = 0;
    for (int64_t i = 0; i < in->levels && !failed; i++) {
        memset(state, 0, bytes);
        w.touches = w.pipelined = 0;
        w.level = in->level[i];
        double *end = out++, *times = out;
        w.begin = times + in->last + 1;
        for (int64_t pipe = 0; pipe < in->busy_at; pipe++) w.begin[pipe] = -1.0;
        for (int64_t tile = 0; tile < in->tiles; tile++) w.writer[tile] = NOBODY;
        failed = follow(&w, in->code, in->code + in->code_length);
        double reached = w.times[in->last];
        for (int64_t pipe = 0; pipe < in->busy_at; pipe++) reached = later(reached, w.times[pipe]);
        *end = in->start + reached;
        memcpy(times, w.times, (size_t)(in->last + 1) * 8);
        out = w.begin + in->busy_at;
        for (int64_t k = 0; k < 3; k++) *out++ = w.sums[k];
        for (int64_t k = 0; k < sides; k++) *out++ = w.touched[k] ? w.moved[k] : -1.0;
    }
    free(state);
    return failed;
}
