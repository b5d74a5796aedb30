/* The event loop of the modelled device. `events.py` is the definition; this repeats it operation
 * by operation, so that both give the same bits. Compile with -ffp-contract=off. */

#include <stdlib.h>
#include <string.h>

#include "structures.h"

#define NEVER 1e300
#define IDLE 0
#define STARTING 1
#define RUNNING 2
#define NO_WORK 3
#define SPREAD 29 /* see events.py */

typedef struct {
    int state;
    int64_t task, cost, record, kernel;
    double begin, left, rate, demand, traffic, served;
    /* a block queued at the busy core */
    int64_t next_task, next_cost, next_record;
    double next_arrival;
    /* ended blocks that no scheduler has seen yet */
    int done;
    int64_t done_task[2], done_record[2];
    double done_visible[2];
    int64_t lead; /* the AIC of the mixed block that this AIV takes part in, or -1 */
    int idle;     /* as counted in `Sim.idle` */
    int warm;     /* whether it has run a block */
} Unit;

/* Cores in ascending order: examining few instead of all makes the loop fast. */
typedef struct {
    int64_t *core, count;
} Cores;

typedef struct {
    const Config *c;
    const Work *w;
    Result *r;
    int64_t cores;
    int64_t *thread; /* per core */
    Unit *unit;
    double now, *thread_free;
    Cores busy;       /* cores that start or run a block */
    Cores *ended;     /* by thread: cores with ended blocks that it has not seen yet */
    int64_t *working; /* by thread: number of busy cores */
    int64_t *idle[2]; /* by thread: number of AICs and AIVs that can take a block immediately */
    int64_t *pending, *blocks_left, *blocks_out;
    unsigned char *complete, *touched;
    double *bytes, *cold_part, *store_part; /* per task */
    int64_t *queue[3], head[3], tail[3];
    int64_t records, done_tasks;
    /* orchestrator */
    int64_t next, oldest, heap_used;
    double orch;
    int blocked;
    double blocked_since;
    /* L2 */
    double *stamp, *filled, *dirty, *arrived, inserted;
    int64_t *fresh;
    int64_t *stack;
    double *served;        /* by kernel: load of the L2 slices that serve its blocks */
    int64_t *summed, sums; /* when that was last summed, and how often anything was */
    int rates_stale;
} Sim;

static int64_t cluster_of(const Sim *s, int64_t core) {
    return core < s->c->clusters ? core : (core - s->c->clusters) / s->c->vectors;
}
static int64_t aiv(const Sim *s, int64_t cluster, int64_t lane) {
    return s->c->clusters + cluster * s->c->vectors + lane;
}

static void insert(Cores *list, int64_t core) {
    int64_t i = list->count++;
    for (; i > 0 && list->core[i - 1] > core; i--) list->core[i] = list->core[i - 1];
    list->core[i] = core;
}

static void drop(Cores *list, int64_t core) {
    int64_t i = 0;
    while (list->core[i] != core) i++;
    list->count--;
    for (; i < list->count; i++) list->core[i] = list->core[i + 1];
}

/* A core that ran a block stays occupied until a scheduler has seen its end. */
static int is_idle(const Unit *u) { return u->state == IDLE && u->done == 0 && u->lead < 0; }

/* Call whenever something that `is_idle` depends on has changed. */
static void recount(Sim *s, int64_t core) {
    Unit *u = &s->unit[core];
    int now = is_idle(u);
    s->idle[core >= s->c->clusters][s->thread[core]] += now - u->idle;
    u->idle = now;
}

static void set_state(Sim *s, int64_t core, int state) {
    Unit *u = &s->unit[core];
    int change = (state != IDLE) - (u->state != IDLE);
    u->state = state;
    s->working[s->thread[core]] += change;
    if (change > 0) insert(&s->busy, core);
    if (change < 0) drop(&s->busy, core);
    recount(s, core);
}

static void set_lead(Sim *s, int64_t core, int64_t lead) {
    s->unit[core].lead = lead;
    recount(s, core);
}

/* L2 and the time of a block */

/* Tasks that request lines which this task is loading wait for them as well. */
static void set_arrival(Sim *s, int64_t count, double at) {
    for (int64_t i = 0; i < count; i++) s->arrived[s->fresh[i]] = at;
}

static int64_t cost_of(const Work *w, int64_t task, int64_t block) {
    int64_t first = w->cost_ptr[task], end = w->cost_ptr[task + 1];
    return w->cost[first + (end - first > 1 ? block : 0)];
}

