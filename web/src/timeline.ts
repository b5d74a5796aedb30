// The timeline: a lane for the orchestrator, each scheduler and each core.

import { adviceChips } from "./advice";
import { cssColor, kernelColor, rgb } from "./colors";
import type { Advice } from "./data";
import { h, onDrag } from "./dom";
import { count, moment, niceStep, shorten, time } from "./format";
import { LanePixels } from "./lanes";
import { paintOverview } from "./overview";
import { fillLane } from "./raster";
import { CAUSE_TEXT, type Cause, type Run, lowerBound } from "./run";
import type { State } from "./state";
import { summaryOf } from "./summary";

const GUTTER = 74;
const AXIS = 22;
const MINIMAP = 46;
const PIPE_ROW = 13;
const GROUP = 5;
const PIPES = ["SCALAR", "MTE2", "MTE1", "CUBE", "FIXPIPE", "VEC", "MTE3"];

interface Lane {
  kind: "orchestrator" | "scheduler" | "core";
  index: number;
  label: string;
  top: number;
  height: number;
  /** height without the pipes below */
  own: number;
  pipes: string[];
}

export class Timeline {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": "timeline of all cores" }) as HTMLCanvasElement;
  private readonly minimap = h("canvas", { class: "minimap", "aria-label": "overview; drag to move" }) as HTMLCanvasElement;
  private readonly tip = h("div", { class: "tip", role: "status" });
  private readonly summary = h("div", { class: "summary" });
  private readonly status = h("div", { class: "status", "aria-live": "polite" });
  private run: Run;
  private lanes: Lane[] = [];
  private from = 0;
  private to = 0;
  private scroll = 0;
  private contentHeight = 0;
  private showPath = true;
  private showIdle = true;
  private tall = false;
  private filter: Uint8Array | null = null;
  private pending = 0;
  /** canvas size, read only on resize, because reading it may force a layout */
  private width = 0;
  private height = 0;
  private mapWidth = 0;
  private overview: HTMLCanvasElement | null = null;
  private lanePixels: LanePixels | null = null;
  private image: ImageData | null = null;
  /** drawing times of the last frames, for the benchmark */
  readonly frames: number[] = [];

  constructor(
    private readonly state: State,
    private readonly advice: Advice | undefined,
  ) {
    this.run = state.run;
    const toggles = h(
      "div",
      { class: "toggles" },
      this.toggle("Critical path", "P", () => this.showPath, (on) => (this.showPath = on)),
      this.toggle("Idle causes", "I", () => this.showIdle, (on) => (this.showIdle = on)),
      this.toggle("Tall lanes", "L", () => this.tall, (on) => (this.tall = on)),
      h("button", { type: "button", onclick: () => this.fit(), title: "show the whole run (F)" }, "Fit"),
      h("button", { type: "button", onclick: () => this.zoomToChoice(), title: "zoom to the selected task (Enter)" }, "Zoom to selection"),
    );
    this.element = h(
      "section",
      { class: "timeline" },
      this.summary,
      h("div", { class: "row" }, toggles, this.status),
      this.minimap,
      h("div", { class: "lanes" }, this.canvas, this.tip),
    );
    this.listen();
    new ResizeObserver(() => {
      this.measure();
      this.draw();
    }).observe(this.canvas.parentElement!);
  }

  show(): void {
    if (this.run !== this.state.run) {
      this.run = this.state.run;
      this.overview = null;
      this.lanePixels = null;
      this.from = 0;
      this.to = 0;
    }
    if (this.to <= this.from) this.fit();
    this.summarize();
    this.update();
  }

  update(): void {
    const { kernel, task, tensor, line } = this.state.choice;
    this.filter = null;
    if (tensor !== null && this.run.header.runtime?.tensors.includes(tensor)) this.filter = this.run.tasksOfTensor(tensor);
    else if (task === null && kernel !== null) this.filter = this.maskOf((site) => site.kernel === kernel);
    else if (task === null && line !== null) this.filter = this.maskOf((site) => site.place?.[0] === line[0] && site.place[1] === line[1]);
    this.draw();
  }

  theme(): void {
    this.overview = null;
    this.lanePixels = null;
    this.summarize();
    this.draw();
  }

