/* L2 accesses of each task. `cells.py` is the definition; this computes the same numbers. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "structures.h"

/* First byte, one past the last, and bytes requested. */
typedef struct {
    double first, last, wanted;
} Span;

static double clipped(double x, double low, double high) {
    x = x > low ? x : low;
    return x < high ? x : high;
}

/* `scan` is how far earlier tasks have read a parameter of unknown extents. */
static Span span_of(const CellsInput *in, const CellsPart *p, int64_t i, int64_t *scan) {
    int64_t region = p->regions[i], layout = in->layout[region];
    int same_rank = in->rank_of[layout] == p->rank;
    const int64_t *shape = in->shape + in->dims_of[layout],
                  *strides = in->strides + in->dims_of[layout];
    int64_t first = in->offset[region], last = first, wanted = p->item;
    for (int64_t axis = 0; axis < p->rank; axis++) {
        int64_t extent = same_rank ? shape[axis] : 1, stride = same_rank ? strides[axis] : 1;
        int64_t low = 0, high = extent;
        if (p->known) {
            double shift = p->shift[axis] ? p->shift[axis][i] : 0.0;
            low = (int64_t)clipped(shift + p->low[axis], 0.0, (double)extent - 1.0);
            high = (int64_t)clipped(shift + p->high[axis], (double)low + 1.0, (double)extent);
        }
        wanted *= high - low;
        first += (stride > 0 ? low : high - 1) * stride;
        last += (stride > 0 ? high - 1 : low) * stride;
    }
    first *= p->item;
    last = (last + 1) * p->item;
    if (p->scanned) {
        int64_t size = last - first > 1 ? last - first : 1;
        int64_t length = p->amount[i] > size ? size : p->amount[i] < 1 ? 1 : p->amount[i];
        first += *scan % size;
        last = first + length < last ? first + length : last;
        *scan += length;
    }
    /* A box with gaps that no transfer touches counts only the bytes moved. */
    int64_t moved = p->amount[i] > p->item ? p->amount[i] : p->item;
    if (moved < wanted) wanted = moved;
    Span span = {(double)first, (double)last, (double)wanted};
    return span;
}

/* The minimum number of rows that an access of each buffer spans. */
__attribute__((visibility("default"))) void tl_cells_least(const CellsInput *in, double *least) {
    for (int64_t k = 0; k < in->parts; k++) {
        const CellsPart *p = in->part + k;
        int64_t scan = 0;
        for (int64_t i = 0; i < p->count; i++) {
            int64_t buffer = in->buffer[p->regions[i]];
            double pitch = in->pitch[buffer];
            Span s = span_of(in, p, i, &scan);
            double tall = floor((s.last - 1.0) / pitch) - floor(s.first / pitch) + 1.0;
            if (tall < least[buffer]) least[buffer] = tall;
        }
    }
}

static void place(const CellsInput *in, const Grid *g, int64_t buffer, Span s,
                  const CellsOutput *out, int64_t at) {
    double pitch = in->pitch[buffer], height = g->height[buffer], width = g->width[buffer];
    double row0 = floor(s.first / pitch), row1 = floor((s.last - 1.0) / pitch);
    double col0 = s.first - row0 * pitch, col1 = s.last - 1.0 - row1 * pitch;
    if (col1 < col0) {
        col0 = 0.0;
        col1 = pitch - 1.0;
    }
    double cell_row = floor(row0 / height), cell_col = floor(col0 / width);
    double rows = floor(row1 / height) - cell_row + 1.0;
    double columns = floor(col1 / width) - cell_col + 1.0;
    double lines = floor(col1 / in->line) - floor(col0 / in->line) + 1.0;
    double across = lines * in->line < pitch ? lines * in->line : pitch;
    double all = (row1 - row0 + 1.0) * across;
    double most = (s.wanted > in->line ? s.wanted : in->line) * (across / (col1 - col0 + 1.0));
    double touched = all < most ? all : most;
    out->base[at] = (int64_t)(g->start[buffer] + cell_row * g->per_row[buffer] + cell_col);
    out->rows[at] = (int32_t)rows;
    out->columns[at] = (int32_t)columns;
    out->grid[at] = (int32_t)buffer;
    out->share[at] = touched / (rows * columns);
}

/* All accesses in task order; those of one task in the order of parts. */
__attribute__((visibility("default"))) int tl_cells_place(const CellsInput *in, const Grid *grid,
                                                          const CellsOutput *out) {
    int64_t *next = malloc((size_t)(in->tasks + 1) * sizeof(int64_t));
    if (!next) return 1;
    memcpy(next, out->ptr, (size_t)(in->tasks + 1) * sizeof(int64_t));
    for (int64_t k = 0; k < in->parts; k++) {
        const CellsPart *p = in->part + k;
        int64_t scan = 0;
        for (int64_t i = 0; i < p->count; i++) {
            int64_t at = next[p->tasks[i]]++;
            place(in, grid, in->buffer[p->regions[i]], span_of(in, p, i, &scan), out, at);
            out->use[at] = (int32_t)k;
        }
    }
    free(next);
    return 0;
}
