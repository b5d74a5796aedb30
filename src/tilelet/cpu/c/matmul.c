/* Register-blocked matrix product; see matmul.h for the contract.
 *
 * Vectors run over columns (n) and registers over rows (m), never over k, so each output element is
 * one lane of one register whose FMAs come in ascending k: blocking cannot change a bit.
 *
 * Loops, outside in: blocks of ROW_BLOCK rows; groups of GROUP columns; blocks of KC along k. In one
 * such block, A is converted to FP32 rows [row][KC]. Then for each panel of at most 3 vectors of
 * columns, passes of MR rows run down the block: the first pass reads B in its own type, converts it
 * in registers, and leaves it as an FP32 panel [k][width] in the L1 cache for the passes below, which
 * meanwhile prefetch the same columns of the next k-block.
 *
 * Integers go the same way: sums of 128 products of 8-bit integers are exact in FP32 (255^2 * 128 <
 * 2^24), each block's sum is then added in INT32. A transposed B is not transposed: C^T = B A^T is
 * computed instead, with B as the row operand, and C^T (which is small) transposed into place.
 */
#include "matmul.h"

#define W (TL_VEC_BYTES / 4)
#define KC 128
#define ROW_BLOCK 256
#define MAX_VECTORS 3
#define PANEL_WIDTH (MAX_VECTORS * W)
#define GROUP 384         /* columns of C per group: a multiple of every PANEL_WIDTH */
#define FLIPPED_GROUP 192 /* the same where C^T is held in scratch */

/* Rows of one pass by vectors of columns. Accumulators, a row of the panel and one value of A fit
 * the registers; 8 accumulators or more hide the latency of two FMAs per cycle. */
#if TL_VEC_BYTES == 64 || defined(__aarch64__)
#define MR1 16
#define MR2 12
#define MR3 8
#else
#define MR1 8
#define MR2 6
#define MR3 4
#endif
#define MAX_ROWS MR1

typedef float vec __attribute__((vector_size(TL_VEC_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(TL_VEC_BYTES)));
typedef uint16_t vec_u16 __attribute__((vector_size(TL_VEC_BYTES / 2)));

TL_INLINE vec fma_vec(vec a, vec b, vec c) {
#if defined(FP_FAST_FMAF) && __has_builtin(__builtin_elementwise_fma)
    return __builtin_elementwise_fma(a, b, c);
#elif TL_VEC_BYTES == 64 && __has_builtin(__builtin_ia32_vfmaddps512_mask)
    return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4);
#elif TL_VEC_BYTES == 32 && defined(__FMA__) && __has_builtin(__builtin_ia32_vfmaddps256)
    return __builtin_ia32_vfmaddps256(a, b, c);
#elif TL_VEC_BYTES == 16 && defined(__FMA__) && __has_builtin(__builtin_ia32_vfmaddps)
    return __builtin_ia32_vfmaddps(a, b, c);
#elif defined(__aarch64__) && __has_builtin(__builtin_aarch64_fmav4sf)
    return __builtin_aarch64_fmav4sf(a, b, c);
#else
    vec r;
    for (int i = 0; i < W; i++) {
#ifdef FP_FAST_FMAF
        r[i] = __builtin_fmaf(a[i], b[i], c[i]);
#else
        r[i] = tl_fma_by_double(a[i], b[i], c[i]);
#endif
    }
    return r;
#endif
}

