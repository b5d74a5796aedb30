// The user's files, line by line, with costs and findings.

import { changeText, faster } from "./advice";
import type { Advice, Change, Finding } from "./data";
import { bar, empty, h } from "./dom";
import { bytes, count, percent, shorten, time } from "./format";
import type { Run } from "./run";
import type { State } from "./state";

interface LineCost {
  time: number;
  path: number;
  called: number;
  calledPath: number;
  read: number;
  written: number;
  tasks: number;
  scope: number;
  scopePath: number;
}

const WORDS = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|class|for|in|if|elif|else|while|with|as|return|yield|import|from|not|and|or|is|None|True|False|lambda|pass|raise|try|except|finally|assert|global|nonlocal|del|break|continue)\b|\b(\d[\d_.eExXa-fA-F]*)\b|(@[\w.]+)/g;

/** The lines inside triple-quoted strings. */
export function inLongText(lines: string[]): boolean[] {
  let open = "";
  return lines.map((line) => {
    const was = open !== "";
    for (const [quote] of line.matchAll(/"""|\'\'\'/g)) open = open === "" ? quote : open === quote ? "" : open;
    return was || open !== "" || /^\s*[rf]?("""|\'\'\')/.test(line);
  });
}

/** Highlight a line of Python as spans of text. */
export function highlighted(text: string): (HTMLElement | string)[] {
  const parts: (HTMLElement | string)[] = [];
  let last = 0;
  for (const match of text.matchAll(WORDS)) {
    if (match.index > last) parts.push(text.slice(last, match.index));
    const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "word" : match[4] ? "number" : "decorator";
    parts.push(h("span", { class: `py-${kind}` }, match[0]));
    last = match.index + match[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}

export class Source {
  readonly element = h("section", { class: "source" });
  private file = 0;
  private shown: Run | null = null;
  private readonly rows = new Map<number, HTMLElement>();

  constructor(
    private readonly state: State,
    private readonly advice: Advice | undefined,
  ) {}

  show(): void {
    const line = this.state.choice.line;
    const wanted = line ? line[0] : this.heaviest();
    if (this.shown !== this.state.run || wanted !== this.file || !this.rows.size) {
      this.file = wanted;
      this.shown = this.state.run;
      this.draw();
      this.scrollToHeaviest();
    }
    this.update();
  }

  private heaviest(): number {
    const sums = new Map<number, number>();
    for (const l of this.state.run.header.lines ?? []) sums.set(l[0]!, (sums.get(l[0]!) ?? 0) + l[2]! + l[10]!);
    return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 0;
  }

  update(): void {
    const { line, kernel } = this.state.choice;
    if (line && line[0] !== this.file) return this.show();
    const inside = new Set<number>();
    if (kernel !== null) for (const step of this.state.run.kernels[kernel]!.steps) if (step[3]?.[0] === this.file) inside.add(step[3][1]);
    for (const [number, row] of this.rows) {
      row.classList.toggle("chosen", line !== null && line[1] === number);
      row.classList.toggle("inside", inside.has(number));
    }
    if (line) this.rows.get(line[1])?.scrollIntoView({ block: "center" });
  }

  /** Initially the most expensive line. */
  private scrollToHeaviest(): void {
    const costs = [...this.costs(this.file)].sort((a, b) => b[1].path + b[1].time * 1e-6 - a[1].path - a[1].time * 1e-6);
    if (costs[0] && !this.state.choice.line) this.rows.get(costs[0][0])?.scrollIntoView({ block: "center" });
  }

  private costs(file: number): Map<number, LineCost> {
    const found = new Map<number, LineCost>();
    for (const l of this.state.run.header.lines ?? []) {
      if (l[0] !== file) continue;
      const [, number, t, path, called, calledPath, read, written, tasks, scope, scopePath] = l as [number, number, number, number, number, number, number, number, number, number, number];
      found.set(number, { time: t, path, called, calledPath, read, written, tasks, scope, scopePath });
    }
    return found;
  }

  private draw(): void {
    const run = this.state.run;
    const files = run.header.files ?? [];
    this.rows.clear();
    if (!files.length) {
      this.element.replaceChildren(empty("No source", "A saved profile.json has figures only. Make the page from the script:", "tilelet profile kernel.py --html out.html"));
      return;
    }
    const costs = this.costs(this.file);
    const file = files[this.file] ?? files[0]!;
    const mostTime = Math.max(...[...costs.values()].map((c) => c.time), 1e-9);
    const total = run.profile.total_us || 1;
    const work = (run.header.lines ?? []).reduce((sum, l) => sum + l[2]!, 0) || 1;
    const findings = this.findings(this.file);
    const tabs = h(
      "div",
      { class: "files", role: "tablist" },
      files.map((f, i) =>
        h(
          "button",
          { type: "button", role: "tab", "aria-selected": String(i === this.file), onclick: () => ((this.file = i), this.state.set({ line: null }), this.draw()) },
          shorten(f.name, 40),
        ),
      ),
    );
    const heads = ["", "line", "time", "critical path", "bytes", "tasks", "source"].map((text) => h("th", { class: text === "source" ? "left" : "" }, text));
    const body: HTMLElement[] = [];
    const long = inLongText(file.lines ?? []);
    (file.lines ?? []).forEach((text, i) => {
      const number = i + 1;
      const row = this.row(number, long[i] ? [h("span", { class: "py-string" }, text)] : highlighted(text), costs.get(number), mostTime, total);
      this.rows.set(number, row);
      body.push(row);
      for (const finding of findings.get(number) ?? []) body.push(this.findingRow(finding));
      for (const change of this.changes(number)) body.push(this.changeRow(change));
    });
    const note = file.lines ? null : h("p", { class: "note" }, "The text of this file is not at hand.");
    const legend = h("p", { class: "hint" }, "time: by how much the line moves the end of its kernels, summed over all tasks (hidden work adds nothing); of a line that submits tasks, in brackets: all they run. The strip on the left is the share of the critical path.");
    this.element.replaceChildren(
      ...[this.loose(), tabs, this.costliest("Of the run's time", 3, total), this.costliest("Of the work of all cores", 2, work), legend, note, h("div", { class: "scroll" }, h("table", { class: "code", "aria-label": file.name }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)))].filter((e): e is HTMLElement => e !== null),
    );
  }

  private row(number: number, text: (HTMLElement | string)[], cost: LineCost | undefined, mostTime: number, total: number): HTMLElement {
    const onPath = cost ? Math.max(cost.path, cost.scopePath, cost.calledPath) / total : 0;
    const heat = Math.min(1, Math.sqrt(onPath));
    const cells: (HTMLElement | string)[] = ["", "", "", ""];
    if (cost) {
      if (cost.time > 0.0005) cells[0] = bar(cost.time / mostTime, time(cost.time));
      else if (cost.scope > 0) cells[0] = h("span", { class: "soft", title: "of the tasks submitted here" }, `(${time(cost.scope)})`);
      else if (cost.called > 0) cells[0] = h("span", { class: "soft", title: "of what is called here" }, `(${time(cost.called)})`);
      if (onPath > 0.00005) cells[1] = cost.path > 0 ? percent(cost.path / total) : `(${percent(onPath)})`;
      if (cost.read + cost.written > 0) cells[2] = bytes(cost.read + cost.written);
      if (cost.tasks) cells[3] = count(cost.tasks);
    }
    return h(
      "tr",
      { tabindex: cost ? 0 : undefined, "data-line": number, onclick: () => this.choose(number), onkeydown: (e: KeyboardEvent) => e.key === "Enter" && this.choose(number) },
      h("td", { class: "heat", title: cost ? `${percent(onPath)} of the critical path` : undefined }, h("i", { style: `opacity:${heat.toFixed(3)}` })),
      h("td", { class: "no" }, String(number)),
      cells.map((c) => h("td", { class: "figure" }, c)),
      h("td", { class: "text" }, text),
    );
  }

  /** Lines of all files, most expensive first, with cumulative shares. */
  private costliest(head: string, column: number, total: number): HTMLElement | null {
    const lines = [...(this.state.run.header.lines ?? [])].sort((a, b) => b[column]! - a[column]!);
    let sum = 0;
    const shown = lines.slice(0, 5).filter((l) => l[column]! > 0.01 * total);
    if (!shown.length) return null;
    return h(
      "div",
      { class: "chips" },
      h("b", {}, head),
      shown.map((l) => {
        sum += l[column]!;
        const place: [number, number] = [l[0]!, l[1]!];
        return h("button", { type: "button", title: `${time(l[column]!)} of ${time(total)}; with those before it ${percent(sum / total)}`, onclick: () => this.state.chooseLine(place) }, `${shorten(this.state.run.placeText(place), 30)} `, h("b", {}, percent(l[column]! / total, 0)), h("span", { class: "soft" }, ` Σ ${percent(sum / total, 0)}`));
      }),
    );
  }

  private choose(number: number): void {
    this.state.chooseLine([this.file, number]);
  }

  private findings(file: number): Map<number, Finding[]> {
    const found = new Map<number, Finding[]>();
    for (const finding of this.state.run.header.findings ?? []) {
      const place = finding.places.find((p) => p.place)?.place;
      if (place?.[0] === file) found.set(place[1], [...(found.get(place[1]) ?? []), finding]);
    }
    return found;
  }

  private changes(line: number): Change[] {
    return (this.advice?.changes ?? []).filter((c) => c.place?.[0] === this.file && c.place[1] === line);
  }

  private changeRow(change: Change): HTMLElement {
    return h("tr", { class: "finding advice" }, h("td", { colspan: 6 }), h("td", {}, h("div", { class: "finding-text" }, h("strong", {}, faster(change)), ` ${change.message}`, changeText(change, false))));
  }

  private findingRow(finding: Finding): HTMLElement {
    return h("tr", { class: `finding ${finding.severity}` }, h("td", { colspan: 6 }), h("td", {}, findingText(finding, this.state)));
  }

  /** Findings without a location in these files. */
  private loose(): HTMLElement | null {
    const every = (this.state.run.header.findings ?? []).filter((f) => !f.places.some((p) => p.place));
    if (!every.length) return null;
    return h("div", { class: "loose" }, every.map((f) => h("div", { class: `finding ${f.severity}` }, findingText(f, this.state))));
  }
}

export function findingText(finding: Finding, state: State): HTMLElement {
  const run = state.run;
  const places = finding.places.filter((p) => p.place || p.task !== null);
  return h(
    "div",
    { class: "finding-text" },
    h("strong", {}, `${finding.severity}[${finding.code}]`),
    ` ${finding.message}`,
    places.map((p) =>
      h(
        "div",
        {},
        p.place ? h("button", { type: "button", class: "link", onclick: () => state.chooseLine(p.place!, { view: "source" }) }, run.placeText(p.place)) : null,
        " ",
        p.task !== null && run.taskOfNumber(p.task) >= 0 ? h("button", { type: "button", class: "link", onclick: () => state.chooseTask(run.taskOfNumber(p.task!), { view: "timeline" }) }, `task ${count(p.task)}`) : null,
        ` ${p.text}`,
      ),
    ),
    finding.notes.map((n) => h("div", { class: "soft" }, `note: ${n}`)),
    finding.helps.map((n) => h("div", { class: "soft" }, `help: ${n}`)),
  );
}
