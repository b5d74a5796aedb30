// Comparison of two runs: changes by kernel, by cause and over time.

import { kernelColor, rgb, cssColor } from "./colors";
import { bar, empty, h, table } from "./dom";
import { bytes, count, percent, shorten, time, times } from "./format";
import { Row, fillLane } from "./raster";
import type { ComparisonData } from "./data";
import type { Run } from "./run";
import type { State } from "./state";

export class Compare {
  readonly element = h("section", { class: "compare" });

  constructor(
    private readonly state: State,
    private readonly data: ComparisonData | undefined,
  ) {}

  show(): void {
    const data = this.data;
    const [a, b] = this.state.runs;
    if (!data || !a || !b) {
      this.element.replaceChildren(empty("One run only", "Two programs, or one before and after a change:", "tilelet compare before.py after.py --html out.html"));
      return;
    }
    const most = Math.max(...data.causes.map((c) => Math.abs(c.us)), 1e-9);
    const rows: [string, (r: Run) => number, (n: number) => string][] = [
      ["total (modelled)", (r) => r.profile.total_us, time],
      ["tasks", (r) => r.profile.tasks, count],
      ["GM bytes", (r) => r.profile.tensors.reduce((s, t) => s + t.read + t.written, 0), bytes],
      ["not saved by L2", (r) => r.profile.hbm_read + r.profile.hbm_written, bytes],
      ["AIC busy", (r) => r.profile.busy.AIC ?? 0, percent],
      ["AIV busy", (r) => r.profile.busy.AIV ?? 0, percent],
    ];
    const pairs = [...data.kernels].sort((x, y) => Math.abs((y.b?.exec_us ?? 0) - (y.a?.exec_us ?? 0)) - Math.abs((x.b?.exec_us ?? 0) - (x.a?.exec_us ?? 0)));
    const longest = Math.max(...pairs.flatMap((p) => [p.a?.exec_us ?? 0, p.b?.exec_us ?? 0]), 1e-9);
    this.element.replaceChildren(
      h("div", { class: "panel" }, h("h3", {}, "Verdict"), h("p", { class: "big" }, data.verdict.replace(/ Largest causes.*$/, "")), (data.notes ?? []).map((note) => h("p", { class: "note" }, `Note: ${note}.`)), this.lanes(a, b)),
      h(
        "div",
        { class: "panel" },
        h("h3", {}, "Why, by the critical paths"),
        data.causes.slice(0, 12).map((c) => h("div", { class: "why" }, bar(Math.abs(c.us) / most, `${c.us > 0 ? "+" : "−"}${time(Math.abs(c.us))}`, c.us > 0 ? "worse" : "better"), h("span", {}, c.text))),
      ),
      h(
        "div",
        { class: "panel" },
        h("h3", {}, "Figures"),
        table(
          rows,
          [
            { head: "", left: true, cell: (r) => r[0] },
            { head: `A: ${shorten(a.header.name, 40)}`, cell: (r) => r[2](r[1](a)) },
            { head: `B: ${shorten(b.header.name, 40)}`, cell: (r) => r[2](r[1](b)) },
            { head: "B / A", cell: (r) => times(r[1](b), r[1](a)) },
          ],
          { label: "figures" },
        ),
      ),
      h(
        "div",
        { class: "panel" },
        h("h3", {}, "Kernels that belong together"),
        table(
          pairs,
          [
            { head: "kernel", left: true, cell: (p) => (p.a && p.b && p.a.name !== p.b.name ? `${shorten(p.a.name, 26)} → ${shorten(p.b.name, 26)}` : shorten(p.name, 50)) },
            { head: "tasks A", cell: (p) => (p.a ? count(p.a.tasks) : "–") },
            { head: "B", cell: (p) => (p.b ? count(p.b.tasks) : "–") },
            { head: "time A", cell: (p) => (p.a ? bar(p.a.exec_us / longest, time(p.a.exec_us)) : "–") },
            { head: "B", cell: (p) => (p.b ? bar(p.b.exec_us / longest, time(p.b.exec_us)) : "–") },
            { head: "bytes A", cell: (p) => (p.a ? bytes(p.a.bytes) : "–") },
            { head: "B", cell: (p) => (p.b ? bytes(p.b.bytes) : "–") },
            { head: "bound A", left: true, cell: (p) => p.a?.bound ?? "–" },
            { head: "B", left: true, cell: (p) => p.b?.bound ?? "–" },
          ],
          { label: "pairs of kernels", choose: (p) => this.choose(p) },
        ),
      ),
    );
    this.paint(a, b);
  }

  /** The kernel in run B, or in run A if B does not have it. */
  private choose(pair: ComparisonData["kernels"][number]): void {
    const [run, name] = pair.b ? [1, pair.b.name] : [0, pair.a?.name];
    const kernel = this.state.runs[run]!.kernels.findIndex((k) => k.name === name);
    if (kernel < 0) return;
    this.state.set({ run });
    this.state.chooseKernel(kernel);
  }

  update(): void {}

  theme(): void {
    if (this.data) this.show();
  }

  private lanes(a: Run, b: Run): HTMLElement {
    const lane = (run: Run, name: string, i: number) =>
      run.hasTasks
        ? h("div", { class: "mini", "data-run": i }, h("b", {}, name), h("canvas", { height: 60, role: "img", "aria-label": `cores at work in ${name}`, onclick: () => this.state.set({ run: i, view: "timeline", task: null, kernel: null, line: null }) }), h("span", {}, time(run.profile.total_us)))
        : h("div", { class: "mini" }, h("b", {}, name), h("span", {}, `${time(run.profile.total_us)}; a saved profile has no timeline`));
    return h("div", {}, lane(a, "A", 0), lane(b, "B", 1), h("p", { class: "hint" }, "All cores on one scale of time; click to open the timeline."));
  }

  /** One row of pixels per core, both runs on the same time scale. */
  private paint(a: Run, b: Run): void {
    const last = Math.max(a.us(a.last), b.us(b.last), 1e-9);
    for (const canvas of this.element.querySelectorAll<HTMLCanvasElement>(".mini canvas")) {
      const run = this.state.runs[Number(canvas.parentElement!.dataset.run)]!;
      const width = Math.max(200, Math.round(canvas.clientWidth || 800));
      const tall = Math.max(1, Math.floor(96 / Math.max(run.cores, 1)));
      canvas.width = width;
      canvas.height = run.cores * tall;
      const context = canvas.getContext("2d")!;
      const image = context.createImageData(width, canvas.height);
      const pixels = new Uint32Array(image.data.buffer);
      const row = new Row(width);
      const colors = run.kernels.map((_, k) => rgb(kernelColor(run.rank[k]!)));
      const empty = rgb(cssColor("--lane"));
      const scale = (width * run.tick) / last;
      for (let core = 0; core < run.cores; core++) {
        row.clear();
        for (const record of run.coreOrder(core)) row.add(run.start[record]! * scale, run.end[record]! * scale, colors[run.kernelOfTask[run.recTask[record]!]!]!);
        row.paint(pixels, core * tall * width, empty);
        fillLane(pixels, width, core * tall, (core + 1) * tall);
      }
      context.putImageData(image, 0, 0);
    }
  }
}
