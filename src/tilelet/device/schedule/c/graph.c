/* The runtime's dependency rules. `graph.py` is the definition; this computes the same edges. */

#include <stdlib.h>
#include <string.h>

#include "rectangles.h"

#define LOOKS_UP 1
#define REGISTERS 2
#define CROWD 32

typedef struct {
    const GraphInput *in;
    Index index;   /* finds written regions */
    List *writers; /* per region */
    int64_t *mark; /* last node that has this predecessor */
    int64_t mark_capacity;
    List pred, ptr_tasks, join_ptr, join_pred;
    int64_t joins;
    int ok;
} Graph;

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

/* Many writers without a common successor: a join represents them from now on. */
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
        overlapping(&g->index, in->arg_region[a], found);
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
        place(&g->index, region);
        /* A task that waits for the previous writers represents them. */
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
    Rectangles regions = {in->regions, in->buffers, in->buffer, in->low,
                          in->high,    in->row,     in->pitch,  in->size};
    List found = {0};
    g->in = in;
    g->index = new_index(&regions);
    g->writers = calloc((size_t)in->regions + 1, sizeof(List));
    g->ok = g->index.ok && g->writers;
    if (g->ok) g->ok = append(&g->ptr_tasks, 0);
    for (int64_t task = 0; task < in->tasks && g->ok; task++) {
        task_edges(g, task, &found);
        g->ok &= g->index.ok && append(&g->ptr_tasks, g->pred.count);
    }
    int ok = g->ok && finish(g, out);
    free_lists(g->writers, in->regions);
    free_index(&g->index);
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
