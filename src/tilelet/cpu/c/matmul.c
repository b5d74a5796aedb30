/* Register-blocked matrix product; see matmul.h for the contract.
 *
 * Vectors run over columns (n) and registers over rows (m), never over k, so each output element is
 * one lane of one register whose FMAs come in ascending k: blocking cannot change a bit.
 *
 * Loops, outside in: ROW_BLOCK rows; groups of GROUP columns; KC steps of k, for which A is
 * converted to FP32 rows (with many rows, k before groups); strips of STRIP columns, for which B is
 * converted to FP32 panels [k][PANEL]; panels; passes of at most MR rows. So B is read once, in runs
 * of a whole group's columns, and converted once for all rows.
 *
 * B usually comes from memory. While one block of KC steps is computed, the passes prefetch the next
 * one, row by row over the full width of the group (in a wide matrix every row is
 * on a page of its own, and finding the page costs more than the line); and while one strip is
 * computed they convert the next one, a row every four steps: loads, conversions and stores hide
 * behind the FMAs.
 *
 * Integers go the same way: sums of 256 products of 8-bit integers are exact in FP32 (255^2 * 256 <
 * 2^24), each block's sum is then added in INT32. Where B is transposed and C has more than a few rows,
 * C^T = B A^T is computed instead, with B as the row operand, and C^T (which is small) transposed into
 * place. With few rows, pairs of BF16 need no panels (in_place.h).
 */
#include "matmul.h"

#include "forecast.h"
#include "in_place.h"
#include "int8_row.h"
#include "one_row.h"
#include "operands.h"
#include "passes.h"
#include "reading.h"

#define PAIRED_KC (2 * KC)
#define ROW_BLOCK 256
#define FEW_ROWS 48
#define GROUP 512            /* limit of columns of C that stay in cache while k runs */
#define PAIRED_GROUP 256     /* the same with pairs: two blocks of B fit the L2 cache */
#define SKINNY_ROWS 32       /* with more, reading B is not the bound */
#define FLIPPED_GROUP 192    /* the same where C^T is held in scratch */
#define MAX_IN_PLACE 512     /* elements from one row of B to the next */
#define MAX_ROWS_IN_PLACE 32 /* with more, a panel is read often enough to be worth packing */
#define MAX_UPRIGHT 4        /* rows up to which C^T wastes too many lanes */
#define MAX_PACKED (2 * PANELS * PANEL_PITCH) /* steps of k of one row in INT8 */

/* --- kernels ----------------------------------------------------------------------------------- */

DEFINE_KERNELS(tl_number_kernels, kernel, NUMBERS)

static void run_kernel(const pass *p, int rows, int vectors, operands kind) {
    if (kind == HALVES)
        run_by_halves(p, rows, vectors);
    else
        (kind == PAIRS ? tl_pair_kernels : tl_number_kernels)[vectors][rows](p);
}

/* --- blocks ------------------------------------------------------------------------------------ */

typedef struct {
    float a[ROW_BLOCK * A_PITCH];
    float panels[2][PANELS * PANEL_PITCH];
    float tile[MR1 * PANEL];
    float flipped[ROW_BLOCK * FLIPPED_GROUP];
    int a_exponent, b_exponents[2]; /* the least word in `a` and in `panels` */
    tl_matmul_args prepared;        /* the product whose A is in `a`, if any */
    const void *fed;                /* the B whose first block was prefetched last */
    forecast ahead;
} workspace;

_Static_assert(KC <= 256, "sums of products of 8-bit integers must be exact");
_Static_assert(ROW_BLOCK *FLIPPED_GROUP >= INT8_GROUP, "one row of C must fit");
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

/* Whether the operands are packed as words of pairs. */
static int is_paired(const tl_matmul_args *x) {
    if (!TL_HAS_DOT || x->a_type != TL_BF16 || x->b_type != TL_BF16) return 0;
    if (x->k % 2 || x->a_trans) return 0;
    /* Pairs of a transposed B are moved as words. */
    if (x->b_trans && (x->ldb % 2 || (uintptr_t)x->b % sizeof(uint32_t))) return 0;
    static int is_in_order; /* 0: not yet determined */
    int known = __atomic_load_n(&is_in_order, __ATOMIC_RELAXED);
    if (!known) {
        known = dot_is_in_order() ? 1 : -1;
        __atomic_store_n(&is_in_order, known, __ATOMIC_RELAXED);
    }
    return known > 0;
}

static int steps_of(const tl_matmul_args *x, int kc) { return is_paired(x) ? kc / 2 : kc; }

/* Maximum steps of k in a block of A. */
static int a_block_of_k(const tl_matmul_args *x) { return is_paired(x) ? PAIRED_KC : KC; }

