/* Unordered tasks that touch the same bytes, at least one of them writing. `conflicts.py` is the
 * definition; this finds the same. */

#include <stdlib.h>
#include <string.h>

#include "rectangles.h"

enum { READ, WRITE, ATOMIC };
enum { UNORDERED, ACROSS };
/* Choice of a node's parent among its predecessors: the last; the first; or one of the same call,
 * since tasks of one call often pass a tensor on. */
enum { LATEST, EARLIEST, ALIKE, FORESTS };

/* A spanning forest of the graph: the descendants of a node have the numbers `first` to `last`. */
typedef struct {
    int64_t *first, *last;
} Forest;

typedef struct {
    const ConflictInput *in;
    Forest forests[FORESTS];
    Index index;             /* finds touched regions */
    List *writers, *readers; /* accesses to each region that later ones may conflict with */
    int64_t *task_of;        /* per access */
    int64_t *level;          /* per node: longest path to it */
    int64_t *latest;         /* per join: the last task before it */
    int64_t *mark, stamp;    /* nodes visited in this search: each has a path to `goal` */
    int64_t goal;
    int64_t work;  /* pairs examined and edges followed so far */
    int64_t joins; /* nodes with a known level */
    List stack, found;
    int64_t *pairs, *times, room; /* number of findings per kind of pair */
    int ok;
} Search;

static int64_t time_of(const Search *s, int64_t node) {
    return node < s->in->tasks ? node : s->latest[node - s->in->tasks];
}

static void find_level(Search *s, int64_t node) {
    const ConflictInput *in = s->in;
    int64_t level = 0, latest = -1;
    for (int64_t i = in->ptr[node]; i < in->ptr[node + 1]; i++) {
        int64_t pred = in->pred[i];
        /* Joins are numbered in creation order, so all before this one are known. */
        while (pred >= in->tasks && s->joins <= pred - in->tasks) {
            int64_t next = in->tasks + s->joins++;
            find_level(s, next);
        }
        if (s->level[pred] >= level) level = s->level[pred] + 1;
        if (time_of(s, pred) > latest) latest = time_of(s, pred);
    }
    s->level[node] = level;
    if (node >= in->tasks) s->latest[node - in->tasks] = latest;
}

/* Number the nodes of the forest given by `parent` (-1: a root) such that the subtree of a node is
 * an interval. `child` and `sibling` are work arrays of the same size. */
static void number(Forest *forest, int64_t nodes, const int64_t *parent, int64_t *child,
                   int64_t *sibling) {
    int64_t next = 0;
    for (int64_t n = 0; n < nodes; n++) child[n] = -1;
    for (int64_t n = nodes - 1; n >= 0; n--) {
        sibling[n] = parent[n] < 0 ? -1 : child[parent[n]];
        if (parent[n] >= 0) child[parent[n]] = n;
    }
    for (int64_t root = 0; root < nodes; root++) {
        if (parent[root] >= 0) continue;
        for (int64_t n = root; n >= 0;) {
            forest->first[n] = next++;
            if (child[n] >= 0) {
                n = child[n];
                continue;
            }
            while (n >= 0) {
                forest->last[n] = next;
                if (n == root) {
                    n = -1;
                } else if (sibling[n] >= 0) {
                    n = sibling[n];
                    break;
                } else {
                    n = parent[n];
                }
            }
        }
    }
}

/* The call that submitted a task; of a join, that of the last task before it. */
static int64_t call_of(const Search *s, int64_t node) {
    const ConflictInput *in = s->in;
    int64_t task = time_of(s, node);
    if (task < 0 || in->acc_ptr[task] == in->acc_ptr[task + 1]) return -1;
    return in->key[in->acc_ptr[task]];
}

static int64_t parent_of(const Search *s, int64_t node, int forest) {
    const ConflictInput *in = s->in;
    int64_t best = -1, call = call_of(s, node);
    int best_alike = 0;
    for (int64_t i = in->ptr[node]; i < in->ptr[node + 1]; i++) {
        int64_t pred = in->pred[i], time = time_of(s, pred);
        int alike = forest == ALIKE && call_of(s, pred) == call;
        int later = best < 0 || time > time_of(s, best);
        int better = forest == EARLIEST ? best < 0 || time < time_of(s, best) : later;
        if (alike != best_alike) better = alike;
        if (!better) continue;
        best = pred;
        best_alike = alike;
    }
    return best;
}