  private summarize(): void {
    const chips = adviceChips(this.state, this.advice);
    this.summary.replaceChildren(...(chips ? [chips] : []), ...summaryOf(this.run, (kernel) => this.state.chooseKernel(kernel)));
  }

  private maskOf(wanted: (site: Run["sites"][number]) => boolean): Uint8Array | null {
    const sites = this.run.sites.map((s) => (wanted(s) ? 1 : 0));
    if (!sites.includes(1)) return null;
    const mask = new Uint8Array(this.run.tasks);
    for (let i = 0; i < mask.length; i++) mask[i] = sites[this.run.site[i]!]!;
    return mask;
  }

  private toggle(text: string, key: string, get: () => boolean, set: (on: boolean) => void): HTMLElement {
    const button = h("button", { type: "button", "aria-pressed": String(get()), title: `switch on and off (${key})`, "data-key": key }, text);
    button.addEventListener("click", () => {
      set(!get());
      button.setAttribute("aria-pressed", String(get()));
      this.draw();
    });
    return button;
  }

  // Navigation

  fit(): void {
    this.setTall(false);
    this.view(0, Math.max(this.run.last, 1));
  }

  private setTall(on: boolean): void {
    this.tall = on;
    this.element.querySelector('button[data-key="L"]')?.setAttribute("aria-pressed", String(on));
  }

  view(from: number, to: number): void {
    const span = Math.min(Math.max(to - from, 20), this.run.last * 1.04 || 20);
    const middle = (from + to) / 2;
    const low = Math.max(-0.02 * this.run.last, Math.min(middle - span / 2, this.run.last * 1.02 - span));
    this.from = low;
    this.to = low + span;
    this.draw();
  }