/* Whether passes read B in place: one of several that are read consecutively. A single one is not
 * in cache yet, and packing panels waits less for memory. Rows far apart lie on different pages,
 * and often in the same cache sets. */
static int is_in_place(const tl_matmul_args *x) {
    return x->then && is_paired(x) && !x->b_trans && x->n % PANEL == 0 && x->ldb <= MAX_IN_PLACE &&
           x->m <= MAX_ROWS_IN_PLACE;
}

/* Whether B has long rows and more than one block of k. Then prefetches go to the L1 cache: with those
 * to the L2 cache, Zen 5 at times reads at half the speed. Narrow B are read more slowly this way
 * (docs/measurements.md). */
static int is_large(const tl_matmul_args *x) {
    return x->k > a_block_of_k(x) && x->n >= PAIRED_GROUP;
}

/* Whether blocks are half as deep and twice as wide: with few rows, reading B is the bound, and rows
 * at distances of powers of two share few sets of the L2 cache, which loses lines of deep blocks
 * before they are read. */
static int is_skinny(const tl_matmul_args *x) {
    return is_large(x) && is_paired(x) && !x->b_trans && x->m <= SKINNY_ROWS && !is_in_place(x);
}

/* Maximum steps of k in a block: blocks of A are a multiple. */
static int block_of_k(const tl_matmul_args *x) { return a_block_of_k(x) / (is_skinny(x) ? 2 : 1); }

static int rows_of_pass(const tl_matmul_args *x, int vectors) {
    if (is_in_place(x)) return MR_IN_PLACE;
    return vectors == 1 ? MR1 : MR2;
}

/* Rows that a kernel computes for a pass of `rows`. */
static int rows_of_kernel(const tl_matmul_args *x, int rows, int vectors) {
    if (is_in_place(x))
        while (!tl_kernels_in_place[rows][0]) rows++;
    else
        while (!tl_number_kernels[vectors][rows]) rows++;
    return rows;
}

/* Part of a product: rows m0.. of C, columns n0.., one block of k. */
typedef struct {
    int64_t m0, rows, n0, k0;
    int cols, kc;
} block;

/* Whether a strip is converted while the previous one is computed. */
static int is_converted_ahead(const tl_matmul_args *x, const block *strip) {
    return x->b_type == TL_BF16 && !x->b_trans && strip->cols == STRIP && strip->kc > 0 &&
           !is_in_place(x);
}

static conversion conversion_of(const tl_matmul_args *x, const block *strip, float *panels) {
    if (!is_converted_ahead(x, strip)) return (conversion){0};
    return (conversion){.from = element(x->b, x->b_type, x->ldb, 0, strip->k0, strip->n0),
                        .row_bytes = x->ldb * 2,
                        .to = panels,
                        .steps_left = steps_of(x, strip->kc)};
}

/* Panels of a transposed B as words. */
static halves pair_transposed(float *panel, const char *from, int64_t ldb, int cols, int64_t pairs,
                              int width, halves least) {
    convert_transposed(panel, PANEL, from, TL_FP32, ldb / 2, cols, pairs, width);
    for (int64_t k = 0; k < pairs; k++, panel += PANEL)
        least = swap_row(panel, (char *)panel, width, least);
    return least;
}

/* Pack the block's part of B into panels, padded to whole vectors. For words, return the least
 * exponent. */
static int convert_b(const tl_matmul_args *x, const block *now, float *panels) {
    const char *b = element(x->b, x->b_type, x->ldb, x->b_trans, now->k0, now->n0);
    halves least = ~(halves){0};
    for (int c = 0; c < now->cols; c += PANEL, panels += PANEL_PITCH) {
        int cols = (int)smaller(now->cols - c, PANEL), width = (cols + W - 1) / W * W;
        const char *from = at(b, x->b_trans ? c * x->ldb : c, x->b_type);
        if (is_paired(x) && x->b_trans)
            least = pair_transposed(panels, from, x->ldb, cols, now->kc / 2, width, least);
        else if (is_paired(x))
            least = pair_rows(panels, PANEL, from, x->ldb * 2, now->kc / 2, cols, least);
        else if (x->b_trans)
            convert_transposed(panels, PANEL, from, x->b_type, x->ldb, cols, now->kc, width);
        else
            convert_rows(panels, PANEL, from, x->b_type, x->ldb, now->kc, cols, width);
    }
    return least_exponent(least);
}

