/* One row of A times B, in FP32, BF16 or INT8, as used by matmul.c where C has one row.
 *
 * The bound is the memory bandwidth of reading B. Sequential reads are fastest, so contiguous rows
 * are read one by one, and several B at once are faster than one after the other. Rows of a wider
 * matrix lie apart: ROW_STEPS of them are read together, a few lines of each at a time. C stays in
 * cache; B is converted in registers.
 *
 * A word of B in BF16 holds two columns: shifted left it is the first of them, and without its
 * lower half the second. Widening each separately takes twice as long, about as long as reading. So
 * while k runs, the even ones of every 2 * W columns of C come first. With B in INT8, C is
 * INT32. */
#ifndef TL_ONE_ROW_H
#define TL_ONE_ROW_H

#include <stdint.h>
#include <string.h>

#include "convert.h"
#include "wide_vec.h"

#define ROW_STEPS 8
#define ROW_VECTORS 8
#define READ_AHEAD 3072 /* bytes */
#define NOTHING INT64_MIN

/* W integers of eight bits as INT32. gcc 12 converts a vector of bytes one element at a time. */
TL_INLINE words load_integers(const char *p) {
#if TL_VEC_BYTES == 32
    return (words)tl_i8_to_i32(tl_load_i8((const int8_t *)p));
#else
    typedef int8_t bytes __attribute__((vector_size(W)));
    typedef int32_t integers __attribute__((vector_size(TL_VEC_BYTES)));
    bytes narrow;
    memcpy(&narrow, p, sizeof narrow);
#if TL_VEC_BYTES == 64 && __has_builtin(__builtin_ia32_pmovsxbd512_mask)
    typedef char chars __attribute__((vector_size(16)));
    return (words)__builtin_ia32_pmovsxbd512_mask((chars)narrow, (integers){0}, (uint16_t)-1);
#else
    return (words) __builtin_convertvector(narrow, integers);
#endif
#endif
}

TL_INLINE int size_in_row(int type) { return type == TL_FP32 ? 4 : type == TL_BF16 ? 2 : 1; }

/* The number of columns of a row must be a multiple of this. */
TL_INLINE int least_columns(int type) { return type == TL_BF16 ? 2 * W : W; }

/* c[0 .. vectors * W] += a[k] * b[k], for some steps of k; memory `ahead` bytes further on is
 * prefetched (NOTHING: none). */
TL_INLINE void add_rows(float *c, const float *a, const char *b, int64_t row_bytes, int64_t steps,
                        int64_t ahead, int vectors, int type) {
    int bytes = vectors * W * size_in_row(type);
    vec acc[ROW_VECTORS];
#pragma GCC unroll 8
    for (int j = 0; j < vectors; j++) acc[j] = load_vec(c + j * W);
    for (int64_t k = 0; k < steps; k++, b += row_bytes) {
        vec value = a[k] - (vec){0};
        if (type == TL_BF16) {
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j += 2) {
                words both = load_words(b + j * W * 2);
                acc[j] = fma_vec(value, (vec)(both << 16), acc[j]);
                acc[j + 1] = fma_vec(value, (vec)(both & 0xffff0000u), acc[j + 1]);
            }
        } else if (type == TL_INT8) {
            words factor = (uint32_t)(int32_t)a[k] + (words){0};
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                acc[j] = (vec)((words)acc[j] + factor * load_integers(b + j * W));
        } else {
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                acc[j] = fma_vec(value, load_vec(b + j * W * 4), acc[j]);
        }
#pragma GCC unroll 8
        for (int at = 0; ahead != NOTHING && at < bytes; at += 64)
            __builtin_prefetch(b + ahead + at, 0, 3);
    }
#pragma GCC unroll 8
    for (int j = 0; j < vectors; j++) store_vec(c + j * W, acc[j]);
}

/* `columns` is a multiple of `least_columns`. */
TL_INLINE void add_columns_of(float *c, const float *a, const char *b, int64_t row_bytes,
                              int64_t steps, int64_t ahead, int64_t columns, int type) {
    int size = size_in_row(type), least = least_columns(type);
    for (; columns >= ROW_VECTORS * W; columns -= ROW_VECTORS * W) {
        add_rows(c, a, b, row_bytes, steps, ahead, ROW_VECTORS, type);
        c += ROW_VECTORS * W;
        b += ROW_VECTORS * W * size;
    }
    for (; columns > 0; columns -= least, c += least, b += least * size)
        add_rows(c, a, b, row_bytes, steps, ahead, least / W, type);
}

static void add_columns(float *c, const float *a, const char *b, int64_t row_bytes, int64_t steps,
                        int64_t ahead, int64_t columns, int type) {
    if (type == TL_BF16)
        add_columns_of(c, a, b, row_bytes, steps, ahead, columns, TL_BF16);
    else if (type == TL_INT8)
        add_columns_of(c, a, b, row_bytes, steps, ahead, columns, TL_INT8);
    else
        add_columns_of(c, a, b, row_bytes, steps, ahead, columns, TL_FP32);
}

