// Comparison with the golden: which outputs are wrong, where, by how much, and which task wrote them.

import { empty, h, svg } from "./dom";
import { count, percent } from "./format";
import type { Numbers as Data, OutputNumbers } from "./data";
import type { State } from "./state";

export class Numbers {
  readonly element = h("section", { class: "numbers" });

  constructor(
    private readonly state: State,
    private readonly data: Data | undefined,
  ) {}

  show(): void {
    const data = this.data;
    if (!data || !data.outputs.length) {
      this.element.replaceChildren(empty("No results in this page", "A profile records tasks, it does not compute. A run compares with the golden and leaves what it found in its run directory; the page of that directory shows it:", "tilelet run kernel.py --save-data && tilelet report RUN_DIR"));
      return;
    }
    const diverged = data.divergence;
    this.element.replaceChildren(
      ...(diverged
        ? [h("div", { class: "panel" }, h("h3", {}, "First divergence"), h("pre", {}, diverged.text), diverged.place ? this.line(diverged.place) : null)]
        : []),
      ...data.outputs.map((o) => this.output(o)),
    );
  }

  update(): void {}

  private line(place: [number, number]): HTMLElement {
    return h("button", { type: "button", class: "link", onclick: () => this.state.chooseLine(place, { view: "source" }) }, this.state.run.placeText(place));
  }

  private output(o: OutputNumbers): HTMLElement {
    const wrong = o.mismatched ?? 0;
    const head = o.ok ? "matches the golden" : `${count(wrong)} of ${count(o.total ?? 0)} elements differ (${percent(wrong / Math.max(o.total ?? 1, 1))})`;
    return h(
      "div",
      { class: "panel" },
      h("h3", {}, h("span", { class: o.ok ? "good" : "bad" }, o.ok ? "✓ " : "✗ "), `${o.name}${o.shape ? ` [${o.shape.join(", ")}]` : ""}: ${head}`),
      o.relative_l2 !== undefined ? h("p", {}, `relative L2 error ${o.relative_l2.toExponential(2)}; tolerance rtol ${o.rtol}, atol ${o.atol}`) : null,
      h("div", { class: "two" }, o.map ? this.map(o) : null, o.histogram ? this.histogram(o) : null),
      o.regions?.length
        ? h(
            "ul",
            {},
            o.regions.map((r) => h("li", {}, r.text, " ", r.place ? this.line(r.place) : null, " ", r.task !== undefined && r.task !== null && this.state.run.taskOfNumber(r.task) >= 0 ? h("button", { type: "button", class: "link", onclick: () => this.state.chooseTask(this.state.run.taskOfNumber(r.task!), { view: "timeline" }) }, `task ${count(r.task)}`) : null)),
          )
        : null,
      o.text ? h("pre", {}, o.text) : null,
    );
  }

  /** Map of errors: rows down, columns across; darker cells have more wrong elements. */
  private map(o: OutputNumbers): HTMLElement {
    const { rows, columns, cells } = o.map!;
    const size = Math.max(3, Math.min(14, Math.floor(420 / Math.max(rows, columns))));
    const marks = cells.map((share, i) => {
      const [x, y] = [(i % columns) * size, Math.floor(i / columns) * size];
      if (share <= 0) return null;
      return svg("rect", { x, y, width: size - 0.5, height: size - 0.5, class: "wrong", opacity: (0.25 + 0.75 * share).toFixed(2) }, svg("title", {}, `${percent(share)} wrong`));
    });
    const [wide, tall] = [columns * size, rows * size];
    const [last, rest] = [o.shape?.at(-1) ?? columns, (o.shape ?? [rows]).slice(0, -1).reduce((a, b) => a * b, 1)];
    const caption = `Where it differs: ${o.shape && o.shape.length > 1 ? `rows 0 to ${count(rest - 1)} down, ` : ""}columns 0 to ${count(last - 1)} across`;
    return h("figure", {}, h("figcaption", {}, caption), svg("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, class: "map", role: "img", "aria-label": "map of wrong elements" }, marks));
  }

  private histogram(o: OutputNumbers): HTMLElement {
    const { first, counts } = o.histogram!;
    const most = Math.max(...counts, 1);
    const bars = counts.map((n, i) => {
      const tall = n ? Math.max(1, (90 * Math.log1p(n)) / Math.log1p(most)) : 0;
      const decade = first + i;
      return svg("g", {}, svg("title", {}, `${count(n)} elements`), svg("rect", { x: 10 + i * 30, y: 100 - tall, width: 24, height: tall, class: decade >= 0 ? "wrong" : "fine" }), svg("text", { x: 22 + i * 30, y: 114, class: "axis", "text-anchor": "middle" }, `1e${decade}`));
    });
    const x = 7 - first * 30;
    const limit = first <= 0 && -first <= counts.length ? [svg("line", { x1: x, x2: x, y1: 4, y2: 104, class: "limit" }), svg("text", { x: x - 4, y: 131, class: "axis", "text-anchor": "end" }, "← allowed"), svg("text", { x: x + 4, y: 131, class: "axis" }, "wrong →")] : [];
    return h("figure", {}, h("figcaption", {}, "Error, in multiples of what is allowed (count on a log scale)"), svg("svg", { width: 20 + counts.length * 30, height: 136, viewBox: `0 0 ${20 + counts.length * 30} 136`, class: "plain", role: "img", "aria-label": "distribution of errors" }, bars, limit));
  }
}