/* Duration of a block: between that with all data in L2 and that with none. */
static double time_of(const Sim *s, int64_t task, int64_t cost) {
    double hot = s->w->hot[cost];
    double cold = s->cold_part[task] * (s->w->cold[cost] - hot);
    return hot + cold + s->store_part[task] * s->w->store[cost];
}

/* A block's share of its task's memory traffic. */
static double bytes_of(const Sim *s, int64_t task, int64_t cost) {
    const Work *w = s->w;
    if (w->cost_ptr[task + 1] - w->cost_ptr[task] == 1)
        return s->bytes[task] / (double)w->blocks[task];
    double everything = w->all_moved[task];
    return everything > 0.0 ? s->bytes[task] * w->moved[cost] / everything : 0.0;
}

static void touch(Sim *s, int64_t task, int64_t cost) {
    const Work *w = s->w;
    int64_t fresh = 0;
    double missed = 0.0, written = 0.0, cold = 0.0, replaced = 0.0;
    for (int64_t a = w->cell_ptr[task]; a < w->cell_ptr[task + 1]; a++) {
        int32_t part = w->cell_part[a], buffer = w->cell_buffer[a];
        double share = w->cell_share[a], asked = share * w->part_asked[part];
        double size = w->buffer_size[buffer];
        int heap = w->buffer_heap[buffer] != 0;
        for (int64_t i = 0; i < w->cell_rows[a]; i++) {
            int64_t first = w->cell_base[a] + i * w->buffer_pitch[buffer];
            for (int64_t cell = first; cell < first + w->cell_columns[a]; cell++) {
                if (cell >= w->cells) continue;
                int known = s->stamp[cell] >= 0.0;
                int gone = s->inserted - s->stamp[cell] >= s->c->l2_bytes;
                if (!known || gone) s->filled[cell] = s->dirty[cell] = 0.0;
                int there = s->filled[cell] + share > size;
                if (!there) {
                    s->inserted += share;
                    s->filled[cell] += share;
                    if (fresh < w->cells) s->fresh[fresh++] = cell;
                }
                if (w->part_writes[part]) {
                    if (heap ? known && gone : !there) replaced += share;
                    if (s->dirty[cell] + share <= size) {
                        written += share;
                        s->dirty[cell] += share;
                    }
                } else if (!there) {
                    missed += share;
                    cold += asked;
                } else if (s->now < s->arrived[cell]) {
                    cold += asked;
                }
                s->stamp[cell] = s->inserted;
            }
        }
    }
    double read = w->read[task];
    double part = read > 0.0 ? cold / read : 0.0;
    s->cold_part[task] = part > 1.0 ? 1.0 : part;
    double stored = w->written[task], put = stored > 0.0 ? replaced / stored : 0.0;
    s->store_part[task] = put > 1.0 ? 1.0 : put;
    s->r->hbm_read[task] = missed;
    s->r->hbm_written[task] = written;
    set_arrival(s, fresh, s->now + time_of(s, task, cost));
    s->bytes[task] = missed + written;
    s->touched[task] = 1;
}

/* The level up to which every demand is met such that the total equals the capacity. */
static double level_of(const Sim *s) {
    double low = 0.0, level = NEVER;
    for (int round = 0; round < 64; round++) {
        int64_t above = 0;
        double used = 0.0;
        for (int64_t i = 0; i < s->busy.count; i++) {
            const Unit *u = &s->unit[s->busy.core[i]];
            if (u->state != RUNNING) continue;
            if (u->demand > low)
                above++;
            else
                used += u->demand;
        }
        if (above == 0) break;
        level = (s->c->hbm - used) / (double)above;
        if (level <= low) break;
        low = level;
        int more = 0;
        for (int64_t i = 0; i < s->busy.count; i++) {
            const Unit *u = &s->unit[s->busy.core[i]];
            if (u->state == RUNNING && u->demand > 0.0 && u->demand <= level) more = 1;
        }
        if (!more) break;
    }
    return level;
}