/* Pack some rows of A that are stored row by row. */
static halves convert_some_a(const tl_matmul_args *x, const char *a, int64_t rows, int kc,
                             float *to, halves least) {
    if (!is_paired(x)) {
        convert_rows(to, A_PITCH, a, x->a_type, x->lda, rows, kc, kc);
        return least;
    }
    for (int64_t r = 0; r < rows; r++)
        least = swap_row(to + r * A_PITCH, a + r * x->lda * 2, kc / 2, least);
    return least;
}

/* Pack the block's part of A, starting at `to`. For words, return the least exponent. Pieces of
 * rows that are far apart are prefetched: the processor itself does so only where rows continue. */
static int convert_a(const tl_matmul_args *x, const block *now, float *to) {
    enum { SOME = 8 };
    const char *a = element(x->a, x->a_type, x->lda, x->a_trans, now->m0, now->k0);
    halves least = ~(halves){0};
    if (x->a_trans) {
        convert_transposed(to, A_PITCH, a, x->a_type, x->lda, now->kc, now->rows, now->kc);
        return 0;
    }
    int64_t step = x->lda * element_size(x->a_type);
    int is_apart = x->lda > now->kc;
    int64_t some = is_apart ? SOME : now->rows;
    if (is_apart) feed_cold(a, x->lda, smaller(some, now->rows), now->kc, x->a_type);
    for (int64_t r = 0; r < now->rows; r += some) {
        if (is_apart)
            feed_cold(a + (r + some) * step, x->lda, smaller(some, now->rows - r - some), now->kc,
                      x->a_type);
        least = convert_some_a(x, a + r * step, smaller(some, now->rows - r), now->kc,
                               to + r * A_PITCH, least);
    }
    return least_exponent(least);
}

/* With one panel of B every row of A is used in one pass only: it is converted right before. */
static int is_converted_by_pass(const tl_matmul_args *x) { return x->n <= PANEL; }

/* Whether all of A is converted at once, if memory suffices. */
static int is_prepared_whole(const tl_matmul_args *x) {
    int64_t blocks = (x->k + a_block_of_k(x) - 1) / a_block_of_k(x);
    return !is_converted_by_pass(x) && x->m * blocks <= ROW_BLOCK;
}

static int has_same_a(const tl_matmul_args *x, const tl_matmul_args *y) {
    return x->a == y->a && x->lda == y->lda && x->m == y->m && x->k == y->k &&
           x->a_type == y->a_type && x->a_trans == y->a_trans && is_paired(x) == is_paired(y);
}

/* Convert all of A, unless the previous product had the same A. */
static void prepare_whole(const tl_matmul_args *x, workspace *work) {
    if (has_same_a(x, &work->prepared)) return;
    float *to = work->a;
    work->a_exponent = INT32_MAX;
    for (int64_t k0 = 0; k0 < x->k; k0 += a_block_of_k(x), to += x->m * A_PITCH) {
        block now = {.rows = x->m, .k0 = k0, .kc = (int)smaller(x->k - k0, a_block_of_k(x))};
        int exponent = convert_a(x, &now, to);
        work->a_exponent = (int)smaller(work->a_exponent, exponent);
    }
    work->prepared = *x;
}

/* Address of the block's part of A, once converted. */
static const float *prepared_a(const tl_matmul_args *x, const block *now, const workspace *work) {
    if (!is_prepared_whole(x)) return work->a;
    int64_t whole = now->k0 / a_block_of_k(x);
    int rest = (int)(now->k0 % a_block_of_k(x));
    return work->a + whole * x->m * A_PITCH + steps_of(x, rest);
}

/* The rows of block `next` of B; none if there is no such block (kc == 0). */
static void feed_block(feed *f, const tl_matmul_args *x, const block *next) {
    int size = element_size(x->b_type);
    feed_rows(f, &(stream){.from = element(x->b, x->b_type, x->ldb, 0, next->k0, next->n0),
                           .row_bytes = x->ldb * size,
                           .rows = x->b_trans ? 0 : next->kc,
                           .bytes = (int64_t)next->cols * size});
}

/* Prefetches of a pass: the remaining lines, or one that is in cache anyway. */
static feed *feed_for(feed *f, feed *nothing, const pass *p) {
    if (f->left <= 0) {
        nothing->next.row = (const char *)p->panel;
        return nothing;
    }
    f->left -= p->steps / UNROLL * f->in_turn;
    return f;
}

/* Copy rows x cols 4-byte elements; zeros if src is NULL. */
static void copy_rows(void *dst, int64_t ld_dst, const void *src, int64_t ld_src, int64_t rows,
                      int64_t cols) {
    for (int64_t r = 0; r < rows; r++) {
        char *to = (char *)dst + r * ld_dst * 4;
        if (src)
            memmove(to, (const char *)src + r * ld_src * 4, (size_t)cols * 4);
        else
            memset(to, 0, (size_t)cols * 4);
    }
}

