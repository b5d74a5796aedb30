/* Windows of global memory, bounds-checked on creation. The rules are those of
 * src/tilelet/interp/movement.py and src/tilelet/ops/valid.py. */
#include "depend.h"
#include "rt.h"

int tl_fail(tl_ctx *c, int kind, int site, int64_t a, int64_t b, int64_t d, int64_t e) {
    c->fault.kind = kind;
    c->fault.site = site;
    c->fault.buffer = -1;
    c->fault.n[0] = a;
    c->fault.n[1] = b;
    c->fault.n[2] = d;
    c->fault.n[3] = e;
    return kind;
}

int tl_fail_region(tl_ctx *c, int site, const int64_t *valid, const int64_t *shape, int rank) {
    tl_fail(c, TL_REGION, site, rank, 0, 0, 0);
    for (int i = 0; i < rank; i++) {
        c->fault.n[1 + i] = valid[i];
        c->fault.n[1 + rank + i] = shape[i];
    }
    return TL_REGION;
}

/* The message names the buffer that a window lies in. */
static void name_buffer(tl_ctx *c, const tl_win *w) {
    if (w && w->buf) c->fault.buffer = w->buf->name;
}

static int fail_shapes(tl_ctx *c, int kind, int site, const tl_win *w, const int64_t *shape,
                       int rank) {
    tl_fail(c, kind, site, w->rank, rank, 0, 0);
    for (int i = 0; i < w->rank; i++) c->fault.n[2 + i] = w->shape[i];
    for (int i = 0; i < rank; i++) c->fault.n[2 + w->rank + i] = shape[i];
    name_buffer(c, w);
    return kind;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Extent of the part of the `shape` window at `start` that lies before `extent`. */
static int64_t seen(int64_t extent, int64_t start, int64_t size) {
    return start >= extent ? 0 : max64(0, min64(extent - start, size));
}

/* Whether a whole axis is declared valid: a load must then find memory there. */
static int is_claimed(const tl_win *w, int axis) { return w->valid[axis] == w->shape[axis]; }

int tl_slice(tl_ctx *c, int site, tl_win *out, const tl_win *w, const int64_t *offset,
             const int64_t *shape, const int64_t *limits, int edge) {
    int64_t needed[TL_RANK];
    for (int i = 0; i < w->rank; i++) {
        if (limits && (limits[i] > shape[i] || (edge == TL_SIZED && limits[i] < 0)))
            return tl_fail(c, TL_VALID, site, i, limits[i], shape[i], 0);
        needed[i] = limits ? max64(0, limits[i]) : shape[i];
    }
    for (int i = 0; i < w->rank; i++) {
        int64_t extent = is_claimed(w, i) ? w->reach[i] : w->shape[i];
        /* start + size > extent, without overflow */
        int outside = needed[i] > extent || offset[i] > extent - needed[i];
        int must_lie_inside = edge == TL_INSIDE || edge == TL_SIZED;
        if (offset[i] < 0 || shape[i] < 1 || (outside && must_lie_inside))
            return tl_fail_window(c, site, i, offset[i], needed[i], extent, w);
    }
    tl_win result = *w;
    for (int i = 0; i < w->rank; i++) {
        int64_t there = seen(w->reach[i], offset[i], shape[i]);
        int64_t valid = min64(needed[i], seen(w->valid[i], offset[i], shape[i]));
        result.shape[i] = shape[i];
        result.reach[i] = there;
        result.valid[i] = edge == TL_VIEW && is_claimed(w, i) ? shape[i] : min64(valid, there);
        /* Only the extents of a window without memory are examined. */
        if (there > 0) result.data += offset[i] * w->stride[i] * w->itemsize;
    }
    *out = result;
    return TL_OK;
}

void tl_drop_axes(tl_win *w, uint32_t dropped) {
    int kept = 0;
    for (int i = 0; i < w->rank; i++) {
        if (dropped >> i & 1) continue;
        w->shape[kept] = w->shape[i];
        w->stride[kept] = w->stride[i];
        w->valid[kept] = w->valid[i];
        w->reach[kept++] = w->reach[i];
    }
    w->rank = kept;
}

static void swap64(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

void tl_swap_axes(tl_win *w, int a, int b) {
    swap64(&w->shape[a], &w->shape[b]);
    swap64(&w->stride[a], &w->stride[b]);
    swap64(&w->valid[a], &w->valid[b]);
    swap64(&w->reach[a], &w->reach[b]);
}

static int is_full(const tl_win *w) {
    for (int i = 0; i < w->rank; i++)
        if (w->valid[i] != w->shape[i]) return 0;
    return 1;
}

static int overhangs(const tl_win *w) {
    for (int i = 0; i < w->rank; i++)
        if (w->reach[i] != w->shape[i]) return 1;
    return 0;
}

static int check_extents(tl_ctx *c, int site, const int64_t *shape, int rank) {
    for (int i = 0; i < rank; i++)
        if (shape[i] < 1) {
            tl_fail(c, TL_EXTENT, site, rank, i, 0, 0);
            for (int k = 0; k < rank; k++) c->fault.n[2 + k] = shape[k];
            return TL_EXTENT;
        }
    return TL_OK;
}

static int64_t count_of(const int64_t *shape, int rank) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(n, shape[i], &n)) return -1;
    return n;
}