static void set_rates(Sim *s) {
    double wanted = 0.0, traffic = 0.0;
    s->sums++;
    for (int64_t i = 0; i < s->busy.count; i++) {
        const Unit *u = &s->unit[s->busy.core[i]];
        if (u->state != RUNNING) continue;
        wanted += u->demand;
        traffic += u->traffic;
        if (s->summed[u->kernel] != s->sums) {
            s->summed[u->kernel] = s->sums;
            s->served[u->kernel] = 0.0;
        }
        s->served[u->kernel] += u->served;
    }
    double level = wanted > s->c->hbm ? level_of(s) : NEVER;
    double crowd = traffic > s->c->l2_rate ? s->c->l2_rate / traffic : 1.0;
    for (int64_t i = 0; i < s->busy.count; i++) {
        Unit *u = &s->unit[s->busy.core[i]];
        if (u->state != RUNNING) continue;
        double rate = 1.0;
        if (u->demand > level) rate = level / u->demand;
        if (u->traffic > 0.0 && crowd < rate) rate = crowd;
        double slices = s->served[u->kernel];
        if (slices > 1.0 && 1.0 / slices < rate) rate = 1.0 / slices;
        u->rate = rate;
    }
    s->rates_stale = 0;
}

static void advance(Sim *s, double to) {
    double passed = to - s->now;
    if (passed > 0.0)
        for (int64_t i = 0; i < s->busy.count; i++) {
            Unit *u = &s->unit[s->busy.core[i]];
            if (u->state == RUNNING) u->left -= passed * u->rate;
        }
    s->now = to;
}

/* Cores */

static void run_block(Sim *s, int64_t core) {
    Unit *u = &s->unit[core];
    int64_t task = u->task, cost = u->cost;
    if (!s->touched[task]) touch(s, task, cost);
    double time = time_of(s, task, cost);
    set_state(s, core, RUNNING);
    u->left = time;
    u->demand = time > 0.0 ? bytes_of(s, task, cost) / time : 0.0;
    u->traffic = time > 0.0 ? s->w->moved[cost] / time : 0.0;
    u->kernel = s->w->kernel[task];
    u->served = time > 0.0 ? s->w->served[cost] / time : 0.0;
    s->rates_stale = 1;
    int64_t members = s->w->shape[task] == 0 ? 1 + s->w->lanes[task] : 1;
    for (int64_t i = 0; i < members; i++) s->r->rec_start[u->record + i] = s->now;
}

static void end_block(Sim *s, int64_t core) {
    Unit *u = &s->unit[core];
    int64_t thread = s->thread[core], task = u->task;
    double busy = (double)s->working[thread];
    int64_t members = s->w->shape[task] == 0 ? 1 + s->w->lanes[task] : 1;
    for (int64_t i = 0; i < members; i++) s->r->rec_end[u->record + i] = s->now;
    u->done_task[u->done] = task;
    u->done_record[u->done] = u->record;
    u->done_visible[u->done] = s->now + s->c->tail + s->c->poll * busy * 0.5;
    if (u->done++ == 0) insert(&s->ended[thread], core);
    set_state(s, core, u->next_task >= 0 ? STARTING : IDLE);
    s->rates_stale = 1;
    if (u->next_task >= 0) {
        u->task = u->next_task;
        u->cost = u->next_cost;
        u->record = u->next_record;
        u->begin = u->next_arrival > s->now ? u->next_arrival : s->now;
        u->next_task = -1;
    }
}

static int64_t idle_core(const Sim *s, int64_t thread, int64_t task) {
    int64_t shape = s->w->shape[task], vectors = s->c->vectors;
    if (s->idle[shape == 2][thread] == 0) return -1;
    for (int64_t k = thread; k < s->c->clusters; k += s->c->threads) {
        if (shape == 2) {
            for (int64_t v = 0; v < vectors; v++)
                if (s->unit[aiv(s, k, v)].idle) return aiv(s, k, v);
            continue;
        }
        if (!s->unit[k].idle) continue;
        int free = 1;
        if (shape == 0)
            for (int64_t v = 0; v < s->w->lanes[task]; v++)
                if (!s->unit[aiv(s, k, v)].idle) free = 0;
        if (free) return k;
    }
    return -1;
}

static int64_t waiting_core(const Sim *s, int64_t thread, int64_t task) {
    int64_t shape = s->w->shape[task];
    if (s->c->slots == 0 || shape == 0) return -1;
    for (int64_t t = 0; t < s->c->threads; t++)
        if (idle_core(s, t, task) >= 0) return -1;
    for (int64_t i = shape == 1 ? 0 : s->c->clusters; i < (shape == 1 ? s->c->clusters : s->cores);
         i++) {
        const Unit *u = &s->unit[i];
        if (s->thread[i] == thread && u->lead < 0 && u->state != IDLE && u->next_task < 0 &&
            u->done == 0 && s->w->shape[u->task] == shape)
            return i;
    }
    return -1;
}

