// The model: uncertainty of the total, its evidence, and all machine parameters.

import { bar, h, svg, table } from "./dom";
import { count, time } from "./format";
import { findingText } from "./source";
import type { State } from "./state";

const EVIDENCE: Record<string, string> = {
  C: "constant of a public header or document",
  M: "measured on a device",
  F: "fitted to a device",
  S: "fitted to a simulator",
  D: "derived",
  G: "guess",
  "": "no evidence recorded",
};

export class Model {
  readonly element = h("section", { class: "model" });
  private filter = "";

  constructor(private readonly state: State) {}

  show(): void {
    this.update();
  }

  update(): void {
    const run = this.state.run;
    const p = run.profile;
    const [low, high] = p.interval ?? [];
    const known = low !== undefined && high !== undefined;
    const depends = Object.entries(p.depends_on ?? {}).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const most = Math.max(...depends.map(([, by]) => Math.abs(by)), 1e-9);
    const total = h(
      "div",
      {},
      h("p", { class: "big" }, known ? `${time(p.total_us)}, between ${time(low)} and ${time(high)}` : time(p.total_us)),
      known ? errorBar(low, p.total_us, high) : null,
      h("p", {}, known ? `Nine of ten published totals of programs that the model had not seen lie within such an interval${p.bound ? `, for runs bound by ${p.bound}` : ""}.` : "There is no interval: nothing published of this machine was compared. `make calibrate` prints the rows that were."),
      depends.length ? h("h3", {}, "What the total depends on most") : null,
      depends.map(([name, by]) => h("div", { class: "why" }, bar(Math.abs(by) / most, `${by > 0 ? "+" : "−"}${Math.abs(by).toFixed(2)} %`), h("span", {}, `for one per cent more of: ${name}`))),
    );
    const guesses = p.guesses ?? [];
    const findings = run.header.findings ?? [];
    const checks = run.header.checks ?? [];
    const rows = (run.header.parameters ?? []).filter((r) => !this.filter || r[2] === this.filter);
    const tags = [...new Set((run.header.parameters ?? []).map((r) => r[2]))].sort();
    const counts = new Map(tags.map((t) => [t, run.header.parameters!.filter((r) => r[2] === t).length]));
    this.element.replaceChildren(
      h("div", { class: "panel" }, h("h3", {}, "Total, modelled"), total),
      h(
        "div",
        { class: "panel" },
        h("h3", {}, "What it rests on"),
        guesses.length ? h("ul", {}, guesses.slice(0, 100).map((g) => h("li", {}, g))) : h("p", {}, "No loop or branch had to be guessed: everything that decides the time of a kernel was recorded."),
        run.header.hints?.length ? h("details", {}, h("summary", {}, `${run.header.hints.length} hints about transfers`), h("ul", {}, run.header.hints.map((t) => h("li", {}, t)))) : null,
      ),
      h(
        "div",
        { class: "panel" },
        h("h3", {}, findings.length ? `${count(findings.length)} findings` : "No findings"),
        checks.length ? table(checks, [{ head: "check", left: true, cell: (c) => c.check }, { head: "answer", left: true, cell: (c) => c.status }, { head: "", left: true, wrap: true, cell: (c) => c.summary }], { label: "checks" }) : h("p", { class: "hint" }, "Memory and shapes were checked for this machine. Races, unwritten memory and the rest are what `tilelet check --html` adds."),
        findings.map((f) => h("div", { class: `finding ${f.severity}` }, findingText(f, this.state))),
      ),
      h(
        "div",
        { class: "panel" },
        h("h3", {}, `The machine: ${p.title || p.machine}`),
        h(
          "div",
          { class: "chips" },
          ["", ...tags.filter(Boolean)].map((tag) =>
            h("button", { type: "button", "aria-pressed": String(this.filter === tag), onclick: () => ((this.filter = tag), this.update()) }, tag ? `${tag}: ${EVIDENCE[tag] ?? tag} (${counts.get(tag)})` : "all"),
          ),
        ),
        table(
          rows,
          [
            { head: "parameter", left: true, cell: (r) => h("code", {}, r[0]), key: (r) => r[0] },
            { head: "value", cell: (r) => (typeof r[1] === "number" ? r[1].toLocaleString("en-US") : r[1]), key: (r) => Number(r[1]) || 0 },
            { head: "evidence", left: true, cell: (r) => h("span", { title: EVIDENCE[r[2]] }, r[2] || "–"), key: (r) => r[2] },
            { head: "source", left: true, wrap: true, cell: (r) => r[3] },
          ],
          { label: "parameters", most: 400 },
        ),
      ),
    );
  }
}

/** The interval on a scale from 0 to 1.5 times its end. */
function errorBar(low: number, us: number, high: number): SVGElement {
  const [width, end] = [560, high * 1.25];
  const X = (v: number) => 4 + (v / end) * (width - 8);
  return svg(
    "svg",
    { width, viewBox: `0 0 ${width} 44`, class: "scale", role: "img", "aria-label": "interval of the total" },
    svg("line", { x1: X(0), x2: X(end), y1: 16, y2: 16, class: "grid" }),
    svg("line", { x1: X(low), x2: X(high), y1: 16, y2: 16, class: "interval" }),
    svg("circle", { cx: X(us), cy: 16, r: 6, class: "modelled" }),
    ...[low, us, high].map((v) => svg("text", { x: X(v), y: 38, class: "axis", "text-anchor": "middle" }, time(v))),
  );
}
