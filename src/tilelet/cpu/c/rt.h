/* The task runtime: interface of generated programs.
 *
 * A program is a control function and kernels. The control function runs on the calling thread and
 * submits tasks: a kernel with windows of global memory and scalars. A task runs when every earlier
 * task that it depends on is done: dependencies follow from its argument windows (read after write,
 * write after write, write after read) or are explicit. Results do not depend on threads or
 * schedule.
 *
 * Functions that can fail return 0 or a fault kind; the fault itself is stored in the context. */
#ifndef TL_RT_H
#define TL_RT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "matmul.h"

#define TL_RANK 6

typedef struct tl_rt tl_rt;
typedef struct tl_buf tl_buf;

typedef union {
    int64_t i;
    uint64_t u;
    double f;
} tl_word;

/* A strided box of a buffer. valid: the part that loads read; reach: the part backed by memory, if
 * the window overhangs its tensor. Otherwise both equal `shape`. Strides are in elements. is_far:
 * the buffer is larger than any cache. Kernels look at windows only: the control thread writes
 * buffers all the time. */
typedef struct {
    char *data;
    tl_buf *buf;
    int32_t rank;
    int16_t itemsize, is_far;
    int64_t shape[TL_RANK], stride[TL_RANK], valid[TL_RANK], reach[TL_RANK];
} tl_win;

enum {
    TL_OK,
    TL_STOPPED, /* another task failed, or the run was cancelled */
    TL_WINDOW,  /* n: axis, start, size, extent */
    TL_VALID,   /* n: axis, valid extent, size */
    TL_INDEX,   /* n: axis, index, extent */
    TL_REGION,  /* n: rank, valid region..., shape... */
    TL_DIVISION,
    TL_BLOCKS, /* n: count */
    TL_STEP,
    TL_EXTENT, /* n: rank, axis, shape... */
    TL_COUNT,  /* n: rank, new rank, shape..., new shape... */
    TL_COPY,   /* n: as TL_COUNT */
    TL_RECAST, /* n: as TL_COUNT; no whole elements of the new type */
    TL_MEMORY, /* n: bytes, available */
    TL_HOST    /* raised by an op that runs in Python */
};

typedef struct {
    int32_t kind, site;
    int32_t buffer; /* site that names the buffer of the fault; negative: none */
    uint64_t task;
    int64_t n[2 * TL_RANK + 4];
} tl_fault;

/* How a kernel is entered: to run; up to its first flush, to hand its products over; or from there
 * on, with those products computed. */
enum { TL_WHOLE, TL_COLLECT, TL_FINISH };
enum { TL_PRODUCTS = 4 };

/* Per-thread context. */
typedef struct {
    tl_rt *rt;
    char *scratch; /* the tiles of the running kernel */
    void *matmul;  /* working memory of tl_matmul */
    int64_t block, blocks;
    volatile int32_t *cancel;
    int32_t manual; /* nesting depth of scopes with explicit dependencies */
    int32_t phase, product_count;
    int32_t plain; /* limit of tasks without products that this thread takes at once */
    tl_product products[TL_PRODUCTS];
    const char *then; /* B of the next task of this kernel, or NULL */
    tl_fault fault;
} tl_ctx;

/* With the address sanitizer: make computed products inaccessible (`on`) while a kernel repeats its
 * way to the flush. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TL_GUARDED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TL_GUARDED 1
#endif
#ifdef TL_GUARDED
void __asan_poison_memory_region(void const volatile *address, size_t bytes);
void __asan_unpoison_memory_region(void const volatile *address, size_t bytes);
static inline __attribute__((unused)) void tl_guard(const tl_product *products, int count, int on) {
    for (int i = 0; i < count; i++) {
        const tl_matmul_args *p = &products[i].args;
        if (!products[i].pieces || p->m < 1) continue;
        size_t bytes = (size_t)((p->m - 1) * p->ldc + p->n) * sizeof(float);
        (on ? __asan_poison_memory_region : __asan_unpoison_memory_region)(p->c, bytes);
    }
}
#else
#define TL_GUARDED 0
#define tl_guard(products, count, on) ((void)(products))
#endif

typedef struct {
    int (*run)(tl_ctx *c, const tl_win *w, const tl_word *x);
    const char *name;
    int32_t windows, scalars;
    const char *directions; /* one of r, w, b (both) for each window */
    /* Restrict windows to the part that block `block` of a task with these scalars can touch; may
     * be NULL. */
    void (*footprint)(const tl_word *x, int64_t block, tl_win *f);
    /* Tasks that should run together, up to `batch_max` (1: none): their products have the same A,
     * and B `b_stride` bytes further on. A and B are the footprints of these windows. */
    int32_t batch_max, a_window, b_window;
    int64_t b_stride;
    /* The same if each B has contiguous rows at any address: the number of tasks read together, or
     * run consecutively with A packed once (1: none). */
    int32_t streams, same_a;
    int64_t scratch_bytes;
    int32_t iterations; /* blocks of a task that is not an spmd task (1: just itself) */
} tl_kernel;

