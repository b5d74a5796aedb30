/* What generated kernels are written with. */
#ifndef TL_KERNEL_H
#define TL_KERNEL_H

#include "matmul.h"
#include "numbers.h"
#include "reduce.h"
#include "rt.h"

/* Before a loop over elements: no iteration depends on another. */
#ifdef __clang__
#define TL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TL_IVDEP _Pragma("GCC ivdep")
#endif

#define TL_CANCELLED(c) (*(c)->cancel != 0)

/* start < 0 || start + size > extent, without overflow */
TL_INLINE int tl_outside(int64_t start, int64_t size, int64_t extent) {
    return start < 0 || size > extent || start > extent - size;
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

/* Products that continue one accumulator, put off to be run as one: a loop's matmul_acc. */
enum { TL_BATCH = 64 };
typedef struct {
    tl_matmul_args args;
    int64_t count;
    const void *a[TL_BATCH], *b[TL_BATCH];
} tl_batch;

TL_INLINE int tl_is_even(const void *const *p, int64_t n) {
    for (int64_t i = 2; i < n; i++)
        if ((const char *)p[i] - (const char *)p[i - 1] != (const char *)p[1] - (const char *)p[0])
            return 0;
    return 1;
}

static void __attribute__((noinline, unused)) tl_batch_flush(tl_batch *q, int64_t a_item,
                                                             int64_t b_item, void *scratch) {
    int64_t n = q->count;
    q->count = 0;
    if (n == 0) return;
    q->args.a = q->a[0];
    q->args.b = q->b[0];
    if (n == 1) {
        tl_matmul(&q->args, scratch);
    } else if (tl_is_even(q->a, n) && tl_is_even(q->b, n)) {
        int64_t a_step = ((const char *)q->a[1] - (const char *)q->a[0]) / a_item;
        int64_t b_step = ((const char *)q->b[1] - (const char *)q->b[0]) / b_item;
        tl_matmul_chain(&q->args, n, a_step, b_step, scratch);
    } else {
        tl_matmul_gather(&q->args, n, q->a, q->b, scratch);
    }
}

/* `is_lasting`: both operands stay where they are until the batch is run. */
TL_INLINE void tl_batch_add(tl_batch *q, const tl_matmul_args *args, int is_lasting,
                            int64_t a_item, int64_t b_item, void *scratch) {
    if (q->count == TL_BATCH || !is_lasting) tl_batch_flush(q, a_item, b_item, scratch);
    q->args = *args;
    q->a[q->count] = args->a;
    q->b[q->count++] = args->b;
    if (!is_lasting) tl_batch_flush(q, a_item, b_item, scratch);
}

#endif
