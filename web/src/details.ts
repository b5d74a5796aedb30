// The panel on the right: details of the selection.

import { advicePanel } from "./advice";
import { kernelColor } from "./colors";
import type { Advice, Numbers } from "./data";
import { bar, breakable, h } from "./dom";
import { firstOf } from "./first";
import { bytes, count, percent, shorten, time } from "./format";
import { CAUSE_TEXT, type Cause, type Run } from "./run";
import type { State } from "./state";

export class Details {
  readonly element = h("aside", { class: "details", "aria-label": "selection" });

  constructor(
    private readonly state: State,
    private readonly numbers: Numbers | undefined,
    private readonly advice: Advice | undefined,
  ) {}

  update(): void {
    const { task, kernel, line, tensor } = this.state.choice;
    const run = this.state.run;
    let parts: (HTMLElement | null)[];
    if (tensor !== null) parts = this.tensor(run, tensor);
    else if (task !== null) parts = this.task(run, task);
    else if (kernel !== null) parts = this.kernel(run, kernel);
    else if (line !== null) parts = [h("h2", {}, run.placeText(line)), h("p", {}, "No task comes from this line.")];
    else parts = this.nothing(run);
    const chosen = tensor !== null || task !== null || kernel !== null || line !== null;
    this.element.classList.toggle("open", chosen);
    if (chosen) parts.unshift(h("button", { type: "button", class: "close", title: "select nothing (Esc)", "aria-label": "select nothing", onclick: () => this.state.clear() }, "×"));
    this.element.replaceChildren(...parts.filter((p): p is HTMLElement => p !== null));
  }

  private link(text: string, go: () => void, title = ""): HTMLElement {
    return h("button", { type: "button", class: "link", onclick: go, title }, text);
  }

