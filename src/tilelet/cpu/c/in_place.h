/* Passes over pairs of BF16 (pairs.h) that read B in place, without panels.
 *
 * A row of a panel is one vector of BF16. Rows k and k + 1, interleaved within every 16 bytes, are
 * two vectors of words: one instruction each, so a pass is hardly slower than from a panel, and no
 * panel has to be written. C has its columns in that order while k runs.
 *
 * Whether sums may be subnormal is not known before B has been read: the first pass over a panel
 * finds its least exponent along the way. A pass that turns out to be inapplicable has written
 * nothing. */
#ifndef TL_IN_PLACE_H
#define TL_IN_PLACE_H

#include "passes.h"

#define MR_IN_PLACE 8 /* rows: 16 accumulators hide the latency; more do not help */
#define UNSEEN (-1)

/* Words of the pairs in two rows of a panel; columns of both vectors in the order of `to_lanes`. */
TL_INLINE void interleave(words to[2], halves upper, halves lower) {
#if TL_VEC_BYTES == 64
    to[0] = (words)__builtin_shufflevector(lower, upper, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41,
                                           10, 42, 11, 43, 16, 48, 17, 49, 18, 50, 19, 51, 24, 56,
                                           25, 57, 26, 58, 27, 59);
    to[1] = (words)__builtin_shufflevector(lower, upper, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45,
                                           14, 46, 15, 47, 20, 52, 21, 53, 22, 54, 23, 55, 28, 60,
                                           29, 61, 30, 62, 31, 63);
#else
    for (int i = 0; i < 2 * W; i++)
        to[i / 4 % 2][i / 8 * 4 + i % 4] = (uint32_t)upper[i] << 16 | lower[i];
#endif
}

/* Split 2 * W columns: of every eight, the first four go to one vector and the rest to the other.
 * `from_lanes` undoes it. */
TL_INLINE void to_lanes(vec to[2], const float *from) {
#if TL_VEC_BYTES == 64
    vec x = load_vec(from), y = load_vec(from + W);
    to[0] = __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    to[1] =
        __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
#else
    for (int i = 0; i < 2 * W; i++) to[i / 4 % 2][i / 8 * 4 + i % 4] = from[i];
#endif
}

TL_INLINE void from_lanes(float *to, const vec from[2]) {
#if TL_VEC_BYTES == 64
    vec x = from[0], y = from[1];
    store_vec(
        to, __builtin_shufflevector(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
    store_vec(to + W, __builtin_shufflevector(x, y, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15,
                                              28, 29, 30, 31));
#else
    for (int i = 0; i < 2 * W; i++) to[i] = from[i / 4 % 2][i / 8 * 4 + i % 4];
#endif
}

TL_INLINE halves load_halves(const void *p) {
    halves v;
    memcpy(&v, p, sizeof v);
    return v;
}

TL_INLINE void step_in_place(vec acc[MR1][2], const float *a, const char *b, int64_t row_bytes,
                             int rows, halves *least) {
    halves upper = load_halves(b), lower = load_halves(b + row_bytes);
    if (least) *least = least_halves(least_halves(*least, (words)upper), (words)lower);
    words row[2];
    interleave(row, upper, lower);
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) row[j] = (words)held((vec)row[j]);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        words value = ((const uint32_t *)a)[r * A_PITCH] + (words){0};
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) acc[r][j] = dot_vec(acc[r][j], value, row[j]);
    }
}

/* Returns whether the pass was run. `looks`: the panel's exponent is not known yet, but will be
 * unless C already has values that must not be accumulated to. */
TL_INLINE int run_in_place(const pass *p, int rows, int looks) {
    vec acc[MR1][2];
    words least_start = ~(words){0};
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        acc[r][0] = acc[r][1] = (vec){0};
        if (p->start) to_lanes(acc[r], p->start + r * p->ld_start);
        least_start = least_word(least_word(least_start, acc[r][0]), acc[r][1]);
    }
    if (!starts_are_normal(least_start)) return 0;
    const float *a = p->a;
    const char *b = p->b;
    int k = p->steps, in_turn = p->ahead->in_turn;
    int64_t step_ahead = p->ahead->step, row_bytes = p->row_bytes;
    feed_place ahead = p->ahead->next;
    const int64_t *lines = p->ahead->lines;
    halves least = ~(halves){0};
    for (; k >= UNROLL; k -= UNROLL, a += UNROLL, b += 2 * UNROLL * row_bytes) {
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++)
            step_in_place(acc, a + i, b + 2 * i * row_bytes, row_bytes, rows,
                          looks ? &least : NULL);
        ahead = feed_lines(ahead, lines, step_ahead, in_turn, 0);
    }
    for (; k > 0; k--, a++, b += 2 * row_bytes)
        step_in_place(acc, a, b, row_bytes, rows, looks ? &least : NULL);
    p->ahead->next = ahead;
    if (looks) {
        *p->b_exponent = least_exponent(least);
        if (!sums_are_normal(p->a_exponent, *p->b_exponent)) return 0;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) from_lanes(p->c + r * p->ldc, acc[r]);
    return 1;
}

/* By rows, and by whether they look; NULL for row counts that have none. */
typedef int (*kernel_in_place)(const pass *);
extern const kernel_in_place tl_kernels_in_place[MR_IN_PLACE + 1][2];

#endif