/* c += tile, integers: the FP32 tile holds exact integers. */
static void add_integers(uint32_t *c, int64_t ldc, const float *tile, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) c[r * ldc + j] += (uint32_t)(int32_t)tile[r * PANEL + j];
}

/* Address of element (row, column) of C. */
static float *place_in_c(const tl_matmul_args *x, int64_t row, int64_t column) {
    if (!x->parts) return (float *)x->c + row * x->ldc + column;
    return (float *)x->parts[column / x->part_columns] + row * x->ldc + column % x->part_columns;
}

static operands operands_of(const tl_matmul_args *x, const workspace *work, int ready) {
    if (!is_paired(x)) return NUMBERS;
    return sums_are_normal(work->a_exponent, work->b_exponents[ready]) ? PAIRS : HALVES;
}

/* A pass that reads B in place, or by halves from a panel packed for it. */
static void run_or_by_halves(const tl_matmul_args *x, const block *panel, const pass *p, int rows,
                             workspace *work) {
    int looks = *p->b_exponent == UNSEEN;
    int may_run = looks || sums_are_normal(p->a_exponent, *p->b_exponent);
    if (may_run && tl_kernels_in_place[rows][looks](p)) return;
    convert_b(x, panel, work->panels[0]);
    run_by_halves(p, rows, 2);
}

/* A pass with a kernel for exactly its rows, over whole vectors. */
static void run_whole(const tl_matmul_args *x, const block *panel, const pass *p, int rows,
                      int vectors, int ready, workspace *work) {
    if (p->b)
        run_or_by_halves(x, panel, p, rows, work);
    else
        run_kernel(p, rows, vectors, operands_of(x, work, ready));
}

/* Any other pass: it runs on a copy of C, with as many `rows` as its kernel has. */
static void run_on_copy(const tl_matmul_args *x, const block *panel, const pass *p, int rows,
                        int vectors, int ready, workspace *work) {
    int64_t cols = panel->cols, valid = panel->rows;
    pass copy = *p;
    copy.c = work->tile;
    copy.ldc = copy.ld_start = PANEL;
    copy.start = NULL;
    if (!is_integer(x) && p->start) {
        copy_rows(work->tile, PANEL, p->start, p->ld_start, valid, cols);
        copy_rows(work->tile + valid * PANEL, PANEL, NULL, 0, rows - valid, cols);
        copy.start = work->tile;
    }
    run_whole(x, panel, &copy, rows, vectors, ready, work);
    if (is_integer(x))
        add_integers((uint32_t *)p->c, p->ldc, work->tile, valid, cols);
    else
        copy_rows(p->c, p->ldc, work->tile, PANEL, valid, cols);
}

/* All passes over one strip whose B is in work->panels[ready], or is read in place; `next` is
 * converted meanwhile. */
static void run_strip(const tl_matmul_args *x, const block *now, int ready, feed *ahead,
                      conversion *next, halves *least, workspace *work) {
    int first = now->k0 == 0;
    const float *a = prepared_a(x, now, work);
    feed nothing = {.in_turn = 0, .is_near = ahead->is_near};
    for (int c = 0; c < now->cols; c += PANEL) {
        int cols = (int)smaller(now->cols - c, PANEL), vectors = (cols + W - 1) / W;
        int b_exponent = UNSEEN;
        for (int64_t r = 0; r < now->rows;) {
            int64_t left = now->rows - r, passes = passes_of(left, rows_of_pass(x, vectors));
            int rows = rows_of_kernel(x, (int)((left + passes - 1) / passes), vectors);
            block panel = {.m0 = now->m0 + r,
                           .rows = smaller(left, rows),
                           .n0 = now->n0 + c,
                           .cols = cols,
                           .k0 = now->k0,
                           .kc = now->kc};
            pass p = {.a = a + r * A_PITCH,
                      .panel = work->panels[ready] + c / PANEL * PANEL_PITCH,
                      .next = next,
                      .least = least,
                      .c = place_in_c(x, panel.m0, panel.n0),
                      .ldc = x->ldc,
                      .steps = steps_of(x, now->kc)};
            if (is_converted_by_pass(x)) {
                work->a_exponent = convert_a(x, &panel, work->a);
                p.a = work->a;
            }
            p.a_exponent = work->a_exponent;
            p.ahead = feed_for(ahead, &nothing, &p);
            p.start = p.c;
            p.ld_start = p.ldc;
            if (first && x->start != x->c) {
                p.start =
                    x->start ? (const float *)x->start + panel.m0 * x->ld_start + panel.n0 : NULL;
                p.ld_start = x->ld_start;
                if (is_integer(x)) copy_rows(p.c, p.ldc, p.start, p.ld_start, panel.rows, cols);
            }
            if (is_in_place(x)) {
                p.panel = work->panels[0];
                p.b = element(x->b, x->b_type, x->ldb, 0, panel.k0, panel.n0);
                p.row_bytes = x->ldb * 2;
                p.b_exponent = &b_exponent;
            }
            int is_whole = !is_integer(x) && cols == vectors * W && panel.rows == rows;
            (is_whole ? run_whole : run_on_copy)(x, &panel, &p, rows, vectors, ready, work);
            r += panel.rows;
        }
    }
}

