/* The passes of matmul.c: some rows of A times a panel of B, for one block of k, with C in registers. */
#ifndef TL_PASSES_H
#define TL_PASSES_H

#include <stdint.h>

#include "convert.h"
#include "pairs.h"
#include "vec.h"
#include "wide_vec.h"

#define KC 256   /* steps of one k each, or with pairs of two */
#define UNROLL 4 /* steps of k, for each of which a line is prefetched and a row converted */
#define A_PITCH (KC + 16) /* floats; one extra line keeps rows in different sets of the L1 cache */
#define PANEL (2 * W)
#define STRIP 32 /* columns; a line of BF16 */
#define PANELS (STRIP / PANEL)
#define PANEL_PITCH (KC * PANEL + 16) /* floats; one extra line keeps panels in different sets */
#define SLOTS 32                      /* lines that are prefetched together: some rows of a group */

/* Rows of one pass by vectors of columns. Accumulators, a row of the panel and one value of A fit
 * the registers; 8 accumulators or more hide the latency of two FMAs per cycle. Row counts between
 * those listed take the next one: every kernel costs compile time. */
#if TL_VEC_BYTES == 64 || defined(__aarch64__)
#define MR1 16
#define MR2 12
#define ROWS_OF_1(X, name, kind)                                                                   \
    X(1, 1, name, kind)                                                                            \
    X(2, 1, name, kind)                                                                            \
    X(4, 1, name, kind) X(8, 1, name, kind) X(12, 1, name, kind) X(16, 1, name, kind)
#define ROWS_OF_2(X, name, kind)                                                                   \
    X(1, 2, name, kind)                                                                            \
    X(2, 2, name, kind)                                                                            \
    X(4, 2, name, kind) X(6, 2, name, kind) X(8, 2, name, kind) X(12, 2, name, kind)
#else
#define MR1 8
#define MR2 6
#define ROWS_OF_1(X, name, kind)                                                                   \
    X(1, 1, name, kind) X(2, 1, name, kind) X(4, 1, name, kind) X(8, 1, name, kind)
#define ROWS_OF_2(X, name, kind)                                                                   \
    X(1, 2, name, kind) X(2, 2, name, kind) X(4, 2, name, kind) X(6, 2, name, kind)
#endif

/* Keep a value in a register: compilers would reload it for each use, and the loads would limit the
 * kernel. */
TL_INLINE vec held(vec v) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__("" : "+v"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
    return v;
}

/* Operands of a step: FP32 values of A and B; words of pairs (pairs.h); or such words, half by
 * half. */
typedef enum { NUMBERS, PAIRS, HALVES } operands;

/* One pass: some rows of A times a panel of B, for one block of k. */
typedef struct {
    const float *a;     /* [rows][A_PITCH] */
    int a_exponent;     /* for words: the least, including other rows */
    const float *panel; /* [steps][PANEL] */
    const char *b;      /* or the same in place, with row stride `row_bytes` */
    int64_t row_bytes;
    int *b_exponent;    /* for words: the least of this panel, or UNSEEN */
    const float *start; /* NULL: zeros */
    int64_t ld_start;
    float *c;
    int64_t ldc;
    int steps;
    struct feed *ahead;
    struct conversion *next;
    halves *least; /* least word that `next` produces */
} pass;

/* The next line to prefetch: row, and line within it. */
typedef struct {
    const char *row;
    int slot;
} feed_place;

/* Rows of B to prefetch, as many at once as SLOTS lines hold. */
typedef struct feed {
    feed_place next;
    int64_t step;         /* bytes between the first rows of consecutive groups */
    int left;             /* lines until all rows are prefetched */
    int in_turn;          /* lines per UNROLL steps of a pass */
    int is_near;          /* into the L1 cache, instead of the L2 cache */
    int64_t lines[SLOTS]; /* offsets from the row */
} feed;

/* Prefetch some lines; return where to continue. Keeping that in memory would stall the pass. */
TL_INLINE feed_place feed_lines(feed_place next, const int64_t *lines, int64_t step, int count,
                                int is_near) {
    __asm__ volatile(
        ""); /* gcc considers prefetching free of effects, and drops it with an unused result */
    for (; count > 0; count--) {
        if (is_near)
            __builtin_prefetch(next.row + lines[next.slot], 0, 3);
        else
            __builtin_prefetch(next.row + lines[next.slot], 0, 2);
        if (++next.slot == SLOTS) {
            next.slot = 0;
            next.row += step;
        }
    }
    return next;
}

/* A strip of BF16 that is being converted to panels. Without vectors: a pass keeps a copy, and FP32
 * values need no least word. */
typedef struct conversion {
    const char *from;
    int64_t row_bytes;
    float *to;
    int steps_left;
    int in_turn; /* steps per UNROLL steps of a pass */
} conversion;

TL_INLINE void convert_step(conversion *x, halves *least, operands kind) {
    if (kind == NUMBERS) {
#pragma GCC unroll 4
        for (int c = 0; c < STRIP; c += 8)
            tl_store_f32(x->to + c / PANEL * PANEL_PITCH + c % PANEL,
                         tl_load_bf16((const uint16_t *)x->from + c));
        x->from += x->row_bytes;
    } else {
#pragma GCC unroll 8
        for (int c = 0; c < STRIP; c += W) {
            words pairs = pair_columns(x->from + c * 2, x->from + x->row_bytes + c * 2);
            *least = least_halves(*least, pairs);
            store_words(x->to + c / PANEL * PANEL_PITCH + c % PANEL, pairs);
        }
        x->from += 2 * x->row_bytes;
    }
    x->to += PANEL;
    x->steps_left--;
}

