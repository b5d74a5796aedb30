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
#if TL_VEC_BYTES != 32
typedef uint32_t vec_u32 __attribute__((vector_size(TL_VEC_BYTES)));
typedef uint16_t vec_u16 __attribute__((vector_size(TL_VEC_BYTES / 2)));
#endif

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
#if TL_VEC_BYTES == 32
    return tl_load_bf16(p);
#else
    vec_u16 half;
    memcpy(&half, p, sizeof half);
    return (vec)(__builtin_convertvector(half, vec_u32) << 16);
#endif
}

TL_INLINE void store_vec(float *p, vec v) { memcpy(p, &v, sizeof v); }

/* Keeps a value in a register: compilers would rather load it again for each use, and the loads
 * then limit the kernel. */
TL_INLINE vec held(vec v) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__("" : "+x"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
    return v;
}

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
            row[j] = held(load_bf16(b + j * (W * 2)));
            store_vec(p->panel + (k * vectors + j) * W, row[j]);
        } else {
            row[j] = held(load_vec(b + j * (W * 4)));
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

/* X(rows, vectors) for every kernel there is. */
#if MR1 == 16
#define KERNELS(X)                                   \
    X(16, 1) X(8, 1) X(4, 1) X(2, 1) X(1, 1)         \
    X(12, 2) X(8, 2) X(4, 2) X(2, 2) X(1, 2)         \
    X(8, 3) X(4, 3) X(2, 3) X(1, 3)
#else
#define KERNELS(X)                                   \
    X(8, 1) X(4, 1) X(2, 1) X(1, 1)                  \
    X(6, 2) X(4, 2) X(2, 2) X(1, 2)                  \
    X(4, 3) X(2, 3) X(1, 3)
#endif

#define DEFINE_KERNEL(rows, vectors)                                                              \
    static __attribute__((noinline)) void panel_##rows##x##vectors(const pass *p) {               \
        run_pass(p, rows, vectors, FROM_PANEL);                                                   \
    }                                                                                             \
    static __attribute__((noinline)) void bf16_##rows##x##vectors(const pass *p) {                \
        run_pass(p, rows, vectors, FROM_BF16);                                                    \
    }
KERNELS(DEFINE_KERNEL)

static void run_kernel(const pass *p, int rows, int vectors, source from) {
#define CASE(rows, vectors)                                                        \
    case rows * 4 + vectors:                                                       \
        from == FROM_BF16 ? bf16_##rows##x##vectors(p) : panel_##rows##x##vectors(p); \
        break;
    switch (rows * 4 + vectors) { KERNELS(CASE) }
#undef CASE
}

/* How many rows the next pass takes of those left. */
static int rows_of_pass(int64_t left, int vectors) {
    static const int most[MAX_VECTORS + 1] = {0, MR1, MR2, MR3};
    if (left >= most[vectors]) return most[vectors];
    int rows = 8;
    while (rows > left || rows > most[vectors]) rows /= 2;
    return rows;
}

/* --- operands to FP32 -------------------------------------------------------------------------- */

static int element_size(int type) {
    switch (type) {
    case TL_FP32: return 4;
    case TL_FP16:
    case TL_BF16: return 2;
    default: return 1;
    }
}

TL_INLINE tl_f32x8 tl_load_int8(const int8_t *p) {
    return tl_i32_to_f32(__builtin_convertvector(tl_load_i8(p), tl_i32x8));
}
TL_INLINE tl_f32x8 tl_load_uint8(const uint8_t *p) {
    return tl_i32_to_f32(__builtin_convertvector(tl_load_u8(p), tl_i32x8));
}
TL_INLINE tl_f32x8 tl_loadn_int8(const int8_t *p, int n) {
    return tl_i32_to_f32(__builtin_convertvector(tl_loadn_i8(p, n), tl_i32x8));
}
TL_INLINE tl_f32x8 tl_loadn_uint8(const uint8_t *p, int n) {
    return tl_i32_to_f32(__builtin_convertvector(tl_loadn_u8(p, n), tl_i32x8));
}

/* X(tl_dtype, element type in memory, name of its loads) */
#define OPERAND_TYPES(X)                   \
    X(TL_FP32, float, f32)                 \
    X(TL_BF16, uint16_t, bf16)             \
    X(TL_FP16, uint16_t, f16)              \
    X(TL_FP8E4M3FN, uint8_t, f8e4m3fn)     \
    X(TL_FP8E5M2, uint8_t, f8e5m2)         \
    X(TL_INT8, int8_t, int8)               \
    X(TL_UINT8, uint8_t, uint8)