/* All forests; requires the level of every node. */
static int plant(Search *s) {
    int64_t nodes = s->in->nodes;
    size_t bytes = ((size_t)nodes + 1) * sizeof(int64_t);
    int64_t *parent = malloc(bytes), *child = malloc(bytes), *sibling = malloc(bytes);
    int ok = parent && child && sibling;
    for (int f = 0; f < FORESTS && ok; f++) {
        Forest *forest = s->forests + f;
        forest->first = malloc(bytes);
        forest->last = malloc(bytes);
        ok = forest->first && forest->last;
        if (!ok) break;
        for (int64_t n = 0; n < nodes; n++) parent[n] = parent_of(s, n, f);
        number(forest, nodes, parent, child, sibling);
    }
    free(parent);
    free(child);
    free(sibling);
    return ok;
}

static int is_known(const Search *s, int64_t a, int64_t b) {
    for (int f = 0; f < FORESTS; f++) {
        const Forest *forest = s->forests + f;
        if (forest->first[a] <= forest->first[b] && forest->first[b] < forest->last[a]) return 1;
    }
    return 0;
}

/* Whether there is a path from task `a` to task `b`. Nearly all pairs of a correct program are
 * ordered, and the forests show that immediately; the search handles the rest. */
static int ordered(Search *s, int64_t a, int64_t b) {
    const ConflictInput *in = s->in;
    s->work++;
    if (s->level[a] >= s->level[b]) return 0;
    if (is_known(s, a, b)) return 1;
    if (s->goal == b && s->mark[a] == s->stamp) return 1;
    s->work += in->ptr[b + 1] - in->ptr[b];
    for (int64_t i = in->ptr[b]; i < in->ptr[b + 1]; i++)
        if (in->pred[i] == a || is_known(s, a, in->pred[i])) return 1;
    s->stamp++;
    s->goal = b;
    s->stack.count = 0;
    s->ok &= append(&s->stack, b);
    while (s->stack.count && s->ok) {
        int64_t node = s->stack.item[--s->stack.count];
        s->work += in->ptr[node + 1] - in->ptr[node];
        for (int64_t i = in->ptr[node]; i < in->ptr[node + 1]; i++) {
            int64_t pred = in->pred[i];
            if (s->mark[pred] == s->stamp) continue;
            s->mark[pred] = s->stamp;
            if (pred == a || is_known(s, a, pred)) return 1;
            if (s->level[pred] > s->level[a] && time_of(s, pred) >= a)
                s->ok &= append(&s->stack, pred);
        }
    }
    return 0;
}

/* Whether two tasks are in different iterations of a loop declared independent. */
static int across(const ConflictInput *in, int64_t a, int64_t b) {
    int64_t i = in->loop_ptr[a], j = in->loop_ptr[b];
    for (; i < in->loop_ptr[a + 1] && j < in->loop_ptr[b + 1]; i++, j++) {
        if (in->loop[i] != in->loop[j]) return 0;
        if (in->iteration[i] != in->iteration[j]) return (int)in->parallel[in->loop[i]];
    }
    return 0;
}

/* Counter of findings of this kind. */
static int64_t *count_of(Search *s, int64_t first, int64_t second, int64_t what) {
    uint64_t pair = ((uint64_t)first << 33) ^ ((uint64_t)second << 2) ^ (uint64_t)(what + 1);
    uint64_t hash = pair * 0x9E3779B97F4A7C15u;
    int64_t at = (int64_t)(hash >> 20) & (s->room - 1);
    for (int64_t tried = 0; tried < 64; tried++, at = (at + 1) & (s->room - 1)) {
        if (s->pairs[at] == (int64_t)pair) return s->times + at;
        if (!s->pairs[at]) {
            s->pairs[at] = (int64_t)pair;
            return s->times + at;
        }
    }
    return NULL;
}

static void report(Search *s, int64_t y, int64_t x, int64_t what) {
    int64_t *times = count_of(s, s->in->key[y], s->in->key[x], what);
    if (times && (*times)++ >= s->in->most) return;
    s->ok &= append(&s->found, y) && append(&s->found, x) && append(&s->found, what);
}

/* For an earlier and a later access to the same bytes: whether the later one subsumes both. */
static int settled(Search *s, int64_t y, int64_t x) {
    const ConflictInput *in = s->in;
    int64_t a = s->task_of[y], b = s->task_of[x];
    if (a == b) {
        if (in->block[y] != in->block[x]) report(s, y, x, UNORDERED);
        return 0;
    }
    int64_t *times = count_of(s, in->key[y], in->key[x], UNORDERED);
    if (times && *times >= in->most) return 1; /* sufficiently known */
    if (!ordered(s, a, b)) {
        report(s, y, x, UNORDERED);
        return 0;
    }
    if (across(in, a, b)) report(s, y, x, ACROSS);
    return 1;
}

static void meet_all(Search *s, List *earlier, int64_t x, int drop) {
    const ConflictInput *in = s->in;
    int64_t kept = 0;
    for (int64_t i = 0; i < earlier->count; i++) {
        int64_t y = earlier->item[i];
        int same = s->task_of[y] == s->task_of[x] && in->block[y] == in->block[x];
        int harmless = in->kind[x] == ATOMIC && in->kind[y] == ATOMIC;
        int gone = !same && !harmless && settled(s, y, x) && drop;
        if (!gone) earlier->item[kept++] = y;
    }
    earlier->count = kept;
}

