// One run in memory: columns as arrays, with indices over them.

import type { Column, Cost, Kernel, KernelRow, Place, Profile, RunHeader, Site } from "./data";
import { readColumn } from "./data";

export const EDGE_KINDS = ["tensormap", "creator", "explicit", "join"];

export const CAUSES = ["submit", "window", "dependency", "dispatch", "handover", "none"] as const;
export type Cause = (typeof CAUSES)[number];
export const CAUSE_TEXT: Record<Cause, string> = {
  submit: "next task not submitted yet",
  window: "submission stopped (window, heap)",
  dependency: "waits for a dependency",
  dispatch: "waits for a scheduler",
  handover: "hand-over and completion",
  none: "no ready task until the end",
};

/** Short names of causes, for narrow gaps. */
export const CAUSE_SHORT: Record<Cause, string> = {
  submit: "not submitted yet",
  window: "submission stopped",
  dependency: "dependency",
  dispatch: "waits for scheduler",
  handover: "hand-over",
  none: "no ready task left",
};

function gathered(counts: ArrayLike<number>): Uint32Array {
  const sums = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) sums[i + 1] = sums[i]! + counts[i]!;
  return sums;
}

/** Group indices by key, in order: [start of each key, indices]. */
export function grouped(keys: ArrayLike<number>, count: number): [Uint32Array, Uint32Array] {
  const sizes = new Uint32Array(count);
  for (let i = 0; i < keys.length; i++) sizes[keys[i]!]!++;
  const start = gathered(sizes);
  const next = start.slice();
  const order = new Uint32Array(keys.length);
  for (let i = 0; i < keys.length; i++) order[next[keys[i]!]!++] = i;
  return [start, order];
}

/** The first index in [from, to) for which `values[index] >= at`. */
export function lowerBound(values: ArrayLike<number>, at: number, from = 0, to = values.length): number {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (values[middle]! < at) from = middle + 1;
    else to = middle;
  }
  return from;
}

export class Run {
  readonly profile: Profile;
  readonly kernels: Kernel[];
  readonly sites: Site[];
  readonly costs: Cost[];
  readonly hasTasks: boolean;
  readonly tick: number;
  readonly cores: number;
  readonly clusters: number;
  readonly threads: number;

  // Records, in order of dispatch; times in ticks.
  readonly recTask: Column;
  readonly recCore: Column;
  readonly dispatch: Column;
  readonly start: Uint32Array;
  readonly end: Uint32Array;
  readonly finish: Uint32Array;
  // Tasks.
  readonly site: Column;
  readonly cost: Column;
  readonly submitted: Column;
  readonly ready: Uint32Array;
  readonly released: Column;
  readonly hbm: Column;
  readonly number: Column | null;
  readonly path: Column;
  readonly onPath: Uint8Array;
  // Records by core, and by task.
  readonly coreStart: Uint32Array;
  readonly coreRecords: Uint32Array;
  readonly taskStart: Uint32Array;
  readonly taskRecords: Uint32Array;
  readonly kernelOfTask: Uint16Array;
  readonly rowInSite: Uint32Array;
  // Offset of each site's arguments.
  readonly siteRegions: Uint32Array;
  readonly siteScalars: Uint32Array;
  readonly begin: number;
  readonly last: number;
  readonly longest: number;
  readonly rowOf: Map<string, KernelRow>;
  /** kernels by time, longest first; colors are assigned in this order */
  readonly rank: Uint16Array;