/* Tasks */

static void push(Sim *s, int64_t task, double at) {
    s->r->ready[task] = at;
    int64_t shape = s->w->shape[task], *queue = s->queue[shape];
    int64_t place = s->tail[shape]++;
    for (; place > s->head[shape] && s->r->ready[queue[place - 1]] > at; place--)
        queue[place] = queue[place - 1];
    queue[place] = task;
}

/* Everything that the completion of `first` makes ready, or completes in turn. */
static void finish_node(Sim *s, int64_t first, double at) {
    const Work *w = s->w;
    int64_t depth = 0;
    s->stack[depth++] = first;
    while (depth > 0) {
        int64_t node = s->stack[--depth];
        s->complete[node] = 1;
        if (node < w->tasks) {
            s->r->finished[node] = at;
            s->done_tasks++;
        }
        for (int64_t e = w->succ_ptr[node]; e < w->succ_ptr[node + 1]; e++) {
            int64_t other = w->succ[e];
            if (--s->pending[other] > 0) continue;
            if (other >= w->tasks) {
                s->stack[depth++] = other;
            } else {
                s->r->released_by[other] = first;
                if (other < s->next) {
                    if (w->shape[other] == NO_WORK) {
                        s->r->ready[other] = at;
                        s->stack[depth++] = other;
                    } else {
                        push(s, other, at + s->c->resolve);
                    }
                }
            }
        }
    }
}

/* Free slots and heap of completed tasks, in submission order. */
static void reclaim(Sim *s) {
    const Work *w = s->w;
    while (s->oldest < s->next && s->complete[s->oldest] && w->held_until[s->oldest] < s->next)
        s->heap_used -= w->freed[s->oldest++];
}

static int blocked_by(const Sim *s) {
    if (s->next - s->oldest >= s->c->window) return 1;
    if (s->heap_used + s->w->heap[s->next] > s->c->heap) return 2;
    for (int64_t i = s->w->await_ptr[s->next]; i < s->w->await_ptr[s->next + 1]; i++)
        if (!s->complete[s->w->awaits[i]]) return 4;
    return 0;
}

static void plan_submit(Sim *s, double from) {
    if (s->next >= s->w->tasks) {
        s->orch = NEVER;
        s->blocked = 0;
        return;
    }
    reclaim(s);
    s->blocked = blocked_by(s);
    if (s->blocked) {
        s->orch = NEVER;
        s->blocked_since = from;
    } else {
        s->heap_used += s->w->heap[s->next];
        double first = s->w->in_graph[s->next] ? s->c->node : s->c->submit;
        s->orch = from + first + s->c->submit_arg * (double)s->w->args[s->next];
    }
}

static void submit(Sim *s) {
    int64_t task = s->next++;
    double at = s->now;
    s->r->submitted[task] = at;
    s->r->totals[0] = at;
    if (s->pending[task] == 0) {
        /* Its dependencies may be about to be retired. */
        int64_t producer = s->r->released_by[task];
        double seen = producer >= 0 ? s->r->finished[producer] + s->c->resolve : 0.0;
        if (seen > at) at = seen;
        if (s->w->shape[task] == NO_WORK) {
            s->r->ready[task] = at;
            finish_node(s, task, at);
        } else {
            push(s, task, at);
        }
    }
    plan_submit(s, s->now);
}

static void unblock(Sim *s, double at) {
    if (!s->blocked) return;
    int why = s->blocked;
    double since = s->blocked_since;
    plan_submit(s, at);
    if (s->blocked)
        s->blocked_since = since;
    else
        s->r->totals[why] += at - since;
}

/* Extra delay of a core's first block. */
static double first_start(Sim *s, int64_t core) {
    if (s->unit[core].warm) return 0.0;
    s->unit[core].warm = 1;
    int64_t cores = s->c->clusters * (1 + s->c->vectors);
    if (cores < 2) return 0.0;
    return s->c->first * (double)((core * SPREAD + cores / 2) % cores) / (double)(cores - 1);
}