static void sweep(Search *s, int64_t x, List *found) {
    const ConflictInput *in = s->in;
    int64_t region = in->region[x];
    overlapping(&s->index, region, found);
    for (int64_t i = 0; i < found->count; i++) {
        int64_t other = found->item[i];
        /* A write subsumes everything ordered before it that it covers. */
        int drop = in->kind[x] == WRITE && other == region;
        meet_all(s, s->writers + other, x, drop);
        if (in->kind[x] != READ) meet_all(s, s->readers + other, x, drop);
    }
    place(&s->index, region);
    s->ok &= s->index.ok && append((in->kind[x] == READ ? s->readers : s->writers) + region, x);
}

__attribute__((visibility("default"))) int tl_conflicts(const ConflictInput *in,
                                                        ConflictOutput *out) {
    Search search = {0}, *s = &search;
    Rectangles regions = {in->regions, in->buffers, in->buffer, in->low,
                          in->high,    in->row,     in->pitch,  in->size};
    List found = {0};
    size_t accesses = (size_t)in->acc_ptr[in->tasks], nodes = (size_t)in->nodes;
    s->in = in;
    s->room = 1 << 18;
    s->index = new_index(&regions);
    s->writers = calloc((size_t)in->regions + 1, sizeof(List));
    s->readers = calloc((size_t)in->regions + 1, sizeof(List));
    s->task_of = calloc(accesses + 1, sizeof(int64_t));
    s->level = calloc(nodes + 1, sizeof(int64_t));
    s->latest = calloc(nodes - (size_t)in->tasks + 1, sizeof(int64_t));
    s->mark = calloc(nodes + 1, sizeof(int64_t));
    s->pairs = calloc((size_t)s->room, sizeof(int64_t));
    s->times = calloc((size_t)s->room, sizeof(int64_t));
    s->ok = s->index.ok && s->writers && s->readers && s->task_of && s->level && s->latest &&
            s->mark && s->pairs && s->times;
    s->goal = -1;
    for (int64_t task = 0; task < in->tasks && s->ok; task++) find_level(s, task);
    for (; s->ok && s->joins < in->nodes - in->tasks; s->joins++)
        find_level(s, in->tasks + s->joins);
    s->ok = s->ok && plant(s);
    for (int64_t task = 0; task < in->tasks && s->ok; task++) {
        if (in->work && s->work > in->work) break;
        out->swept = task + 1;
        for (int64_t x = in->acc_ptr[task]; x < in->acc_ptr[task + 1]; x++) s->task_of[x] = task;
        for (int64_t x = in->acc_ptr[task]; x < in->acc_ptr[task + 1]; x++) sweep(s, x, &found);
    }
    out->count = s->found.count / 3;
    out->found = s->found.item;
    free_lists(s->writers, in->regions);
    free_lists(s->readers, in->regions);
    free_index(&s->index);
    free(s->task_of);
    free(s->level);
    free(s->latest);
    free(s->mark);
    free(s->pairs);
    free(s->times);
    for (int f = 0; f < FORESTS; f++) {
        free(s->forests[f].first);
        free(s->forests[f].last);
    }
    free(s->stack.item);
    free(found.item);
    return s->ok ? 0 : 1;
}

/* For every edge: 1 if the two tasks touch the same bytes, one writing; 0 if not; -1 for joins. */
__attribute__((visibility("default"))) void tl_edges(const ConflictInput *in, int64_t *needed) {
    Rectangles regions = {in->regions, in->buffers, in->buffer, in->low,
                          in->high,    in->row,     in->pitch,  in->size};
    for (int64_t b = 0; b < in->nodes; b++) {
        for (int64_t e = in->ptr[b]; e < in->ptr[b + 1]; e++) {
            int64_t a = in->pred[e];
            needed[e] = a >= in->tasks || b >= in->tasks ? -1 : 0;
            if (needed[e]) continue;
            for (int64_t y = in->acc_ptr[a]; y < in->acc_ptr[a + 1] && !needed[e]; y++)
                for (int64_t x = in->acc_ptr[b]; x < in->acc_ptr[b + 1] && !needed[e]; x++)
                    needed[e] = (in->kind[x] != READ || in->kind[y] != READ) &&
                                in->buffer[in->region[x]] == in->buffer[in->region[y]] &&
                                overlap(&regions, in->region[y], in->region[x]);
        }
    }
}

__attribute__((visibility("default"))) void tl_conflicts_free(ConflictOutput *out) {
    free(out->found);
}
