/* One row of A times B in INT8, as used by matmul.c where C has one row: INT32 sums modulo 2^32.
 *
 * Multiplying each number in 32 bits takes three instructions per vector of C, longer than reading
 * B. So INT8_STEPS rows of B are widened to 16 bits and interleaved in registers, and one
 * instruction adds the products of a column in both of them. Interleaving works within 128 bits:
 * while k runs, the columns of C are in the order in which it leaves them. (Four rows of bytes at
 * once, with VNNI, take half as many instructions and longer: reading is the bound.) */
#ifndef TL_INT8_ROW_H
#define TL_INT8_ROW_H

#include "one_row.h"

#if !__has_builtin(__builtin_shufflevector)
#define INT8_STEPS 1
#elif TL_VEC_BYTES == 64 && __has_builtin(__builtin_ia32_pmaddwd512_mask) && defined(__AVX512BW__)
#define INT8_STEPS 2
#elif TL_VEC_BYTES == 32 && __has_builtin(__builtin_ia32_pmaddwd256) && defined(__AVX2__)
#define INT8_STEPS 2
#else
#define INT8_STEPS 1
#endif
#define INT8_COLUMNS (INT8_STEPS * W) /* columns that are interleaved */
#define INT8_BLOCK 4                  /* times INT8_STEPS rows for which C stays in registers */
#define INT8_AHEAD 16                 /* rows that are prefetched; a multiple of INT8_STEPS */
#define INT8_GROUP 2048 /* limit of columns of C that stay in the cache while k runs */

/* Place of a column in C while k runs. */
TL_INLINE int64_t int8_place(int64_t column) {
    int64_t group = column / INT8_COLUMNS * INT8_COLUMNS, in_group = column % INT8_COLUMNS;
    int64_t lane = in_group / (4 * INT8_STEPS), vector = in_group / 4 % INT8_STEPS;
    return group + vector * W + 4 * lane + in_group % 4;
}

#if INT8_STEPS == 2
typedef int16_t int16s __attribute__((vector_size(TL_VEC_BYTES)));

/* gcc 12 converts a vector of bytes one element at a time. */
TL_INLINE int16s load_int8_halves(const char *p) {
    typedef char bytes __attribute__((vector_size(TL_VEC_BYTES / 2)));
    bytes narrow;
    memcpy(&narrow, p, sizeof narrow);
#if TL_VEC_BYTES == 64
    typedef short shorts __attribute__((vector_size(64)));
    return (int16s)__builtin_ia32_pmovsxbw512_mask(narrow, (shorts){0}, (uint32_t)-1);
#elif __has_builtin(__builtin_ia32_pmovsxbw256)
    return (int16s)__builtin_ia32_pmovsxbw256(narrow);
#else
    return __builtin_convertvector(narrow, int16s); /* clang */
#endif
}

/* Interleave the lower or upper elements of each 128 bits. */
#define FOUR_PAIRS(n, at) at, at + n, at + 1, at + n + 1, at + 2, at + n + 2, at + 3, at + n + 3
TL_INLINE int16s interleave_lower(int16s a, int16s b) {
#if TL_VEC_BYTES == 64
    return __builtin_shufflevector(a, b, FOUR_PAIRS(32, 0), FOUR_PAIRS(32, 8), FOUR_PAIRS(32, 16),
                                   FOUR_PAIRS(32, 24));
#else
    return __builtin_shufflevector(a, b, FOUR_PAIRS(16, 0), FOUR_PAIRS(16, 8));
#endif
}
TL_INLINE int16s interleave_upper(int16s a, int16s b) {
#if TL_VEC_BYTES == 64
    return __builtin_shufflevector(a, b, FOUR_PAIRS(32, 4), FOUR_PAIRS(32, 12), FOUR_PAIRS(32, 20),
                                   FOUR_PAIRS(32, 28));
#else
    return __builtin_shufflevector(a, b, FOUR_PAIRS(16, 4), FOUR_PAIRS(16, 12));
#endif
}

TL_INLINE words add_pairs(words acc, words a, int16s b) {
    typedef short shorts __attribute__((vector_size(TL_VEC_BYTES)));
    typedef int ints __attribute__((vector_size(TL_VEC_BYTES)));
#if TL_VEC_BYTES == 64
    ints sums = __builtin_ia32_pmaddwd512_mask((shorts)a, (shorts)b, (ints){0}, (uint16_t)-1);
#else
    ints sums = __builtin_ia32_pmaddwd256((shorts)a, (shorts)b);
#endif
    return acc + (words)sums;
}