/* Strides of the same elements in row-major order under another shape; 0 if impossible. */
static int reshaped_strides(const tl_win *w, const int64_t *shape, int rank, int64_t *stride) {
    int64_t run_length[TL_RANK], run_stride[TL_RANK];
    int runs = 0;
    for (int i = 0; i < w->rank; i++) {
        if (w->shape[i] == 1) continue;
        if (runs && run_stride[runs - 1] == w->shape[i] * w->stride[i]) {
            run_length[runs - 1] *= w->shape[i];
            run_stride[runs - 1] = w->stride[i];
        } else {
            run_length[runs] = w->shape[i];
            run_stride[runs++] = w->stride[i];
        }
    }
    int64_t left = 1, step = 1;
    if (runs) left = run_length[runs - 1], step = run_stride[--runs];
    for (int i = rank - 1; i >= 0; i--) {
        if (shape[i] > 1) {
            if (left == 1 && runs) left = run_length[runs - 1], step = run_stride[--runs];
            if (left % shape[i]) return 0;
            left /= shape[i];
        }
        stride[i] = step;
        step *= shape[i];
    }
    return 1;
}

int tl_reshape_valid(tl_ctx *c, int site, const int64_t *shape, const int64_t *valid, int rank,
                     const int64_t *new_shape, int64_t *new_valid, int new_rank) {
    int full = 1, empty = 0;
    for (int i = 0; i < rank; i++) full &= valid[i] == shape[i], empty |= valid[i] == 0;
    for (int i = 0; i < new_rank; i++) new_valid[i] = full ? new_shape[i] : 0;
    if (full || empty) return TL_OK;
    int64_t total = count_of(valid, rank), at[TL_RANK] = {0};
    for (int64_t n = 0; n < total; n++) {
        int64_t position = 0;
        for (int i = 0; i < rank; i++) position = position * shape[i] + at[i];
        for (int i = new_rank - 1; i >= 0; i--) {
            new_valid[i] = max64(new_valid[i], position % new_shape[i] + 1);
            position /= new_shape[i];
        }
        for (int i = rank - 1; i >= 0 && ++at[i] == valid[i]; i--) at[i] = 0;
    }
    if (count_of(new_valid, new_rank) != total) return tl_fail_region(c, site, valid, shape, rank);
    return TL_OK;
}

int tl_reshape(tl_ctx *c, int site, tl_win *w, const int64_t *shape, int rank) {
    if (check_extents(c, site, shape, rank)) return c->fault.kind;
    if (count_of(shape, rank) != count_of(w->shape, w->rank))
        return fail_shapes(c, TL_COUNT, site, w, shape, rank);
    int64_t stride[TL_RANK], valid[TL_RANK];
    if (overhangs(w) || !reshaped_strides(w, shape, rank, stride))
        return fail_shapes(c, TL_COPY, site, w, shape, rank);
    if (tl_reshape_valid(c, site, w->shape, w->valid, w->rank, shape, valid, rank))
        return c->fault.kind;
    w->rank = rank;
    for (int i = 0; i < rank; i++) {
        w->shape[i] = w->reach[i] = shape[i];
        w->stride[i] = stride[i];
        w->valid[i] = valid[i];
    }
    return TL_OK;
}