  constructor(
    readonly header: RunHeader,
    private readonly bytes: Uint8Array,
  ) {
    this.profile = header.profile;
    this.kernels = header.kernels ?? [];
    this.sites = header.sites ?? [];
    this.costs = header.costs ?? [];
    this.tick = header.tick_us ?? 0.001;
    const runtime = header.runtime;
    this.clusters = runtime?.clusters ?? 0;
    this.cores = this.clusters * (1 + (runtime?.vectors_per_cluster ?? 0));
    this.threads = runtime?.threads ?? 0;
    this.recTask = this.column("record.task");
    this.recCore = this.column("record.core");
    this.dispatch = this.column("record.dispatch");
    const n = this.recTask.length;
    const [head, exec, tail] = [this.column("record.head"), this.column("record.exec"), this.column("record.tail")];
    this.start = new Uint32Array(n);
    this.end = new Uint32Array(n);
    this.finish = new Uint32Array(n);
    let last = 0;
    let longest = 0;
    for (let i = 0; i < n; i++) {
      const s = this.dispatch[i]! + head[i]!;
      const e = s + exec[i]!;
      const f = e + tail[i]!;
      this.start[i] = s;
      this.end[i] = e;
      this.finish[i] = f;
      if (f > last) last = f;
      if (f - this.dispatch[i]! > longest) longest = f - this.dispatch[i]!;
    }
    this.begin = 0;
    this.last = last;
    this.longest = longest;
    this.hasTasks = n > 0;
    this.site = this.column("task.site");
    this.cost = this.column("task.cost");
    this.submitted = this.column("task.submitted");
    const wait = this.column("task.wait");
    const tasks = this.site.length;
    this.ready = new Uint32Array(tasks);
    for (let i = 0; i < tasks; i++) this.ready[i] = this.submitted[i]! + wait[i]!;
    this.released = this.column("task.released");
    this.hbm = this.column("task.hbm");
    this.number = header.columns?.["task.number"] ? this.column("task.number") : null;
    this.path = this.column("path");
    this.onPath = new Uint8Array(n);
    for (let i = 0; i < this.path.length; i++) this.onPath[this.path[i]!] = 1;
    [this.coreStart, this.coreRecords] = grouped(this.recCore, this.cores);
    [this.taskStart, this.taskRecords] = grouped(this.recTask, tasks);
    this.kernelOfTask = new Uint16Array(tasks);
    this.rowInSite = new Uint32Array(tasks);
    const seen = new Uint32Array(this.sites.length);
    for (let i = 0; i < tasks; i++) {
      const site = this.site[i]!;
      this.kernelOfTask[i] = this.sites[site]!.kernel;
      this.rowInSite[i] = seen[site]!++;
    }
    this.siteRegions = gathered(this.sites.map((s) => s.shown * s.tensors.length));
    this.siteScalars = gathered(this.sites.map((s) => s.shown * s.scalars.length));
    this.rowOf = new Map(this.profile.kernels.map((k) => [k.name, k]));
    const order = this.kernels.map((_, i) => i);
    order.sort((a, b) => this.execOf(b) - this.execOf(a));
    this.rank = new Uint16Array(this.kernels.length);
    order.forEach((kernel, place) => (this.rank[kernel] = place));
  }

  /** Whether tasks were omitted, so that gaps between them have no meaning. */
  get thinned(): boolean {
    return this.number !== null;
  }

  get tasks(): number {
    return this.site.length;
  }

  column(name: string): Column {
    const entry = this.header.columns?.[name];
    return entry ? readColumn(this.bytes, entry) : new Uint8Array(0);
  }

  /** Time of one block: a task of `pl.spmd` has several. */
  each(row: KernelRow): number {
    const mine = (this.profile.functions ?? []).filter((f) => f.name === row.name || f.name === `${row.name}_aic`);
    const blocks = mine.reduce((sum, f) => sum + f.count, 0);
    return row.exec_us / Math.max(blocks || row.tasks, 1);
  }

  private execOf(kernel: number): number {
    return this.rowOf.get(this.kernels[kernel]!.name)?.exec_us ?? 0;
  }

  us(ticks: number): number {
    return ticks * this.tick;
  }

  /** The task number used in reports; thinned runs keep the numbers of the whole run. */
  taskNumber(task: number): number {
    return this.number ? this.number[task]! : task;
  }

  taskOfNumber(number: number): number {
    if (!this.number) return number < this.tasks ? number : -1;
    const at = lowerBound(this.number, number);
    return this.number[at] === number ? at : -1;
  }

