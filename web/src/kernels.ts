// Kernels: time and bound of each, the roofline, and the pipes of one execution.

import { kernelColor } from "./colors";
import { bar, empty, h, svg, table } from "./dom";
import { bytes, count, percent, shorten, time, times } from "./format";
import type { KernelRow } from "./data";
import type { Run } from "./run";
import type { State } from "./state";

export const BOUND_TEXT: Record<string, string> = {
  cube: "the cube: products take the time; less work, or a cheaper type",
  vector: "the vector unit: elementwise work takes the time",
  MTE: "transfers inside the core: loads and stores take longer than computing",
  scalar: "the scalar unit: too many small instructions",
  latency: "latency: pipes wait for each other; more buffers or larger tiles overlap them",
  GM: "global memory: bytes that L2 does not save take the time",
  dispatch: "the runtime: handing out and completing a task takes longer than running it; larger tasks",
};

export class Kernels {
  readonly element = h("section", { class: "kernels" });

  constructor(private readonly state: State) {}

  show(): void {
    this.update();
  }

  update(): void {
    const run = this.state.run;
    const rows = run.profile.kernels;
    if (!rows.length) {
      this.element.replaceChildren(empty("No kernels", "No task of this run has a kernel."));
      return;
    }
    const index = new Map(run.kernels.map((k, i) => [k.name, i]));
    const most = Math.max(...rows.map((r) => r.exec_us), 1e-9);
    const total = run.profile.total_us || 1;
    const list = table<KernelRow>(
      rows,
      [
        { head: "kernel", left: true, cell: (r) => [h("i", { class: "swatch", style: `background:${kernelColor(run.rank[index.get(r.name)!] ?? 0)}` }), shorten(r.name, 44)], key: (r) => r.name },
        { head: "place", left: true, cell: (r) => r.where, key: (r) => r.where },
        { head: "cores", left: true, cell: (r) => r.cores },
        { head: "bound", left: true, cell: (r) => h("span", { title: BOUND_TEXT[r.bound] }, r.bound), key: (r) => r.bound },
        { head: "tasks", cell: (r) => count(r.tasks), key: (r) => r.tasks },
        { head: "time", hint: "of all its tasks", cell: (r) => bar(r.exec_us / most, time(r.exec_us)), key: (r) => r.exec_us },
        { head: "each", hint: "time of one block", cell: (r) => time(run.each(r)), key: (r) => run.each(r) },
        { head: "critical path", cell: (r) => percent(r.path_us / total), key: (r) => r.path_us },
        { head: "bytes", cell: (r) => bytes(r.read + r.written), key: (r) => r.read + r.written },
        { head: "of least", hint: "bytes against touching each byte once", cell: (r) => times(r.read + r.written, r.least_read + r.least_written), key: (r) => (r.read + r.written) / Math.max(r.least_read + r.least_written, 1) },
        { head: "of roof", hint: "speed against what the machine allows", cell: (r) => (r.roof_gflops ? percent(r.gflops / r.roof_gflops) : "–"), key: (r) => (r.roof_gflops ? r.gflops / r.roof_gflops : -1) },
      ],
      {
        label: "kernels",
        sort: 5,
        chosen: (r) => index.get(r.name) === this.state.choice.kernel,
        choose: (r) => index.has(r.name) && this.state.chooseKernel(index.get(r.name)!),
      },
    );
    const kernel = this.state.choice.kernel ?? index.get([...rows].sort((a, b) => b.exec_us - a.exec_us)[0]!.name) ?? null;
    this.element.replaceChildren(h("div", { class: "scroll" }, list), h("div", { class: "two" }, this.roofline(run, index), kernel === null || !run.kernels[kernel] ? h("div") : this.pipes(run, kernel)));
  }

