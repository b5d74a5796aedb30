/* Matrix product of the native CPU engine.
 *
 * Each output element is one chain of FP32 fused multiply-adds over ascending k,
 *     c = start;  for k in 0..K-1: c = fma(a[m][k], b[k][n], c)
 * (integers: the exact sum modulo 2^32), bit for bit as tilelet/numerics/matmul.py, whatever the
 * ISA, the blocking and the way a product is cut into calls: cutting K into consecutive calls, each
 * continuing from the last, or widening one call over neighbouring columns, changes no bit.
 *
 * So, to run fast, make calls *large*: one call over the whole K of a `matmul_acc` loop (instead of
 * one per k-block), and over the columns of neighbouring tasks (N of 256 and more reads weights in
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
    /* Where the chains start: NULL for +0; else [m][n] of the result's type, rows ld_start apart.
     * May be `c` itself (with ld_start == ldc): matmul_acc in place. */
    const void *start;
    int64_t ld_start;
    int64_t m, n, k; /* may be 0: k == 0 copies `start` (or writes zeros) */
    uint8_t a_type, b_type; /* tl_dtype: two floats of any kinds, or two of INT8/UINT8 */
    uint8_t a_trans, b_trans;
} tl_matmul_args;

/* Bytes of working memory a call needs, 64-byte aligned, owned by the calling thread. */
#define TL_MATMUL_SCRATCH_BYTES ((size_t)640 << 10)

/* c = start + a b. */
void tl_matmul(const tl_matmul_args *args, void *scratch);

/* `pieces` products in one chain, for operands whose k-blocks are not equally spaced rows of one
 * matrix: piece p reads a + p * a_step and b + p * b_step (steps in elements; args->k is the length
 * of one piece). Evenly continuing pieces are run as one product. */
void tl_matmul_chain(const tl_matmul_args *args, int64_t pieces, int64_t a_step, int64_t b_step,
                     void *scratch);

/* As tl_matmul_chain with each piece at its own address (paged caches). */
void tl_matmul_gather(const tl_matmul_args *args, int64_t pieces, const void *const *a_pieces,
                      const void *const *b_pieces, void *scratch);

#endif
