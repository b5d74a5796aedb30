/* Support code for generated kernels. */
#ifndef TL_KERNEL_H
#define TL_KERNEL_H

#include "matmul.h"
#include "numbers.h"
#include "reduce.h"
#include "rt.h"

/* Before an element loop: iterations are independent. */
#ifdef __clang__
#define TL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TL_IVDEP _Pragma("GCC ivdep")
#endif

#define TL_LINE 64 /* bytes of a cache line */
#define TL_CANCELLED(c) (*(c)->cancel != 0)

/* start < 0 || start + size > extent, without overflow */
TL_INLINE int tl_outside(int64_t start, int64_t size, int64_t extent) {
    return start < 0 || size > extent || start > extent - size;
}

/* Prefetch memory that may end anywhere: prefetches never fault. */
TL_INLINE void tl_prefetch(const void *from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += TL_LINE) __builtin_prefetch((const char *)from + at);
}

/* Number of iterations of range(start, stop, step). */
TL_INLINE int64_t tl_trips(int64_t start, int64_t stop, int64_t step) {
    if (step > 0) {
        if (start >= stop) return 0;
        return (int64_t)(((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1);
    }
    if (start <= stop) return 0;
    return (int64_t)(((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1);
}

/* Elements before the first whole cache line, at most `count`; `count` if no element starts one. */
TL_INLINE int64_t tl_before_line(const void *to, int64_t itemsize, int64_t count) {
    int64_t bytes = (int64_t)(-(uintptr_t)to & (TL_LINE - 1));
    return bytes % itemsize || bytes / itemsize > count ? count : bytes / itemsize;
}

/* Store a cache line with a non-temporal store. `line` is a variable that the caller fills in one
 * loop of constant length: compilers keep it in registers. Call `tl_streamed` before other threads
 * may read the line. */
TL_INLINE void tl_stream_line(void *to, const void *line) {
#if defined(__AVX__) && __has_builtin(__builtin_ia32_movntps256)
    for (int at = 0; at < TL_LINE; at += 32)
        __builtin_ia32_movntps256((float *)((char *)to + at),
                                  tl_load_f32((const float *)((const char *)line + at)));
#else
    memcpy(to, line, TL_LINE);
#endif
}
TL_INLINE void tl_streamed(void) {
#if defined(__AVX__) && __has_builtin(__builtin_ia32_movntps256)
    __builtin_ia32_sfence(); /* a fence: once for many copies */
#endif
}

/* Whether `args` continues the product with one more piece of k at the same distance as the
 * previous pieces. */
TL_INLINE int tl_is_next_piece(const tl_product *p, const tl_matmul_args *args, int64_t a_step,
                               int64_t b_step) {
    const tl_matmul_args *x = &p->args;
    return x->lda == args->lda && x->ldb == args->ldb && x->k == args->k && x->m == args->m &&
           x->n == args->n && x->a_trans == args->a_trans && x->b_trans == args->b_trans &&
           x->a_type == args->a_type && x->b_type == args->b_type &&
           (p->pieces == 1 || (a_step == p->a_step && b_step == p->b_step));
}

/* Both are in products.c, which is linked only into programs with products: a static function here
 * would reference the matrix product from every program at -O0. */
void tl_run_product(tl_product *p, tl_ctx *c);
void tl_run_products(tl_ctx *c, tl_product *const *products, int count, const void *then);

/* A product that may be deferred: all pieces of a loop's matmul_acc run as one. `is_lasting`: both
 * operands stay unchanged until then. */
TL_INLINE void tl_add_piece(tl_product *p, const tl_matmul_args *args, int is_lasting, tl_ctx *c) {
    if (c->phase == TL_FINISH) return;
    int64_t n = p->pieces - 1;
    int64_t a_step = (intptr_t)args->a - (intptr_t)p->args.a - n * p->a_step;
    int64_t b_step = (intptr_t)args->b - (intptr_t)p->args.b - n * p->b_step;
    if (p->pieces && (!is_lasting || !tl_is_next_piece(p, args, a_step, b_step)))
        tl_run_product(p, c);
    if (!p->pieces) {
        *p = (tl_product){.args = *args, .pieces = 1};
    } else {
        p->a_step = a_step;
        p->b_step = b_step;
        p->pieces++;
    }
    if (!is_lasting) tl_run_product(p, c);
}

/* Flush the deferred products. Only products were computed before this point: a kernel is entered
 * once to collect them, and again to continue after they have run beside those of other tasks.
 * Nonzero: the kernel must return. */
TL_INLINE int tl_flush_products(tl_ctx *c, tl_product *const *products, int count) {
    if (c->phase == TL_FINISH) tl_guard(c->products, count, 0);
    if (c->phase == TL_COLLECT)
        for (int i = 0; i < count; i++) c->products[i] = *products[i];
    if (c->phase == TL_WHOLE) tl_run_products(c, products, count, c->then);
    if (c->phase == TL_WHOLE) c->then = NULL;
    c->product_count = count;
    int leaves = c->phase == TL_COLLECT;
    c->phase = TL_WHOLE;
    return leaves;
}

#endif