TL_INLINE void add_int8(words *acc, const char *b, int64_t row_bytes, words a) {
    int16s first = load_int8_halves(b), second = load_int8_halves(b + row_bytes);
    acc[0] = add_pairs(acc[0], a, interleave_lower(first, second));
    acc[1] = add_pairs(acc[1], a, interleave_upper(first, second));
}
#else
TL_INLINE void add_int8(words *acc, const char *b, int64_t row_bytes, words a) {
    (void)row_bytes;
    acc[0] += a * load_integers(b);
}
#endif

/* Pack A (integers in FP32) into operands of INT8_STEPS rows each, padded with zeros. */
static void pack_int8(uint32_t *to, const float *a, int64_t k) {
    for (int64_t i = 0; i < k; i += INT8_STEPS) {
        uint32_t first = (uint32_t)(int32_t)a[i];
        uint32_t second = i + 1 < k ? (uint32_t)(int32_t)a[i + 1] : 0;
        to[i / INT8_STEPS] = INT8_STEPS == 1 ? first : (first & 0xffff) | second << 16;
    }
}

/* c += a b for whole groups of columns and rows. Memory at both distances is prefetched, into the
 * L2 cache: equal columns of many rows would not fit the sets of the L1 cache. Each line is
 * prefetched several times, because that was fastest: a processor with too many misses may drop
 * prefetches. */
TL_INLINE void add_int8_rows(uint32_t *c, const uint32_t *a, const char *b, int64_t row_bytes,
                             int64_t steps, int64_t columns, int64_t ahead, int64_t nearer) {
    for (int64_t k = 0, some; k < steps; k += some) {
        some = steps - k < INT8_BLOCK ? steps - k : INT8_BLOCK;
        const char *rows = b + k * INT8_STEPS * row_bytes;
        for (int64_t n = 0; n < columns; n += INT8_COLUMNS) {
            words acc[INT8_STEPS];
#pragma GCC unroll 2
            for (int v = 0; v < INT8_STEPS; v++) acc[v] = load_words(c + n + v * W);
            for (int64_t s = 0; s < some; s++) {
                const char *here = rows + s * INT8_STEPS * row_bytes + n;
                add_int8(acc, here, row_bytes, a[k + s] + (words){0});
#pragma GCC unroll 2
                for (int i = 0; ahead != NOTHING && i < INT8_STEPS; i++) {
                    __builtin_prefetch(here + i * row_bytes + ahead, 0, 2);
                    if (TL_VEC_BYTES == 64) __builtin_prefetch(here + i * row_bytes + nearer, 0, 2);
                }
            }
#pragma GCC unroll 2
            for (int v = 0; v < INT8_STEPS; v++) store_words(c + n + v * W, acc[v]);
        }
    }
}

/* c += a b over all k; `next` is the B that will be read next in the same way, or NULL. */
static void add_all_int8_rows(uint32_t *c, const uint32_t *a, const char *b, const char *next,
                              int64_t row_bytes, int64_t k, int64_t columns) {
    int64_t steps = k / INT8_STEPS, ahead = INT8_AHEAD * row_bytes;
    int64_t last = steps < INT8_AHEAD / INT8_STEPS ? steps : INT8_AHEAD / INT8_STEPS;
    const char *rest = b + (steps - last) * INT8_STEPS * row_bytes;
    add_int8_rows(c, a, b, row_bytes, steps - last, columns, ahead, ahead / 2);
    int64_t to_next = next ? next - rest : NOTHING;
    add_int8_rows(c, a + steps - last, rest, row_bytes, last, columns, to_next, to_next);
    if (k % INT8_STEPS == 0) return;
    char pair[INT8_STEPS][INT8_COLUMNS] = {{0}}; /* the missing row is multiplied by 0 */
    for (int64_t n = 0; n < columns; n += INT8_COLUMNS) {
        memcpy(pair[0], b + (k - 1) * row_bytes + n, INT8_COLUMNS);
        add_int8_rows(c + n, a + steps, pair[0], INT8_COLUMNS, 1, INT8_COLUMNS, NOTHING, NOTHING);
    }
}

/* Copy columns of C, starting at `first`, into the order used while k runs.
 * `join_int8` copies them back. */
static void part_int8(uint32_t *restrict c, int64_t first, const uint32_t *restrict start,
                      int64_t columns) {
    for (int64_t n = 0; n < columns; n++) c[int8_place(first + n)] = start ? start[n] : 0;
}

static void join_int8(uint32_t *restrict to, const uint32_t *restrict c, int64_t first,
                      int64_t columns) {
    for (int64_t n = 0; n < columns; n++) to[n] = c[int8_place(first + n)];
}

#endif
