#include "depend.h"

#include <stdlib.h>

enum { FEW_USES = 8, MANY_USES = 512, MANY_READERS = 32 };

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

/* A window as a use: axes of one element left out, falling strides, all steps positive. */
static void describe(const tl_buf *b, const tl_win *w, tl_use *u) {
    memset(u, 0, sizeof *u);
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

/* A use as a box in a grid whose axes are `steps` (each a multiple of the next, the last 1 byte):
 * start and length on each; 0 if it is no box there. */
static int as_box(const tl_use *u, const int64_t *steps, int count, int64_t *start, int64_t *length) {
    for (int i = 0; i < count; i++) length[i] = 1;
    length[count - 1] = u->itemsize;
    for (int i = 0; i < u->axes; i++)
        for (int k = 0; k < count; k++)
            if (steps[k] == u->step[i]) {
                if (length[k] != 1 && steps[k] != 1) return 0; /* two axes with one stride */
                length[k] = u->length[i];
            }
    int64_t rest = u->low;
    for (int i = 0; i < count; i++) {
        start[i] = rest / steps[i];
        rest %= steps[i];
    }
    /* From the finest axis: what is longer than its row must fill whole rows. */
    for (int i = count - 1; i > 0; i--) {
        int64_t row = steps[i - 1] / steps[i];
        if (start[i] + length[i] <= row) continue;
        if (start[i] || length[i] % row || length[i - 1] != 1) return 0;
        length[i - 1] = length[i] / row;
        length[i] = row;
    }
    return 1;
}

/* Whether two uses share a byte; true when in doubt. */
static int meet(const tl_use *a, const tl_use *b) {
    if (a->high <= b->low || b->high <= a->low) return 0;
    int64_t steps[2 * TL_RANK + 1];
    int count = 0, i = 0, k = 0;
    while (i < a->axes || k < b->axes) {
        int64_t step = i < a->axes && (k == b->axes || a->step[i] >= b->step[k]) ? a->step[i++]
                                                                                : b->step[k++];
        if (!count || steps[count - 1] != step) steps[count++] = step;
    }
    if (!count || steps[count - 1] != 1) steps[count++] = 1;
    for (i = 1; i < count; i++)
        if (steps[i - 1] % steps[i]) return 1;
    int64_t a_start[2 * TL_RANK + 1], a_length[2 * TL_RANK + 1];
    int64_t b_start[2 * TL_RANK + 1], b_length[2 * TL_RANK + 1];
    if (!as_box(a, steps, count, a_start, a_length) || !as_box(b, steps, count, b_start, b_length))
        return 1;
    for (i = 0; i < count; i++)
        if (a_start[i] >= b_start[i] + b_length[i] || b_start[i] >= a_start[i] + a_length[i])
            return 0;
    return 1;
}

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

/* Drop the uses of which no task is under way. */
static int drop_finished(tl_buf *b, tl_is_done is_done, void *rt) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->use_count; i++) {
        tl_use u = b->uses[i];
        prune(&u.readers, is_done, rt);
        if (u.writer && is_done(rt, u.writer)) u.writer = 0;
        b->uses[i] = b->uses[kept]; /* keeps the memory of its lists */
        b->uses[kept] = u;
        if (u.writer || u.readers.count) kept++;
    }
    for (uint32_t i = kept; i < b->use_count; i++) clear_use(&b->uses[i]);
    b->use_count = kept;
    for (uint32_t i = 0; i < kept; i++) b->uses[i].overlapping.count = 0;
    for (uint32_t i = 0; i < kept; i++)
        for (uint32_t k = 0; k < i; k++)
            if (meet(&b->uses[i], &b->uses[k]) &&
                (push(&b->uses[i].overlapping, k) || push(&b->uses[k].overlapping, i)))
                return -1;
    return rebuild_table(b, b->table_size ? b->table_size : 32);
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
    if (b->use_count >= MANY_USES && (b->use_count & (b->use_count - 1)) == 0 &&
        drop_finished(b, is_done, rt))
        return -1;
    if (b->use_count == b->use_capacity && grow_uses(b)) return -1;
    uint32_t at = b->use_count;
    tl_use *place = &b->uses[at];
    u.readers = place->readers;
    u.overlapping = place->overlapping;
    *place = u;
    clear_use(place);
    for (uint32_t i = 0; i < at; i++)
        if (meet(&b->uses[i], place) &&
            (push(&place->overlapping, i) || push(&b->uses[i].overlapping, at)))
            return -1;
    b->use_count++;
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
        u->readers.count = 0; /* they come before the writer, which later tasks wait for */
        return 0;
    }
    uint32_t n = u->readers.count;
    if (n >= MANY_READERS && (n & (n - 1)) == 0) prune(&u->readers, is_done, rt);
    return push(&u->readers, number);
}

void tl_forget_uses(tl_buf *b) {
    for (uint32_t i = 0; i < b->use_count; i++) clear_use(&b->uses[i]);
    b->use_count = 0;
}

void tl_free_uses(tl_buf *b) {
    for (uint32_t i = 0; i < b->use_capacity; i++) {
        free(b->uses[i].readers.items);
        free(b->uses[i].overlapping.items);
    }
    free(b->uses);
    free(b->table);
}
