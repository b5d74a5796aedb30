#include "depend.h"

#include <stdlib.h>

enum {
    FEW_USES = 8,
    MANY_USES = 512, /* uses before completed ones are dropped */
    MANY_READERS = 32,
    MAX_CELLS = 16, /* cells of one box; larger boxes are listed separately */
    CROWDED = 24    /* boxes in a cell above which smaller cells are chosen */
};

static int push(tl_list *list, uint64_t item) {
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 4;
        uint64_t *items = realloc(list->items, capacity * sizeof *items);
        if (!items) return -1;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return 0;
}

/* Normalize a window to a use: axes of extent 1 dropped, falling strides, positive steps. Only the
 * fields that `same` compares are set. */
static void describe(const tl_buf *b, const tl_win *w, tl_use *u) {
    u->axes = 0;
    u->itemsize = w->itemsize;
    u->low = w->data - b->base;
    u->high = u->low + w->itemsize;
    for (int i = 0; i < w->rank; i++) {
        int64_t n = w->reach[i], step = w->stride[i] * w->itemsize;
        if (n == 0) {
            u->high = u->low;
            u->axes = 0;
            return;
        }
        if (n == 1 || step == 0) continue;
        if (step < 0) {
            step = -step;
            u->low -= (n - 1) * step;
        } else {
            u->high += (n - 1) * step;
        }
        int at = u->axes++;
        for (; at > 0 && u->step[at - 1] < step; at--) {
            u->step[at] = u->step[at - 1];
            u->length[at] = u->length[at - 1];
        }
        u->step[at] = step;
        u->length[at] = n;
    }
}

static int same(const tl_use *a, const tl_use *b) {
    if (a->low != b->low || a->high != b->high || a->axes != b->axes || a->itemsize != b->itemsize)
        return 0;
    for (int i = 0; i < a->axes; i++)
        if (a->length[i] != b->length[i] || a->step[i] != b->step[i]) return 0;
    return 1;
}

/* Express a use as a box in a grid whose axes have the strides `steps` (each a multiple of the
 * next, the last 1 byte): start and length on each axis; 0 if it is not a box. */
static int as_box(const tl_use *u, const int64_t *steps, int count, int64_t *start,
                  int64_t *length) {
    for (int i = 0; i < count; i++) length[i] = 1;
    length[count - 1] = u->itemsize;
    for (int i = 0; i < u->axes; i++) {
        int k = 0;
        while (k < count && steps[k] != u->step[i]) k++;
        if (k == count) return 0;
        if (length[k] != 1 && steps[k] != 1) return 0; /* two axes with the same stride */
        length[k] = u->length[i];
    }
    int64_t rest = u->low;
    for (int i = 0; i < count; i++) {
        start[i] = rest / steps[i];
        rest %= steps[i];
    }
    /* From the innermost axis outward: what is longer than its row must fill whole rows. */
    for (int i = count - 1; i > 0; i--) {
        int64_t row = steps[i - 1] / steps[i];
        if (start[i] + length[i] <= row) continue;
        if (start[i] || length[i] % row || length[i - 1] != 1) return 0;
        length[i - 1] = length[i] / row;
        length[i] = row;
    }
    return 1;
}

static int boxes_meet(const int64_t *a_start, const int64_t *a_length, const int64_t *b_start,
                      const int64_t *b_length, int axes) {
    for (int i = 0; i < axes; i++)
        if (a_start[i] >= b_start[i] + b_length[i] || b_start[i] >= a_start[i] + a_length[i])
            return 0;
    return 1;
}

/* Whether a use is a box of the buffer's grid, determined on first request: most temporaries have
 * one use, which is compared with no other. */
static int is_box(const tl_buf *b, tl_use *u) {
    if (u->box == TL_UNKNOWN)
        u->box = b->grid_axes > 0 && u->high > u->low &&
                 as_box(u, b->grid_step, b->grid_axes, u->box_start, u->box_length);
    return u->box;
}

/* Whether two uses share a byte; conservatively true. */
static int meet(const tl_buf *buffer, tl_use *a, tl_use *b) {
    if (a->high <= b->low || b->high <= a->low) return 0;
    if (is_box(buffer, a) && is_box(buffer, b))
        return boxes_meet(a->box_start, a->box_length, b->box_start, b->box_length,
                          buffer->grid_axes);
    int64_t steps[2 * TL_RANK + 1];
    int count = 0, i = 0, k = 0;
    while (i < a->axes || k < b->axes) {
        int64_t step =
            i < a->axes && (k == b->axes || a->step[i] >= b->step[k]) ? a->step[i++] : b->step[k++];
        if (!count || steps[count - 1] != step) steps[count++] = step;
    }
    if (!count || steps[count - 1] != 1) steps[count++] = 1;
    for (i = 1; i < count; i++)
        if (steps[i - 1] % steps[i]) return 1;
    int64_t a_start[2 * TL_RANK + 1], a_length[2 * TL_RANK + 1];
    int64_t b_start[2 * TL_RANK + 1], b_length[2 * TL_RANK + 1];
    if (!as_box(a, steps, count, a_start, a_length) || !as_box(b, steps, count, b_start, b_length))
        return 1;
    return boxes_meet(a_start, a_length, b_start, b_length, count);
}

