/* Matrix product of the native CPU engine.
 *
 * Each output element is one chain of FP32 fused multiply-adds over ascending k,
 *     c = start;  for k in 0..K-1: c = fma(a[m][k], b[k][n], c)
 * (integers: the exact sum modulo 2^32), bit for bit as tilelet/numerics/matmul.py, whatever the
 * ISA, the blocking and the way a product is cut into calls: cutting K into consecutive calls, each
 * continuing from the last, or widening one call over neighboring columns, changes no bit.
 *
 * So, to run fast, make calls *large*: one call over the whole K of a `matmul_acc` loop (instead of
 * one per k-block), and over the columns of neighboring tasks (N of 256 and more reads weights in
 * long runs and shares the conversion of A). A call is single-threaded; its only global state is
 * what chooses the order of reading (reading.h).
 */
#ifndef TL_MATMUL_H
#define TL_MATMUL_H

#include <stddef.h>
#include <stdint.h>

#include "convert.h" /* tl_dtype */

typedef struct {
    /* Operand A: m x k, stored row-major [m][k], or [k][m] if a_trans; b alike: [k][n] or [n][k].
     * ld* is the distance between stored rows, in elements. Any alignment. */
    const void *a;
    const void *b;
    int64_t lda, ldb;
    /* The result, [m][n] FP32 (INT32 for INT8/UINT8 operands), with row stride ldc. Must not
     * overlap a or b. */
    void *c;
    int64_t ldc;
    /* C in several parts of `part_columns` columns (whole panels), all with row stride ldc; the
     * first is `c`. NULL: all of it is in `c`. The chains then start at NULL or at `c`. */
    void *const *parts;
    int64_t part_columns;
    /* Initial values of the chains: NULL for +0; else [m][n] of the result's type, with row stride
     * ld_start. May be `c` itself (with ld_start == ldc): matmul_acc in place. */
    const void *start;
    int64_t ld_start;
    /* B of the next product, if known and of the same shape: prefetched. */
    const void *then;
    int64_t m, n, k;        /* may be 0: k == 0 copies `start` (or writes zeros) */
    uint8_t a_type, b_type; /* tl_dtype: two floats of any kinds, or two of INT8/UINT8 */
    uint8_t a_trans, b_trans;
} tl_matmul_args;

/* Bytes of working memory a call needs, 64-byte aligned, owned by the calling thread. */
#define TL_MATMUL_SCRATCH_BYTES ((size_t)640 << 10)

/* c = start + a b. */
void tl_matmul(const tl_matmul_args *args, void *scratch);

/* A product in consecutive pieces of k: piece p reads args.a and args.b at p times `a_step` and
 * `b_step` bytes; args.k is the length of one piece. */
typedef struct {
    tl_matmul_args args;
    int64_t pieces, a_step, b_step;
} tl_product;

/* One product; evenly spaced pieces of the same rows and columns run as one. */
void tl_matmul_pieces(const tl_product *product, void *scratch);

enum { TL_SIDE_BY_SIDE = 8 }; /* limit of products that run as one */

enum { TL_STREAMS = 4 }; /* limit of one-row products that are read together */

/* Several products, each with its own C: those with adjacent columns of B and everything else equal
 * run as one; one-row products whose B have contiguous rows are read together or in
 * sequence, whichever is faster. `then` is the B of
 * the next ones, as in tl_matmul_args. */
void tl_matmul_side_by_side(const tl_product *products, int64_t count, const void *then,
                            void *scratch);

#endif
