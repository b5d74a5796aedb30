/* Uses of a buffer: from a task's argument windows to the tasks it depends on.
 *
 * A buffer keeps one `use` for every distinct window of unfinished tasks, with the last task that
 * writes it and the tasks that have read it since. Overlaps are computed once, when a use is new; a
 * task then examines only its own use and those that overlap it.
 *
 * Most windows are boxes of the tensor, tiles of similar size. The tensor is divided into cells of
 * that size, and each cell lists the boxes that touch it, so a new tile is compared only with
 * nearby ones. Only the control thread uses this. */
#ifndef TL_DEPEND_H
#define TL_DEPEND_H

#include "rt.h"

typedef struct {
    uint64_t *items;
    uint32_t count, capacity;
} tl_list;

enum { TL_UNKNOWN = -1 };
enum { TL_GRID = TL_RANK + 1 }; /* axes of a tensor, and the element size in bytes */

typedef struct {
    int64_t low, high;                      /* bytes from the buffer's start */
    int32_t axes;                           /* axes longer than one element, by falling stride */
    int64_t length[TL_RANK], step[TL_RANK]; /* step in bytes */
    int32_t itemsize;
    int32_t box; /* whether it is a box of the buffer's grid, and its position there */
    int64_t box_start[TL_GRID], box_length[TL_GRID];
    uint64_t seen;       /* the last search that found it */
    uint64_t writer;     /* 1-based number of the last task that writes it; 0: none */
    tl_list readers;     /* numbers of the tasks that read it since */
    tl_list overlapping; /* positions of other uses */
} tl_use;

typedef struct {
    uint64_t cell;      /* hash of its coordinates */
    uint32_t use, next; /* position; the next entry of the bucket + 1 */
} tl_cell_entry;

/* Boxes by the cells they touch; boxes that touch many cells, and uses that are not boxes, are
 * listed separately. */
typedef struct {
    int64_t size[TL_GRID];
    uint32_t *buckets; /* an entry + 1 */
    tl_cell_entry *entries;
    uint32_t bucket_count, entry_count, entry_capacity;
    uint32_t crowded_at; /* number of uses when the cell size was last chosen */
    tl_list large;
} tl_cells;

struct tl_buf {
    char *base;
    int64_t bytes;
    int32_t references; /* those of the control program, and one per task that is not retired */
    int32_t is_temporary, is_readonly;
    int32_t name;               /* site with its name */
    int64_t number;             /* index among all buffers of the run, arguments first */
    int32_t grid_axes;          /* 0: no grid */
    int64_t grid_step[TL_GRID]; /* bytes, each a multiple of the next, the last 1 */
    uint32_t use_count, use_capacity, drop_at;
    tl_use *uses;
    uint32_t *table; /* hash of a use -> position + 1 */
    uint32_t table_size;
    tl_cells cells;
    uint64_t searches;
    tl_buf *next;  /* in the pool */
    tl_buf *older; /* among all temporaries */
};

/* Whether the task with this number is done. */
typedef int (*tl_is_done)(void *rt, uint64_t task);
/* Called for every task that the new one depends on (perhaps several times). */
typedef void (*tl_found)(void *rt, uint64_t task);

/* Declare that windows of the buffer are boxes of the tensor `w`. */
void tl_set_grid(tl_buf *b, const tl_win *w);
/* Return the position of the use of window `w`, created if new. Negative: out of memory. */
int64_t tl_use_of(tl_buf *b, const tl_win *w, tl_is_done is_done, void *rt);
void tl_depend(tl_buf *b, uint32_t use, int writes, tl_found found, void *rt);
/* Record that task `number` uses it. 0, or -1 if out of memory. */
int tl_note(tl_buf *b, uint32_t use, int writes, uint64_t number, tl_is_done is_done, void *rt);
void tl_forget_uses(tl_buf *b);
void tl_free_uses(tl_buf *b);

#endif