/* --- cells ------------------------------------------------------------------------------------- */

void tl_set_grid(tl_buf *b, const tl_win *w) {
    tl_use whole;
    describe(b, w, &whole);
    b->grid_axes = 0;
    for (int i = 1; i < whole.axes; i++)
        if (whole.step[i - 1] % whole.step[i]) return;
    for (int i = 0; i < whole.axes; i++) b->grid_step[i] = whole.step[i];
    b->grid_axes = whole.axes;
    if (!whole.axes || whole.step[whole.axes - 1] != 1) b->grid_step[b->grid_axes++] = 1;
}

/* The cells that a box touches: first and last on each axis. Returns their number, or 0 if too
 * many. */
static int cells_of(const tl_buf *b, tl_use *u, int64_t *first, int64_t *last) {
    int64_t count = 1;
    if (!is_box(b, u)) return 0;
    for (int i = 0; i < b->grid_axes; i++) {
        first[i] = u->box_start[i] / b->cells.size[i];
        last[i] = (u->box_start[i] + u->box_length[i] - 1) / b->cells.size[i];
        count *= last[i] - first[i] + 1;
        if (count > MAX_CELLS) return 0;
    }
    return (int)count;
}

static uint64_t cell_hash(const int64_t *at, int axes) {
    uint64_t h = 0;
    for (int i = 0; i < axes; i++) h = (h ^ (uint64_t)at[i]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Advance to the next cell of the box `first`..`last`; 0 after the last one. */
static int next_cell(int64_t *at, const int64_t *first, const int64_t *last, int axes) {
    for (int i = axes - 1; i >= 0; i--) {
        if (at[i]++ < last[i]) return 1;
        at[i] = first[i];
    }
    return 0;
}

static int add_entry(tl_cells *c, uint64_t cell, uint32_t use) {
    if (c->entry_count == c->entry_capacity) {
        uint32_t capacity = c->entry_capacity ? 2 * c->entry_capacity : 64;
        tl_cell_entry *entries = realloc(c->entries, capacity * sizeof *entries);
        uint32_t *buckets = realloc(c->buckets, capacity * sizeof *buckets);
        if (entries) c->entries = entries;
        if (buckets) c->buckets = buckets;
        if (!entries || !buckets) return -1;
        c->entry_capacity = c->bucket_count = capacity;
        memset(c->buckets, 0, capacity * sizeof *c->buckets);
        for (uint32_t i = 0; i < c->entry_count; i++) {
            uint32_t *bucket = &c->buckets[c->entries[i].cell & (capacity - 1)];
            c->entries[i].next = *bucket;
            *bucket = i + 1;
        }
    }
    uint32_t *bucket = &c->buckets[cell & (c->bucket_count - 1)];
    c->entries[c->entry_count] = (tl_cell_entry){.cell = cell, .use = use, .next = *bucket};
    *bucket = ++c->entry_count;
    return 0;
}

static int add_to_cells(tl_buf *b, uint32_t use) {
    int64_t first[TL_GRID], last[TL_GRID], at[TL_GRID];
    if (!cells_of(b, &b->uses[use], first, last)) return push(&b->cells.large, use);
    memcpy(at, first, sizeof at);
    do {
        if (add_entry(&b->cells, cell_hash(at, b->grid_axes), use)) return -1;
    } while (next_cell(at, first, last, b->grid_axes));
    return 0;
}

/* The first box determines the size. */
static void set_cell_size(tl_buf *b, tl_use *u) {
    tl_cells *c = &b->cells;
    if (!c->size[0] && is_box(b, u)) memcpy(c->size, u->box_length, sizeof c->size);
}

/* Rebuild the index with cells of the size of `model`, or of the current size; few uses need no
 * index. */
static int rebuild_cells(tl_buf *b, const tl_use *model) {
    tl_cells *c = &b->cells;
    if (model) memcpy(c->size, model->box_length, sizeof c->size);
    if (c->entry_count) memset(c->buckets, 0, c->bucket_count * sizeof *c->buckets);
    c->crowded_at = b->use_count;
    c->entry_count = 0;
    c->large.count = 0;
    for (uint32_t i = 0; i < b->use_count && b->use_count > FEW_USES; i++) {
        set_cell_size(b, &b->uses[i]);
        if (add_to_cells(b, i)) return -1;
    }
    return 0;
}

/* Record that a new use overlaps another one, unless that is known. */
static int compare(tl_buf *b, uint32_t new, uint32_t other) {
    tl_use *u = &b->uses[other];
    if (u->seen == b->searches) return 0;
    u->seen = b->searches;
    if (!meet(b, u, &b->uses[new])) return 0;
    return push(&b->uses[new].overlapping, other) || push(&u->overlapping, new) ? -1 : 0;
}

/* Find the uses that overlap the new (last) one, and add it to its cells. A few uses need no cells:
 * most temporaries have no more. */
static int find_overlapping(tl_buf *b, uint32_t new) {
    int64_t first[TL_GRID], last[TL_GRID], at[TL_GRID];
    tl_cells *c = &b->cells;
    b->searches++;
    b->uses[new].seen = b->searches;
    if (new <= FEW_USES) {
        for (uint32_t i = 0; i < new; i++)
            if (compare(b, new, i)) return -1;
        return rebuild_cells(b, NULL);
    }
    set_cell_size(b, &b->uses[new]);
    int is_crowded = 0;
    if (cells_of(b, &b->uses[new], first, last)) {
        memcpy(at, first, sizeof at);
        do {
            uint64_t cell = cell_hash(at, b->grid_axes);
            int met = 0;
            for (uint32_t e = c->bucket_count ? c->buckets[cell & (c->bucket_count - 1)] : 0; e;
                 e = c->entries[e - 1].next) {
                if (c->entries[e - 1].cell != cell) continue;
                if (compare(b, new, c->entries[e - 1].use)) return -1;
                met++;
            }
            is_crowded |= met > CROWDED;
        } while (next_cell(at, first, last, b->grid_axes));
        for (uint32_t i = 0; i < c->large.count; i++)
            if (compare(b, new, (uint32_t)c->large.items[i])) return -1;
        is_crowded |= c->large.count > CROWDED;
    } else {
        for (uint32_t i = 0; i < new; i++)
            if (compare(b, new, i)) return -1;
        is_crowded = new > CROWDED;
    }
    if (is_crowded && is_box(b, &b->uses[new]) && new >= 2 * c->crowded_at)
        return rebuild_cells(b, &b->uses[new]);
    return add_to_cells(b, new);
}

/* --- finding a use ----------------------------------------------------------------------------- */

static uint32_t hash_of(const tl_use *u) {
    uint64_t h = (uint64_t)u->low * 0x9e3779b97f4a7c15u ^ (uint64_t)u->high;
    for (int i = 0; i < u->axes; i++)
        h = (h ^ (uint64_t)u->length[i]) * 0x9e3779b97f4a7c15u + (uint64_t)u->step[i];
    return (uint32_t)(h >> 32);
}

static void clear_use(tl_use *u) {
    u->writer = 0;
    u->readers.count = 0;
    u->overlapping.count = 0;
}

static int rebuild_table(tl_buf *b, uint32_t size) {
    if (size != b->table_size) {
        uint32_t *table = realloc(b->table, size * sizeof *table);
        if (!table) return -1;
        b->table = table;
        b->table_size = size;
    }
    memset(b->table, 0, size * sizeof *b->table);
    for (uint32_t i = 0; i < b->use_count; i++) {
        uint32_t at = hash_of(&b->uses[i]) & (size - 1);
        while (b->table[at]) at = (at + 1) & (size - 1);
        b->table[at] = i + 1;
    }
    return 0;
}

/* Position of an equal use, or -1. */
static int64_t find(const tl_buf *b, const tl_use *u) {
    if (b->use_count <= FEW_USES) {
        for (uint32_t i = 0; i < b->use_count; i++)
            if (same(&b->uses[i], u)) return i;
        return -1;
    }
    for (uint32_t at = hash_of(u) & (b->table_size - 1);; at = (at + 1) & (b->table_size - 1)) {
        if (!b->table[at]) return -1;
        if (same(&b->uses[b->table[at] - 1], u)) return b->table[at] - 1;
    }
}

static void prune(tl_list *tasks, tl_is_done is_done, void *rt) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tasks->count; i++)
        if (!is_done(rt, tasks->items[i])) tasks->items[kept++] = tasks->items[i];
    tasks->count = kept;
}

