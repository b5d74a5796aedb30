// Memory: on-chip tiles by address and statement, and global memory by tensor.

import { kernelColor } from "./colors";
import { empty, h, svg } from "./dom";
import { bytes, kib, percent, shorten, times } from "./format";
import type { MemoryPlan, SpacePlan } from "./data";
import type { Run } from "./run";
import type { State } from "./state";

export class Memory {
  readonly element = h("section", { class: "memory" });

  constructor(private readonly state: State) {}

  show(): void {
    this.update();
  }

  update(): void {
    const run = this.state.run;
    const plans = run.header.memory ?? [];
    this.element.replaceChildren(plans.length ? this.onChip(run, plans) : empty("No memory plan", "A saved profile.json has figures only. Make the page from the script:", "tilelet profile kernel.py --html out.html"), this.global(run));
  }

  private onChip(run: Run, plans: MemoryPlan[]): HTMLElement {
    const chosen = this.state.choice.kernel;
    const name = chosen !== null ? run.kernels[chosen]!.name : "";
    const fullest = [...plans].sort((a, b) => share(b) - share(a))[0]!;
    const plan = plans.find((p) => p.kernel === name) ?? fullest;
    const pick = h(
      "select",
      { "aria-label": "kernel", onchange: (e: Event) => this.pick(run, (e.target as HTMLSelectElement).value) },
      plans.map((p) => h("option", { value: p.kernel, selected: p === plan }, `${shorten(p.kernel, 50)} (${percent(share(p), 0)} of its fullest memory)`)),
    );
    return h(
      "div",
      { class: "panel" },
      h("h3", {}, "On chip: address by statement"),
      h("label", {}, "kernel ", pick),
      plan.spaces.length ? h("div", { class: "two" }, plan.spaces.map((space) => this.space(run, plan, space))) : h("p", { class: "hint" }, "This kernel keeps nothing on chip."),
    );
  }

  private pick(run: Run, name: string): void {
    const kernel = run.kernels.findIndex((k) => k.name === name);
    if (kernel >= 0) this.state.chooseKernel(kernel);
  }