  private facts(rows: [string, string | HTMLElement | (string | HTMLElement)[]][]): HTMLElement {
    return h("dl", {}, rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  private nothing(run: Run): HTMLElement[] {
    const p = run.profile;
    const first = firstOf(this.state, this.numbers);
    return [
      ...advicePanel(this.state, this.advice),
      ...(first.length ? [h("h2", {}, "Look at first"), h("ol", { class: "first" }, first.map((f) => h("li", {}, this.link(f.head, f.go), h("div", {}, f.text))))] : []),
      h("h2", {}, "This run"),
      this.facts([
        ["program", breakable(shorten(p.program, 120))],
        ["machine", `${p.title || p.machine}, runtime of ${p.period}`],
        ["total", `${time(p.total_us)} (modelled)`],
        ...((p.interval?.length === 2 ? [["likely", `${time(p.interval[0]!)} to ${time(p.interval[1]!)}`]] : []) as [string, string][]),
        ["tasks", count(p.tasks)],
        ["GM traffic", bytes(p.tensors.reduce((s, t) => s + t.read + t.written, 0))],
        ["not saved by L2", bytes(p.hbm_read + p.hbm_written)],
        ["schedulers busy", p.scheduler_busy.map((s) => percent(s, 0)).join(", ") || "–"],
        ["orchestrator done", time(p.orchestrator_us)],
      ]),
      h("p", { class: "hint" }, "Click a task, a line, a kernel or a tensor: every view shows it. Press ? for the keys."),
    ];
  }

  private task(run: Run, task: number): (HTMLElement | null)[] {
    const site = run.sites[run.site[task]!]!;
    const records = run.records(task);
    const cost = run.costs[run.cost[task]!];
    const first = records[0];
    const scalars = run.scalars(task);
    const onPath = [...records].some((r) => run.onPath[r]);
    const name = run.kernelName(site.kernel);
    const swatch = h("i", { class: "swatch", style: `background:${kernelColor(run.rank[site.kernel]!)}` });
    const rows: [string, string | HTMLElement | (string | HTMLElement)[]][] = [
      ["kernel", this.link(shorten(name, 120), () => this.state.chooseKernel(site.kernel, { view: "kernels" }), "show the kernel")],
      ["line", site.place ? this.link(run.placeText(site.place), () => this.state.set({ view: "source", line: site.place }), "show the source") : "–"],
    ];
    if (scalars.length) rows.push(["arguments", scalars.map(([n, v]) => `${shorten(n, 60)} = ${v}`).join(", ")]);
    if (site.blocks) rows.push(["blocks", String(site.blocks)]);
    if (first !== undefined) {
      const cores = records.length > 4 ? `${records.length} records` : [...records].map((r) => run.coreName(run.recCore[r]!)).join(", ");
      rows.push(["core", cores]);
      rows.push(["runs", `${time(run.us(run.end[first]! - run.start[first]!))}, from ${time(run.us(run.start[first]!))}`]);
    }
    rows.push(["critical path", onPath ? "yes" : "no"]);
    if (cost) rows.push(["bound", run.rowOf.get(name)?.bound ?? cost.bound]);
    return [
      h("h2", {}, swatch, `Task ${count(run.taskNumber(task))}`),
      this.facts(rows),
      this.waits(run, task),
      cost && Object.keys(cost.pipes).length ? this.pipes(cost) : null,
      this.windows(run, task),
      run.hasEdges ? this.dependencies(run, task) : null,
    ];
  }

  /** The task's life from submission to completion, as text and bars. */
  private waits(run: Run, task: number): HTMLElement {
    const record = run.records(task)[0];
    const rows: [string, number][] = [];
    if (record !== undefined) {
      const [submitted, ready] = [run.submitted[task]!, run.ready[task]!];
      const back = run.released[task]!;
      rows.push([back ? `waiting for task ${count(run.taskNumber(task - back))}` : "waiting for a dependency", ready - submitted]);
      rows.push(["waiting for a free core or scheduler", Math.max(0, run.dispatch[record]! - ready)]);
      rows.push(["hand-over to the core", run.start[record]! - run.dispatch[record]!]);
      rows.push(["running", run.end[record]! - run.start[record]!]);
      rows.push(["completion noticed", run.finish[record]! - run.end[record]!]);
    }
    const total = rows.reduce((s, [, t]) => s + t, 0) || 1;
    const before = record === undefined ? -1 : run.before(record);
    const idle: [string, number][] = [];
    if (record !== undefined) {
      const sums = new Map<Cause, number>();
      for (const [a, b, cause] of run.thinned ? [] : run.waits(record, before)) sums.set(cause, (sums.get(cause) ?? 0) + b - a);
      for (const [cause, spent] of sums) idle.push([CAUSE_TEXT[cause], spent]);
    }
    return h(
      "section",
      {},
      h("h3", {}, "Since it was submitted"),
      rows.map(([text, t]) => h("div", { class: "wait" }, h("span", {}, text), bar(t / total, time(run.us(t)), text === "running" ? "strong" : ""))),
      idle.length ? h("h3", {}, "Why the core did not start it earlier") : null,
      idle.map(([text, t]) => h("div", { class: "wait" }, h("span", {}, text), h("b", {}, time(run.us(t))))),
    );
  }

  private pipes(cost: Run["costs"][number]): HTMLElement {
    const names = Object.entries(cost.pipes).sort((a, b) => b[1][0] - a[1][0]);
    return h(
      "section",
      {},
      h("h3", {}, "Pipes in one execution"),
      names.map(([name, [busy]]) => h("div", { class: "wait" }, h("span", {}, name), bar(busy / (cost.exec_us || 1), `${time(busy)}  ${percent(busy / (cost.exec_us || 1), 0)}`))),
    );
  }

  private windows(run: Run, task: number): HTMLElement {
    const every = run.windows(task);
    return h(
      "section",
      {},
      h("h3", {}, "Tensors"),
      every.map((w) =>
        h(
          "div",
          { class: "window" },
          h("em", { title: "direction" }, w.direction),
          this.link(shorten(w.tensor, 80), () => this.state.set({ tensor: w.tensor }), "all tasks with this tensor"),
          h("code", {}, w.text),
        ),
      ),
      every.length ? null : h("p", {}, "none"),
    );
  }

  private dependencies(run: Run, task: number): HTMLElement {
    const list = (title: string, found: { tasks: number[]; kinds: string[]; total: number }) => [
      h("h3", {}, `${title} (${count(found.total)})`),
      h(
        "ul",
        { class: "tasks" },
        found.tasks.map((t, i) => h("li", {}, this.link(`task ${count(run.taskNumber(t))}`, () => this.state.chooseTask(t)), ` ${shorten(run.kernelName(run.kernelOfTask[t]!), 60)} `, h("em", {}, found.kinds[i]!))),
        found.total > found.tasks.length ? h("li", {}, `and ${count(found.total - found.tasks.length)} more`) : null,
      ),
    ];
    return h("section", {}, list("Waits for", run.producers(task, 6)), list("Needed by", run.consumers(task, 6)));
  }

  private kernel(run: Run, kernel: number): HTMLElement[] {
    const row = run.rowOf.get(run.kernels[kernel]!.name);
    const total = run.profile.total_us || 1;
    const first = run.kernelOfTask.indexOf(kernel);
    const place = run.kernels[kernel]!.place;
    const rows: [string, string | HTMLElement][] = [["line", place ? this.link(run.placeText(place), () => this.state.set({ view: "source" })) : "–"]];
    if (row)
      rows.push(
        ["cores", row.cores],
        ["tasks", count(row.tasks)],
        ["time of all", time(row.exec_us)],
        ["each", time(run.each(row))],
        ["bound", row.bound],
        ["on the critical path", `${time(row.path_us)} (${percent(row.path_us / total)}), ${count(row.path_tasks)} tasks`],
        ["read, written", `${bytes(row.read)}, ${bytes(row.written)}`],
        ["least possible", bytes(row.least_read + row.least_written)],
      );
    const parts = [h("h2", {}, h("i", { class: "swatch", style: `background:${kernelColor(run.rank[kernel]!)}` }), breakable(shorten(run.kernelName(kernel), 120))), this.facts(rows)];
    if (first >= 0) parts.push(h("p", {}, this.link("first task", () => this.state.chooseTask(first, { view: "timeline" })), "  ", this.link("in the timeline", () => this.state.set({ view: "timeline" }))));
    return parts;
  }

  private tensor(run: Run, name: string): HTMLElement[] {
    const rows = run.profile.tensors.filter((t) => t.name === name);
    const moves = (run.header.moves ?? []).filter((m) => m[1] === name).sort((a, b) => b[3] + b[4] - a[3] - a[4]);
    return [
      h("h2", {}, breakable(shorten(name, 120))),
      ...rows.map((t) =>
        this.facts([
          ["kind", t.origin === "param" ? "argument" : "the program's own"],
          ["size", bytes(t.size)],
          ["read", bytes(t.read)],
          ["written", bytes(t.written)],
          ["compulsory", bytes(t.least_read + t.least_written)],
        ]),
      ),
      h("h3", {}, "Moved by"),
      h(
        "ul",
        { class: "tasks" },
        moves.map(([kernel, , , read, written]) => h("li", {}, this.link(shorten(kernel, 80), () => this.state.chooseKernel(run.kernels.findIndex((k) => k.name === kernel))), ` reads ${bytes(read)}, writes ${bytes(written)}`)),
      ),
    ];
  }
}
