/* The runtime's dependency rules. `graph.py` is the definition; this gives the same edges. */

#include <stdlib.h>
#include <string.h>

#include "structures.h"

#define LOOKS_UP 1
#define REGISTERS 2
#define CROWD 32
#define MOST_BUCKETS 1024
#define WIDE 16

typedef struct {
    int64_t *item;
    int64_t count, capacity;
} List;

static int append(List *l, int64_t value) {
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

/* Bytes from row to row of a region; 0 if it has one row. */
static int64_t pitch_of(const GraphInput *in, int64_t region) {
    int64_t pitch = in->pitch[region];
    if (in->high[region] - in->low[region] == in->row[region]) return 0;
    return pitch < 0 ? -pitch : pitch;
}

/* The region as a box in a grid of `count` axes: false if it is none. */
static int intervals(const GraphInput *in, int64_t region, const int64_t *step, int count,
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
static int overlap(const GraphInput *in, int64_t a, int64_t b) {
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

typedef struct {
    const GraphInput *in;
    List *writers;         /* of each region */
    List *buckets;         /* written regions of each buffer by address; the last list: wide ones */
    int64_t *first_bucket; /* of each buffer: the more regions it has, the more buckets */
    unsigned char *written;
    int64_t *seen, stamp; /* regions met in this lookup */
    int64_t *mark;        /* last node that has this predecessor */
    int64_t mark_capacity;
    List pred, ptr_tasks, join_ptr, join_pred;
    int64_t joins;
    int ok;
} Graph;

static int64_t bucket_count(const Graph *g, int64_t region) {
    int64_t buffer = g->in->buffer[region];
    return g->first_bucket[buffer + 1] - g->first_bucket[buffer] - 1;
}

static int64_t bucket_of(const Graph *g, int64_t region, int64_t byte) {
    int64_t size = g->in->size[g->in->buffer[region]], count = bucket_count(g, region);
    int64_t b = size > 0 ? (int64_t)((double)byte / (double)size * (double)count) : 0;
    return b < 0 ? 0 : b >= count ? count - 1 : b;
}

static void gather_from(Graph *g, const List *found, int64_t region, List *into) {
    for (int64_t i = 0; i < found->count; i++) {
        int64_t other = found->item[i];
        if (g->seen[other] == g->stamp || !overlap(g->in, region, other)) continue;
        g->seen[other] = g->stamp;
        g->ok &= append(into, other);
    }
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The written regions that `region` overlaps, in ascending order. */
static void overlapping(Graph *g, int64_t region, List *into) {
    const GraphInput *in = g->in;
    List *own = g->buckets + g->first_bucket[in->buffer[region]];
    g->stamp++;
    into->count = 0;
    int64_t first = bucket_of(g, region, in->low[region]);
    int64_t last = bucket_of(g, region, in->high[region] - 1);
    for (int64_t b = first; b <= last; b++) gather_from(g, own + b, region, into);
    gather_from(g, own + bucket_count(g, region), region, into);
    qsort(into->item, (size_t)into->count, sizeof(int64_t), ascending);
}

static void place(Graph *g, int64_t region) {
    List *own = g->buckets + g->first_bucket[g->in->buffer[region]];
    int64_t first = bucket_of(g, region, g->in->low[region]);
    int64_t last = bucket_of(g, region, g->in->high[region] - 1);
    if (last - first >= WIDE) {
        g->ok &= append(own + bucket_count(g, region), region);
    } else {
        for (int64_t b = first; b <= last; b++) g->ok &= append(own + b, region);
    }
    g->written[region] = 1;
}

static void add_pred(Graph *g, int64_t task, int64_t node) {
    if (node == task) return;
    if (node >= g->mark_capacity) {
        int64_t capacity = 2 * node + 16;
        int64_t *mark = realloc(g->mark, (size_t)capacity * sizeof(int64_t));
        if (!mark) {
            g->ok = 0;
            return;
        }
        for (int64_t i = g->mark_capacity; i < capacity; i++) mark[i] = -1;
        g->mark = mark;
        g->mark_capacity = capacity;
    }
    if (g->mark[node] == task) return;
    g->mark[node] = task;
    g->ok &= append(&g->pred, node);
}

/* Many writers that nobody has waited for together: one join stands for them from now on. */
static void crowd(Graph *g, List *writers) {
    int64_t node = g->in->tasks + g->joins++;
    for (int64_t i = 0; i < writers->count; i++) g->ok &= append(&g->join_pred, writers->item[i]);
    g->ok &= append(&g->join_ptr, g->join_pred.count);
    writers->item[0] = node;
    writers->count = 1;
}

static void task_edges(Graph *g, int64_t task, List *found) {
    const GraphInput *in = g->in;
    for (int64_t d = in->dep_ptr[task]; d < in->dep_ptr[task + 1]; d++)
        add_pred(g, task, in->deps[d]);
    for (int64_t a = in->arg_ptr[task]; a < in->arg_ptr[task + 1]; a++) {
        if (!(in->arg_flags[a] & LOOKS_UP)) continue;
        overlapping(g, in->arg_region[a], found);
        for (int64_t i = 0; i < found->count; i++) {
            List *writers = g->writers + found->item[i];
            if (writers->count > CROWD) crowd(g, writers);
            for (int64_t j = 0; j < writers->count; j++) add_pred(g, task, writers->item[j]);
        }
    }
    for (int64_t a = in->arg_ptr[task]; a < in->arg_ptr[task + 1]; a++) {
        if (!(in->arg_flags[a] & REGISTERS)) continue;
        int64_t region = in->arg_region[a];
        List *writers = g->writers + region;
        if (!g->written[region]) place(g, region);
        /* A task that waits for the writers before it stands for them. */
        if (in->arg_flags[a] & LOOKS_UP) writers->count = 0;
        if (writers->count == 0 || writers->item[writers->count - 1] != task)
            g->ok &= append(writers, task);
    }
}

static int finish(Graph *g, GraphOutput *out) {
    int64_t nodes = g->in->tasks + g->joins;
    out->nodes = nodes;
    out->edges = g->pred.count + g->join_pred.count;
    out->ptr = malloc((size_t)(nodes + 1) * sizeof(int64_t));
    out->pred = malloc((size_t)(out->edges + 1) * sizeof(int64_t));
    if (!out->ptr || !out->pred) return 0;
    memcpy(out->ptr, g->ptr_tasks.item, (size_t)(g->in->tasks + 1) * sizeof(int64_t));
    for (int64_t j = 0; j < g->joins; j++)
        out->ptr[g->in->tasks + 1 + j] = g->pred.count + g->join_ptr.item[j];
    if (g->pred.count) memcpy(out->pred, g->pred.item, (size_t)g->pred.count * sizeof(int64_t));
    if (g->join_pred.count)
        memcpy(out->pred + g->pred.count, g->join_pred.item,
               (size_t)g->join_pred.count * sizeof(int64_t));
    return 1;
}

__attribute__((visibility("default"))) int tl_graph(const GraphInput *in, GraphOutput *out) {
    Graph graph = {0}, *g = &graph;
    List found = {0};
    int64_t lists = 0;
    g->in = in;
    g->first_bucket = calloc((size_t)in->buffers + 2, sizeof(int64_t));
    if (g->first_bucket) {
        for (int64_t i = 0; i < in->regions; i++) g->first_bucket[in->buffer[i] + 1]++;
        for (int64_t i = 0; i < in->buffers; i++) {
            int64_t count = g->first_bucket[i + 1] / 4;
            count = count < 1 ? 1 : count > MOST_BUCKETS ? MOST_BUCKETS : count;
            g->first_bucket[i + 1] = g->first_bucket[i] + count + 1;
        }
        lists = g->first_bucket[in->buffers];
    }
    g->writers = calloc((size_t)in->regions + 1, sizeof(List));
    g->buckets = calloc((size_t)lists + 1, sizeof(List));
    g->written = calloc((size_t)in->regions + 1, 1);
    g->seen = calloc((size_t)in->regions + 1, sizeof(int64_t));
    g->ok = g->first_bucket && g->writers && g->buckets && g->written && g->seen;
    if (g->ok) g->ok = append(&g->ptr_tasks, 0);
    for (int64_t task = 0; task < in->tasks && g->ok; task++) {
        task_edges(g, task, &found);
        g->ok &= append(&g->ptr_tasks, g->pred.count);
    }
    int ok = g->ok && finish(g, out);
    for (int64_t i = 0; g->writers && i < in->regions; i++) free(g->writers[i].item);
    for (int64_t i = 0; g->buckets && i < lists; i++) free(g->buckets[i].item);
    free(g->writers);
    free(g->buckets);
    free(g->first_bucket);
    free(g->written);
    free(g->seen);
    free(g->mark);
    free(g->pred.item);
    free(g->ptr_tasks.item);
    free(g->join_ptr.item);
    free(g->join_pred.item);
    free(found.item);
    return ok ? 0 : 1;
}

__attribute__((visibility("default"))) void tl_graph_free(GraphOutput *out) {
    free(out->ptr);
    free(out->pred);
}