  private roofline(run: Run, index: Map<string, number>): HTMLElement {
    const p = run.profile;
    const rows = p.kernels.filter((r) => r.flops && r.gflops && r.roof_gflops);
    if (!rows.length || !p.peak_gflops) return h("div", { class: "panel" }, h("h3", {}, "Roofline"), h("p", { class: "hint" }, "No kernel multiplies matrices: there is no roof to compare with."));
    const [width, height, left, bottom] = [520, 300, 56, 34];
    // Intensity counts the bytes that miss L2; the roof gives their number.
    const points = rows.map((r) => ({ r, x: r.roof_gflops < p.peak_gflops * 0.999 ? r.roof_gflops / p.hbm_gbs : Math.max((p.peak_gflops / p.hbm_gbs) * 1.5, r.flops / Math.max(r.read + r.written, 1)), y: r.gflops }));
    const ridge = p.peak_gflops / p.hbm_gbs;
    const x0 = Math.log10(Math.min(ridge / 30, ...points.map((q) => q.x)) * 0.6);
    const x1 = Math.log10(Math.max(ridge * 8, ...points.map((q) => q.x)) * 1.6);
    const y1 = Math.log10(p.peak_gflops * 1.8);
    const y0 = Math.log10(Math.min(p.peak_gflops / 1000, ...points.map((q) => q.y)) * 0.5);
    const X = (v: number) => left + ((Math.log10(v) - x0) / (x1 - x0)) * (width - left - 10);
    const Y = (v: number) => height - bottom - ((Math.log10(v) - y0) / (y1 - y0)) * (height - bottom - 10);
    const marks: SVGElement[] = [];
    for (let e = Math.ceil(x0); e <= x1; e++) marks.push(svg("line", { x1: X(10 ** e), x2: X(10 ** e), y1: 10, y2: height - bottom, class: "grid" }), svg("text", { x: X(10 ** e), y: height - bottom + 15, class: "axis", "text-anchor": "middle" }, `${10 ** e}`));
    for (let e = Math.ceil(y0); e <= y1; e++) marks.push(svg("line", { x1: left, x2: width - 10, y1: Y(10 ** e), y2: Y(10 ** e), class: "grid" }), svg("text", { x: left - 6, y: Y(10 ** e) + 4, class: "axis", "text-anchor": "end" }, e >= 3 ? `${10 ** (e - 3)} T` : `${10 ** e} G`));
    const roof = `M ${X(10 ** x0)} ${Y(10 ** x0 * p.hbm_gbs)} L ${X(ridge)} ${Y(p.peak_gflops)} L ${X(10 ** x1)} ${Y(p.peak_gflops)}`;
    const near = (a: (typeof points)[number], b: (typeof points)[number]) => Math.abs(X(a.x) - X(b.x)) < 100 && Math.abs(Y(a.y) - Y(b.y)) < 13;
    const dots = points.map((point, i) => {
      const { r, x, y } = point;
      // If labels of dots overlap, only the first is drawn.
      const named = !points.slice(0, i).some((other) => near(other, point));
      const more = points.slice(i + 1).filter((other) => near(point, other)).length;
      const kernel = index.get(r.name);
      const chosen = kernel !== undefined && kernel === this.state.choice.kernel;
      const go = () => kernel !== undefined && this.state.chooseKernel(kernel);
      return svg(
        "g",
        { class: `dot ${chosen ? "chosen" : ""}`, tabindex: 0, role: "button", onclick: go, onkeydown: (e: KeyboardEvent) => e.key === "Enter" && go() },
        svg("title", {}, `${r.name}: ${x.toFixed(1)} flop per byte, ${count(y)} Gflop/s, ${percent(r.gflops / r.roof_gflops)} of its roof`),
        svg("line", { x1: X(x), x2: X(x), y1: Y(y), y2: Y(r.roof_gflops), class: "gap" }),
        svg("circle", { cx: X(x), cy: Y(y), r: chosen ? 7 : 5, fill: kernelColor(run.rank[kernel ?? 0] ?? 0) }),
        named ? svg("text", { x: X(x) + 9, y: Y(y) + 4, class: "axis" }, `${shorten(r.name, 22)}${more ? ` and ${more} more` : ""}`) : null,
      );
    });
    return h(
      "div",
      { class: "panel" },
      h("h3", {}, "Roofline"),
      svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline", class: "chart" }, marks, svg("path", { d: roof, class: "roof" }), dots, svg("text", { x: (left + width) / 2, y: height - 4, class: "axis", "text-anchor": "middle" }, "flop per byte that L2 did not save"), svg("text", { x: left + 4, y: 20, class: "axis" }, "flop/s")),
      h("p", { class: "hint" }, "The slope is what global memory sustains, the flat part all cubes. A dotted line is what a kernel could still gain."),
    );
  }