int tl_reinterpret(tl_ctx *c, int site, tl_win *w, int itemsize, const int64_t *shape, int rank) {
    int last = w->rank - 1, old = w->itemsize;
    tl_win before = *w;
    const int64_t *wanted = shape ? shape : before.shape;
    int wanted_rank = shape ? rank : before.rank;
    int torn = overhangs(w) || (uintptr_t)w->data % (uintptr_t)itemsize != 0;
    if (old != itemsize) {
        torn |= w->stride[last] != 1 && w->shape[last] != 1;
        torn |= w->shape[last] * old % itemsize != 0;
        for (int i = 0; i < last; i++) torn |= w->stride[i] * old % itemsize != 0;
    }
    if (torn) return fail_shapes(c, TL_RECAST, site, &before, wanted, wanted_rank);
    if (old != itemsize) {
        for (int i = 0; i < last; i++) w->stride[i] = w->stride[i] * old / itemsize;
        w->stride[last] = 1;
        w->shape[last] = w->shape[last] * old / itemsize;
        w->reach[last] = w->shape[last];
    }
    w->itemsize = (int16_t)itemsize;
    int full = is_full(&before);
    if (!full && (shape || before.valid[last] * w->shape[last] % before.shape[last]))
        return tl_fail_region(c, site, before.valid, before.shape, before.rank);
    w->valid[last] = before.valid[last] * w->shape[last] / before.shape[last];
    if (!shape) return TL_OK;
    if (check_extents(c, site, shape, rank)) return c->fault.kind;
    int kind = tl_reshape(c, site, w, shape, rank);
    return kind == TL_COUNT ? fail_shapes(c, TL_COPY, site, &before, shape, rank) : kind;
}

int tl_mark_valid(tl_ctx *c, int site, tl_win *w, int64_t rows, int64_t columns) {
    int64_t limits[2] = {rows, columns};
    for (int i = 0; i < 2; i++)
        if (limits[i] > w->reach[i])
            return tl_fail(c, TL_VALID, site, i, limits[i], w->reach[i], 0);
    w->valid[0] = max64(0, rows);
    w->valid[1] = max64(0, columns);
    return TL_OK;
}

int tl_element(tl_ctx *c, int site, const tl_win *w, const int64_t *indices, char **out) {
    char *at = w->data;
    for (int i = 0; i < w->rank; i++) {
        if (indices[i] < 0 || indices[i] >= w->reach[i]) {
            tl_fail(c, TL_INDEX, site, i, indices[i], w->reach[i], 0);
            name_buffer(c, w);
            return TL_INDEX;
        }
        at += indices[i] * w->stride[i] * w->itemsize;
    }
    *out = at;
    return TL_OK;
}

int tl_insert_valid(tl_ctx *c, int site, const int64_t *shape, const int64_t *target,
                    const int64_t *source, const int64_t *offset, int rank, int64_t *out) {
    int64_t grown[TL_RANK];
    int empty = 0;
    for (int i = 0; i < rank; i++) empty |= source[i] == 0;
    for (int i = 0; i < rank; i++)
        grown[i] = empty ? target[i] : max64(target[i], offset[i] + source[i]);
    for (int i = 0; i < rank && !empty; i++) {
        if (grown[i] == target[i]) continue;
        int covers = offset[i] <= target[i];
        for (int k = 0; k < rank; k++)
            covers &= k == i || (offset[k] == 0 && source[k] == grown[k]);
        if (!covers) return tl_fail_region(c, site, target, shape, rank);
    }
    memcpy(out, grown, (size_t)rank * sizeof *out);
    return TL_OK;
}

int tl_fail_window(tl_ctx *c, int site, int axis, int64_t start, int64_t size, int64_t extent,
                   const tl_win *w) {
    tl_fail(c, TL_WINDOW, site, axis, start, size, extent);
    c->fault.n[4] = w && w->reach[axis] == extent ? w->shape[axis] : extent;
    name_buffer(c, w);
    return TL_WINDOW;
}

