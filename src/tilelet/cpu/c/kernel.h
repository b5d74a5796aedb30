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

#endif