  /** One execution: the steps of each pipe over time, then the most expensive steps. */
  private pipes(run: Run, number: number): HTMLElement {
    const kernel = run.kernels[number]!;
    const row = run.rowOf.get(kernel.name);
    const cost = run.costs[kernel.typical_cost ?? -1];
    if (!kernel.steps.length || !cost) return h("div", { class: "panel" }, h("h3", {}, shorten(kernel.name, 40)), h("p", { class: "hint" }, "No execution of it was followed."));
    const names = Object.keys(cost.pipes).sort();
    const end = Math.max(...kernel.events.map((e) => e[2]), 1e-6);
    const [width, rowHeight, left] = [640, 20, 92];
    const height = names.length * rowHeight + 24;
    const X = (us: number) => left + (us / end) * (width - left - 8);
    const steps = new Map(kernel.steps.map((s) => [s[0], s]));
    const lines = kernel.events.map(([position, from, to, repeats]) => {
      if (position < 0)
        return svg("g", {}, svg("rect", { x: X(from), y: 0, width: Math.max(1, X(to) - X(from)), height: names.length * rowHeight, class: "skipped" }), svg("text", { x: (X(from) + X(to)) / 2, y: 11, class: "axis", "text-anchor": "middle" }, X(to) - X(from) > 70 ? `${count(repeats)} more rounds` : ""));
      const step = steps.get(position);
      if (!step) return null;
      const y = names.indexOf(step[1]);
      return svg(
        "rect",
        { x: X(from), y: y * rowHeight + 3, width: Math.max(0.6, X(to) - X(from) - 0.4), height: rowHeight - 6, fill: kernelColor(y), class: "step", onclick: () => step[3] && this.state.set({ line: step[3], view: "source" }) },
        svg("title", {}, `${step[2]} at ${run.placeText(step[3])}: ${time(to - from)}`),
      );
    });
    const labels = names.flatMap((n, i) => [svg("line", { x1: left, x2: width, y1: (i + 1) * rowHeight, y2: (i + 1) * rowHeight, class: "grid" }), svg("text", { x: left - 6, y: i * rowHeight + 14, class: "axis", "text-anchor": "end" }, n)]);
    const heavy = [...kernel.steps].sort((a, b) => b[5] - a[5]).slice(0, 8);
    const most = heavy[0]?.[5] || 1;
    return h(
      "div",
      { class: "panel" },
      h("h3", {}, `One execution of ${shorten(kernel.name, 40)}: ${time(cost.exec_us)}${kernel.start_us ? `, ${time(kernel.start_us)} of it to start` : ""}`),
      row ? h("p", {}, h("b", {}, `Bound: ${row.bound}. `), BOUND_TEXT[row.bound] ?? "") : null,
      svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": "pipes of one execution" }, labels, lines, svg("text", { x: left, y: height - 6, class: "axis" }, "0"), svg("text", { x: width - 8, y: height - 6, class: "axis", "text-anchor": "end" }, time(end))),
      kernel.all_events === false ? h("p", { class: "hint" }, "The first steps only.") : null,
      h("div", { class: "scroll" }, table(
        heavy,
        [
          { head: "step", left: true, cell: (s) => s[2] },
          { head: "place", left: true, cell: (s) => h("button", { type: "button", class: "link", onclick: () => s[3] && this.state.set({ line: s[3], view: "source" }) }, run.placeText(s[3])) },
          { head: "pipe", left: true, cell: (s) => s[1] },
          { head: "times", cell: (s) => count(s[6]) },
          { head: "busy", cell: (s) => time(s[4]) },
          { head: "adds", hint: "by how much it moves the end", cell: (s) => bar(s[5] / most, time(s[5])) },
        ],
        { label: "steps" },
      )),
    );
  }
}
