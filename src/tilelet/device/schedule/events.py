"""The event loop of the modelled device: the reference, which `c/events.c` reproduces bit for bit.

Actors: an orchestrator that submits tasks one after the other, scheduler threads that each own some
clusters, and cores. A scheduler does one thing at a time: it retires a block whose end it can see,
or dispatches a ready block to a core. Running blocks share global memory by max-min fairness.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import Array

Numbers = Array
NEVER = 1e300
IDLE, STARTING, RUNNING = 0, 1, 2
MIX, AIC, AIV, NO_WORK = 0, 1, 2, 3
SPREAD = 29
"""Pseudo-random assignment of start delays: adjacent cores differ by this many steps."""


@dataclass(frozen=True)
class Config:
    """Parameters of the machine and its runtime (microseconds, bytes per microsecond, bytes)."""

    clusters: int
    vectors: int
    threads: int
    slots: int
    window: int
    heap: int
    submit: float
    submit_arg: float
    node: float
    dispatch: float
    complete: float
    head: float
    tail: float
    poll: float
    resolve: float
    stagger: float
    first: float
    hbm: float
    l2_rate: float
    l2_bytes: float


@dataclass(frozen=True)
class Work:
    """Tasks as arrays; see `arrays.Stream` and `l2_cells.Cells`.

    cost_ptr, cost  the costs of each task, flattened: one for all its blocks, or one per block
    hot, cold, store, moved  by cost number: times, and bytes of a block
    served         by cost number: how long slices of L2 work for a block and its peers alone
    kernel         by task: its kernel's number, of `kernels`
    read, written, all_moved  by task: bytes of all its blocks
    buffer_heap    whether the runtime allocated the buffer: heap memory is reused, so it stays in
                   L2 until something else replaces it
    """

    pred_count: Numbers
    succ_ptr: Numbers
    succ: Numbers
    shape: Numbers
    lanes: Numbers
    blocks: Numbers
    cost_ptr: Numbers
    cost: Numbers
    args: Numbers
    held_until: Numbers
    in_graph: Numbers
    heap: Numbers
    freed: Numbers
    await_ptr: Numbers
    awaits: Numbers
    hot: Numbers
    cold: Numbers
    store: Numbers
    moved: Numbers
    served: Numbers
    kernel: Numbers
    kernels: int
    read: Numbers
    written: Numbers
    all_moved: Numbers
    cell_ptr: Numbers
    cell_base: Numbers
    cell_rows: Numbers
    cell_columns: Numbers
    cell_share: Numbers
    cell_buffer: Numbers
    cell_part: Numbers
    buffer_pitch: Numbers
    buffer_size: Numbers
    buffer_heap: Numbers
    part_writes: Numbers
    part_asked: Numbers
    cells: int

    @property
    def tasks(self) -> int:
        return len(self.shape)

    @property
    def nodes(self) -> int:
        return len(self.pred_count)


@dataclass
class SimResult:
    """The outcome; records are executions of a block on a core, in dispatch order.

    error  0, or what the orchestrator waits for forever: 1 the window, 2 the heap, 3 a cycle,
           4 a task whose result it reads; then `stuck` is the task concerned
    """

    rec_task: Numbers
    rec_core: Numbers
    rec_dispatch: Numbers
    rec_start: Numbers
    rec_end: Numbers
    rec_finish: Numbers
    submitted: Numbers
    ready: Numbers
    finished: Numbers
    released_by: Numbers
    hbm_read: Numbers
    hbm_written: Numbers
    thread_busy: Numbers
    orchestrator_end: float
    window_stall: float
    heap_stall: float
    read_stall: float
    last: float
    error: int
    stuck: int


@dataclass
class _Unit:
    """A core: its running block, its queue, its finished but unseen blocks, its mixed partner."""

    state: int = IDLE
    task: int = 0
    cost: int = 0
    record: int = 0
    begin: float = 0.0
    left: float = 0.0
    rate: float = 1.0
    demand: float = 0.0
    traffic: float = 0.0
    served: float = 0.0
    waiting: tuple[int, int, int, float] | None = None
    done: list[tuple[int, int, float]] = field(default_factory=list[tuple[int, int, float]])
    lead: int = -1
    warm: bool = False

    @property
    def idle(self) -> bool:
        return self.state == IDLE and not self.done and self.lead < 0


def run_events(config: Config, work: Work) -> SimResult:
    """Run all tasks."""
    return _Loop(config, work).run()


class _Loop:
    def __init__(self, config: Config, work: Work) -> None:
        self.c, self.w = config, work
        n = work.tasks
        cores = config.clusters * (1 + config.vectors)
        self.units = [_Unit() for _ in range(cores)]
        self.thread = [self.cluster(i) % config.threads for i in range(cores)]
        self.now = 0.0
        # The threads enter their loops one after the other.
        self.thread_free = [config.stagger * float(t) for t in range(config.threads)]
        self.thread_busy = [0.0] * config.threads
        self.pending = [int(x) for x in work.pred_count]
        self.blocks_left = [int(x) for x in work.blocks]
        self.blocks_out = [0] * n
        self.complete = [False] * work.nodes
        self.cold_part: dict[int, float] = {}
        self.store_part: dict[int, float] = {}
        self.bytes = [0.0] * n
        self.queues: list[deque[int]] = [deque(), deque(), deque()]
        self.records: list[list[float]] = []
        self.submitted, self.ready, self.finished = [0.0] * n, [0.0] * n, [0.0] * n
        self.released_by = [-1] * n
        self.hbm_read, self.hbm_written = [0.0] * n, [0.0] * n
        self.done_tasks = 0
        self.next = self.oldest = self.heap_used = 0
        self.orch = NEVER
        self.blocked = 0
        self.blocked_since = 0.0
        self.totals = [0.0] * 5
        self.stamp = [-1.0] * work.cells
        self.filled = [0.0] * work.cells
        self.arrived = [0.0] * work.cells
        self.dirty = [0.0] * work.cells
        self.inserted = 0.0
        self.rates_stale = False

    def run(self) -> SimResult:
        self.plan_submit(0.0)
        while self.done_tasks < self.w.tasks and self.step():
            pass
        rec = np.array(self.records, np.float64).reshape(len(self.records), 6)
        error = 0 if self.done_tasks == self.w.tasks else self.blocked or 3
        return SimResult(
            rec_task=rec[:, 0].astype(np.int64),
            rec_core=rec[:, 1].astype(np.int64),
            rec_dispatch=rec[:, 2].copy(),
            rec_start=rec[:, 3].copy(),
            rec_end=rec[:, 4].copy(),
            rec_finish=rec[:, 5].copy(),
            submitted=np.array(self.submitted),
            ready=np.array(self.ready),
            finished=np.array(self.finished),
            released_by=np.array(self.released_by, np.int64),
            hbm_read=np.array(self.hbm_read),
            hbm_written=np.array(self.hbm_written),
            thread_busy=np.array(self.thread_busy),
            orchestrator_end=self.totals[0],
            window_stall=self.totals[1],
            heap_stall=self.totals[2],
            read_stall=self.totals[4],
            last=self.totals[3],
            error=error,
            stuck=self.oldest if self.blocked == 1 else self.next,
        )

    # Cores and threads

    def cluster(self, core: int) -> int:
        if core < self.c.clusters:
            return core
        return (core - self.c.clusters) // self.c.vectors

    def aiv(self, cluster: int, lane: int) -> int:
        return self.c.clusters + cluster * self.c.vectors + lane

    def members(self, task: int) -> int:
        return 1 + int(self.w.lanes[task]) if self.w.shape[task] == MIX else 1

    def cost_of(self, task: int, block: int) -> int:
        first, end = self.w.cost_ptr[task], self.w.cost_ptr[task + 1]
        return int(self.w.cost[first + (block if end - first > 1 else 0)])

    # Memory

    def time_of(self, task: int, cost: int) -> float:
        """Return the time of a block, between that with everything in L2 and that with nothing."""
        hot = float(self.w.hot[cost])
        cold = self.cold_part[task] * (float(self.w.cold[cost]) - hot)
        return hot + cold + self.store_part[task] * float(self.w.store[cost])

    def bytes_of(self, task: int, cost: int) -> float:
        """Return a block's share of the bytes that its task moves from and to memory."""
        w = self.w
        if w.cost_ptr[task + 1] - w.cost_ptr[task] == 1:
            return self.bytes[task] / float(w.blocks[task])
        everything = float(w.all_moved[task])
        return self.bytes[task] * float(w.moved[cost]) / everything if everything > 0.0 else 0.0

    def touch(self, task: int, cost: int) -> None:
        """Look up the task's accesses in L2, which decides its time and memory traffic."""
        w = self.w
        missed = written = cold = replaced = 0.0
        filled_here: list[int] = []
        for a in range(w.cell_ptr[task], w.cell_ptr[task + 1]):
            part, buffer = w.cell_part[a], w.cell_buffer[a]
            share, writes = float(w.cell_share[a]), bool(w.part_writes[part])
            asked, size = share * float(w.part_asked[part]), float(w.buffer_size[buffer])
            heap = bool(w.buffer_heap[buffer])
            for i in range(w.cell_rows[a]):
                first = int(w.cell_base[a] + i * w.buffer_pitch[buffer])
                for cell in range(first, first + int(w.cell_columns[a])):
                    if cell >= w.cells:
                        continue
                    stamp = self.stamp[cell]
                    gone = self.inserted - stamp >= self.c.l2_bytes
                    if stamp < 0.0 or gone:
                        self.filled[cell] = self.dirty[cell] = 0.0
                    there = self.filled[cell] + share > size
                    if not there:
                        self.inserted += share
                        self.filled[cell] += share
                        filled_here.append(cell)
                    if writes:
                        if (stamp >= 0.0 and gone) if heap else not there:
                            replaced += share
                        if self.dirty[cell] + share <= size:
                            written += share
                            self.dirty[cell] += share
                    elif not there:
                        missed += share
                        cold += asked
                    elif self.now < self.arrived[cell]:
                        cold += asked
                    self.stamp[cell] = self.inserted
        read = float(w.read[task])
        self.cold_part[task] = min(cold / read if read > 0.0 else 0.0, 1.0)
        stored = float(w.written[task])
        self.store_part[task] = min(replaced / stored if stored > 0.0 else 0.0, 1.0)
        self.hbm_read[task], self.hbm_written[task] = missed, written
        # Tasks that request the same lines meanwhile also wait for them.
        arrival = self.now + self.time_of(task, cost)
        for cell in filled_here:
            self.arrived[cell] = arrival
        self.bytes[task] = missed + written

    def running(self) -> list[_Unit]:
        return [u for u in self.units if u.state == RUNNING and u.lead < 0]

    def set_rates(self) -> None:
        """Share global memory among the running blocks."""
        running = self.running()
        wanted = traffic = 0.0
        served = [0.0] * self.w.kernels
        for u in running:
            wanted += u.demand
            traffic += u.traffic
            served[int(self.w.kernel[u.task])] += u.served
        level = self.level(running) if wanted > self.c.hbm else NEVER
        crowd = self.c.l2_rate / traffic if traffic > self.c.l2_rate else 1.0
        for u in running:
            rate = level / u.demand if u.demand > level else 1.0
            if u.traffic > 0.0 and crowd < rate:
                rate = crowd
            slices: float = served[int(self.w.kernel[u.task])]
            if slices > 1.0 and 1.0 / slices < rate:
                rate = 1.0 / slices
            u.rate = rate
        self.rates_stale = False

    def level(self, running: list[_Unit]) -> float:
        """Return the max-min fair rate."""
        low, level = 0.0, NEVER
        for _ in range(64):
            above, used = 0, 0.0
            for u in running:
                if u.demand > low:
                    above += 1
                else:
                    used += u.demand
            if above == 0:
                break
            level = (self.c.hbm - used) / float(above)
            if level <= low:
                break
            low = level
            if not any(0.0 < u.demand <= level for u in running):
                break
        return level

    def advance(self, to: float) -> None:
        passed = to - self.now
        if passed > 0.0:
            for u in self.running():
                u.left -= passed * u.rate
        self.now = to

    # Cores

    def run_block(self, core: int) -> None:
        u = self.units[core]
        task, cost = u.task, u.cost
        if task not in self.cold_part:
            self.touch(task, cost)
        time = self.time_of(task, cost)
        u.state, u.left = RUNNING, time
        u.demand = self.bytes_of(task, cost) / time if time > 0.0 else 0.0
        u.traffic = float(self.w.moved[cost]) / time if time > 0.0 else 0.0
        u.served = float(self.w.served[cost]) / time if time > 0.0 else 0.0
        self.rates_stale = True
        for i in range(self.members(task)):
            self.records[u.record + i][3] = self.now

    def end_block(self, core: int) -> None:
        u = self.units[core]
        thread, busy = self.thread[core], 0.0
        for i, other in enumerate(self.units):
            if self.thread[i] == thread and other.state != IDLE:
                busy += 1.0
        for i in range(self.members(u.task)):
            self.records[u.record + i][4] = self.now
        visible = self.now + self.c.tail + self.c.poll * busy * 0.5
        u.done.append((u.task, u.record, visible))
        u.state = IDLE
        self.rates_stale = True
        if u.waiting is not None:
            u.state = STARTING
            u.task, u.cost, u.record, arrival = u.waiting
            u.begin = max(arrival, self.now)
            u.waiting = None

    def idle_core(self, thread: int, task: int) -> int:
        """Return a core of the thread that can take the block at once, or -1."""
        shape = self.w.shape[task]
        for k in range(thread, self.c.clusters, self.c.threads):
            if shape == AIV:
                for v in range(self.c.vectors):
                    if self.units[self.aiv(k, v)].idle:
                        return self.aiv(k, v)
                continue
            if not self.units[k].idle:
                continue
            lanes = self.w.lanes[task] if shape == MIX else 0
            if all(self.units[self.aiv(k, v)].idle for v in range(lanes)):
                return k
        return -1

    def waiting_core(self, thread: int, task: int) -> int:
        """Return a busy core of the thread at which the block can wait, if no core is idle."""
        shape = self.w.shape[task]
        if self.c.slots == 0 or shape == MIX:
            return -1
        if any(self.idle_core(t, task) >= 0 for t in range(self.c.threads)):
            return -1
        first, end = (0, self.c.clusters) if shape == AIC else (self.c.clusters, len(self.units))
        for i in range(first, end):
            u = self.units[i]
            busy = u.lead < 0 and u.state != IDLE and u.waiting is None and not u.done
            if self.thread[i] == thread and busy and self.w.shape[u.task] == shape:
                return i
        return -1

    # Tasks

    def push(self, task: int, at: float) -> None:
        self.ready[task] = at
        shape: int = self.w.shape[task]
        queue = self.queues[shape]
        place = len(queue)
        while place > 0 and self.ready[queue[place - 1]] > at:
            place -= 1
        queue.insert(place, task)

    def finish_node(self, first: int, at: float) -> None:
        """Complete a node and everything that it makes ready or completes in turn."""
        w = self.w
        stack = [first]
        while stack:
            node = stack.pop()
            self.complete[node] = True
            if node < w.tasks:
                self.finished[node] = at
                self.done_tasks += 1
            for other in w.succ[w.succ_ptr[node] : w.succ_ptr[node + 1]]:
                other = int(other)
                self.pending[other] -= 1
                if self.pending[other] > 0:
                    continue
                if other >= w.tasks:
                    stack.append(other)
                    continue
                self.released_by[other] = first
                if other < self.next:
                    if w.shape[other] == NO_WORK:
                        self.ready[other] = at
                        stack.append(other)
                    else:
                        self.push(other, at + self.c.resolve)

    def reclaim(self) -> None:
        """Reclaim slots and heap of finished tasks, in submission order."""
        w = self.w
        while (
            self.oldest < self.next
            and self.complete[self.oldest]
            and w.held_until[self.oldest] < self.next
        ):
            self.heap_used -= int(w.freed[self.oldest])
            self.oldest += 1

    def awaited(self, task: int) -> list[int]:
        return self.w.awaits[self.w.await_ptr[task] : self.w.await_ptr[task + 1]].tolist()

    def plan_submit(self, at: float) -> None:
        if self.next >= self.w.tasks:
            self.orch, self.blocked = NEVER, 0
            return
        self.reclaim()
        self.blocked = 0
        if self.next - self.oldest >= self.c.window:
            self.blocked = 1
        elif self.heap_used + self.w.heap[self.next] > self.c.heap:
            self.blocked = 2
        elif not all(self.complete[a] for a in self.awaited(self.next)):
            self.blocked = 4
        if self.blocked:
            self.orch, self.blocked_since = NEVER, at
        else:
            self.heap_used += int(self.w.heap[self.next])
            cost = self.c.submit_arg * float(self.w.args[self.next])
            first = self.c.node if self.w.in_graph[self.next] else self.c.submit
            self.orch = at + first + cost

    def submit(self) -> None:
        task, at = self.next, self.now
        self.next += 1
        self.submitted[task] = self.totals[0] = at
        if self.pending[task] == 0:
            # Its predecessors may be about to be retired.
            if self.released_by[task] >= 0:
                at = max(at, self.finished[self.released_by[task]] + self.c.resolve)
            if self.w.shape[task] == NO_WORK:
                self.ready[task] = at
                self.finish_node(task, at)
            else:
                self.push(task, at)
        self.plan_submit(self.now)

    def unblock(self, at: float) -> None:
        if not self.blocked:
            return
        why, since = self.blocked, self.blocked_since
        self.plan_submit(at)
        if self.blocked:
            self.blocked_since = since
        else:
            self.totals[why] += at - since

    # Schedulers

    def first_start(self, core: int) -> float:
        """Return the delay of a core's first block."""
        if self.units[core].warm:
            return 0.0
        self.units[core].warm = True
        cores = len(self.units)
        if cores < 2:
            return 0.0
        return self.c.first * float((core * SPREAD + cores // 2) % cores) / float(cores - 1)

    def dispatch(self, thread: int, shape: int, core: int, waiting: bool) -> None:
        task = self.queues[shape][0]
        cost = self.cost_of(task, self.blocks_out[task])
        self.blocks_out[task] += 1
        if self.blocks_out[task] == self.w.blocks[task]:
            self.queues[shape].popleft()
        at = self.now + self.c.dispatch
        longest = 0.0
        self.thread_free[thread] = at
        self.thread_busy[thread] += self.c.dispatch
        record = len(self.records)
        for i in range(self.members(task)):
            place = core if i == 0 else self.aiv(self.cluster(core), i - 1)
            self.records.append([task, place, at, 0.0, 0.0, 0.0])
            if i > 0:
                self.units[place].lead = core
            longest = max(longest, self.first_start(place))
        begin = at + self.c.head + longest
        u = self.units[core]
        if waiting:
            u.waiting = (task, cost, record, begin)
        else:
            u.state, u.task, u.cost, u.record, u.begin = STARTING, task, cost, record, begin

    def retire(self, thread: int, core: int, slot: int) -> None:
        task, record, _ = self.units[core].done.pop(slot)
        at = self.now + self.c.complete
        self.thread_free[thread] = at
        self.thread_busy[thread] += self.c.complete
        for i in range(self.members(task)):
            self.records[record + i][5] = self.now
            if i > 0:
                self.units[self.aiv(self.cluster(core), i - 1)].lead = -1
        self.totals[3] = max(self.totals[3], at)
        self.blocks_left[task] -= 1
        if self.blocks_left[task] == 0:
            self.finish_node(task, at)
            self.unblock(at)

    def plan(self, thread: int) -> tuple[float, str, int, int, int]:
        """Return a scheduler's next action: (when, "retire" or "dispatch", core, shape, slot)."""
        best = (NEVER, "retire", -1, -1, 0)
        free = self.thread_free[thread]
        for i, u in enumerate(self.units):
            if self.thread[i] == thread:
                for slot, (_, _, visible) in enumerate(u.done):
                    at = max(visible, free)
                    if at < best[0]:
                        best = (at, "retire", i, -1, slot)
        for shape in (MIX, AIC, AIV):
            if not self.queues[shape]:
                continue
            task = self.queues[shape][0]
            at = max(self.ready[task], free)
            if not at < best[0]:
                continue
            core, waiting = self.idle_core(thread, task), 0
            if core < 0:
                core, waiting = self.waiting_core(thread, task), 1
            if core >= 0:
                best = (at, "dispatch", core, shape, waiting)
        return best

    def step(self) -> bool:
        """Process the next event; return False if there is none."""
        if self.rates_stale:
            self.set_rates()
        soonest, core, actor = NEVER, -1, -1
        move = (NEVER, "", -1, -1, 0)
        for i, u in enumerate(self.units):
            if u.lead >= 0 or u.state == IDLE:
                continue
            if u.state == STARTING:
                at = max(u.begin, self.now)
            else:
                at = self.now + u.left / u.rate if u.left > 0.0 else self.now
            if at < soonest:
                soonest, core = at, i
        for t in range(self.c.threads):
            planned = self.plan(t)
            at = max(planned[0], self.now)
            if at < soonest:
                soonest, core, actor, move = at, -1, t, planned
        if self.orch < soonest:
            soonest, core, actor = self.orch, -1, self.c.threads
        if soonest >= NEVER:
            return False
        self.advance(max(soonest, self.now))
        if core >= 0:
            if self.units[core].state == STARTING:
                self.run_block(core)
            else:
                self.end_block(core)
        elif actor == self.c.threads:
            self.submit()
        elif move[1] == "retire":
            self.retire(actor, move[2], move[4])
        else:
            self.dispatch(actor, move[3], move[2], bool(move[4]))
        return True
