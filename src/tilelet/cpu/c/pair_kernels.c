/* Kernels over pairs of BF16: apart from the others, so that two processors compile them. */
#include "in_place.h"
#include "passes.h"

#if TL_HAS_DOT
DEFINE_KERNELS(tl_pair_kernels, pair_kernel, PAIRS)

#define KERNELS_IN_PLACE(X) X(1) X(2) X(4) X(5) X(6) X(8)
#define DEFINE_IN_PLACE(rows)                                                                      \
    static __attribute__((noinline)) int first_in_place_##rows(const pass *p) {                    \
        return run_in_place(p, rows, 1);                                                           \
    }                                                                                              \
    static __attribute__((noinline)) int in_place_##rows(const pass *p) {                          \
        return run_in_place(p, rows, 0);                                                           \
    }
KERNELS_IN_PLACE(DEFINE_IN_PLACE)

#define NAMES_IN_PLACE(rows) [rows] = {in_place_##rows, first_in_place_##rows},
const kernel_in_place tl_kernels_in_place[MR_IN_PLACE + 1][2] = {KERNELS_IN_PLACE(NAMES_IN_PLACE)};
#else
const kernel_table tl_pair_kernels;
const kernel_in_place tl_kernels_in_place[MR_IN_PLACE + 1][2];
#endif