/* Finish a conversion; return the least exponent of its words. */
static int convert_rest(conversion x, halves least, operands kind) {
    if (kind == NUMBERS)
        while (x.steps_left > 0) convert_step(&x, &least, NUMBERS);
    else
        while (x.steps_left > 0) convert_step(&x, &least, PAIRS);
    return least_exponent(least);
}

/* acc + a b. By itself gcc overwrites a or b instead of acc, copies registers back and runs out of
 * them. */
TL_INLINE vec accumulate(vec acc, vec a, vec b) {
#if defined(__FMA__) && !defined(__clang__)
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
#else
    return fma_vec(a, b, acc);
#endif
}

/* acc[r][j] += a[r][k] * b[k][j], all in registers. */
TL_INLINE void step(vec acc[MR1][2], const float *a, const float *b, int rows, int vectors,
                    operands kind) {
    vec row[2];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) row[j] = held(load_vec(b + j * W));
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        vec value = (vec)(((const uint32_t *)a)[r * A_PITCH] + (words){0});
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[r][j] = kind == PAIRS ? dot_vec(acc[r][j], (words)value, (words)row[j])
                                      : accumulate(acc[r][j], value, row[j]);
    }
}

/* The same for both halves of words, one after the other. */
TL_INLINE void step_by_halves(vec acc[MR1][2], const float *a, const float *b, int rows,
                              int vectors) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        words value = ((const uint32_t *)a)[r * A_PITCH] + (words){0};
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            words row = load_words(b + j * W);
            vec upper = fma_vec((vec)upper_halves(value), (vec)upper_halves(row), acc[r][j]);
            acc[r][j] = fma_vec((vec)lower_halves(value), (vec)lower_halves(row), upper);
        }
    }
}

TL_INLINE void run_halves(const pass *p, int rows, int vectors) {
    vec acc[MR1][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[r][j] = p->start ? load_vec(p->start + r * p->ld_start + j * W) : (vec){0};
    for (int k = 0; k < p->steps; k++)
        step_by_halves(acc, p->a + k, p->panel + k * PANEL, rows, vectors);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) store_vec(p->c + r * p->ldc + j * W, acc[r][j]);
}

/* A pass over pairs where subnormal numbers may occur; it neither prefetches nor converts. */
static __attribute__((noinline)) void run_by_halves(const pass *p, int rows, int vectors) {
    enum { SOME = 4 };
    pass now = *p;
    while (rows > 0) {
        int some = rows >= SOME ? SOME : 1;
        if (some == SOME && vectors == 2)
            run_halves(&now, SOME, 2);
        else if (some == SOME)
            run_halves(&now, SOME, 1);
        else if (vectors == 2)
            run_halves(&now, 1, 2);
        else
            run_halves(&now, 1, 1);
        now.a += some * A_PITCH;
        now.c += some * now.ldc;
        if (now.start) now.start += some * now.ld_start;
        rows -= some;
    }
}

TL_INLINE void run_pass(const pass *p, int rows, int vectors, operands kind) {
    vec acc[MR1][2];
    words least_start = ~(words){0};
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            acc[r][j] = p->start ? load_vec(p->start + r * p->ld_start + j * W) : (vec){0};
            if (kind == PAIRS) least_start = least_word(least_start, acc[r][j]);
        }
    }
    if (kind == PAIRS && !starts_are_normal(least_start)) {
        run_by_halves(p, rows, vectors);
        return;
    }
    const float *a = p->a, *b = p->panel;
    int k = p->steps, in_turn = p->ahead->in_turn;
    int64_t step_ahead = p->ahead->step;
    int is_near = p->ahead->is_near;
    feed_place ahead = p->ahead->next;
    const int64_t *lines = p->ahead->lines;
    conversion next = *p->next;
    halves least = kind == PAIRS ? *p->least : (halves){0};
    for (; k >= UNROLL; k -= UNROLL, a += UNROLL, b += UNROLL * PANEL) {
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++) step(acc, a + i, b + i * PANEL, rows, vectors, kind);
        if (is_near)
            ahead = feed_lines(ahead, lines, step_ahead, in_turn, 1);
        else
            ahead = feed_lines(ahead, lines, step_ahead, in_turn, 0);
        for (int i = next.in_turn; i > 0 && next.steps_left > 0; i--)
            convert_step(&next, &least, kind);
    }
    p->ahead->next = ahead;
    p->next->from = next.from;
    p->next->to = next.to;
    p->next->steps_left = next.steps_left;
    if (kind == PAIRS) *p->least = least;
    for (; k > 0; k--, a++, b += PANEL) step(acc, a, b, rows, vectors, kind);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) store_vec(p->c + r * p->ldc + j * W, acc[r][j]);
    }
}

typedef void (*kernel)(const pass *);

/* Kernels by vectors of columns and rows; NULL for row counts without a kernel. */
typedef kernel kernel_table[3][MR1 + 1];

#define DEFINE_KERNEL(rows, vectors, name, kind)                                                   \
    static __attribute__((noinline)) void name##_##rows##x##vectors(const pass *p) {               \
        run_pass(p, rows, vectors, kind);                                                          \
    }
#define KERNEL_ENTRY(rows, vectors, name, kind) [vectors][rows] = name##_##rows##x##vectors,
#define DEFINE_KERNELS(table, name, kind)                                                          \
    ROWS_OF_1(DEFINE_KERNEL, name, kind)                                                           \
    ROWS_OF_2(DEFINE_KERNEL, name, kind)                                                           \
    const kernel_table table = {ROWS_OF_1(KERNEL_ENTRY, name, kind)                                \
                                    ROWS_OF_2(KERNEL_ENTRY, name, kind)};

extern const kernel_table tl_pair_kernels; /* in pair_kernels.c */

/* Passes over some rows, at most `most` at a time. */
static int passes_of(int64_t rows, int most) { return (int)((rows + most - 1) / most); }

#endif