/* Contiguous rows, each of a multiple of `strips` strips of ROW_VECTORS vectors. More than one per
 * iteration: otherwise the loop is slower than reading. */
TL_INLINE void add_in_order(float *c, const float *a, const char *b, int64_t rows, int64_t columns,
                            int64_t ahead, int strips, int type) {
    enum { COLUMNS = ROW_VECTORS * W };
    for (int64_t k = 0; k < rows; k++)
        for (int64_t n = 0; n < columns; n += strips * COLUMNS)
#pragma GCC unroll 4
            for (int i = 0; i < strips; i++) {
                add_rows(c + n + i * COLUMNS, a + k, b, 0, 1, ahead, ROW_VECTORS, type);
                b += COLUMNS * size_in_row(type);
            }
}

/* Rows of INT8 are short: C would pass through the registers too often. */
TL_INLINE int is_in_order(int64_t row_bytes, int64_t columns, int type) {
    return type != TL_INT8 && row_bytes == columns * size_in_row(type) &&
           columns % (ROW_VECTORS * W) == 0;
}

TL_INLINE void add_rows_in_order(float *c, const float *a, const char *b, int64_t rows,
                                 int64_t columns, int64_t ahead, int type) {
    if (type != TL_BF16)
        add_in_order(c, a, b, rows, columns, ahead, 1, TL_FP32);
    else if (columns % (4 * ROW_VECTORS * W) == 0)
        add_in_order(c, a, b, rows, columns, ahead, 4, TL_BF16);
    else if (columns % (2 * ROW_VECTORS * W) == 0)
        add_in_order(c, a, b, rows, columns, ahead, 2, TL_BF16);
    else
        add_in_order(c, a, b, rows, columns, ahead, 1, TL_BF16);
}

/* Some rows; memory `ahead` bytes further on is prefetched. */
static void add_block(float *c, const float *a, const char *b, int64_t row_bytes, int64_t rows,
                      int64_t columns, int64_t ahead, int type) {
    if (is_in_order(row_bytes, columns, type)) {
        add_rows_in_order(c, a, b, rows, columns, ahead, type);
        return;
    }
    for (int64_t k = 0, steps; k < rows; k += steps) {
        steps = rows - k < ROW_STEPS ? rows - k : ROW_STEPS;
        add_columns(c, a + k, b + k * row_bytes, row_bytes, steps, ahead, columns, type);
    }
}

/* c += a b, over all k; `next` is the B that will be read next in the same way, or NULL. */
static void add_all_rows(float *c, const float *a, const char *b, const char *next,
                         int64_t row_bytes, int64_t k, int64_t columns, int type) {
    int64_t last = ROW_STEPS; /* rows: those ahead of them belong to `next` */
    if (row_bytes > 0 && last * row_bytes < READ_AHEAD)
        last = (READ_AHEAD + row_bytes - 1) / row_bytes;
    if (last > k) last = k;
    int64_t before = k - last, ahead = last * row_bytes;
    const char *rest = b + before * row_bytes;
    add_block(c, a, b, row_bytes, before, columns, ahead, type);
    add_block(c, a + before, rest, row_bytes, last, columns, next ? next - rest : 0, type);
}

/* The same for several B with contiguous rows, one row of each in turn; their C are contiguous.
 * On some processors this is faster than `add_all_rows` (reading.h): each stream has its own hardware
 * prefetcher, whereas software prefetches share the few miss buffers of the L1 cache. */
static void add_streams(float *c, const float *a, const char *const *b, int count, int64_t k,
                        int64_t columns, int type) {
    int64_t row_bytes = columns * size_in_row(type);
    for (int64_t i = 0; i < k; i++)
        for (int s = 0; s < count; s++)
            add_rows_in_order(c + s * columns, a + i, b[s] + i * row_bytes, 1, columns, NOTHING,
                              type);
}

/* Of every 2 * W columns, move the even ones first; `join_columns` undoes it. */
static void part_columns(float *restrict to, const float *restrict from, int64_t columns) {
    for (int64_t n = 0; n < columns; n += 2 * W)
        for (int i = 0; i < W; i++) {
            to[n + i] = from[n + 2 * i];
            to[n + W + i] = from[n + 2 * i + 1];
        }
}

static void join_columns(float *restrict to, const float *restrict from, int64_t columns) {
    for (int64_t n = 0; n < columns; n += 2 * W)
        for (int i = 0; i < W; i++) {
            to[n + 2 * i] = from[n + i];
            to[n + 2 * i + 1] = from[n + W + i];
        }
}

#endif