  zoom(factor: number, at = (this.from + this.to) / 2): void {
    this.view(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share: number): void {
    const move = (this.to - this.from) * share;
    this.view(this.from + move, this.to + move);
  }

  get range(): [number, number] {
    return [this.run.us(this.from), this.run.us(this.to)];
  }

  /** Zoom to the selected task, at a third of the width, or else to the tasks of the kernel. */
  zoomToChoice(): void {
    const { task, kernel } = this.state.choice;
    let low = Infinity;
    let high = 0;
    const take = (record: number) => {
      low = Math.min(low, this.run.dispatch[record]!);
      high = Math.max(high, this.run.finish[record]!);
    };
    if (task !== null) for (const record of this.run.records(task)) take(record);
    else if (kernel !== null) for (let r = 0; r < this.run.recTask.length; r++) if (this.run.kernelOfTask[this.run.recTask[r]!] === kernel) take(r);
    if (task !== null) this.setTall(true);
    if (high > low) this.view(low - (high - low) * 0.6, high + (high - low) * 0.6);
    if (task !== null) this.scrollTo(this.run.records(task)[0]);
  }

  private scrollTo(record: number | undefined): void {
    if (record === undefined) return;
    this.layout();
    const lane = this.lanes.find((l) => l.kind === "core" && l.index === this.run.recCore[record]);
    const height = this.height - AXIS;
    if (lane && (lane.top < this.scroll || lane.top + lane.height > this.scroll + height)) this.scroll = Math.max(0, Math.min(lane.top - height / 3, this.contentHeight - height));
    this.draw();
  }

  private listen(): void {
    const canvas = this.canvas;
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / 1200);
        else if (event.altKey) this.scrollBy(event.deltaY);
        else this.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0025), this.timeAt(event.offsetX));
      },
      { passive: false },
    );
    canvas.addEventListener("pointermove", (event) => !event.buttons && this.hover(event));
    onDrag(canvas, {
      move: (_, dx, dy) => {
        this.scrollBy(-dy);
        this.pan(-dx / Math.max(this.width - GUTTER, 1));
      },
      click: (event) => this.click(event),
    });
    canvas.addEventListener("pointerleave", () => this.tip.classList.remove("on"));
    canvas.addEventListener("dblclick", () => this.zoomToChoice());
    canvas.addEventListener("keydown", (event) => this.key(event));
    const jump = (event: PointerEvent) => {
      const share = (event.offsetX - GUTTER) / Math.max(this.minimap.clientWidth - GUTTER, 1);
      const at = share * this.run.last;
      const half = (this.to - this.from) / 2;
      this.view(at - half, at + half);
    };
    onDrag(this.minimap, { start: jump, move: jump });
  }

  private scrollBy(pixels: number): void {
    const most = Math.max(0, this.contentHeight - (this.height - AXIS));
    this.scroll = Math.max(0, Math.min(most, this.scroll + pixels));
    this.draw();
  }

  key(event: KeyboardEvent): boolean {
    const step = event.shiftKey ? 0.5 : 0.15;
    const keys: Record<string, () => void> = {
      w: () => this.zoom(0.7),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      s: () => this.zoom(1 / 0.7),
      "-": () => this.zoom(1 / 0.7),
      a: () => this.pan(-step),
      d: () => this.pan(step),
      f: () => this.fit(),
      p: () => this.press("P"),
      i: () => this.press("I"),
      l: () => this.press("L"),
      Enter: () => this.zoomToChoice(),
      ArrowLeft: () => this.neighbour(-1),
      ArrowRight: () => this.neighbour(1),
      ArrowUp: () => this.otherLane(-1),
      ArrowDown: () => this.otherLane(1),
    };
    const act = event.ctrlKey || event.metaKey ? undefined : (keys[event.key] ?? keys[event.key.toLowerCase()]);
    if (!act) return false;
    event.preventDefault();
    act();
    return true;
  }

  private press(key: string): void {
    this.element.querySelector<HTMLButtonElement>(`button[data-key="${key}"]`)?.click();
  }

  /** Select the next task on the same core; without a selection, the one that ends last. */
  private neighbour(step: number): void {
    const run = this.run;
    const task = this.state.choice.task;
    if (!run.hasTasks) return;
    if (task === null) {
      this.state.chooseTask(run.recTask[run.path.length ? run.path[run.path.length - 1]! : 0]!);
      return;
    }
    const record = run.records(task)[0];
    if (record === undefined) return;
    const order = run.coreOrder(run.recCore[record]!);
    const next = order[lowerBound(order, record) + step];
    if (next !== undefined) this.chooseRecord(next);
  }

  /** Select the task running at the same time on the core above or below. */
  private otherLane(step: number): void {
    const run = this.run;
    const task = this.state.choice.task;
    const record = task === null ? undefined : run.records(task)[0];
    if (record === undefined) return this.neighbour(0);
    for (let core = run.recCore[record]! + step; core >= 0 && core < run.cores; core += step) {
      const found = this.nearest(core, run.start[record]!, Infinity);
      if (found >= 0) return this.chooseRecord(found);
    }
  }

  private chooseRecord(record: number): void {
    this.state.chooseTask(this.run.recTask[record]!);
    const [low, high] = [this.run.dispatch[record]!, this.run.finish[record]!];
    if (low < this.from || high > this.to) {
      const half = (this.to - this.from) / 2;
      this.view((low + high) / 2 - half, (low + high) / 2 + half);
    }
    this.scrollTo(record);
  }

  // Positions

  private timeAt(x: number): number {
    return this.from + ((x - GUTTER) / Math.max(this.width - GUTTER, 1)) * (this.to - this.from);
  }

  private x(ticks: number): number {
    return GUTTER + ((ticks - this.from) / (this.to - this.from)) * (this.width - GUTTER);
  }

  private laneAt(y: number): Lane | undefined {
    const inside = y - AXIS + this.scroll;
    return y < AXIS ? undefined : this.lanes.find((l) => inside >= l.top && inside < l.top + l.height);
  }

  /** The record on a core nearest to a time, within `most` ticks, or -1. */
  private nearest(core: number, at: number, most: number): number {
    const run = this.run;
    const order = run.coreOrder(core);
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.start[order[middle]!]! <= at) low = middle + 1;
      else high = middle;
    }
    let best = -1;
    let distance = most;
    for (const i of [low - 1, low]) {
      const record = order[i];
      if (record === undefined) continue;
      const away = at < run.start[record]! ? run.start[record]! - at : Math.max(0, at - run.end[record]!);
      if (away <= distance) {
        best = record;
        distance = away;
      }
    }
    return best;
  }

  private recordAt(x: number, y: number): number {
    const lane = this.laneAt(y);
    if (!lane || lane.kind !== "core" || x < GUTTER) return -1;
    return this.nearest(lane.index, this.timeAt(x), (3 * (this.to - this.from)) / Math.max(this.width - GUTTER, 1));
  }

  private click(event: PointerEvent): void {
    this.canvas.focus();
    const record = this.recordAt(event.offsetX, event.offsetY);
    if (record >= 0) return this.state.chooseTask(this.run.recTask[record]!);
    const lane = this.laneAt(event.offsetY);
    if (lane?.kind === "orchestrator") {
      const task = lowerBound(this.run.submitted, this.timeAt(event.offsetX));
      if (task < this.run.tasks) return this.state.chooseTask(task);
    }
    this.state.clear();
  }

  private hover(event: PointerEvent): void {
    const lines = this.describe(event.offsetX, event.offsetY);
    this.tip.classList.toggle("on", lines.length > 0);
    if (!lines.length) return;
    this.tip.replaceChildren(...lines.map((text, i) => h(i ? "div" : "strong", {}, text)));
    const right = event.offsetX > this.width - 280;
    this.tip.style.left = `${event.offsetX + (right ? -270 : 14)}px`;
    this.tip.style.top = `${Math.min(event.offsetY + 14, this.height - 90)}px`;
  }

  private describe(x: number, y: number): string[] {
    const run = this.run;
    const record = this.recordAt(x, y);
    if (record >= 0) {
      const task = run.recTask[record]!;
      const kernel = run.kernelOfTask[task]!;
      const scalars = run.scalars(task).map(([n, v]) => `${n} = ${v}`);
      return [
        shorten(run.kernelName(kernel), 40),
        `task ${count(run.taskNumber(task))} on ${run.coreName(run.recCore[record]!)}${run.onPath[record] ? ", on the critical path" : ""}`,
        `runs ${time(run.us(run.end[record]! - run.start[record]!))} from ${time(run.us(run.start[record]!))}`,
        ...(scalars.length ? [shorten(scalars.join(", "), 44)] : []),
      ];
    }
    const lane = this.laneAt(y);
    if (!lane || x < GUTTER) return [];
    const at = this.timeAt(x);
    if (lane.kind === "core") {
      const found = run.thinned ? null : this.idleAt(lane.index, at);
      return found ? [`${lane.label} idle`, CAUSE_TEXT[found[2]], `${time(run.us(found[1] - found[0]))}`] : [];
    }
    return [lane.label, time(run.us(at))];
  }

  private idleAt(core: number, at: number): [number, number, Cause] | null {
    const run = this.run;
    const order = run.coreOrder(core);
    let low = 0;
    let high = order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (run.finish[order[middle]!]! <= at) low = middle + 1;
      else high = middle;
    }
    const previous = low > 0 ? order[low - 1]! : -1;
    if (low === order.length) return at <= run.last ? [previous >= 0 ? run.finish[previous]! : 0, run.last, "none"] : null;
    for (const piece of run.waits(order[low]!, previous, at, at + 1)) if (at >= piece[0] && at < piece[1]) return piece;
    return null;
  }

  // Drawing

  private measure(): void {
    [this.width, this.height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    this.mapWidth = this.minimap.clientWidth;
  }

  draw(): void {
    if (this.pending || !this.element.isConnected) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      const begun = performance.now();
      this.paint();
      this.frames.push(performance.now() - begun);
      if (this.frames.length > 240) this.frames.shift();
    });
  }

  private layout(): void {
    const run = this.run;
    const room = this.height - AXIS;
    const lanes = 1 + run.threads + run.cores;
    const height = this.tall ? 18 : Math.max(6, Math.min(18, Math.floor((room - 2 * GROUP - 3 * (1 + run.threads)) / Math.max(lanes, 1))));
    const task = this.state.choice.task;
    const record = task === null ? undefined : run.records(task)[0];
    this.lanes = [];
    let top = 0;
    const add = (kind: Lane["kind"], index: number, label: string, pipes: string[] = []) => {
      const own = kind === "core" ? height : Math.max(height, 14);
      // Space for a label above the first core of each kind.
      if (kind === "core" && (index === 0 || index === run.clusters)) top += GROUP;
      const whole = own + (pipes.length ? pipes.length * PIPE_ROW + 4 : 0);
      this.lanes.push({ kind, index, label, top, height: whole, own, pipes });
      top += whole;
    };
    add("orchestrator", 0, "submit");
    for (let i = 0; i < run.threads; i++) add("scheduler", i, `sched ${i}`);
    for (let core = 0; core < run.cores; core++) {
      const open = record !== undefined && run.recCore[record] === core;
      add("core", core, run.coreName(core), open ? this.pipesOf(task!, core) : []);
    }
    this.contentHeight = top;
    this.scroll = Math.max(0, Math.min(this.scroll, top - room));
  }

  private pipesOf(task: number, core: number): string[] {
    const kind = core < this.run.clusters ? "AIC." : "AIV.";
    const names = Object.keys(this.run.costs[this.run.cost[task]!]?.pipes ?? {}).filter((p) => p.startsWith(kind));
    return names.sort((a, b) => PIPES.indexOf(a.slice(4)) - PIPES.indexOf(b.slice(4)));
  }

  private paint(): void {
    const ratio = window.devicePixelRatio || 1;
    if (!this.width) this.measure();
    const [cssWidth, cssHeight] = [this.width, this.height];
    if (cssWidth < GUTTER + 20 || cssHeight < AXIS + 20) return;
    this.layout();
    const [width, height] = [Math.round(cssWidth * ratio), Math.round(cssHeight * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const context = this.canvas.getContext("2d", { alpha: false })!;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = cssColor("--panel");
    context.fillRect(0, 0, width, height);
    this.paintLanes(context, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintText(context, cssWidth, cssHeight);
    this.paintMinimap();
    const visible = this.to - this.from;
    const step = this.run.us(visible) / 1000;
    this.status.textContent = `${moment(this.run.us(Math.max(0, this.from)), step)} – ${moment(this.run.us(this.to), step)}, ${time(this.run.us(visible))} shown`;
  }

  private paintLanes(context: CanvasRenderingContext2D, ratio: number): void {
    const left = Math.round(GUTTER * ratio);
    const width = this.canvas.width - left;
    const top = Math.round(AXIS * ratio);
    const height = this.canvas.height - top;
    if (this.image?.width !== width || this.image.height !== height) this.image = context.createImageData(width, height);
    const image = this.image;
    const pixels = new Uint32Array(image.data.buffer);
    const background = rgb(cssColor("--panel"));
    pixels.fill(0xff000000 | (background[2] << 16) | (background[1] << 8) | background[0]);
    const empty = rgb(cssColor("--lane"));
    const place = (lane: Lane): [number, number] => {
      const y0 = Math.round((lane.top - this.scroll) * ratio);
      return [y0, Math.min(height, y0 + Math.max(1, Math.round(lane.own * ratio)) - Math.max(1, Math.round(ratio)))];
    };
    const inside = this.lanes.map((lane) => place(lane)[1] > 0 && place(lane)[0] < height);
    this.lanePixels ??= new LanePixels(this.run);
    const rows = this.lanePixels.rows({ from: this.from, to: this.to, filter: this.filter, idle: this.showIdle }, width, (i) => inside[i]!);
    this.lanes.forEach((lane, i) => {
      const [y0, y1] = place(lane);
      const first = Math.max(0, y0);
      rows[i]?.paint(pixels, first * width, empty);
      if (rows[i]) fillLane(pixels, width, first, y1);
    });
    context.putImageData(image, left, top);
  }

  private paintText(context: CanvasRenderingContext2D, width: number, height: number): void {
    const [ink, soft, line] = [cssColor("--ink"), cssColor("--soft"), cssColor("--line")];
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.paintAxis(context, width, height, soft, line);
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    for (const lane of this.lanes) this.paintLabel(context, lane, soft, line, width);
    context.beginPath();
    context.rect(GUTTER, AXIS, width - GUTTER, height - AXIS);
    context.clip();
    for (const lane of this.lanes) {
      if (lane.kind === "core") this.paintNames(context, lane);
      if (lane.pipes.length) this.paintPipes(context, lane);
    }
    if (this.showPath) this.paintPath(context, ink);
    this.paintChoice(context, ink);
    context.restore();
  }

  private paintAxis(context: CanvasRenderingContext2D, width: number, height: number, soft: string, line: string): void {
    const span = this.run.us(this.to - this.from);
    const step = niceStep(span, (width - GUTTER) / 110);
    context.fillStyle = soft;
    context.strokeStyle = line;
    context.textAlign = "left";
    context.lineWidth = 1;
    const first = Math.ceil(this.run.us(this.from) / step) * step;
    for (let us = first; us <= this.run.us(this.to); us += step) {
      const x = Math.round(this.x(us / this.run.tick)) + 0.5;
      if (x < GUTTER) continue;
      const text = Math.abs(us) < step / 2 ? "0" : moment(us, step);
      if (x + 4 + context.measureText(text).width < width) context.fillText(text, x + 4, AXIS / 2);
      context.beginPath();
      context.moveTo(x, 4);
      context.lineTo(x, height);
      context.globalAlpha = 0.35;
      context.stroke();
      context.globalAlpha = 1;
    }
  }

  private laneY(lane: Lane): number {
    return AXIS + lane.top - this.scroll;
  }

  private paintLabel(context: CanvasRenderingContext2D, lane: Lane, soft: string, line: string, width: number): void {
    const y = this.laneY(lane);
    if (y + lane.height < AXIS || y > this.height) return;
    const own = lane.own;
    const every = own >= 12 ? 1 : own >= 9 ? 2 : 4;
    if (lane.kind !== "core" || lane.index % every === 0 || lane.pipes.length || lane.index === this.run.clusters) {
      context.fillStyle = soft;
      context.textAlign = "right";
      context.font = `${Math.min(11, Math.max(9, own))}px system-ui, sans-serif`;
      context.fillText(lane.label, GUTTER - 8, y + own / 2);
    }
    lane.pipes.forEach((pipe, i) => {
      context.font = "9px system-ui, sans-serif";
      context.fillText(pipe.slice(4), GUTTER - 8, y + own + (i + 0.5) * PIPE_ROW);
    });
    if (lane.kind === "core" && (lane.index === 0 || lane.index === this.run.clusters)) {
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(0, Math.round(y) - GROUP + 0.5);
      context.lineTo(width, Math.round(y) - GROUP + 0.5);
      context.stroke();
    }
  }

  private visible(core: number): Uint32Array {
    const run = this.run;
    const order = run.coreOrder(core);
    const low = run.firstUnfinished(order, this.from);
    let end = low;
    while (end < order.length && end - low < 400 && run.dispatch[order[end]!]! <= this.to) end++;
    return order.subarray(low, end);
  }

  /** Label bars with names and gaps with causes where there is room. */
  private paintNames(context: CanvasRenderingContext2D, lane: Lane): void {
    const run = this.run;
    const y = this.laneY(lane);
    const own = lane.own;
    if (own < 10 || y + own < AXIS || y > this.height) return;
    const scale = (this.width - GUTTER) / (this.to - this.from);
    const order = this.visible(lane.index);
    if (order.length >= 400 || !order.length) return;
    context.font = `${Math.min(11, own)}px system-ui, sans-serif`;
    context.textAlign = "left";
    const soft = cssColor("--soft");
    for (const record of order) {
      const length = (run.end[record]! - run.start[record]!) * scale;
      const task = run.recTask[record]!;
      if (length > 34) {
        context.fillStyle = "#fff";
        if (document.documentElement.dataset.theme === "dark") context.fillStyle = "#10141b";
        this.textIn(context, run.kernelName(run.kernelOfTask[task]!), this.x(run.start[record]!), length, y + own / 2);
      }
      if (!this.showIdle || run.thinned) continue;
      for (const [a, b, cause] of run.waits(record, run.before(record), this.from, this.to))
        if ((b - a) * scale > 90) {
          context.fillStyle = soft;
          this.textIn(context, `${CAUSE_TEXT[cause]}, ${time(run.us(b - a))}`, this.x(a), (b - a) * scale, y + own / 2);
        }
    }
  }

  private textIn(context: CanvasRenderingContext2D, text: string, x: number, length: number, y: number): void {
    const begin = Math.max(x, GUTTER) + 4;
    const room = x + length - begin - 4;
    if (room < 24) return;
    const fitting = Math.floor(room / 5.6);
    context.fillText(text.length > fitting ? `${text.slice(0, Math.max(1, fitting - 1))}…` : text, begin, y);
  }

  /** Below the lane of the selected task: the activity of each pipe. */
  private paintPipes(context: CanvasRenderingContext2D, lane: Lane): void {
    const run = this.run;
    const top = this.laneY(lane) + lane.own;
    const scale = (this.width - GUTTER) / (this.to - this.from);
    const laneColor = cssColor("--lane");
    lane.pipes.forEach((pipe, i) => {
      const y = top + i * PIPE_ROW;
      context.fillStyle = laneColor;
      context.fillRect(GUTTER, y + 1, this.width, PIPE_ROW - 2);
      for (const record of this.visible(lane.index)) {
        const task = run.recTask[record]!;
        const cost = run.costs[run.cost[task]!]!;
        const span = cost.pipes[pipe];
        const length = run.end[record]! - run.start[record]!;
        if (!span || !cost.exec_us || length * scale < 3) continue;
        const stretch = length / cost.exec_us;
        const color = kernelColor(run.rank[run.kernelOfTask[task]!]!);
        const [x0, x1] = [this.x(run.start[record]! + span[1] * stretch), this.x(Math.min(run.start[record]! + span[2] * stretch, run.end[record]!))];
        context.fillStyle = color;
        context.globalAlpha = 0.25;
        context.fillRect(x0, y + 2, Math.max(1, x1 - x0), PIPE_ROW - 4);
        context.globalAlpha = 1;
        this.paintSteps(context, run, task, record, pipe, stretch, y);
      }
    });
  }

  /** Draw the steps on a pipe if the kernel's typical execution represents this task. */
  private paintSteps(context: CanvasRenderingContext2D, run: Run, task: number, record: number, pipe: string, stretch: number, y: number): void {
    const kernel = run.kernels[run.kernelOfTask[task]!]!;
    if (kernel.typical_cost !== run.cost[task]) return;
    const pipes = new Map(kernel.steps.map((s) => [s[0], s[1]]));
    const begin = run.start[record]! + (kernel.start_us ?? 0) * stretch;
    for (const [position, from, to] of kernel.events) {
      if (position < 0 || pipes.get(position) !== pipe) continue;
      const x0 = this.x(begin + from * stretch);
      context.fillRect(x0, y + 2, Math.max(0.5, this.x(begin + to * stretch) - x0 - 0.5), PIPE_ROW - 4);
    }
  }

  private center(record: number): number {
    const lane = this.lanes[1 + this.run.threads + this.run.recCore[record]!]!;
    return AXIS + lane.top - this.scroll + lane.own / 2;
  }

  private paintPath(context: CanvasRenderingContext2D, ink: string): void {
    const run = this.run;
    const path = run.path;
    if (!path.length) return;
    const low = run.firstUnfinished(path, this.from);
    context.beginPath();
    // One stroke per pixel from its lowest to its highest lane, for any number of hops.
    let [column, lowest, highest, last, hops] = [-1e9, 0, 0, 0, 0];
    const flush = () => {
      if (highest - lowest > 1) {
        context.moveTo(column, lowest);
        context.lineTo(column, highest);
      }
      context.moveTo(column, last);
    };
    const scale = (this.width - GUTTER) / (this.to - this.from);
    const middle = this.lanes.slice(1 + run.threads).map((lane) => AXIS + lane.top - this.scroll + lane.own / 2);
    for (let i = Math.max(0, low - 1); i < path.length; i++) {
      const record = path[i]!;
      const x0 = GUTTER + (run.start[record]! - this.from) * scale;
      const x1 = GUTTER + (run.end[record]! - this.from) * scale;
      const y = middle[run.recCore[record]!]!;
      if (y !== last) hops++;
      if (x1 - column < 1) {
        if (y < lowest) lowest = y;
        if (y > highest) highest = y;
      } else {
        if (column > -1e9) {
          flush();
          context.lineTo(x0, y);
        } else context.moveTo(x0, y);
        context.lineTo(x1, y);
        column = x1;
        lowest = y;
        highest = y;
      }
      last = y;
      if (run.dispatch[record]! > this.to) break;
    }
    flush();
    // Hops too close to be distinguished are drawn as a shade instead of lines.
    const dense = hops / Math.max(1, this.width - GUTTER) > 0.5;
    if (!dense) {
      context.strokeStyle = cssColor("--panel");
      context.globalAlpha = 0.75;
      context.lineWidth = 3;
      context.stroke();
    }
    context.strokeStyle = ink;
    context.globalAlpha = dense ? 0.45 : 0.9;
    context.lineWidth = dense ? 0.5 : 1.2;
    context.stroke();
    context.globalAlpha = 1;
  }

  private paintChoice(context: CanvasRenderingContext2D, ink: string): void {
    const run = this.run;
    const task = this.state.choice.task;
    if (task === null) return;
    const at = (t: number, end: boolean): [number, number] | null => {
      const records = run.records(t);
      const record = end ? records[records.length - 1] : records[0];
      return record === undefined ? null : [this.x(end ? run.end[record]! : run.start[record]!), this.center(record)];
    };
    if (run.hasEdges) {
      const [before, after] = [run.producers(task, 40), run.consumers(task, 40)];
      context.lineWidth = 1.2;
      for (const [others, into] of [
        [before.tasks, true],
        [after.tasks, false],
      ] as const)
        for (const other of others) {
          const a = at(into ? other : task, true);
          const b = at(into ? task : other, false);
          if (!a || !b) continue;
          context.strokeStyle = cssColor(into ? "--accent" : "--soft");
          context.setLineDash(into ? [] : [4, 3]);
          context.beginPath();
          context.moveTo(...a);
          const bend = Math.max(12, Math.abs(b[0] - a[0]) / 2);
          context.bezierCurveTo(a[0] + bend, a[1], b[0] - bend, b[1], ...b);
          context.stroke();
        }
      context.setLineDash([]);
    }
    context.strokeStyle = ink;
    context.lineWidth = 2;
    for (const record of run.records(task)) {
      const lane = this.lanes[1 + run.threads + run.recCore[record]!]!;
      const [x0, x1] = [this.x(run.start[record]!), this.x(run.end[record]!)];
      context.strokeRect(x0 - 1, this.laneY(lane) - 1, Math.max(3, x1 - x0 + 2), lane.own + 1);
    }
  }

  // Overview

  private paintMinimap(): void {
    const ratio = window.devicePixelRatio || 1;
    const [cssWidth, width, height] = [this.mapWidth, Math.round(this.mapWidth * ratio), Math.round(MINIMAP * ratio)];
    if (cssWidth < GUTTER + 20) return;
    const context = this.minimap.getContext("2d")!;
    if (this.overview?.width !== width) {
      this.overview = h("canvas", { width, height }) as HTMLCanvasElement;
      const drawn = this.overview.getContext("2d")!;
      drawn.setTransform(ratio, 0, 0, ratio, 0, 0);
      paintOverview(drawn, this.run, { left: GUTTER, width: cssWidth, height: MINIMAP });
      [this.minimap.width, this.minimap.height] = [width, height];
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.drawImage(this.overview, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const last = Math.max(this.run.last, 1);
    const at = (t: number) => GUTTER + (t / last) * (cssWidth - GUTTER);
    const [x0, x1] = [Math.max(GUTTER, at(this.from)), Math.min(cssWidth, at(this.to))];
    context.fillStyle = cssColor("--panel");
    context.globalAlpha = 0.6;
    context.fillRect(GUTTER, 0, x0 - GUTTER, MINIMAP);
    context.fillRect(x1, 0, cssWidth - x1, MINIMAP);
    context.globalAlpha = 1;
    context.strokeStyle = cssColor("--accent");
    context.lineWidth = 1.5;
    context.strokeRect(x0 + 0.75, 0.75, Math.max(3, x1 - x0 - 1.5), MINIMAP - 1.5);
  }
}