  kernelName(kernel: number): string {
    return this.kernels[kernel]?.name || "join";
  }

  coreName(core: number): string {
    return core < this.clusters ? `AIC ${core}` : `AIV ${core - this.clusters}`;
  }

  /** The scheduler thread that owns a core. */
  threadOf(core: number): number {
    const vectors = this.header.runtime?.vectors_per_cluster ?? 1;
    const cluster = core < this.clusters ? core : Math.floor((core - this.clusters) / vectors);
    return this.threads ? cluster % this.threads : 0;
  }

  records(task: number): Uint32Array {
    return this.taskRecords.subarray(this.taskStart[task], this.taskStart[task + 1]);
  }

  coreOrder(core: number): Uint32Array {
    return this.coreRecords.subarray(this.coreStart[core], this.coreStart[core + 1]);
  }

  /** The first of a core's records that does not end before a time. */
  firstUnfinished(order: ArrayLike<number>, at: number): number {
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.finish[order[middle]!]! < at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The record before this one on its core, or -1. */
  before(record: number): number {
    const order = this.coreOrder(this.recCore[record]!);
    const at = lowerBound(order, record);
    return at > 0 ? order[at - 1]! : -1;
  }

  placeText(place: Place | null | undefined): string {
    if (!place) return "";
    return `${this.header.files?.[place[0]]?.name ?? "?"}:${place[1]}`;
  }

  // Arguments

  private regionColumn?: Column;
  private scalarColumn?: Column;
  private regionTensor?: Column;
  private regionOffset?: Column;
  private regionLayout?: Column;

  private loadArguments(): void {
    this.regionColumn ??= this.column("argument.region");
    this.scalarColumn ??= this.column("argument.scalar");
    this.regionTensor ??= this.column("region.tensor");
    this.regionOffset ??= this.column("region.offset");
    this.regionLayout ??= this.column("region.layout");
  }

  /** `r = 16, c = 0`: scalar arguments, most of which are loop variables. */
  scalars(task: number): [string, number][] {
    this.loadArguments();
    const number = this.site[task]!;
    const site = this.sites[number]!;
    const base = this.siteScalars[number]! + this.rowInSite[task]!;
    return site.scalars.map((name, j) => [name, this.scalarColumn![base + j * site.shown]!]);
  }

  /** Tensor arguments: parameter, direction, tensor, window. */
  windows(task: number): { param: string; direction: string; tensor: string; text: string }[] {
    this.loadArguments();
    const number = this.site[task]!;
    const site = this.sites[number]!;
    const base = this.siteRegions[number]! + this.rowInSite[task]!;
    return site.tensors.map((param, j) => {
      const region = this.regionColumn![base + j * site.shown]!;
      const layout = this.header.runtime!.layouts[this.regionLayout![region]!]!;
      const tensor = this.header.runtime!.tensors[this.regionTensor![region]!] ?? "?";
      return { param, direction: site.directions[j]!, tensor, text: windowText(this.regionOffset![region]!, layout) };
    });
  }

  /** The tasks that take the tensor as an argument. */
  tasksOfTensor(name: string): Uint8Array {
    this.loadArguments();
    const wanted = this.header.runtime!.tensors.indexOf(name);
    const mask = new Uint8Array(this.tasks);
    for (let task = 0; task < this.tasks; task++) {
      const number = this.site[task]!;
      const { shown, tensors } = this.sites[number]!;
      let at = this.siteRegions[number]! + this.rowInSite[task]!;
      for (let j = 0; j < tensors.length; j++, at += shown)
        if (this.regionTensor![this.regionColumn![at]!] === wanted) {
          mask[task] = 1;
          break;
        }
    }
    return mask;
  }

  // Dependencies

  private edgeStart?: Uint32Array;
  edgeBack?: Column;
  edgeKind?: Column;
  private nextStart?: Uint32Array;
  private nextEdges?: Uint32Array;
  private edgeConsumer?: Uint32Array;

  get hasEdges(): boolean {
    return Boolean(this.header.columns?.["edge.count"]);
  }

  /** Edges: producer, consumer and kind of each; nodes beyond the tasks are joins. */
  edges(): { count: number; producer: (e: number) => number; consumer: Uint32Array; kind: Column } {
    this.loadEdges();
    const [back, consumer] = [this.edgeBack!, this.edgeConsumer!];
    return { count: back.length, producer: (e) => consumer[e]! - back[e]!, consumer, kind: this.edgeKind! };
  }

  private loadEdges(): void {
    if (this.edgeStart) return;
    const counts = this.column("edge.count");
    this.edgeStart = gathered(counts);
    this.edgeBack = this.column("edge.back");
    this.edgeKind = this.column("edge.kind");
    const total = this.edgeBack.length;
    this.edgeConsumer = new Uint32Array(total);
    const producers = new Uint32Array(total);
    for (let node = 0; node < counts.length; node++)
      for (let e = this.edgeStart[node]!; e < this.edgeStart[node + 1]!; e++) {
        this.edgeConsumer[e] = node;
        producers[e] = node - this.edgeBack[e]!;
      }
    [this.nextStart, this.nextEdges] = grouped(producers, counts.length);
  }

  /** Dependencies of a task with joins resolved: at most `most` of them, and their number. */
  producers(task: number, most: number): { tasks: number[]; kinds: string[]; total: number } {
    this.loadEdges();
    return this.neighbours(task, most, (node) => {
      const found: [number, number][] = [];
      for (let e = this.edgeStart![node]!; e < this.edgeStart![node + 1]!; e++) found.push([node - this.edgeBack![e]!, this.edgeKind![e]!]);
      return found;
    });
  }

  consumers(task: number, most: number): { tasks: number[]; kinds: string[]; total: number } {
    this.loadEdges();
    return this.neighbours(task, most, (node) => {
      const found: [number, number][] = [];
      for (let i = this.nextStart![node]!; i < this.nextStart![node + 1]!; i++) {
        const edge = this.nextEdges![i]!;
        found.push([this.edgeConsumer![edge]!, this.edgeKind![edge]!]);
      }
      return found;
    });
  }

  private neighbours(task: number, most: number, next: (node: number) => [number, number][]) {
    const kinds = new Map<number, string>();
    const stack = next(task);
    const seen = new Set<number>();
    while (stack.length) {
      const [node, kind] = stack.pop()!;
      if (node < this.tasks) {
        if (!kinds.has(node)) kinds.set(node, EDGE_KINDS[kind] === "join" ? "tensormap" : EDGE_KINDS[kind]!);
      } else if (!seen.has(node)) {
        seen.add(node);
        stack.push(...next(node));
      }
    }
    const every = [...kinds.keys()].sort((a, b) => a - b);
    const tasks = every.slice(0, most);
    return { tasks, kinds: tasks.map((t) => kinds.get(t)!), total: every.length };
  }

  // Causes of idle time

  private stallIntervals?: [number, number][];

  /** Times at which the orchestrator was stalled by a full window or heap, in ticks. */
  stalls(): [number, number][] {
    if (this.stallIntervals) return this.stallIntervals;
    const found: [number, number][] = [];
    const runtime = this.header.runtime;
    if (runtime && !this.number && runtime.window_stall_us + runtime.heap_stall_us > 0)
      for (let task = 1; task < this.tasks; task++) {
        const own = (runtime.submit_us + runtime.submit_arg_us * this.sites[this.site[task]!]!.tensors.length) / this.tick;
        const free = this.submitted[task]! - own;
        if (free - this.submitted[task - 1]! > 2) found.push([this.submitted[task - 1]!, free]);
      }
    return (this.stallIntervals = found);
  }

  /** Result of the last `fillWaits`: from, to, cause number. */
  pieces = new Float64Array(3 * 64);

  /** Write the waits of a core before a record into `pieces`, and return their number. Submission
   *  stalls outside [low, high] are skipped: there may be thousands in one gap. */
  fillWaits(record: number, previous: number, low = -Infinity, high = Infinity): number {
    const task = this.recTask[record]!;
    const dispatch = this.dispatch[record]!;
    let at = previous >= 0 ? this.finish[previous]! : this.begin;
    let n = 0;
    const submitted = Math.min(this.submitted[task]!, dispatch);
    if (at < submitted) {
      const [every, to] = [this.stalls(), Math.min(submitted, high)];
      for (let i = this.firstStall(Math.max(at, low)); i < every.length && every[i]![0] < to; i++) {
        const [from, end] = [Math.max(every[i]![0], at), Math.min(every[i]![1], submitted)];
        n = this.piece(n, at, from, 0);
        n = this.piece(n, from, end, 1);
        at = end;
      }
      n = this.piece(n, at, submitted, 0);
      at = submitted;
    }
    const ready = Math.min(this.ready[task]!, dispatch);
    if (at < ready) {
      n = this.piece(n, at, ready, 2);
      at = ready;
    }
    n = this.piece(n, at, dispatch, 3);
    // A block that waited at a busy core starts when the one before it ends.
    const handed = previous >= 0 && this.end[previous]! > dispatch ? this.end[previous]! : dispatch;
    return this.piece(n, handed, this.start[record]!, 4);
  }

  private piece(n: number, from: number, to: number, cause: number): number {
    if (from >= to) return n;
    if (3 * n + 3 > this.pieces.length) {
      const more = new Float64Array(2 * this.pieces.length);
      more.set(this.pieces);
      this.pieces = more;
    }
    this.pieces[3 * n] = from;
    this.pieces[3 * n + 1] = to;
    this.pieces[3 * n + 2] = cause;
    return n + 1;
  }

  *waits(record: number, previous: number, low = -Infinity, high = Infinity): Generator<[number, number, Cause]> {
    const n = this.fillWaits(record, previous, low, high);
    const found = Array.from(this.pieces.subarray(0, 3 * n));
    for (let i = 0; i < n; i++) yield [found[3 * i]!, found[3 * i + 1]!, CAUSES[found[3 * i + 2]!]!];
  }

  /** The first stall that ends after a time. */
  private firstStall(at: number): number {
    const every = this.stalls();
    let low = 0;
    let high = every.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (every[middle]![1] <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private idleSums?: Record<Cause, number>[];

  /** Idle time by cause, in ticks summed over the AICs and over the AIVs. */
  idle(): Record<Cause, number>[] {
    if (this.idleSums) return this.idleSums;
    const sums = [0, 1].map(() => Object.fromEntries(CAUSES.map((c) => [c, 0])) as Record<Cause, number>);
    for (let core = 0; core < this.cores; core++) {
      const into = sums[core < this.clusters ? 0 : 1]!;
      let previous = -1;
      for (const record of this.coreOrder(core)) {
        const n = this.fillWaits(record, previous);
        for (let i = 0; i < n; i++) into[CAUSES[this.pieces[3 * i + 2]!]!] += this.pieces[3 * i + 1]! - this.pieces[3 * i]!;
        into.handover += this.finish[record]! - this.end[record]!;
        previous = record;
      }
      into.none += this.last - (previous >= 0 ? this.finish[previous]! : 0);
    }
    return (this.idleSums = sums);
  }
}

/** `[16:32, 0:128]`: where a window lies in its tensor, by the strides. */
export function windowText(offset: number, layout: { shape: number[]; strides: number[]; dtype: string }): string {
  let rest = offset;
  const axes = layout.shape.map((extent, axis) => {
    const stride = Math.abs(layout.strides[axis]!) || 1;
    const wider = layout.strides.slice(axis + 1).some((s) => Math.abs(s) > stride);
    if (wider) return `…:${extent}`;
    const first = Math.floor(rest / stride);
    rest -= first * stride;
    return extent === 1 ? `${first}` : `${first}:${first + extent}`;
  });
  return `[${axes.join(", ")}] ${layout.dtype}`;
}
