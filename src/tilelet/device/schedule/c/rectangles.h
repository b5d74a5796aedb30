/* Windows as rectangles: overlap test, and an index by address. */

#ifndef TL_RECTANGLES_H
#define TL_RECTANGLES_H

#include <stdlib.h>

#include "structures.h"

#define MAX_BUCKETS 1024
#define WIDE 16

/* Regions of buffers: see `region_arrays.Regions.arrays`. */
typedef struct {
    int64_t regions, buffers;
    const int64_t *buffer, *low, *high, *row, *pitch;
    const int64_t *size; /* per buffer */
} Rectangles;

typedef struct {
    int64_t *item;
    int64_t count, capacity;
} List;

static inline int append(List *l, int64_t value) {
    if (l->count == l->capacity) {
        int64_t capacity = l->capacity ? 2 * l->capacity : 4;
        int64_t *item = realloc(l->item, (size_t)capacity * sizeof(int64_t));
        if (!item) return 0;
        l->item = item;
        l->capacity = capacity;
    }
    l->item[l->count++] = value;
    return 1;
}

/* Row pitch of a region in bytes; 0 if it has one row. */
static inline int64_t pitch_of(const Rectangles *in, int64_t region) {
    int64_t pitch = in->pitch[region];
    if (in->high[region] - in->low[region] == in->row[region]) return 0;
    return pitch < 0 ? -pitch : pitch;
}

/* The region as a box in a grid of `count` axes; false if it is not a box. */
static inline int intervals(const Rectangles *in, int64_t region, const int64_t *step, int count,
                            int64_t *start, int64_t *length) {
    int64_t rest = in->low[region], pitch = pitch_of(in, region);
    for (int i = 0; i < count; i++) {
        start[i] = rest / step[i];
        rest %= step[i];
        length[i] = 1;
        if (step[i] == pitch)
            length[i] = (in->high[region] - in->low[region] - in->row[region]) / pitch + 1;
    }
    length[count - 1] = in->row[region];
    for (int i = count - 1; i > 0; i--) {
        int64_t row = step[i - 1] / step[i];
        if (start[i] + length[i] <= row) continue;
        if (start[i] || length[i] % row || length[i - 1] != 1) return 0;
        length[i - 1] = length[i] / row;
        length[i] = row;
    }
    return 1;
}

/* `meet` of analysis/overlap.py, for rectangles. */
static inline int overlap(const Rectangles *in, int64_t a, int64_t b) {
    if (a == b) return 1;
    if (in->high[a] <= in->low[b] || in->high[b] <= in->low[a]) return 0;
    int64_t p = pitch_of(in, a), q = pitch_of(in, b), step[3];
    int count = 0;
    if (p < q) {
        int64_t larger = q;
        q = p;
        p = larger;
    }
    if (p > 1) step[count++] = p;
    if (q > 1 && q != p) step[count++] = q;
    step[count++] = 1;
    if (count == 3 && p % q) return 1;
    int64_t start_a[3], length_a[3], start_b[3], length_b[3];
    if (!intervals(in, a, step, count, start_a, length_a)) return 1;
    if (!intervals(in, b, step, count, start_b, length_b)) return 1;
    for (int i = 0; i < count; i++) {
        if (start_a[i] >= start_b[i] + length_b[i] || start_b[i] >= start_a[i] + length_a[i])
            return 0;
    }
    return 1;
}

/* Regions of each buffer by address: the more regions, the more buckets. */
typedef struct {
    const Rectangles *in;
    List *buckets; /* per buffer; its last list holds the wide ones */
    int64_t *first_bucket, lists;
    unsigned char *placed;
    int64_t *seen, stamp; /* regions found in this lookup */
    int ok;
} Index;

static inline int64_t bucket_count(const Index *g, int64_t region) {
    int64_t buffer = g->in->buffer[region];
    return g->first_bucket[buffer + 1] - g->first_bucket[buffer] - 1;
}

static inline int64_t bucket_of(const Index *g, int64_t region, int64_t byte) {
    int64_t size = g->in->size[g->in->buffer[region]], count = bucket_count(g, region);
    int64_t b = size > 0 ? (int64_t)((double)byte / (double)size * (double)count) : 0;
    return b < 0 ? 0 : b >= count ? count - 1 : b;
}

static inline void gather_from(Index *g, const List *found, int64_t region, List *into) {
    for (int64_t i = 0; i < found->count; i++) {
        int64_t other = found->item[i];
        if (g->seen[other] == g->stamp || !overlap(g->in, region, other)) continue;
        g->seen[other] = g->stamp;
        g->ok &= append(into, other);
    }
}

static inline int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The indexed regions that `region` overlaps, in ascending order. */
static inline void overlapping(Index *g, int64_t region, List *into) {
    const Rectangles *in = g->in;
    List *own = g->buckets + g->first_bucket[in->buffer[region]];
    g->stamp++;
    into->count = 0;
    int64_t first = bucket_of(g, region, in->low[region]);
    int64_t last = bucket_of(g, region, in->high[region] - 1);
    for (int64_t b = first; b <= last; b++) gather_from(g, own + b, region, into);
    gather_from(g, own + bucket_count(g, region), region, into);
    qsort(into->item, (size_t)into->count, sizeof(int64_t), ascending);
}

static inline void place(Index *g, int64_t region) {
    if (g->placed[region]) return;
    List *own = g->buckets + g->first_bucket[g->in->buffer[region]];
    int64_t first = bucket_of(g, region, g->in->low[region]);
    int64_t last = bucket_of(g, region, g->in->high[region] - 1);
    if (last - first >= WIDE) {
        g->ok &= append(own + bucket_count(g, region), region);
    } else {
        for (int64_t b = first; b <= last; b++) g->ok &= append(own + b, region);
    }
    g->placed[region] = 1;
}

static inline Index new_index(const Rectangles *in) {
    Index index = {0}, *g = &index;
    g->in = in;
    g->first_bucket = calloc((size_t)in->buffers + 2, sizeof(int64_t));
    if (g->first_bucket) {
        for (int64_t i = 0; i < in->regions; i++) g->first_bucket[in->buffer[i] + 1]++;
        for (int64_t i = 0; i < in->buffers; i++) {
            int64_t count = g->first_bucket[i + 1] / 4;
            count = count < 1 ? 1 : count > MAX_BUCKETS ? MAX_BUCKETS : count;
            g->first_bucket[i + 1] = g->first_bucket[i] + count + 1;
        }
        g->lists = g->first_bucket[in->buffers];
    }
    g->buckets = calloc((size_t)g->lists + 1, sizeof(List));
    g->placed = calloc((size_t)in->regions + 1, 1);
    g->seen = calloc((size_t)in->regions + 1, sizeof(int64_t));
    g->ok = g->first_bucket && g->buckets && g->placed && g->seen;
    return index;
}

static inline void free_lists(List *lists, int64_t count) {
    for (int64_t i = 0; lists && i < count; i++) free(lists[i].item);
    free(lists);
}

static inline void free_index(Index *g) {
    free_lists(g->buckets, g->lists);
    free(g->first_bucket);
    free(g->placed);
    free(g->seen);
}

#endif