static void dispatch(Sim *s, int64_t thread, int64_t shape, int64_t core, int waiting) {
    int64_t task = s->queue[shape][s->head[shape]];
    int64_t cost = cost_of(s->w, task, s->blocks_out[task]);
    if (++s->blocks_out[task] == s->w->blocks[task]) s->head[shape]++;
    double at = s->now + s->c->dispatch, longest = 0.0;
    s->thread_free[thread] = at;
    s->r->thread_busy[thread] += s->c->dispatch;
    int64_t members = shape == 0 ? 1 + s->w->lanes[task] : 1, record = s->records;
    for (int64_t i = 0; i < members; i++) {
        int64_t place = i == 0 ? core : aiv(s, cluster_of(s, core), i - 1);
        s->r->rec_task[record + i] = task;
        s->r->rec_core[record + i] = place;
        s->r->rec_dispatch[record + i] = at;
        if (i > 0) set_lead(s, place, core);
        double late = first_start(s, place);
        if (late > longest) longest = late;
    }
    double begin = at + s->c->head + longest;
    s->records += members;
    Unit *u = &s->unit[core];
    if (waiting) {
        u->next_task = task;
        u->next_cost = cost;
        u->next_record = record;
        u->next_arrival = begin;
    } else {
        set_state(s, core, STARTING);
        u->task = task;
        u->cost = cost;
        u->record = record;
        u->begin = begin;
    }
}

static void retire(Sim *s, int64_t thread, int64_t core, int slot) {
    Unit *u = &s->unit[core];
    int64_t task = u->done_task[slot], record = u->done_record[slot];
    if (slot == 0 && u->done == 2) {
        u->done_task[0] = u->done_task[1];
        u->done_record[0] = u->done_record[1];
        u->done_visible[0] = u->done_visible[1];
    }
    if (--u->done == 0) drop(&s->ended[thread], core);
    recount(s, core);
    double at = s->now + s->c->complete;
    s->thread_free[thread] = at;
    s->r->thread_busy[thread] += s->c->complete;
    int64_t members = s->w->shape[task] == 0 ? 1 + s->w->lanes[task] : 1;
    for (int64_t i = 0; i < members; i++) {
        s->r->rec_finish[record + i] = s->now;
        if (i > 0) set_lead(s, aiv(s, cluster_of(s, core), i - 1), -1);
    }
    if (at > s->r->totals[3]) s->r->totals[3] = at;
    if (--s->blocks_left[task] == 0) {
        finish_node(s, task, at);
        unblock(s, at);
    }
}

/* A scheduler thread's next action, and its time. */
typedef struct {
    double at;
    int kind; /* 0 retire, 1 dispatch */
    int64_t core, shape;
    int slot;
} Move;

static Move plan(const Sim *s, int64_t thread) {
    Move best = {NEVER, 0, -1, -1, 0};
    double free = s->thread_free[thread];
    for (int64_t i = 0; i < s->ended[thread].count; i++) {
        int64_t core = s->ended[thread].core[i];
        const Unit *u = &s->unit[core];
        for (int slot = 0; slot < u->done; slot++) {
            double at = u->done_visible[slot] > free ? u->done_visible[slot] : free;
            if (at < best.at) {
                best.at = at;
                best.core = core;
                best.slot = slot;
            }
        }
    }
    for (int64_t shape = 0; shape < 3; shape++) {
        if (s->head[shape] == s->tail[shape]) continue;
        int64_t task = s->queue[shape][s->head[shape]];
        double at = s->r->ready[task] > free ? s->r->ready[task] : free;
        if (!(at < best.at)) continue;
        int64_t core = idle_core(s, thread, task);
        int waiting = 0;
        if (core < 0) {
            core = waiting_core(s, thread, task);
            waiting = 1;
        }
        if (core < 0) continue;
        best.at = at;
        best.kind = 1;
        best.core = core;
        best.shape = shape;
        best.slot = waiting;
    }
    return best;
}

static int step(Sim *s) {
    if (s->rates_stale) set_rates(s);
    double soonest = NEVER;
    int64_t core = -1, actor = -1;
    Move move = {NEVER, 0, -1, -1, 0};
    for (int64_t i = 0; i < s->busy.count; i++) {
        const Unit *u = &s->unit[s->busy.core[i]];
        double at;
        if (u->state == STARTING)
            at = u->begin > s->now ? u->begin : s->now;
        else
            at = u->left > 0.0 ? s->now + u->left / u->rate : s->now;
        if (at < soonest) {
            soonest = at;
            core = s->busy.core[i];
        }
    }
    for (int64_t t = 0; t < s->c->threads; t++) {
        Move m = plan(s, t);
        if (m.at < s->now) m.at = s->now;
        if (m.at < soonest) {
            soonest = m.at;
            core = -1;
            actor = t;
            move = m;
        }
    }
    if (s->orch < soonest) {
        soonest = s->orch;
        core = -1;
        actor = s->c->threads;
    }
    if (soonest >= NEVER) return 0;
    advance(s, soonest > s->now ? soonest : s->now);
    if (core >= 0) {
        if (s->unit[core].state == STARTING)
            run_block(s, core);
        else
            end_block(s, core);
    } else if (actor == s->c->threads) {
        submit(s);
    } else if (move.kind == 0) {
        retire(s, actor, move.core, move.slot);
    } else {
        dispatch(s, actor, move.shape, move.core, move.slot);
    }
    return 1;
}