static block strip_of(const block *group, int at) {
    block strip = *group;
    strip.n0 += at;
    strip.cols = (int)smaller(group->cols - at, STRIP);
    return strip;
}

/* Columns of a group: a row of it in B is at most SLOTS lines. */
static int64_t group_columns(const tl_matmul_args *x) {
    int64_t most = !is_paired(x) ? GROUP : is_skinny(x) ? 2 * PAIRED_GROUP : PAIRED_GROUP;
    return smaller(most, SLOTS * 64 / element_size(x->b_type));
}

static block block_at(const tl_matmul_args *x, int64_t m0, int64_t n0, int64_t k0) {
    if (n0 >= x->n || k0 >= x->k) return (block){0};
    return (block){.m0 = m0,
                   .rows = smaller(x->m - m0, ROW_BLOCK),
                   .n0 = n0,
                   .k0 = k0,
                   .cols = (int)smaller(x->n - n0, group_columns(x)),
                   .kc = (int)smaller(x->k - k0, block_of_k(x))};
}

/* The first block of the next product. */
static void feed_next_product(feed *f, const tl_matmul_args *x, workspace *work) {
    tl_matmul_args next = *x;
    next.b = x->then;
    block first = block_at(&next, 0, 0, 0);
    feed_block(f, &next, &first);
    work->fed = next.b;
}

/* Number of UNROLL steps in a group's passes. */
static int turns_of(const tl_matmul_args *x, const block *group) {
    int panels = (group->cols + PANEL - 1) / PANEL;
    int passes = passes_of(group->rows, rows_of_pass(x, group->cols <= W ? 1 : 2));
    return panels * passes * (steps_of(x, group->kc) / UNROLL);
}

/* Some rows of the next product's B. */
static void feed_forecast(feed *f, workspace *work) {
    stream some = take_rows(&work->ahead);
    feed_rows(f, &some);
    if (some.rows && !work->ahead.next.rows) work->fed = work->ahead.guess;
}

/* One block of k over one group of columns; `after` is the block that follows. The first strip is
 * in work->panels[*ready]; at the end, that of `after` is. */
static void run_group(const tl_matmul_args *x, const block *group, const block *after, int *ready,
                      workspace *work) {
    feed ahead;
    if (after->kc == 0 && x->then)
        feed_next_product(&ahead, x, work);
    else
        feed_block(&ahead, x, after);
    ahead.is_near = is_large(x);
    if (ahead.left == 0) feed_forecast(&ahead, work);
    int passes = passes_of(group->rows, rows_of_pass(x, 2)) * PANELS, turns = turns_of(x, group);
    ahead.in_turn = turns > 0 ? (ahead.left + turns - 1) / turns : 0;
    for (int c = 0; c < group->cols; c += STRIP) {
        int is_last = c + STRIP >= group->cols;
        block now = strip_of(group, c);
        block next = is_last ? strip_of(after, 0) : strip_of(group, c + STRIP);
        int other = !*ready;
        conversion rest = conversion_of(x, &next, work->panels[other]);
        rest.in_turn = (UNROLL + passes - 1) / passes;
        halves least = ~(halves){0};
        run_strip(x, &now, *ready, &ahead, &rest, &least, work);
        work->b_exponents[other] = convert_rest(rest, least, is_paired(x) ? PAIRS : NUMBERS);
        if (next.kc > 0 && !is_in_place(x) && !is_converted_ahead(x, &next))
            work->b_exponents[other] = convert_b(x, &next, work->panels[other]);
        *ready = other;
    }
    feed_rest(&ahead);
}

/* With few rows, k is the inner loop, and a group of C stays in cache. With many, columns are:
 * converting A again for every group costs more than moving C through the cache for every k. */
static block block_after(const tl_matmul_args *x, const block *now) {
    int64_t right = now->n0 + now->cols, down = now->k0 + now->kc;
    if (now->rows > FEW_ROWS)
        return right < x->n ? block_at(x, now->m0, right, now->k0) : block_at(x, now->m0, 0, down);
    return down < x->k ? block_at(x, now->m0, now->n0, down) : block_at(x, now->m0, right, 0);
}