static void keep_mapped(tl_list *list, const uint32_t *moved_to) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (moved_to[list->items[i]]) list->items[kept++] = moved_to[list->items[i]] - 1;
    list->count = kept;
}

/* Drop uses without unfinished tasks. */
static int drop_finished(tl_buf *b, tl_is_done is_done, void *rt) {
    uint32_t kept = 0, *moved_to = calloc(b->use_count, sizeof *moved_to); /* position + 1 */
    if (!moved_to) return -1;
    for (uint32_t i = 0; i < b->use_count; i++) {
        tl_use u = b->uses[i];
        prune(&u.readers, is_done, rt);
        if (u.writer && is_done(rt, u.writer)) u.writer = 0;
        b->uses[i] = b->uses[kept]; /* keeps the memory of its lists */
        b->uses[kept] = u;
        if (u.writer || u.readers.count) moved_to[i] = ++kept;
    }
    for (uint32_t i = kept; i < b->use_count; i++) clear_use(&b->uses[i]);
    for (uint32_t i = 0; i < kept; i++) keep_mapped(&b->uses[i].overlapping, moved_to);
    free(moved_to);
    b->use_count = kept;
    b->drop_at = kept > MANY_USES / 2 ? 2 * kept : MANY_USES;
    return rebuild_cells(b, NULL) || rebuild_table(b, b->table_size ? b->table_size : 32) ? -1 : 0;
}

