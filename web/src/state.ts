// The selection, shown and changed by every view.

import type { Run } from "./run";

export const VIEWS = ["timeline", "source", "kernels", "memory", "graph", "numbers", "model", "compare"] as const;
export type ViewName = (typeof VIEWS)[number];

export interface Choice {
  run: number;
  view: ViewName;
  task: number | null;
  kernel: number | null;
  line: [number, number] | null;
  tensor: string | null;
}

export class State {
  choice: Choice = { run: 0, view: "timeline", task: null, kernel: null, line: null, tensor: null };
  private readonly listeners: ((choice: Choice, before: Choice) => void)[] = [];

  constructor(readonly runs: Run[]) {}

  get run(): Run {
    return this.runs[this.choice.run]!;
  }

  listen(call: (choice: Choice, before: Choice) => void): void {
    this.listeners.push(call);
  }

  set(change: Partial<Choice>): void {
    const before = this.choice;
    this.choice = { ...before, ...change };
    for (const call of this.listeners) call(this.choice, before);
  }

  /** Select a task with its kernel and line. */
  chooseTask(task: number, more: Partial<Choice> = {}): void {
    const site = this.run.sites[this.run.site[task]!]!;
    this.set({ task, kernel: site.kernel, line: site.place, tensor: null, ...more });
  }

  chooseKernel(kernel: number, more: Partial<Choice> = {}): void {
    this.set({ task: null, kernel, line: this.run.kernels[kernel]!.place, tensor: null, ...more });
  }

  /** Select a line with the kernel that contains it. */
  chooseLine(line: [number, number], more: Partial<Choice> = {}): void {
    const run = this.run;
    const same = (p: [number, number] | null) => p !== null && p[0] === line[0] && p[1] === line[1];
    let kernel = run.sites.find((s) => same(s.place))?.kernel ?? null;
    if (kernel === null) {
      const inside = run.kernels.findIndex((k) => k.steps.some((s) => same(s[3])));
      kernel = inside >= 0 ? inside : null;
    }
    this.set({ task: null, kernel, line, tensor: null, ...more });
  }

  clear(): void {
    this.set({ task: null, kernel: null, line: null, tensor: null });
  }

  toHash(): string {
    const { run, view, task, kernel } = this.choice;
    const parts = [`view=${view}`];
    if (run) parts.push(`run=${run}`);
    if (task !== null) parts.push(`task=${this.run.taskNumber(task)}`);
    else if (kernel !== null) parts.push(`kernel=${kernel}`);
    return `#${parts.join("&")}`;
  }

  fromHash(hash: string): void {
    const found = new URLSearchParams(hash.replace(/^#/, ""));
    const change: Partial<Choice> = {};
    const view = found.get("view");
    if (view && (VIEWS as readonly string[]).includes(view)) change.view = view as ViewName;
    const run = Number(found.get("run"));
    if (this.runs[run]) change.run = run;
    this.set(change);
    const task = found.has("task") ? this.run.taskOfNumber(Number(found.get("task"))) : -1;
    const kernel = found.has("kernel") ? Number(found.get("kernel")) : -1;
    if (task >= 0) this.chooseTask(task);
    else if (this.run.kernels[kernel]) {
      const place = this.run.kernels[kernel].place;
      const line = Number(found.get("line"));
      this.chooseKernel(kernel, place && line > 0 ? { line: [place[0], line] } : {});
    }
  }
}
