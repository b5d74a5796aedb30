/* Record of a run: what the control program submitted, for the device model and the checks. */
#include <stdlib.h>

#include "state.h"

/* Reserve space for more words; NULL if out of memory. */
static int64_t *more_words(tl_record *r, int64_t words) {
    if (r->count + words > r->capacity) {
        int64_t capacity = r->capacity ? 2 * r->capacity : 1 << 16;
        if (capacity < r->count + words) capacity = r->count + words;
        int64_t *moved = realloc(r->words, (size_t)capacity * sizeof *moved);
        if (!moved) return NULL;
        r->words = moved;
        r->capacity = capacity;
    }
    r->count += words;
    return r->words + r->count - words;
}

static int64_t *put_window(int64_t *to, const tl_win *w) {
    const tl_buf *b = w->buf;
    *to++ = b->number;
    *to++ = b->bytes;
    *to++ = b->is_temporary ? b->name : -1;
    *to++ = w->data - b->base;
    *to++ = w->rank;
    for (int i = 0; i < w->rank; i++) *to++ = w->shape[i];
    for (int i = 0; i < w->rank; i++) *to++ = w->stride[i];
    for (int i = 0; i < w->rank; i++) *to++ = w->valid[i];
    for (int i = 0; i < w->rank; i++) *to++ = w->reach[i];
    return to;
}

void tl_note_task(tl_ctx *c, const tl_task *t, const tl_kernel *kernel, int is_run, int64_t id,
                  int64_t blocks, const int64_t *deps, int64_t dep_count) {
    tl_record *r = c->rt->args->record;
    if (!r || r->is_incomplete) return;
    int64_t words = 6 + dep_count + (kernel ? kernel->scalars : 0);
    for (int i = 0; kernel && i < kernel->windows; i++) words += 5 + 4 * t->windows[i].rank;
    int64_t *to = more_words(r, words);
    if (!to) {
        r->is_incomplete = 1;
        return;
    }
    *to++ = t->call;
    *to++ = id;
    *to++ = is_run;
    *to++ = blocks;
    *to++ = c->manual > 0;
    *to++ = dep_count;
    for (int64_t i = 0; i < dep_count; i++) *to++ = deps[i];
    for (int i = 0; kernel && i < kernel->windows; i++) to = put_window(to, &t->windows[i]);
    for (int i = 0; kernel && i < kernel->scalars; i++) *to++ = t->scalars[i].i;
}

/* Called after the words have been read. */
__attribute__((visibility("default"))) void tl_free_record(tl_record *r) {
    free(r->words);
    *r = (tl_record){0};
}