typedef struct {
    const tl_kernel *kernels;
    int32_t kernel_count, max_windows, max_scalars;
    int64_t scratch_bytes; /* per thread */
    int (*control)(tl_ctx *c, const tl_win *w, const tl_word *x);
    /* tl_matmul_side_by_side; NULL without products, so that matmul.c need not be compiled. */
    void (*run_products)(const tl_product *products, int64_t count, const void *then,
                         void *scratch);
} tl_program;

/* An op that runs in Python: its number, windows of its operands and results, scalars. */
typedef int (*tl_host_fn)(int64_t op, tl_win *tiles, const tl_word *scalars, int64_t block);

/* Record of all submitted tasks, as words. For each task: the call, its id, whether it runs, the
 * blocks (0: no spmd task), whether it is in a manual scope, the number of explicit dependencies,
 * their ids; for each window the buffer, its size, the site with its name, the first byte, rank,
 * shape, strides, valid and existing part; the scalars. */
typedef struct {
    int64_t *words;
    int64_t count, capacity;
    int32_t is_incomplete; /* out of memory */
} tl_record;

typedef struct {
    tl_win *windows; /* the entry's tensors; `buf` is set by the run */
    const tl_word *scalars;
    const int64_t *buffer_of; /* buffer of each tensor: overlapping arrays share one */
    char *const *bases;       /* first byte of each buffer */
    const int32_t *names;     /* site with the name of each buffer */
    const uint8_t *readonly;  /* whether no task writes the buffer */
    int64_t window_count, buffer_count;
    int64_t threads;
    int64_t seed;   /* seed of a random schedule; negative: in order */
    int64_t memory; /* limit of bytes for temporaries */
    volatile int32_t *cancel;
    tl_host_fn host;
    int64_t *counts;   /* tasks of each kernel; output */
    tl_record *record; /* output unless NULL */
    tl_fault *fault;   /* output if the result is nonzero */
} tl_run_args;

int tl_run(const tl_program *program, const tl_run_args *args);
/* The same, for the main thread of a program with its own Ctrl-C handler, which meanwhile can only
 * record the signal: `cancel` is set. */
int tl_run_here(const tl_program *program, const tl_run_args *args);

/* --- for generated control code ---------------------------------------------------------------- */

typedef struct tl_task tl_task;

/* Return a task to fill in, or NULL if the run must stop. Waits while too many are unfinished.
 * `call` identifies the op in the program. */
tl_task *tl_begin(tl_ctx *c, int32_t kernel, int32_t call);
tl_win *tl_task_windows(tl_task *t);
tl_word *tl_task_scalars(tl_task *t);
/* Submit it, with a number of blocks for an spmd task (else 0); `deps` are ids of tasks to wait for
 * (negative ones are skipped). Returns its id. */
int64_t tl_submit(tl_ctx *c, tl_task *t, int64_t blocks, const int64_t *deps, int64_t dep_count);
/* The same for a task whose predicate is false: it only waits. */
int64_t tl_skip(tl_ctx *c, tl_task *t, int64_t blocks, const int64_t *deps, int64_t dep_count);
/* Submit a join of other tasks. Negative if the run must stop. */
int64_t tl_join(tl_ctx *c, int32_t call, const int64_t *deps, int64_t dep_count);
/* Wait for all tasks that touch the window (unless `writing`: that write it). */
int tl_wait(tl_ctx *c, const tl_win *w, int writing);
/* Allocate memory for a task that overwrites it completely; or with its first `rows` rows filled
 * with repetitions of `pattern`. */
int tl_allocate(tl_ctx *c, int site, tl_win *out, const int64_t *shape, int rank, int itemsize);
int tl_create(tl_ctx *c, int site, tl_win *out, const int64_t *shape, int rank, int itemsize,
              int64_t rows, uint64_t pattern);
void tl_retain(const tl_win *w);
void tl_release(tl_ctx *c, const tl_win *w);
/* Assign to a variable that owns a reference: retain the new window, release the old one. */
void tl_assign(tl_ctx *c, tl_win *variable, const tl_win *w);