/* The block's part of A, unless it is ready or passes convert it. */
static void prepare_a(const tl_matmul_args *x, const block *now, workspace *work) {
    if (is_prepared_whole(x)) {
        prepare_whole(x, work);
        return;
    }
    work->prepared.a = NULL;
    if (!is_converted_by_pass(x)) work->a_exponent = convert_a(x, now, work->a);
}

static void run_blocks(const tl_matmul_args *x, workspace *work) {
    for (int64_t m0 = 0; m0 < x->m; m0 += ROW_BLOCK) {
        block now = block_at(x, m0, 0, 0);
        if (work->fed != x->b && !x->b_trans)
            feed_cold(at(x->b, now.n0, x->b_type), x->ldb, now.kc, now.cols, x->b_type);
        prepare_a(x, &now, work);
        int ready = 0;
        block first = strip_of(&now, 0);
        if (!is_in_place(x)) work->b_exponents[ready] = convert_b(x, &first, work->panels[ready]);
        for (;;) {
            block next = block_after(x, &now);
            run_group(x, &now, &next, &ready, work);
            if (next.kc == 0) break;
            if (next.k0 != now.k0 || next.n0 == 0) prepare_a(x, &next, work);
            now = next;
        }
    }
}

/* Whether C^T is computed: with few rows most of its lanes would be empty, and transposing B costs
 * less. */
static int is_flipped(const tl_matmul_args *x) { return x->b_trans && x->m > MAX_UPRIGHT; }

/* Compute C^T = B A^T in blocks that fit the scratch memory, each transposed into C. */
static void run_flipped(const tl_matmul_args *x, workspace *work) {
    for (int64_t n0 = 0; n0 < x->n; n0 += ROW_BLOCK) {
        for (int64_t m0 = 0; m0 < x->m; m0 += FLIPPED_GROUP) {
            tl_matmul_args part = {
                .a = at(x->b, n0 * x->ldb, x->b_type),
                .lda = x->ldb,
                .a_type = x->b_type,
                .b = element(x->a, x->a_type, x->lda, x->a_trans, m0, 0),
                .ldb = x->lda,
                .b_type = x->a_type,
                .b_trans = !x->a_trans,
                .c = work->flipped,
                .m = smaller(x->n - n0, ROW_BLOCK),
                .n = smaller(x->m - m0, FLIPPED_GROUP),
                .k = x->k,
            };
            part.ldc = part.ld_start = part.n;
            float *c = (float *)x->c + m0 * x->ldc + n0;
            if (x->start) {
                const char *start = (const char *)x->start + (m0 * x->ld_start + n0) * 4;
                convert_transposed(work->flipped, part.ldc, start, TL_FP32, x->ld_start, part.n,
                                   part.m, part.n);
                part.start = work->flipped;
            }
            if (m0 == 0 && work->fed != x->b)
                feed_cold(part.a, part.lda, part.m, part.k, part.a_type);
            run_blocks(&part, work);
            convert_transposed(c, x->ldc, (const char *)work->flipped, TL_FP32, part.ldc, part.m,
                               part.n, part.m);
        }
    }
}

/* --- one row ----------------------------------------------------------------------------------- */

static int is_one_row(const tl_matmul_args *x) {
    return x->m == 1 && !x->a_trans && !x->b_trans &&
           (x->b_type == TL_BF16 || x->b_type == TL_FP32 || x->b_type == TL_INT8) &&
           x->n % least_columns(x->b_type) == 0 && x->k <= ROW_BLOCK * A_PITCH;
}

/* Number of columns, starting at `column`, that lie in the same part of C; at most `columns`. */
static int64_t columns_in_part(const tl_matmul_args *x, int64_t column, int64_t columns) {
    return x->parts ? smaller(x->part_columns - column % x->part_columns, columns) : columns;
}

/* Start of the chains of column `n`, or NULL for +0. */
static const float *start_of(const tl_matmul_args *x, int64_t n) {
    if (x->start == x->c) return place_in_c(x, 0, n);
    return x->start ? (const float *)x->start + n : NULL;
}

/* Copy columns of C, starting at `n0`, into `c` in the order used while k runs.
 * `end_row` copies them back. */
static void begin_row(const tl_matmul_args *x, int64_t n0, int64_t columns, float *c) {
    for (int64_t n = 0, some; n < columns; n += some) {
        some = columns_in_part(x, n0 + n, columns - n);
        const float *start = start_of(x, n0 + n);
        if (start && x->b_type == TL_BF16)
            part_columns(c + n, start, some);
        else
            copy_rows(c + n, 0, start, 0, 1, some);
    }
}

