/* Data exchanged between the model and its C code; `structures.py` declares the same for Python. */

#ifndef TL_DEVICE_STRUCTURES_H
#define TL_DEVICE_STRUCTURES_H

#include <stdint.h>

/* Data of the event loop (events.c) */

typedef struct {
    int64_t clusters, vectors, threads, slots, window, heap, record_capacity;
    double submit, submit_arg, node, dispatch, complete, head, tail, poll, resolve, stagger, first;
    double hbm, l2_rate, l2_bytes;
} Config;

typedef struct {
    int64_t tasks, nodes;
    const int64_t *pred_count, *succ_ptr, *succ;
    const int64_t *shape, *lanes, *blocks, *cost_ptr, *cost, *args, *held_until, *in_graph, *heap,
        *freed, *await_ptr, *awaits;
    const double *hot, *cold, *store, *moved, *served; /* per cost */
    const int64_t *kernel;                             /* per task */
    int64_t kernels;
    const double *read, *written, *all_moved; /* per task */
    const int64_t *cell_ptr, *cell_base;
    const int32_t *cell_rows, *cell_columns;
    const double *cell_share;
    const int32_t *cell_buffer, *cell_part;
    const int64_t *buffer_pitch;
    const double *buffer_size;
    const int64_t *buffer_heap;
    const int64_t *part_writes;
    const double *part_asked;
    int64_t cells;
} Work;

typedef struct {
    int64_t *rec_task, *rec_core;
    double *rec_dispatch, *rec_start, *rec_end, *rec_finish;
    double *submitted, *ready, *finished, *hbm_read, *hbm_written;
    int64_t *released_by;
    double *thread_busy; /* per thread */
    double *totals;      /* orchestrator end, window stall, heap stall, last activity */
    int64_t *status;     /* records, error, task */
} Result;

/* Data of the dependency rules (graph.c) */

typedef struct {
    int64_t tasks, regions, buffers;
    const int64_t *arg_ptr, *arg_region, *arg_flags;
    const int64_t *dep_ptr, *deps;
    const int64_t *buffer, *low, *high, *row, *pitch, *size;
} GraphInput;

typedef struct {
    int64_t nodes, edges;
    int64_t *ptr, *pred; /* predecessors of node n: pred[ptr[n]] .. */
} GraphOutput;

/* Data about conflicting tasks (conflicts.c) */

typedef struct {
    int64_t tasks, nodes, regions, buffers, most;
    int64_t work;                               /* limit of edges followed; 0: none */
    const int64_t *ptr, *pred;                  /* the graph: see GraphOutput */
    const int64_t *acc_ptr;                     /* accesses of each task */
    const int64_t *region, *block, *kind, *key; /* per access */
    const int64_t *buffer, *low, *high, *row, *pitch, *size;
    const int64_t *loop_ptr, *loop, *iteration; /* loops around each task, outermost first */
    const int64_t *parallel;                    /* per loop: its iterations are independent */
} ConflictInput;

typedef struct {
    int64_t count, swept; /* findings, and tasks examined */
    int64_t *found;       /* per finding: first access, second access, what is wrong */
} ConflictOutput;

/* Data about the accesses to L2 (cells.c) */

/* One parameter of one group of tasks; see `l2_cells.ParameterAccesses`. */
typedef struct {
    int64_t count, rank, item, known, scanned;
    const int64_t *tasks, *regions, *amount;
    const double *low, *high;   /* per axis */
    const double *const *shift; /* per axis: by task, or NULL */
} CellsPart;

typedef struct {
    int64_t parts, tasks, buffers;
    const CellsPart *part;
    const int64_t *buffer, *offset, *layout;            /* per region */
    const int64_t *rank_of, *dims_of, *shape, *strides; /* per layout */
    const double *pitch;                                /* per buffer */
    double line;
} CellsInput;

typedef struct {
    const double *height, *width, *per_row, *start; /* per buffer */
} Grid;

typedef struct {
    const int64_t *ptr;
    int64_t *base;
    int32_t *rows, *columns, *grid, *use;
    double *share;
} CellsOutput;

/* Data of one execution of a kernel (walk.c) */

typedef struct {
    int64_t size, params, tiles, costs, levels, code_length;
    int64_t busy_at, scalar, last; /* places in `Walk.times`, see pipes.py */
    double issue, sync, across, start;
    const int64_t *is_vector, *core_of;                 /* per pipe */
    const int64_t *first, *depth;                       /* per tile */
    const int64_t *pipe, *flags, *read_ptr, *write_ptr; /* per step */
    const int64_t *reads, *writes, *next;
    const double *numbers; /* per cost, see walk.c */
    const int64_t *into;   /* what it moves: a parameter that is read or written, or -1 */
    const int64_t *level;  /* which of a cost's numbers apply */
    const int64_t *code;
    double *out; /* per level, see walk.c */
} WalkInput;

#endif