static int grow_uses(tl_buf *b) {
    uint32_t capacity = b->use_capacity ? 2 * b->use_capacity : 2;
    tl_use *uses = realloc(b->uses, capacity * sizeof *uses);
    if (!uses) return -1;
    memset(uses + b->use_capacity, 0, (capacity - b->use_capacity) * sizeof *uses);
    b->uses = uses;
    b->use_capacity = capacity;
    return 0;
}

int64_t tl_use_of(tl_buf *b, const tl_win *w, tl_is_done is_done, void *rt) {
    tl_use u;
    describe(b, w, &u);
    int64_t found = find(b, &u);
    if (found >= 0) return found;
    if (b->use_count >= MANY_USES && b->use_count >= b->drop_at && drop_finished(b, is_done, rt))
        return -1;
    if (b->use_count == b->use_capacity && grow_uses(b)) return -1;
    uint32_t at = b->use_count;
    tl_use *place = &b->uses[at];
    memcpy(place, &u, offsetof(tl_use, box));
    clear_use(place);
    place->box = TL_UNKNOWN;
    b->use_count++;
    if (find_overlapping(b, at)) {
        b->use_count--;
        return -1;
    }
    if (b->use_count > FEW_USES) {
        uint32_t size = b->table_size ? b->table_size : 32;
        int fits = 2 * b->use_count <= size && b->use_count > FEW_USES + 1;
        if (!fits) {
            while (2 * b->use_count > size) size *= 2;
            if (rebuild_table(b, size)) return -1;
        } else {
            uint32_t slot = hash_of(place) & (size - 1);
            while (b->table[slot]) slot = (slot + 1) & (size - 1);
            b->table[slot] = at + 1;
        }
    }
    return at;
}

static void wait_for(const tl_use *u, int writes, tl_found found, void *rt) {
    if (u->writer) found(rt, u->writer);
    if (writes)
        for (uint32_t i = 0; i < u->readers.count; i++) found(rt, u->readers.items[i]);
}

void tl_depend(tl_buf *b, uint32_t use, int writes, tl_found found, void *rt) {
    const tl_use *own = &b->uses[use];
    wait_for(own, writes, found, rt);
    for (uint32_t i = 0; i < own->overlapping.count; i++)
        wait_for(&b->uses[own->overlapping.items[i]], writes, found, rt);
}

int tl_note(tl_buf *b, uint32_t use, int writes, uint64_t number, tl_is_done is_done, void *rt) {
    tl_use *u = &b->uses[use];
    if (writes) {
        u->writer = number;
        u->readers.count = 0; /* they precede the writer, which later tasks wait for */
        return 0;
    }
    uint32_t n = u->readers.count;
    if (n >= MANY_READERS && (n & (n - 1)) == 0) prune(&u->readers, is_done, rt);
    return push(&u->readers, number);
}

void tl_forget_uses(tl_buf *b) {
    for (uint32_t i = 0; i < b->use_count; i++) clear_use(&b->uses[i]);
    b->use_count = b->drop_at = 0;
    memset(b->cells.size, 0, sizeof b->cells.size); /* the next tensor here may have other axes */
    rebuild_cells(b, NULL);                         /* without uses: takes no memory */
}

void tl_free_uses(tl_buf *b) {
    for (uint32_t i = 0; i < b->use_capacity; i++) {
        free(b->uses[i].readers.items);
        free(b->uses[i].overlapping.items);
    }
    free(b->cells.buckets);
    free(b->cells.entries);
    free(b->cells.large.items);
    free(b->uses);
    free(b->table);
}