void tl_read_ahead(const tl_win *w, const int64_t *offset, const int64_t *shape) {
    enum { LINE = 64, MOST = 64 << 10 }; /* bytes */
    if (w->rank != 2 || w->stride[1] != 1) return;
    int64_t box[2];
    for (int i = 0; i < 2; i++) {
        if (offset[i] < 0 || offset[i] >= w->shape[i]) return;
        int64_t rest = w->shape[i] - offset[i];
        box[i] = shape[i] < rest ? shape[i] : rest;
    }
    const char *row = (char *)w->data + (offset[0] * w->stride[0] + offset[1]) * w->itemsize;
    int64_t bytes = box[1] * w->itemsize, left = MOST;
    for (int64_t r = 0; r < box[0] && left > 0; r++, row += w->stride[0] * w->itemsize)
        for (int64_t i = 0; i < bytes && left > 0; i += LINE, left -= LINE)
            __builtin_prefetch(row + i, 0, 2);
}

/* --- copies ------------------------------------------------------------------------------------ */

void tl_fill(void *memory, int64_t bytes, uint64_t pattern) {
    char *at = memory;
    if (pattern == 0) {
        memset(at, 0, (size_t)bytes);
        return;
    }
    uint64_t block[8];
    for (int i = 0; i < 8; i++) block[i] = pattern;
    for (; bytes >= (int64_t)sizeof block; bytes -= sizeof block, at += sizeof block)
        memcpy(at, block, sizeof block); /* of a constant size: stores of whole vectors */
    memcpy(at, block, (size_t)bytes);
}

static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                     int itemsize) {
    if (to_step == itemsize && from_step == itemsize) {
        memcpy(to, from, (size_t)(n * itemsize));
        return;
    }
    for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) switch (itemsize) {
        case 1: *to = *from; break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        default: memcpy(to, from, 8); break;
        }
}

static void copy_box(char *to, const int64_t *to_stride, const char *from,
                     const int64_t *from_stride, const int64_t *box, int rank, int itemsize) {
    if (rank == 0) {
        copy_row(to, itemsize, from, itemsize, 1, itemsize);
    } else if (rank == 1) {
        copy_row(to, to_stride[0] * itemsize, from, from_stride[0] * itemsize, box[0], itemsize);
    } else {
        for (int64_t i = 0; i < box[0]; i++)
            copy_box(to + i * to_stride[0] * itemsize, to_stride + 1,
                     from + i * from_stride[0] * itemsize, from_stride + 1, box + 1, rank - 1,
                     itemsize);
    }
}

static void dense_strides(const int64_t *shape, int rank, int64_t *stride) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i];
    }
}

void tl_copy_in(void *to, const void *from, const int64_t *shape, const int64_t *valid,
                const int64_t *stride, int rank, int itemsize) {
    int64_t dense[TL_RANK];
    dense_strides(shape, rank, dense);
    copy_box(to, dense, from, stride, valid, rank, itemsize);
}

void tl_copy_out(void *to, const void *from, const int64_t *shape, const int64_t *valid,
                 const int64_t *stride, int rank, int itemsize) {
    int64_t dense[TL_RANK];
    dense_strides(shape, rank, dense);
    copy_box(to, stride, from, dense, valid, rank, itemsize);
}

static void zero_outside(char *at, const int64_t *shape, const int64_t *valid,
                         const int64_t *stride, int rank, int itemsize) {
    int64_t step = stride[0] * itemsize;
    memset(at + valid[0] * step, 0, (size_t)((shape[0] - valid[0]) * step));
    for (int64_t i = 0; rank > 1 && i < valid[0]; i++)
        zero_outside(at + i * step, shape + 1, valid + 1, stride + 1, rank - 1, itemsize);
}

void tl_zero_outside(void *tile, const int64_t *shape, const int64_t *valid, int rank,
                     int itemsize) {
    int64_t dense[TL_RANK];
    dense_strides(shape, rank, dense);
    zero_outside(tile, shape, valid, dense, rank, itemsize);
}