int tl_stopping(const tl_rt *rt);
int tl_call_host(tl_ctx *c, int site, int64_t op, tl_win *tiles, const tl_word *scalars);

/* --- faults and windows: for kernels too -------------------------------------------------------- */

/* Fault exits are cold: gcc 12 otherwise considers them likely and the loops after them cold, and
 * does not vectorize those loops. */
#define TL_COLD __attribute__((cold))
TL_COLD int tl_fail(tl_ctx *c, int kind, int site, int64_t a, int64_t b, int64_t d, int64_t e);
/* Fault: a window that is not inside `w` (NULL: inside a tile). */
TL_COLD int tl_fail_window(tl_ctx *c, int site, int axis, int64_t start, int64_t size,
                           int64_t extent, const tl_win *w);
TL_COLD int tl_fail_region(tl_ctx *c, int site, const int64_t *valid, const int64_t *shape,
                           int rank);

/* Treatment of a window past the edge: an error; invalid there; or, for a view of the control
 * program, valid as declared, so that a load of missing memory fails. TL_SIZED: an error, and
 * `limits` are sizes from the text, none of which may be negative. */
enum { TL_INSIDE, TL_CLAMP, TL_VIEW, TL_SIZED };

/* The window of `shape` at `offset`; only `limits` (NULL: all) must lie inside. */
int tl_slice(tl_ctx *c, int site, tl_win *out, const tl_win *w, const int64_t *offset,
             const int64_t *shape, const int64_t *limits, int edge);
void tl_drop_axes(tl_win *w, uint32_t dropped);
void tl_swap_axes(tl_win *w, int a, int b);
int tl_reshape(tl_ctx *c, int site, tl_win *w, const int64_t *shape, int rank);
int tl_reinterpret(tl_ctx *c, int site, tl_win *w, int itemsize, const int64_t *shape, int rank);
int tl_mark_valid(tl_ctx *c, int site, tl_win *w, int64_t rows, int64_t columns);
/* Bounds-checked address of one element. */
int tl_element(tl_ctx *c, int site, const tl_win *w, const int64_t *indices, char **out);
/* The valid region of a reshaped value. */
int tl_reshape_valid(tl_ctx *c, int site, const int64_t *shape, const int64_t *valid, int rank,
                     const int64_t *new_shape, int64_t *new_valid, int new_rank);
/* The region of a value after a box has been written into it (`assemble`). */
int tl_insert_valid(tl_ctx *c, int site, const int64_t *shape, const int64_t *target,
                    const int64_t *source, const int64_t *offset, int rank, int64_t *out);
/* Prefetch a box of a matrix, clipped to the matrix. */
void tl_read_ahead(const tl_win *w, const int64_t *offset, const int64_t *shape);
/* Fill with repetitions of eight bytes. */
void tl_fill(void *memory, int64_t bytes, uint64_t pattern);
/* Copy the box `valid` between a dense tile of `shape` and strided memory. */
void tl_copy_in(void *to, const void *from, const int64_t *shape, const int64_t *valid,
                const int64_t *stride, int rank, int itemsize);
void tl_copy_out(void *to, const void *from, const int64_t *shape, const int64_t *valid,
                 const int64_t *stride, int rank, int itemsize);
void tl_zero_outside(void *tile, const int64_t *shape, const int64_t *valid, int rank,
                     int itemsize);

/* For footprints: saturating arithmetic, and one axis of a window clipped to [low, high). */
static inline __attribute__((unused)) int64_t tl_sum(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? (a < 0 ? INT64_MIN + 1 : INT64_MAX) : r;
}
static inline __attribute__((unused)) int64_t tl_times(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? ((a < 0) != (b < 0) ? INT64_MIN + 1 : INT64_MAX) : r;
}
static inline __attribute__((unused)) int64_t tl_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline __attribute__((unused)) int64_t tl_greatest(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline __attribute__((unused)) void tl_narrow_axis(tl_win *w, int axis, int64_t low,
                                                          int64_t high) {
    low = tl_greatest(low, 0);
    high = tl_least(high, w->reach[axis]);
    if (low >= high) return;
    w->data += low * w->stride[axis] * w->itemsize;
    w->reach[axis] = high - low;
}

static inline __attribute__((always_inline, unused)) int64_t tl_divide(int64_t a, int64_t b) {
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline __attribute__((always_inline, unused)) int64_t tl_remainder(int64_t a, int64_t b) {
    return b == -1 ? 0 : a % b;
}

#endif