TL_INLINE vec load_vec(const void *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

TL_INLINE vec load_bf16(const void *p) {
    vec_u16 half;
    memcpy(&half, p, sizeof half);
    return (vec)(__builtin_convertvector(half, vec_u32) << 16);
}

TL_INLINE void store_vec(float *p, vec v) { memcpy(p, &v, sizeof v); }

/* --- the kernels ------------------------------------------------------------------------------- */

typedef enum { FROM_PANEL, FROM_BF16 } source;

/* One pass: `rows` rows of A times a panel of B, for one block of k. */
typedef struct {
    const float *a;    /* [rows][KC] */
    const char *b;     /* row k of B at b + k * b_step; FP32 or BF16 by the source */
    int64_t b_step;    /* bytes */
    float *panel;      /* FROM_BF16 leaves B here as FP32 */
    const float *start; /* NULL: zeros */
    int64_t ld_start;
    float *c;
    int64_t ldc;
    int kc;
    const char *ahead; /* memory to prefetch, ahead_step bytes every fourth k (every k if dense) */
    int64_t ahead_step;
    int dense;
} pass;

TL_INLINE void prefetch_columns(const char *p, int bytes) {
    for (int offset = 0; offset < bytes; offset += 64) __builtin_prefetch(p + offset, 0, 2);
}

/* acc[r][j] += a[r][k] * b[k][j], all in registers. */
TL_INLINE void step(vec acc[MAX_ROWS][MAX_VECTORS], const pass *p, const char *b, int k, int rows,
                    int vectors, source from) {
    vec row[MAX_VECTORS];
#pragma GCC unroll 3
    for (int j = 0; j < vectors; j++) {
        if (from == FROM_BF16) {
            row[j] = load_bf16(b + j * (W * 2));
            store_vec(p->panel + (k * vectors + j) * W, row[j]);
        } else {
            row[j] = load_vec(b + j * (W * 4));
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        float scalar = p->a[r * KC + k];
        vec a = scalar - (vec){0};
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) acc[r][j] = fma_vec(a, row[j], acc[r][j]);
    }
}

TL_INLINE void run_pass(const pass *given, int rows, int vectors, source from) {
    const pass local = *given, *p = &local;
    vec acc[MAX_ROWS][MAX_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++)
            acc[r][j] = p->start ? load_vec(p->start + r * p->ld_start + j * W) : (vec){0};
    }
    const int line_bytes = vectors * W * 2;
    const char *b = p->b, *ahead = p->ahead;
    int k = 0;
    for (; k + 4 <= p->kc; k += 4) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            step(acc, p, b, k + i, rows, vectors, from);
            b += p->b_step;
        }
        prefetch_columns(ahead, line_bytes);
        ahead += p->ahead_step;
        if (from == FROM_BF16 && p->dense) {
            for (int i = 0; i < 3; i++, ahead += p->ahead_step)
                prefetch_columns(ahead, line_bytes);
        }
    }
    for (; k < p->kc; k++, b += p->b_step) step(acc, p, b, k, rows, vectors, from);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int j = 0; j < vectors; j++) store_vec(p->c + r * p->ldc + j * W, acc[r][j]);
    }
}

typedef void (*kernel)(const pass *);

#define KERNEL(rows, vectors)                                                                     \
    static void panel_##rows##x##vectors(const pass *p) { run_pass(p, rows, vectors, FROM_PANEL); } \
    static void bf16_##rows##x##vectors(const pass *p) { run_pass(p, rows, vectors, FROM_BF16); }
#if MR1 == 16
#define ROW_STEPS(vectors) KERNEL(8, vectors) KERNEL(4, vectors) KERNEL(2, vectors) KERNEL(1, vectors)
KERNEL(16, 1)
KERNEL(12, 2)
#define NAMES(kind, vectors, most) \
    {[1] = kind##_1x##vectors, [2] = kind##_2x##vectors, [4] = kind##_4x##vectors, \
     [8] = kind##_8x##vectors, [most] = kind##_##most##x##vectors}
#else
#define ROW_STEPS(vectors) KERNEL(4, vectors) KERNEL(2, vectors) KERNEL(1, vectors)
KERNEL(8, 1)
KERNEL(6, 2)
#define NAMES(kind, vectors, most) \
    {[1] = kind##_1x##vectors, [2] = kind##_2x##vectors, [4] = kind##_4x##vectors, \
     [most] = kind##_##most##x##vectors}
#endif
ROW_STEPS(1)
ROW_STEPS(2)
ROW_STEPS(3)
