/* Memory of temporaries: reference counts, and a pool for reuse. Only the control thread uses this:
 * it drops the references of a task after another thread has run it. */
#include <stdlib.h>
#include <sys/mman.h>

#include "state.h"

enum {
    POOLED_BYTES = 64 << 20, /* dead temporaries kept for reuse */
    HUGE_PAGE = 2 << 20,
    LONG_FILL = 64 << 10 /* bytes that take some microseconds to fill */
};

/* Eight size classes per power of two. */
static int size_class(int64_t bytes) {
    if (bytes <= 512) return 0;
    int log = 63 - __builtin_clzll((uint64_t)(bytes - 1));
    return (log - 9) * 8 + (int)((bytes - 1) >> (log - 3) & 7) + 1;
}

static int64_t class_bytes(int class) {
    if (class == 0) return 512;
    int log = (class - 1) / 8 + 9, part = (class - 1) % 8;
    return ((int64_t)(part + 9)) << (log - 3);
}

/* A buffer without references is returned to the pool. */
static void to_pool(tl_rt *rt, tl_buf *b) {
    int64_t bytes = class_bytes(size_class(b->bytes));
    rt->live_bytes -= bytes;
    tl_forget_uses(b);
    tl_buf **list = &rt->pool[size_class(b->bytes)];
    if (rt->pooled_bytes + bytes > POOLED_BYTES) {
        free(b->base);
        b->base = NULL;
        list = &rt->empty;
    } else {
        rt->pooled_bytes += bytes;
    }
    b->next = *list;
    *list = b;
}

void tl_drop_reference(tl_rt *rt, tl_buf *b) {
    if (b && b->is_temporary && --b->references == 0) to_pool(rt, b);
}

void tl_add_reference(tl_buf *b) {
    if (b) b->references++;
}

void tl_retain(const tl_win *w) { tl_add_reference(w->buf); }
void tl_release(tl_ctx *c, const tl_win *w) { tl_drop_reference(c->rt, w->buf); }

void tl_assign(tl_ctx *c, tl_win *variable, const tl_win *w) {
    tl_buf *old = variable->buf;
    tl_add_reference(w->buf);
    if (variable != w) *variable = *w;
    tl_drop_reference(c->rt, old);
}

static tl_buf *from_pool(tl_rt *rt, int class) {
    tl_buf *b = rt->pool[class];
    if (!b) {
        tl_retire(rt);
        b = rt->pool[class];
    }
    if (b) {
        rt->pool[class] = b->next;
        rt->pooled_bytes -= class_bytes(class);
        rt->live_bytes += class_bytes(class);
    }
    return b;
}

static tl_buf *new_buffer(tl_rt *rt, int class) {
    void *memory;
    size_t bytes = (size_t)class_bytes(class);
    if (posix_memalign(&memory, bytes < HUGE_PAGE ? ALIGNMENT : HUGE_PAGE, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    /* Rows of a wide matrix lie on different pages: with small pages each row costs a TLB miss. */
    if (bytes >= HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    tl_buf *b = rt->empty;
    if (b) {
        rt->empty = b->next;
    } else if ((b = calloc(1, sizeof *b))) {
        b->is_temporary = 1;
        b->older = rt->all;
        rt->all = b;
    }
    if (!b) {
        free(memory);
        return NULL;
    }
    b->base = memory;
    rt->live_bytes += class_bytes(class);
    return b;
}

int tl_allocate(tl_ctx *c, int site, tl_win *out, const int64_t *shape, int rank, int itemsize) {
    tl_rt *rt = c->rt;
    int64_t bytes = itemsize;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 1) {
            tl_fail(c, TL_EXTENT, site, rank, i, 0, 0);
            memcpy(&c->fault.n[2], shape, (size_t)rank * sizeof *shape);
            return TL_EXTENT;
        }
        if (__builtin_mul_overflow(bytes, shape[i], &bytes)) bytes = INT64_MAX;
    }
    tl_buf *b = NULL;
    if (bytes < INT64_MAX / 4) {
        int class = size_class(bytes);
        int64_t needed = class_bytes(class);
        /* Only running tasks may still hold memory. */
        while (rt->live_bytes + needed > rt->args->memory) {
            uint64_t finished = LOAD(rt->finished);
            tl_retire(rt);
            if (rt->live_bytes + needed <= rt->args->memory || finished == rt->submitted) break;
            if (tl_stopping(rt)) return TL_STOPPED;
            if (!tl_help(c, 1)) tl_wait_for_progress(c, finished);
        }
        if (rt->live_bytes + needed <= rt->args->memory && class < SIZE_CLASSES) {
            b = from_pool(rt, class);
            if (!b) b = new_buffer(rt, class);
        }
    }
    if (!b) return tl_fail(c, TL_MEMORY, site, bytes, rt->args->memory - rt->live_bytes, 0, 0);
    b->bytes = bytes;
    b->references = 1;
    b->name = site;
    b->number = rt->buffers++;
    out->data = b->base;
    out->buf = b;
    out->rank = rank;
    out->itemsize = (int16_t)itemsize;
    out->is_far = bytes >= FAR_BYTES;
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        out->shape[i] = out->valid[i] = out->reach[i] = shape[i];
        out->stride[i] = step;
        step *= shape[i];
    }
    tl_set_grid(b, out);
    return TL_OK;
}

int tl_create(tl_ctx *c, int site, tl_win *out, const int64_t *shape, int rank, int itemsize,
              int64_t rows, uint64_t pattern) {
    int kind = tl_allocate(c, site, out, shape, rank, itemsize);
    if (kind) return kind;
    int64_t bytes = rows < shape[0] ? rows * out->stride[0] * itemsize : out->buf->bytes;
    if (bytes > LONG_FILL) tl_publish(c->rt);
    tl_fill(out->data, bytes, pattern);
    return TL_OK;
}

void tl_free_buffers(tl_rt *rt) {
    for (tl_buf *b = rt->all; b;) {
        tl_buf *older = b->older;
        free(b->base);
        tl_free_uses(b);
        free(b);
        b = older;
    }
}
