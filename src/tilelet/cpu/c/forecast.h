/* What products prefetch: rows of operands, and what the next product is likely to read. */
#ifndef TL_FORECAST_H
#define TL_FORECAST_H

#include <stdint.h>

#include "operands.h"
#include "passes.h"

#define PERIOD 4                 /* products of a loop's body: 1, 2 or 4 */
#define MAX_FORECAST (192 << 10) /* bytes of B that are prefetched for the next product */

/* An operand in memory: rows of `bytes` bytes. */
typedef struct {
    const char *from;
    int64_t row_bytes, rows, bytes;
} stream;

/* Prefetch rows; none if there are none, or if they are too long to be fed row by row. */
static void feed_rows(feed *f, const stream *x) {
    f->next.slot = f->left = 0;
    int in_row = (int)smaller((x->bytes + 63) / 64, SLOTS + 1);
    if (x->rows <= 0 || in_row <= 0 || in_row > SLOTS) return;
    int at_once = SLOTS / in_row;
    f->next.row = x->from;
    f->step = at_once * x->row_bytes;
    f->left = (int)((x->rows + at_once - 1) / at_once) * SLOTS;
    for (int i = 0; i < SLOTS; i++)
        f->lines[i] = smaller(i / in_row, at_once - 1) * x->row_bytes + i % in_row * 64;
}

/* Prefetch the remaining lines. */
static void feed_rest(feed *f) {
    f->next = feed_lines(f->next, f->lines, f->step, f->left, 0);
    f->left = 0;
}

/* Prefetch rows that nothing has prefetched before. */
static void feed_cold(const void *from, int64_t ld, int64_t rows, int64_t cols, int type) {
    int size = element_size(type);
    feed cold;
    feed_rows(&cold, &(stream){from, ld * size, rows, cols * size});
    feed_rest(&cold);
}

/* The B of recent products, the latest first, and what the next one is likely to read. */
typedef struct {
    stream recent[PERIOD + 1];
    stream next; /* rows that remain to be prefetched; none if the previous guess was wrong */
    const char *guess;
    int64_t share; /* rows of `next` to prefetch at once */
} forecast;

/* Look out for the product after the one whose B is `now`. Loops over blocks of a tensor, such as
 * the keys and values of attention, read at equal distances, and so do the tasks that run them: the
 * next B is as far from its predecessor of PERIOD products ago as this one is from its own. A guess
 * is followed only after a right one. */
static void look_ahead(forecast *f, const stream *now) {
    for (int i = PERIOD; i > 0; i--) f->recent[i] = f->recent[i - 1];
    f->recent[0] = *now;
    stream next = f->recent[PERIOD - 1];
    next.from = (const char *)((uintptr_t)next.from + (uintptr_t)now->from -
                               (uintptr_t)f->recent[PERIOD].from);
    if (now->from != f->guess || next.rows * next.bytes > MAX_FORECAST) next.rows = 0;
    f->guess = next.from;
    f->next = next;
    f->share = next.rows;
}

/* Prefetch the next B in `count` parts. */
static void share_rows(forecast *f, int count) { f->share = (f->next.rows + count - 1) / count; }

/* Take the next rows to prefetch. */
static stream take_rows(forecast *f) {
    if (f->next.rows <= 0) return (stream){0};
    stream some = f->next;
    some.rows = smaller(some.rows, f->share);
    f->next.rows -= some.rows;
    f->next.from += some.rows * some.row_bytes;
    return some;
}

#endif