static void end_row(const tl_matmul_args *x, int64_t n0, int64_t columns, const float *c) {
    for (int64_t n = 0, some; n < columns; n += some) {
        some = columns_in_part(x, n0 + n, columns - n);
        if (x->b_type == TL_BF16)
            join_columns(place_in_c(x, 0, n0 + n), c + n, some);
        else
            copy_rows(place_in_c(x, 0, n0 + n), 0, c + n, 0, 1, some);
    }
}

/* Compute whole groups of columns of a product with B in INT8, starting at `n0`; `a` is packed. */
static void run_int8_columns(const tl_matmul_args *x, int64_t n0, int64_t columns, const char *next,
                             const uint32_t *a, uint32_t *c) {
    for (int64_t n = 0, some; n < columns; n += some) {
        some = columns_in_part(x, n0 + n, columns - n);
        part_int8(c, n, (const uint32_t *)start_of(x, n0 + n), some);
    }
    add_all_int8_rows(c, a, at(x->b, n0, TL_INT8), next, x->ldb, x->k, columns);
    for (int64_t n = 0, some; n < columns; n += some) {
        some = columns_in_part(x, n0 + n, columns - n);
        join_int8((uint32_t *)place_in_c(x, 0, n0 + n), c, n, some);
    }
}

static void run_one_row(const tl_matmul_args *x, workspace *work) {
    float *c = work->flipped;
    uint32_t *packed = (uint32_t *)work->panels;
    int64_t row_bytes = x->ldb * element_size(x->b_type), columns;
    int64_t whole = 0; /* columns of B in INT8 that are in groups */
    work->prepared.a = NULL;
    convert_rows(work->a, x->k, x->a, x->a_type, x->lda, 1, x->k, x->k);
    if (x->b_type == TL_INT8 && x->k <= MAX_PACKED) {
        whole = x->n / INT8_COLUMNS * INT8_COLUMNS;
        pack_int8(packed, work->a, x->k);
    }
    for (int64_t n0 = 0; n0 < x->n; n0 += columns) {
        columns = n0 < whole ? smaller(whole - n0, INT8_GROUP) : smaller(x->n - n0, GROUP);
        const char *first = at(x->b, n0, x->b_type);
        const char *next =
            n0 + columns < x->n ? first + columns * element_size(x->b_type) : x->then;
        if (n0 < whole) {
            run_int8_columns(x, n0, columns, next, packed, (uint32_t *)c);
            continue;
        }
        begin_row(x, n0, columns, c);
        add_all_rows(c, work->a, first, next, row_bytes, x->k, columns, x->b_type);
        end_row(x, n0, columns, c);
    }
}

/* Whether the product may be one of several that are read together. */
static int is_stream(const tl_matmul_args *x) {
    return x->k > 0 && is_one_row(x) && x->n <= GROUP && !x->parts &&
           is_in_order(x->ldb * element_size(x->b_type), x->n, x->b_type);
}

/* All products equal the first except for B and C. */
static int is_alike(const tl_matmul_args *x, const tl_matmul_args *y) {
    return is_stream(y) && x->a == y->a && x->a_type == y->a_type && x->b_type == y->b_type &&
           x->n == y->n && x->k == y->k;
}

static void run_streams(const tl_matmul_args *x, int count, const void *then, workspace *work) {
    const char *b[TL_STREAMS + 1];
    int64_t row_bytes = x->n * element_size(x->b_type);
    reading read = begin_reading(count * x->k * row_bytes);
    work->prepared.a = NULL;
    convert_rows(work->a, x->k, x->a, x->a_type, x->lda, 1, x->k, x->k);
    for (int i = 0; i < count; i++) {
        b[i] = x[i].b;
        begin_row(&x[i], 0, x->n, work->flipped + i * x->n);
    }
    b[count] = then;
    if (read.order == TOGETHER_BY_ROWS)
        add_streams(work->flipped, work->a, b, count, x->k, x->n, x->b_type);
    else
        for (int i = 0; i < count; i++)
            add_all_rows(work->flipped + i * x->n, work->a, b[i], b[i + 1], row_bytes, x->k, x->n,
                         x->b_type);
    end_reading(&read);
    for (int i = 0; i < count; i++) end_row(&x[i], 0, x->n, work->flipped + i * x->n);
}

