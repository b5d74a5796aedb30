// Lanes as rows of colored pixels: the orchestrator, schedulers, then cores.
//
// Zoomed in, the visible bars are rasterized for every frame. Zoomed out there may be hundreds of
// thousands, so they are accumulated once into fine columns over the whole run, and a frame reads the
// columns of its pixels.

import { causeColor, cssColor, kernelColor, rgb } from "./colors";
import { Columns, Places, Row } from "./raster";
import { CAUSES, type Cause, type Run, lowerBound } from "./run";

/** Number of columns over the whole run, a power of two; 16 bytes per lane and column. */
const COLUMNS = 16384;
/** Runs with fewer records are drawn bar by bar. */
const MANY = 20_000;

export interface Seen {
  from: number;
  to: number;
  filter: Uint8Array | null;
  idle: boolean;
}

export class LanePixels {
  private readonly colors: number[][];
  private readonly faint: number[][];
  private readonly causes: Record<Cause, number[]>;
  private whole: Columns | null = null;
  /** buffers of the last frame, reused to avoid garbage collection */
  private kept: Row[] = [];
  private of: { filter: Uint8Array | null; idle: boolean } | null = null;

  /** Uses the colors of the current theme; another theme needs a new object. */
  constructor(private readonly run: Run) {
    const background = rgb(cssColor("--panel"));
    this.colors = run.kernels.map((_, k) => rgb(kernelColor(run.rank[k]!)));
    this.faint = this.colors.map((c) => c.map((v, i) => v * 0.18 + background[i]! * 0.82));
    this.causes = Object.fromEntries(CAUSES.map((c) => [c, rgb(causeColor(c))] as const)) as unknown as Record<Cause, number[]>;
  }

  /** Return one row of `width` pixels per lane for which `wanted` is true. */
  rows(asked: Seen, width: number, wanted: (lane: number) => boolean): (Row | null)[] {
    const run = this.run;
    const seen = { ...asked, idle: asked.idle && !run.thinned };
    const lanes = Array.from({ length: 1 + run.threads + run.cores }, (_, i) => i);
    const whole = Math.max(run.last, 1);
    const perPixel = ((seen.to - seen.from) / whole) * (COLUMNS / width);
    if (run.recTask.length >= MANY && perPixel >= 1) {
      const columns = this.columns(seen);
      const scale = COLUMNS / whole;
      const places = new Places(COLUMNS, seen.from * scale, seen.to * scale, width);
      const rows = lanes.map((lane) => (wanted(lane) ? this.row(lane, width) : null));
      rows.forEach((row, lane) => row && columns.fill(row, lane, places));
      return rows;
    }
    const rows = lanes.map((lane) => (wanted(lane) ? this.row(lane, width) : null));
    for (const row of rows) row?.clear();
    this.add(rows, seen, width / (seen.to - seen.from));
    return rows;
  }

  private row(lane: number, width: number): Row {
    const kept = this.kept[lane];
    return kept?.width === width ? kept : (this.kept[lane] = new Row(width));
  }

  private columns(seen: Seen): Columns {
    if (!this.whole || this.of?.filter !== seen.filter || this.of.idle !== seen.idle) {
      const rows = Array.from({ length: 1 + this.run.threads + this.run.cores }, () => new Row(COLUMNS));
      const whole = Math.max(this.run.last, 1);
      this.add(rows, { ...seen, from: 0, to: whole }, COLUMNS / whole);
      this.whole = new Columns(rows);
      this.of = { filter: seen.filter, idle: seen.idle };
    }
    return this.whole;
  }

  private add(rows: (Row | null)[], seen: Seen, scale: number): void {
    const { threads, cores } = this.run;
    if (rows[0]) this.addOrchestrator(rows[0], seen, scale);
    const schedulers = rows.slice(1, 1 + threads);
    if (schedulers.some((row) => row)) this.addSchedulers(schedulers, seen, scale);
    for (let core = 0; core < cores; core++) {
      const row = rows[1 + threads + core];
      if (row) this.addCore(row, core, seen, scale);
    }
  }

  private color(task: number, filter: Uint8Array | null): number[] {
    return (filter && !filter[task] ? this.faint : this.colors)[this.run.kernelOfTask[task]!]!;
  }

  private addCore(row: Row, core: number, { from, to, filter, idle }: Seen, scale: number): void {
    const run = this.run;
    const order = run.coreOrder(core);
    const ordered = CAUSES.map((c) => this.causes[c]);
    const low = run.firstUnfinished(order, from);
    let previous = low > 0 ? order[low - 1]! : -1;
    for (let i = low; i < order.length; i++) {
      const record = order[i]!;
      if (idle) {
        const pieces = run.fillWaits(record, previous, from, to);
        for (let p = 0; p < 3 * pieces; p += 3) row.add((run.pieces[p]! - from) * scale, (run.pieces[p + 1]! - from) * scale, ordered[run.pieces[p + 2]!]!);
      }
      if (run.dispatch[record]! > to) return;
      const x0 = (run.start[record]! - from) * scale;
      const x1 = (run.end[record]! - from) * scale;
      row.add(x0, x1, this.color(run.recTask[record]!, filter));
      if (idle) row.add(x1, (run.finish[record]! - from) * scale, this.causes.handover);
      previous = record;
    }
    if (idle && previous >= 0) row.add((run.finish[previous]! - from) * scale, (run.last - from) * scale, this.causes.none);
  }

  /** Rasterize all schedulers in one pass over the visible records. */
  private addSchedulers(rows: (Row | null)[], { from, to, filter }: Seen, scale: number): void {
    const run = this.run;
    const runtime = run.header.runtime!;
    const hand = runtime.dispatch_us / run.tick;
    const retire = runtime.complete_us / run.tick;
    const owners = Array.from({ length: run.cores }, (_, core) => rows[run.threadOf(core)] ?? null);
    const first = lowerBound(run.dispatch, from - run.longest - retire);
    for (let record = first; record < run.dispatch.length; record++) {
      const dispatch = run.dispatch[record]! - from;
      if (dispatch - hand > to - from) break;
      const row = owners[run.recCore[record]!];
      if (!row) continue;
      const color = this.color(run.recTask[record]!, filter);
      const finish = run.finish[record]! - from;
      row.add((dispatch - hand) * scale, dispatch * scale, color, 0.9);
      row.add(finish * scale, (finish + retire) * scale, color, 0.55);
    }
  }

  private addOrchestrator(row: Row, { from, to, filter }: Seen, scale: number): void {
    const run = this.run;
    for (const [a, b] of run.stalls()) if (b > from && a < to) row.add((a - from) * scale, (b - from) * scale, this.causes.window);
    const submit = run.header.runtime!.submit_us / run.tick;
    for (let task = lowerBound(run.submitted, from); task < run.tasks && run.submitted[task]! - submit <= to; task++) {
      const end = (run.submitted[task]! - from) * scale;
      row.add(end - submit * scale, end, this.color(task, filter), 0.9);
    }
  }
}
