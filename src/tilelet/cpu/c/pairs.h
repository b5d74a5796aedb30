/* BF16 products of two steps of k at a time, where the processor has an instruction for it.
 *
 * A word holds the elements of k (upper half) and k + 1 (lower half) of a row of A or a column of
 * B. AVX512-BF16's dot product adds to each lane the product of the upper halves and then that of
 * the lower ones, each as an FMA that rounds to nearest even: two steps of the contract's chain, in
 * its order. The manual specifies this, and `dot_is_in_order` verifies it. But it treats subnormal
 * operands and sums as zero, so there must be none:
 *
 * An element of BF16 with exponent field e >= 1 is a multiple of 2^(e - 134). With the least fields
 * ea of A and eb of B, ignoring zeros, all products are multiples of 2^(ea + eb - 268); if C starts
 * with multiples of 2^-126 and ea + eb >= 142, then every sum is a multiple of 2^-126 before and
 * after rounding: zero, or not subnormal. Otherwise `step_by_halves` processes the halves of the
 * same words separately. */
#ifndef TL_PAIRS_H
#define TL_PAIRS_H

#include <stdint.h>
#include <string.h>

#include "wide_vec.h"

/* TL_EMULATE_DOT: the instruction in C, for tests (2: adding in the other order). */
#if defined(TL_EMULATE_DOT) || (defined(__AVX512BF16__) && TL_VEC_BYTES == 64)
#define TL_HAS_DOT 1
#else
#define TL_HAS_DOT 0
#endif

TL_INLINE words upper_halves(words x) { return x & 0xffff0000u; }
TL_INLINE words lower_halves(words x) { return x << 16; }
TL_INLINE words swap_halves(words x) { return x << 16 | x >> 16; }

#ifdef TL_EMULATE_DOT
TL_INLINE vec without_subnormals(vec x) {
    words magnitude = (words)x & 0x7fffffffu;
    return (vec)((words)x & ((words)(magnitude >= 0x00800000u) | 0x80000000u));
}
#endif

/* c + a b for the upper halves, then for the lower ones; subnormal numbers count as zero. */
TL_INLINE vec dot_vec(vec c, words a, words b) {
#if defined(TL_EMULATE_DOT)
    c = without_subnormals(c);
    for (int i = 0; i < 2; i++) {
        int is_upper = (i == 0) == (TL_EMULATE_DOT == 1);
        vec x = (vec)(is_upper ? upper_halves(a) : lower_halves(a));
        vec y = (vec)(is_upper ? upper_halves(b) : lower_halves(b));
        c = without_subnormals(fma_vec(without_subnormals(x), without_subnormals(y), c));
    }
#elif TL_HAS_DOT
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
#else
    (void)a, (void)b;
#endif
    return c;
}

/* Whether dot_vec behaves as described above: with numbers between 1/2 and 2 the sum of every
 * second step is rounded, and any other order or rounding shows after a few steps. */
static __attribute__((noinline, unused)) int dot_is_in_order(void) {
    enum { TRIES = 32 };
    uint32_t state = 1;
    words is_same = ~(words){0};
    for (int i = 0; i < TRIES; i++) {
        words drawn[3];
        for (int j = 0; j < 3; j++)
            for (int lane = 0; lane < W; lane++) {
                state = state * 1664525u + 1013904223u;
                drawn[j][lane] = state >> 8 ^ state << 13;
            }
        words a = (drawn[0] & 0x807f807fu) | 0x3f003f00u,
              b = (drawn[1] & 0x80ff80ffu) | 0x3f003f00u;
        vec c = (vec)((drawn[2] & 0x80ffffffu) | 0x3f000000u);
        vec want = fma_vec((vec)upper_halves(a), (vec)upper_halves(b), c);
        want = fma_vec((vec)lower_halves(a), (vec)lower_halves(b), want);
        is_same &= (words)((words)dot_vec(c, a, b) == (words)want);
    }
    uint32_t all = ~0u;
    for (int lane = 0; lane < W; lane++) all &= is_same[lane];
    return all != 0;
}