static void run_product(const tl_matmul_args *x, workspace *work) {
    if (x->m <= 0 || x->n <= 0) return;
    look_ahead(&work->ahead,
               &(stream){x->b, x->ldb * element_size(x->b_type), x->b_trans ? x->n : x->k,
                         (x->b_trans ? x->k : x->n) * element_size(x->b_type)});
    if (x->then) work->ahead.next.rows = 0;
    if (is_flipped(x)) share_rows(&work->ahead, passes_of(x->n, ROW_BLOCK));
    if (x->k <= 0)
        copy_rows(x->c, x->ldc, x->start, x->ld_start, x->m, x->n);
    else if (is_flipped(x))
        run_flipped(x, work);
    else if (is_one_row(x))
        run_one_row(x, work);
    else
        run_blocks(x, work);
}

void tl_matmul(const tl_matmul_args *x, void *scratch) {
    workspace *work = scratch;
    work->prepared.a = NULL;
    run_product(x, work);
}

/* Merge pieces at equal distances into one product. */
static tl_product with_long_pieces(const tl_product *product) {
    tl_product whole = *product;
    tl_matmul_args *x = &whole.args;
    int64_t a_whole = (x->a_trans ? x->k * x->lda : x->k) * element_size(x->a_type);
    int64_t b_whole = (x->b_trans ? x->k : x->k * x->ldb) * element_size(x->b_type);
    if (whole.pieces > 1 && whole.a_step == a_whole && whole.b_step == b_whole) {
        x->k *= whole.pieces;
        whole.pieces = 1;
    }
    if (whole.pieces <= 0) x->k = 0;
    return whole;
}

static void run_pieces(const tl_product *given, workspace *work) {
    tl_product product = with_long_pieces(given);
    tl_matmul_args x = product.args;
    for (int64_t p = 0; p == 0 || p < product.pieces; p++) {
        const char *next = (const char *)x.b + product.b_step;
        x.then = p + 1 < product.pieces ? next : product.args.then;
        run_product(&x, work);
        x.a = (const char *)x.a + product.a_step;
        x.b = next;
        x.start = x.c;
        x.ld_start = x.ldc;
    }
}

void tl_matmul_pieces(const tl_product *product, void *scratch) {
    workspace *work = scratch;
    work->prepared.a = NULL;
    run_pieces(product, work);
}

/* --- several products side by side ------------------------------------------------------------- */

/* Whether q's columns of B follow p's, and everything else is equal. */
static int is_neighbor(const tl_product *p, const tl_product *q) {
    const tl_matmul_args *x = &p->args, *y = &q->args;
    return (const char *)y->b == at(x->b, x->n, x->b_type) && x->a == y->a && x->lda == y->lda &&
           x->ldb == y->ldb && x->ldc == y->ldc && x->m == y->m && x->n == y->n && x->k == y->k &&
           x->a_type == y->a_type && x->b_type == y->b_type && x->a_trans == y->a_trans &&
           !x->b_trans && !y->b_trans && x->start == (y->start == y->c ? x->c : y->start) &&
           p->pieces == q->pieces && p->a_step == q->a_step && p->b_step == q->b_step;
}

/* Whether the product may be the first of several that run as one. */
static int is_sociable(const tl_product *p) {
    const tl_matmul_args *x = &p->args;
    return x->n % PANEL == 0 && x->k > 0 && p->pieces > 0 && (!x->start || x->start == x->c);
}

/* Run the first products together if possible; return their number (else 1). */
static int streams_of(const tl_product *products, int64_t count, tl_matmul_args *streams) {
    int n = 0;
    for (; n < count && n < TL_STREAMS && products[n].args.m == 1; n++) {
        tl_product whole = with_long_pieces(&products[n]);
        streams[n] = whole.args;
        if (whole.pieces != 1 || !is_alike(&streams[0], &streams[n])) break;
    }
    return n > 1 ? n : 1;
}

void tl_matmul_side_by_side(const tl_product *products, int64_t count, const void *then,
                            void *scratch) {
    workspace *work = scratch;
    work->prepared.a = NULL;
    tl_matmul_args streams[TL_STREAMS];
    for (int64_t i = 0, n; i < count; i += n) {
        n = streams_of(products + i, count - i, streams);
        if (n > 1) {
            const void *next = i + n < count ? products[i + n].args.b : then;
            run_streams(streams, (int)n, next, work);
            continue;
        }
        void *parts[TL_SIDE_BY_SIDE] = {products[i].args.c};
        if (is_sociable(&products[i]))
            while (i + n < count && n < TL_SIDE_BY_SIDE &&
                   is_neighbor(&products[i + n - 1], &products[i + n])) {
                parts[n] = products[i + n].args.c;
                n++;
            }
        tl_product all = products[i];
        all.args.then = i + n < count ? products[i + n].args.b : then;
        if (n > 1) {
            all.args.parts = parts;
            all.args.part_columns = all.args.n;
            all.args.n *= n;
        }
        run_pieces(&all, work);
    }
}