/* Everything that `Sim` owns is allocated from one list, so that it is freed in one place. */
typedef struct {
    void *block[40];
    int count, failed;
} Memory;

static void *zeros(Memory *m, int64_t count, size_t size) {
    void *block = calloc((size_t)(count > 0 ? count : 1), size);
    if (block)
        m->block[m->count++] = block;
    else
        m->failed = 1;
    return block;
}

static void take_memory(Sim *s, Memory *m) {
    const Config *c = s->c;
    const Work *w = s->w;
    size_t whole = sizeof(int64_t), real = sizeof(double);
    s->unit = zeros(m, s->cores, sizeof(Unit));
    s->thread = zeros(m, s->cores, whole);
    s->thread_free = zeros(m, c->threads, real);
    s->busy.core = zeros(m, s->cores, whole);
    s->working = zeros(m, c->threads, whole);
    s->idle[0] = zeros(m, c->threads, whole);
    s->idle[1] = zeros(m, c->threads, whole);
    s->ended = zeros(m, c->threads, sizeof(Cores));
    int64_t *lists = zeros(m, c->threads * s->cores, whole);
    for (int64_t t = 0; s->ended && lists && t < c->threads; t++)
        s->ended[t].core = lists + t * s->cores;
    s->pending = zeros(m, w->nodes, whole);
    s->blocks_left = zeros(m, w->tasks, whole);
    s->blocks_out = zeros(m, w->tasks, whole);
    s->complete = zeros(m, w->nodes, 1);
    s->touched = zeros(m, w->tasks, 1);
    s->bytes = zeros(m, w->tasks, real);
    s->cold_part = zeros(m, w->tasks, real);
    s->store_part = zeros(m, w->tasks, real);
    s->stamp = zeros(m, w->cells, real);
    s->filled = zeros(m, w->cells, real);
    s->dirty = zeros(m, w->cells, real);
    s->arrived = zeros(m, w->cells, real);
    s->fresh = zeros(m, w->cells, whole);
    s->stack = zeros(m, w->nodes, whole);
    s->served = zeros(m, w->kernels, real);
    s->summed = zeros(m, w->kernels, whole);
    for (int i = 0; i < 3; i++) s->queue[i] = zeros(m, w->tasks, whole);
}

static void set_up(Sim *s) {
    const Work *w = s->w;
    for (int64_t i = 0; i < s->cores; i++) {
        s->thread[i] = cluster_of(s, i) % s->c->threads;
        s->unit[i].lead = -1;
        s->unit[i].next_task = -1;
        s->unit[i].rate = 1.0;
        recount(s, i);
    }
    for (int64_t i = 0; i < w->cells; i++) s->stamp[i] = -1.0;
    /* The threads enter their loops one after another. */
    for (int64_t t = 0; t < s->c->threads; t++) s->thread_free[t] = s->c->stagger * (double)t;
    memcpy(s->pending, w->pred_count, (size_t)w->nodes * sizeof(int64_t));
    memcpy(s->blocks_left, w->blocks, (size_t)w->tasks * sizeof(int64_t));
    for (int64_t i = 0; i < w->tasks; i++) s->r->released_by[i] = -1;
}

__attribute__((visibility("default"))) int tl_simulate(const Config *c, const Work *w, Result *r) {
    Sim sim = {0}, *s = &sim;
    Memory memory = {0};
    s->c = c;
    s->w = w;
    s->r = r;
    s->cores = c->clusters * (1 + c->vectors);
    take_memory(s, &memory);
    if (!memory.failed) {
        set_up(s);
        plan_submit(s, 0.0);
        while (s->done_tasks < w->tasks && step(s)) {
        }
        r->status[0] = s->records;
        r->status[1] = s->done_tasks == w->tasks ? 0 : (s->blocked ? s->blocked : 3);
        r->status[2] = s->blocked == 1 ? s->oldest : s->next;
    }
    while (memory.count > 0) free(memory.block[--memory.count]);
    return memory.failed;
}