/* --- how small the numbers are ----------------------------------------------------------------- */

/* The least magnitude of BF16 elements minus one, ignoring zeros, which become the largest value.
 */
TL_INLINE halves least_halves(halves least, words x) {
    return smaller_halves(least, ((halves)x & 0x7fff) - 1);
}

/* The exponent field of the least magnitude; larger than any field if all elements are zero. */
static int least_exponent(halves least) {
    int magnitude = 0xffff;
    for (int i = 0; i < 2 * W; i++) magnitude = least[i] < magnitude ? least[i] : magnitude;
    return (magnitude + 1) >> 7;
}

static int sums_are_normal(int a_exponent, int b_exponent) {
    return a_exponent >= 1 && b_exponent >= 1 && a_exponent + b_exponent >= 142;
}

/* `least_halves` for FP32 numbers. */
TL_INLINE words least_word(words least, vec x) {
    return smaller_words(least, ((words)x & 0x7fffffffu) - 1);
}

/* Whether FP32 numbers, given by their least magnitude minus one, are multiples of 2^-126: a 24-bit
 * number is if it is at least 2^-103. */
static int starts_are_normal(words least) {
    uint32_t magnitude = 0xffffffffu;
    for (int i = 0; i < W; i++) magnitude = least[i] < magnitude ? least[i] : magnitude;
    return magnitude >= (uint32_t)((127 - 103) << 23) - 1;
}

/* --- operands to words ------------------------------------------------------------------------- */

/* Widen W 16-bit elements to words. By itself gcc widens in halves. */
TL_INLINE words load_widened(const void *p) {
    typedef uint16_t elements __attribute__((vector_size(TL_VEC_BYTES / 2)));
    elements x;
    memcpy(&x, p, sizeof x);
#if TL_VEC_BYTES == 64 && !defined(__clang__) && __has_builtin(__builtin_ia32_pmovzxwd512_mask)
    typedef short shorts __attribute__((vector_size(32)));
    typedef int ints __attribute__((vector_size(64)));
    return (words)__builtin_ia32_pmovzxwd512_mask((shorts)x, (ints){0}, (uint16_t)-1);
#else
    return __builtin_convertvector(x, words);
#endif
}

/* Words of W columns, from row k at `upper` and row k + 1 at `lower`. */
TL_INLINE words pair_columns(const void *upper, const void *lower) {
    return load_widened(upper) << 16 | load_widened(lower);
}

/* `count` words as stored in memory, k in the lower half, with their halves swapped. */
static halves swap_row(float *to, const char *from, int64_t count, halves least) {
    int64_t i = 0;
    for (; i + W <= count; i += W) {
        words x = swap_halves(load_words(from + i * 4));
        least = least_halves(least, x);
        store_words(to + i, x);
    }
    if (i == count) return least;
    words x = {0};
    memcpy(&x, from + i * 4, (size_t)(count - i) * 4);
    x = swap_halves(x);
    memcpy(to + i, &x, (size_t)(count - i) * 4);
    return least_halves(least, x);
}

/* Convert pairs of rows of `cols` columns to rows of words with stride `ld_to`, zero-padded to
 * whole vectors. */
static halves pair_rows(float *to, int64_t ld_to, const char *from, int64_t row_bytes,
                        int64_t pairs, int cols, halves least) {
    for (int64_t k = 0; k < pairs; k++, to += ld_to, from += 2 * row_bytes)
        for (int c = 0; c < cols; c += W) {
            words x;
            if (cols - c >= W) {
                x = pair_columns(from + c * 2, from + row_bytes + c * 2);
            } else {
                uint16_t rows[2][W] = {{0}};
                for (int i = 0; i < 2; i++)
                    memcpy(rows[i], from + i * row_bytes + c * 2, (size_t)(cols - c) * 2);
                x = pair_columns(rows[0], rows[1]);
            }
            least = least_halves(least, x);
            store_words(to + c, x);
        }
    return least;
}

#endif
