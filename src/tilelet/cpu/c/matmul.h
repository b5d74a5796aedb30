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
 * long runs and shares the conversion of A). A call is single-threaded and touches no global state.
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
    /* The result, [m][n] FP32 (INT32 for INT8/UINT8 operands), rows ldc elements apart. Must not
     * overlap a or b. */
    void *c;
    int64_t ldc;
    /* C in several memories, `part_columns` wide each (whole panels) and all with rows ldc apart;
     * the first is `c`. NULL: it is all in `c`. The chains then start at NULL or at `c`. */
    void *const *parts;
    int64_t part_columns;
    /* Where the chains start: NULL for +0; else [m][n] of the result's type, rows ld_start apart.
     * May be `c` itself (with ld_start == ldc): matmul_acc in place. */
    const void *start;
    int64_t ld_start;
    /* B of the product that will be next, if that is known and it has the same shape: read ahead. */
    const void *then;
    int64_t m, n, k;        /* may be 0: k == 0 copies `start` (or writes zeros) */
    uint8_t a_type, b_type; /* tl_dtype: two floats of any kinds, or two of INT8/UINT8 */
    uint8_t a_trans, b_trans;
} tl_matmul_args;

/* Bytes of working memory a call needs, 64-byte aligned, owned by the calling thread. */
#define TL_MATMUL_SCRATCH_BYTES ((size_t)640 << 10)

/* c = start + a b. */
void tl_matmul(const tl_matmul_args *args, void *scratch);

/* A product in pieces of k that continue each other: piece p reads args.a and args.b p times
 * `a_step` and `b_step` bytes further on; args.k is the length of one piece. */
typedef struct {
    tl_matmul_args args;
    int64_t pieces, a_step, b_step;
} tl_product;

/* One product; pieces that continue the same rows and columns evenly are run as one. */
void tl_matmul_pieces(const tl_product *product, void *scratch);

enum { TL_SIDE_BY_SIDE = 8 }; /* products that are run as one, at most */

enum { TL_STREAMS = 4 }; /* products of one row that are read together, at most */

/* Several products, each with its own C: where one's columns of B follow those of the one before
 * it and all else is the same, they are run as one; those of one row, whose B have their rows in
 * order, are read together. `then` is the B of the next ones, as in tl_matmul_args. */
void tl_matmul_side_by_side(const tl_product *products, int64_t count, const void *then,
                            void *scratch);

#endif