  private space(run: Run, plan: MemoryPlan, space: SpacePlan): HTMLElement {
    const [width, height, left, bottom] = [560, 190, 66, 22];
    const last = Math.max(...plan.steps.map((s) => s[0]), ...space.tiles.map((t) => t.live[1]), 1) + 1;
    // If the limit is far above the use, end the map before it, so that tiles stay visible.
    const near = space.used > space.limit / 3;
    const top = near ? Math.max(space.limit, space.used) : space.used * 1.15;
    const X = (step: number) => left + (step / last) * (width - left - 8);
    const Y = (address: number) => height - bottom - (address / top) * (height - bottom - 12);
    const names = [...new Set(space.tiles.map((t) => t.name))];
    const tiles = space.tiles.map((t) => {
      const [x, y] = [X(t.live[0]), Y(t.offset + t.bytes)];
      const [w, tall] = [Math.max(2, X(t.live[1] + 1) - x), Math.max(1.5, Y(t.offset) - y)];
      const place: [number, number] | null = t.line > 0 ? [this.fileOf(run, plan), t.line] : null;
      const text = `${t.name}: ${t.shape.join("×")} ${t.dtype}${t.buffers > 1 ? ` × ${t.buffers} buffers` : ""}, ${kib(t.bytes)} at 0x${t.offset.toString(16)}${t.in_place_of ? `, over ${t.in_place_of}` : ""}`;
      return svg(
        "g",
        { class: "tile", onclick: () => place && this.state.set({ line: place, view: "source" }) },
        svg("title", {}, text),
        svg("rect", { x, y, width: w, height: tall, fill: kernelColor(names.indexOf(t.name)) }),
        w > 44 && tall > 11 ? svg("text", { x: x + 4, y: y + Math.min(tall / 2 + 4, tall - 2), class: "on-tile" }, fitting(t.name, kib(t.bytes), Math.floor((w - 6) / 5.6))) : null,
      );
    });
    const fullest = (space.peak_at ?? 0) + 0.5;
    const between = fullest > last * 0.22 && fullest < last * 0.78;
    const peak =
      space.peak_at === undefined
        ? []
        : [svg("line", { x1: X(fullest), x2: X(fullest), y1: Y(top), y2: Y(0), class: "peak" }), svg("text", { x: X(fullest), y: height - 6, class: "axis", "text-anchor": "middle" }, between ? "peak" : "")];
    const over = space.used > space.limit;
    const where = space.peak_place ? h("button", { type: "button", class: "link", onclick: () => this.state.set({ line: space.peak_place, view: "source" }) }, run.placeText(space.peak_place)) : "–";
    return h(
      "figure",
      { class: "space" },
      h("figcaption", {}, h("b", {}, space.space), ` ${kib(space.used)} of ${kib(space.limit)} (${percent(space.used / space.limit, 0)})`, over ? h("strong", { class: "bad" }, " does not fit") : "", "; peak ", kib(space.peak), " at ", where, ` with ${space.resident.slice(0, 5).map((n) => shorten(n, 40)).join(", ")}${space.resident.length > 5 ? ` and ${space.resident.length - 5} more` : ""}`),
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `${space.space}: address by statement` },
        svg("rect", { x: left, y: Y(top), width: width - left - 8, height: Y(0) - Y(top), class: "plot" }),
        tiles,
        peak,
        near ? svg("line", { x1: left, x2: width - 8, y1: Y(space.limit), y2: Y(space.limit), class: "limit" }) : null,
        near ? svg("text", { x: left - 6, y: Y(space.limit) + 4, class: "axis", "text-anchor": "end" }, kib(space.limit)) : svg("text", { x: width - 12, y: 22, class: "axis", "text-anchor": "end" }, `the limit is at ${kib(space.limit)}`),
        svg("text", { x: left - 6, y: Y(space.used) + 4, class: "axis", "text-anchor": "end" }, near && space.limit - space.used < top / 8 ? "" : kib(space.used)),
        svg("text", { x: left - 6, y: Y(0), class: "axis", "text-anchor": "end" }, "0"),
        svg("text", { x: left, y: height - 6, class: "axis" }, "first statement"),
        svg("text", { x: width - 8, y: height - 6, class: "axis", "text-anchor": "end" }, "last statement"),
      ),
    );
  }

  private fileOf(run: Run, plan: MemoryPlan): number {
    return plan.steps.find((s) => s[2])?.[2]?.[0] ?? run.kernels.find((k) => k.name === plan.kernel)?.place?.[0] ?? 0;
  }

  private global(run: Run): HTMLElement {
    const rows = run.profile.tensors;
    const most = Math.max(...rows.map((t) => Math.max(t.read + t.written, t.least_read + t.least_written)), 1);
    const moves = run.header.moves ?? [];
    const rank = new Map(run.kernels.map((k, i) => [k.name, run.rank[i]!]));
    const shown = rows.slice(0, 60).map((t) => {
      const least = t.least_read + t.least_written;
      const mine = moves.filter((m) => m[1] === t.name && m[2] === t.origin).sort((a, b) => b[3] + b[4] - a[3] - a[4]);
      const parts = mine.length ? mine.map(([kernel, , , read, written]) => h("i", { style: `width:${(100 * (read + written)) / most}%;background:${kernelColor(rank.get(kernel) ?? 0)}`, title: `${kernel} reads ${bytes(read)}, writes ${bytes(written)}` })) : [h("i", { style: `width:${(100 * (t.read + t.written)) / most}%` })];
      const choose = () => this.state.set({ tensor: t.name });
      return h(
        "tr",
        { class: this.state.choice.tensor === t.name ? "chosen" : "", tabindex: 0, onclick: choose, onkeydown: (e: KeyboardEvent) => e.key === "Enter" && choose() },
        h("td", { class: "left" }, shorten(t.name, 40)),
        h("td", { class: "left" }, t.origin === "param" ? "argument" : "own"),
        h("td", {}, bytes(t.size)),
        h("td", { class: "left wide" }, h("span", { class: "traffic" }, h("span", {}, parts), h("u", { style: `width:${(100 * least) / most}%`, title: `compulsory ${bytes(least)}` }))),
        h("td", {}, bytes(t.read)),
        h("td", {}, bytes(t.written)),
        h("td", {}, least ? times(t.read + t.written, least) : "–"),
      );
    });
    const heads = ["tensor", "kind", "size", "moved, by kernel; compulsory below", "read", "written", "of least"];
    return h(
      "div",
      { class: "panel" },
      h("h3", {}, "Global memory"),
      h("div", { class: "scroll" }, h("table", { class: "data", "aria-label": "tensors" }, h("thead", {}, h("tr", {}, heads.map((t, i) => h("th", { class: i < 2 || i === 3 ? "left" : "" }, t)))), h("tbody", {}, shown))),
      rows.length > 60 ? h("p", { class: "hint" }, `and ${rows.length - 60} more with less`) : null,
      h("p", { class: "hint" }, "Compulsory: arguments once; the program's own tensors could stay on chip. Click a tensor to see its tasks in the timeline."),
    );
  }
}

/** Name and size, or the name alone, within a number of characters. */
function fitting(name: string, size: string, most: number): string {
  return name.length + size.length < most ? `${name} ${size}` : shorten(name, Math.max(2, most));
}

function share(plan: MemoryPlan): number {
  return Math.max(0, ...plan.spaces.map((s) => s.used / s.limit));
}