/* dst[r][c] = src[r][c]; rows of dst are filled with zeros up to `width` (at least cols). */
static void convert_rows(float *dst, int64_t ld_dst, const char *src, int type, int64_t ld_src,
                         int64_t rows, int64_t cols, int64_t width) {
#define CASE(dtype, elem, name)                                                            \
    case dtype:                                                                            \
        for (int64_t r = 0; r < rows; r++, dst += ld_dst) {                                \
            const elem *from = (const elem *)src + r * ld_src;                             \
            int64_t c = 0;                                                                 \
            for (; c + 8 <= cols; c += 8) tl_store_f32(dst + c, tl_load_##name(from + c)); \
            if (c < cols) {                                                                \
                int n = (int)(width - c < 8 ? width - c : 8);                              \
                tl_storen_f32(dst + c, tl_loadn_##name(from + c, (int)(cols - c)), n);     \
                c += n;                                                                    \
            }                                                                              \
            for (; c < width; c++) dst[c] = 0;                                             \
        }                                                                                  \
        break;
    switch (type) { OPERAND_TYPES(CASE) }
#undef CASE
}

TL_INLINE void transpose8(tl_f32x8 x[8]) {
    tl_f32x8 y[8], z[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        y[2 * i] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        y[2 * i + 1] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        z[i] = __builtin_shufflevector(y[i], y[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        z[i + 1] = __builtin_shufflevector(y[i], y[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        z[i + 2] = __builtin_shufflevector(y[i + 1], y[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        z[i + 3] = __builtin_shufflevector(y[i + 1], y[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = __builtin_shufflevector(z[i], z[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        x[i + 4] = __builtin_shufflevector(z[i], z[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

TL_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* dst[c][r] = src[r][c]; rows of dst are filled with zeros up to `width` (at least rows). */
static void convert_transposed(float *dst, int64_t ld_dst, const char *src, int type,
                               int64_t ld_src, int64_t rows, int64_t cols, int64_t width) {
#define CASE(dtype, elem, name)                                                                  \
    case dtype:                                                                                  \
        for (int64_t r = 0; r < width; r += 8) {                                                 \
            int64_t block_rows = smaller(rows - r, 8), block_width = smaller(width - r, 8);      \
            for (int64_t c = 0; c < cols; c += 8) {                                              \
                const elem *from = (const elem *)src + r * ld_src + c;                           \
                int64_t block_cols = smaller(cols - c, 8);                                       \
                tl_f32x8 x[8] = {{0}};                                                           \
                if (block_cols == 8) {                                                           \
                    for (int i = 0; i < block_rows; i++) x[i] = tl_load_##name(from + i * ld_src); \
                } else {                                                                         \
                    for (int i = 0; i < block_rows; i++)                                         \
                        x[i] = tl_loadn_##name(from + i * ld_src, (int)block_cols);              \
                }                                                                                \
                transpose8(x);                                                                   \
                float *to = dst + c * ld_dst + r;                                                \
                if (block_width == 8) {                                                          \
                    for (int i = 0; i < block_cols; i++) tl_store_f32(to + i * ld_dst, x[i]);    \
                } else {                                                                         \
                    for (int i = 0; i < block_cols; i++)                                         \
                        tl_storen_f32(to + i * ld_dst, x[i], (int)block_width);                  \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        break;
    switch (type) { OPERAND_TYPES(CASE) }
#undef CASE
}

/* --- blocks ------------------------------------------------------------------------------------ */

typedef struct {
    float a[ROW_BLOCK * KC];
    float panel[KC * PANEL_WIDTH];
    float tile[MAX_ROWS * PANEL_WIDTH];
    float flipped[ROW_BLOCK * FLIPPED_GROUP];
} workspace;

_Static_assert(sizeof(workspace) <= TL_MATMUL_SCRATCH_BYTES, "TL_MATMUL_SCRATCH_BYTES too small");

static const char *at(const void *base, int64_t elements, int type) {
    return (const char *)base + elements * element_size(type);
}

/* Address of operand element (row, col), where col runs along the stored rows unless transposed. */
static const char *element(const void *base, int type, int64_t ld, int transposed, int64_t row,
                           int64_t col) {
    return at(base, transposed ? col * ld + row : row * ld + col, type);
}

static int is_integer(const tl_matmul_args *x) {
    return x->a_type == TL_INT8 || x->a_type == TL_UINT8;
}

/* Copies rows x cols 4-byte elements, zeros if src is NULL. */
static void copy_rows(void *dst, int64_t ld_dst, const void *src, int64_t ld_src, int64_t rows,
                      int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        char *to = (char *)dst + r * ld_dst * 4;
        if (src) memmove(to, (const char *)src + r * ld_src * 4, (size_t)cols * 4);
        else memset(to, 0, (size_t)cols * 4);
    }
}

/* c += tile, integers: the FP32 tile holds exact integers. */
static void add_integers(uint32_t *c, int64_t ldc, const float *tile, int64_t ld_tile, int64_t rows,
                         int64_t cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            c[r * ldc + j] += (uint32_t)(int32_t)tile[r * ld_tile + j];
}

/* A pass whose tile of C is not whole vectors of floats: it runs on a copy. */
static void run_on_copy(pass *p, int rows, int vectors, source from, int64_t cols, int integers,
                        float *tile) {
    pass copy = *p;
    copy.c = tile;
    copy.ldc = vectors * W;
    if (integers) {
        copy.start = NULL;
    } else if (p->start) {
        copy_rows(tile, copy.ldc, p->start, p->ld_start, rows, cols);
        copy.start = tile;
        copy.ld_start = copy.ldc;
    }
    run_kernel(&copy, rows, vectors, from);
    if (integers) add_integers((uint32_t *)p->c, p->ldc, tile, copy.ldc, rows, cols);
    else copy_rows(p->c, p->ldc, tile, copy.ldc, rows, cols);
}

/* The part of a product that one panel meets: rows m0.., columns n0.., one block of k. */
typedef struct {
    int64_t m0, rows, n0, k0;
    int kc;
    int next_kc; /* rows of B after this block whose prefetch is worth it */
} block;

/* Columns n0 .. n0 + cols of one block: all passes down its rows. */
static void run_panel(const tl_matmul_args *x, const block *at_block, int64_t n0, int64_t cols,
                      workspace *work) {
    int vectors = (int)((cols + W - 1) / W);
    int whole = cols == vectors * W;
    int integers = is_integer(x);
    int passes = 0;
    for (int64_t r = 0; r < at_block->rows; r += rows_of_pass(at_block->rows - r, vectors)) passes++;

    const char *b = element(x->b, x->b_type, x->ldb, x->b_trans, at_block->k0, n0);
    int64_t row_bytes = x->ldb * element_size(x->b_type);
    pass p = {.a = work->a, .b = (const char *)work->panel, .b_step = vectors * W * 4,
              .panel = work->panel, .kc = at_block->kc, .ahead = b};
    source from = FROM_PANEL;
    if (!x->b_trans && whole && x->b_type == TL_BF16) {
        from = FROM_BF16;
        p.b = b;
        p.b_step = row_bytes;
    } else if (!x->b_trans && whole && x->b_type == TL_FP32 && passes == 1) {
        p.b = b;
        p.b_step = row_bytes;
    } else if (x->b_trans) {
        convert_transposed(work->panel, vectors * W, b, x->b_type, x->ldb, cols, at_block->kc,
                           vectors * W);
    } else {
        convert_rows(work->panel, vectors * W, b, x->b_type, x->ldb, at_block->kc, cols,
                     vectors * W);
    }
    /* Rows of the next block are shared out between the passes, one for every fourth k. */
    if (!x->b_trans && at_block->next_kc == at_block->kc) {
        p.ahead = b + at_block->kc * row_bytes;
        p.ahead_step = row_bytes;
        p.dense = passes < 4;
    }
    int64_t ahead_per_pass = p.ahead_step * (at_block->kc / 4);
    int first = at_block->k0 == 0;
    for (int64_t r = 0; r < at_block->rows;) {
        int rows = rows_of_pass(at_block->rows - r, vectors);
        int64_t row = at_block->m0 + r;
        p.a = work->a + r * KC;
        p.c = (float *)x->c + row * x->ldc + n0;
        p.ldc = x->ldc;
        p.start = first ? (x->start ? (const float *)x->start + row * x->ld_start + n0 : NULL) : p.c;
        p.ld_start = first ? x->ld_start : x->ldc;
        if (integers && first) copy_rows(p.c, p.ldc, p.start, p.ld_start, rows, cols);
        if (whole && !integers) run_kernel(&p, rows, vectors, from);
        else run_on_copy(&p, rows, vectors, from, cols, integers, work->tile);
        if (from == FROM_BF16) {
            from = FROM_PANEL;
            p.b = (const char *)work->panel;
            p.b_step = vectors * W * 4;
        }
        r += rows;
        if (r / rows >= 4) p.ahead_step = 0; /* all of the next block is on its way */
        p.ahead += ahead_per_pass;
        if (p.ahead_step == 0) p.ahead = (const char *)p.a;
    }
}

static void run_blocks(const tl_matmul_args *x, workspace *work) {
    for (int64_t m0 = 0; m0 < x->m; m0 += ROW_BLOCK) {
        int64_t rows = smaller(x->m - m0, ROW_BLOCK);
        for (int64_t group = 0; group < x->n; group += GROUP) {
            int64_t group_end = smaller(group + GROUP, x->n);
            for (int64_t k0 = 0; k0 < x->k; k0 += KC) {
                int kc = (int)smaller(x->k - k0, KC);
                block now = {.m0 = m0, .rows = rows, .k0 = k0, .kc = kc,
                             .next_kc = (int)smaller(x->k - k0 - kc, KC)};
                const char *a = element(x->a, x->a_type, x->lda, x->a_trans, m0, k0);
                if (x->a_trans) convert_transposed(work->a, KC, a, x->a_type, x->lda, kc, rows, kc);
                else convert_rows(work->a, KC, a, x->a_type, x->lda, rows, kc, kc);
                for (int64_t n0 = group; n0 < group_end; n0 += PANEL_WIDTH)
                    run_panel(x, &now, n0, smaller(group_end - n0, PANEL_WIDTH), work);
            }
        }
    }
}

/* C^T = B A^T by blocks that fit the scratch, each transposed into C. */
static void run_flipped(const tl_matmul_args *x, workspace *work) {
    for (int64_t n0 = 0; n0 < x->n; n0 += ROW_BLOCK) {
        for (int64_t m0 = 0; m0 < x->m; m0 += FLIPPED_GROUP) {
            tl_matmul_args part = {
                .a = at(x->b, n0 * x->ldb, x->b_type), .lda = x->ldb, .a_type = x->b_type,
                .b = element(x->a, x->a_type, x->lda, x->a_trans, m0, 0), .ldb = x->lda,
                .b_type = x->a_type, .b_trans = !x->a_trans,
                .c = work->flipped, .m = smaller(x->n - n0, ROW_BLOCK),
                .n = smaller(x->m - m0, FLIPPED_GROUP), .k = x->k,
            };
            part.ldc = part.ld_start = part.n;
            float *c = (float *)x->c + m0 * x->ldc + n0;
            if (x->start) {
                const char *start = (const char *)x->start + (m0 * x->ld_start + n0) * 4;
                convert_transposed(work->flipped, part.ldc, start, TL_FP32, x->ld_start, part.n,
                                   part.m, part.n);
                part.start = work->flipped;
            }
            run_blocks(&part, work);
            convert_transposed(c, x->ldc, (const char *)work->flipped, TL_FP32, part.ldc, part.m,
                               part.n, part.m);
        }
    }
}

void tl_matmul(const tl_matmul_args *x, void *scratch) {
    if (x->m <= 0 || x->n <= 0) return;
    if (x->k <= 0) copy_rows(x->c, x->ldc, x->start, x->ld_start, x->m, x->n);
    else if (x->b_trans) run_flipped(x, scratch);
    else run_blocks(x, scratch);
}

void tl_matmul_chain(const tl_matmul_args *args, int64_t pieces, int64_t a_step, int64_t b_step,
                     void *scratch) {
    tl_matmul_args x = *args;
    int64_t a_whole = x.a_trans ? x.k * x.lda : x.k, b_whole = x.b_trans ? x.k : x.k * x.ldb;
    if (a_step == a_whole && b_step == b_whole) {
        x.k *= pieces;
        pieces = 1;
    }
    if (pieces <= 0) x.k = 0;
    for (int64_t p = 0; p == 0 || p < pieces; p++) {
        tl_matmul(&x, scratch);
        x.a = at(x.a, a_step, x.a_type);
        x.b = at(x.b, b_step, x.b_type);
        x.start = x.c;
        x.ld_start = x.ldc;
    }
}

void tl_matmul_gather(const tl_matmul_args *args, int64_t pieces, const void *const *a_pieces,
                      const void *const *b_pieces, void *scratch) {
    tl_matmul_args x = *args;
    if (pieces <= 0) x.k = 0;
    for (int64_t p = 0; p == 0 || p < pieces; p++) {
        if (pieces > 0) x.a = a_pieces[p], x.b = b_pieces[p];
        tl_matmul(&x, scratch);
        x.start = x.c;
        x.ld_start = x.ldc;
    }
}
