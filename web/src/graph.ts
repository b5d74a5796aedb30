// Tasks as a graph: one node for each call, split into ranges of tasks where it is opened.

import { kernelColour } from "./colours";
import { empty, h, svg } from "./dom";
import { count, shorten } from "./format";
import { EDGE_KINDS, type Run, grouped } from "./run";
import type { State } from "./state";

interface Node {
  id: number;
  site: number;
  /** the node's tasks are places [from, to) among those of its call */
  from: number;
  to: number;
  depth: number;
  x: number;
  y: number;
}

interface Edge {
  from: number;
  to: number;
  counts: number[];
}

const PARTS = 8;
const MOST_NODES = 160;
const [NODE_W, NODE_H, GAP_X, GAP_Y] = [178, 44, 26, 58];

export class Graph {
  readonly element = h("section", { class: "graph" });
  private nodes: Node[] = [];
  private built: Run | null = null;

  constructor(private readonly state: State) {}

  show(): void {
    const run = this.state.run;
    if (this.built !== run) {
      this.built = run;
      this.nodes = run.sites.map((site, i) => ({ id: i, site: i, from: 0, to: site.shown, depth: 0, x: 0, y: 0 })).filter((n) => n.to > 0);
    }
    this.update();
  }

  update(): void {
    const run = this.state.run;
    if (!run.hasTasks) {
      this.element.replaceChildren(empty("No tasks", "A saved profile.json has figures only. Make the page from the script:", "tilelet profile kernel.py --html out.html"));
      return;
    }
    if (!run.hasEdges) {
      this.element.replaceChildren(empty("No dependencies", "This run was thinned: the edges between the tasks that are left would say little. The report's totals count all tasks."));
      return;
    }
    const nodeOf = this.nodeOfTask(run);
    const edges = this.edges(run, nodeOf);
    this.place(edges);
    this.draw(run, nodeOf, edges);
  }

  private nodeOfTask(run: Run): Uint32Array {
    const bySite = new Map<number, Node[]>();
    for (const node of this.nodes) bySite.set(node.site, [...(bySite.get(node.site) ?? []), node]);
    const index = new Map(this.nodes.map((n, i) => [n, i]));
    const found = new Uint32Array(run.tasks);
    for (let task = 0; task < run.tasks; task++) {
      const parts = bySite.get(run.site[task]!)!;
      const row = run.rowInSite[task]!;
      const part = parts.length === 1 ? parts[0]! : parts.find((n) => row >= n.from && row < n.to)!;
      found[task] = index.get(part)!;
    }
    return found;
  }

  /** Edges between nodes, and how many of each kind; those through a join count once for each end. */
  private edges(run: Run, nodeOf: Uint32Array): Edge[] {
    const found = new Map<number, Edge>();
    const { count: total, producer, consumer, kind } = run.edges();
    const size = this.nodes.length;
    const add = (a: number, b: number, k: number) => {
      const key = a * size + b;
      let edge = found.get(key);
      if (!edge) found.set(key, (edge = { from: a, to: b, counts: EDGE_KINDS.map(() => 0) }));
      edge.counts[k]!++;
    };
    const joins = Math.max(0, ...(run.hasEdges ? [run.header.columns!["edge.count"]!.count - run.tasks] : []));
    const into: Set<number>[] = Array.from({ length: joins }, () => new Set());
    for (let e = 0; e < total; e++) {
      const [p, c] = [producer(e), consumer[e]!];
      if (c >= run.tasks) {
        if (p < run.tasks) into[c - run.tasks]!.add(nodeOf[p]!);
      } else if (p < run.tasks) add(nodeOf[p]!, nodeOf[c]!, kind[e]!);
    }
    for (let e = 0; e < total; e++) {
      const [p, c] = [producer(e), consumer[e]!];
      if (p >= run.tasks && c < run.tasks) for (const node of into[p - run.tasks]!) add(node, nodeOf[c]!, 0);
    }
    return [...found.values()];
  }

  /** Layers: a node stands below all that it waits for; edges back up (loops) do not count. */
  private place(edges: Edge[]): void {
    const order = this.nodes.map((_, i) => i);
    const layer = new Map<number, number>(order.map((i) => [i, 0]));
    const forward = edges.filter((e) => e.from < e.to);
    for (const edge of [...forward].sort((a, b) => a.to - b.to || a.from - b.from)) layer.set(edge.to, Math.max(layer.get(edge.to)!, layer.get(edge.from)! + 1));
    const rows: number[][] = [];
    for (const i of order) (rows[layer.get(i)!] ??= []).push(i);
    const filled = rows.filter((r) => r);
    const perRow = 6;
    let y = 20;
    for (const row of filled) {
      row.forEach((i, n) => {
        const line = Math.floor(n / perRow);
        const across = Math.min(row.length, perRow);
        this.nodes[i]!.x = 20 + (n % perRow) * (NODE_W + GAP_X) + ((perRow - across) * (NODE_W + GAP_X)) / 2;
        this.nodes[i]!.y = y + line * (NODE_H + 14);
      });
      y += Math.ceil(row.length / perRow) * (NODE_H + 14) + GAP_Y;
    }
  }

  private open(node: Node): void {
    const size = node.to - node.from;
    const at = this.nodes.indexOf(node);
    if (size <= 1 || this.nodes.length + PARTS > MOST_NODES) return;
    const step = Math.ceil(size / Math.min(PARTS, size));
    const parts: Node[] = [];
    for (let from = node.from; from < node.to; from += step) parts.push({ ...node, id: node.id * 100 + parts.length + 1, from, to: Math.min(from + step, node.to), depth: node.depth + 1 });
    this.nodes.splice(at, 1, ...parts);
    this.update();
  }

  private close(site: number): void {
    const first = this.nodes.findIndex((n) => n.site === site);
    const rest = this.nodes.filter((n) => n.site !== site);
    rest.splice(first, 0, { id: site, site, from: 0, to: this.state.run.sites[site]!.shown, depth: 0, x: 0, y: 0 });
    this.nodes = rest;
    this.update();
  }

  private draw(run: Run, nodeOf: Uint32Array, edges: Edge[]): void {
    const chosen = this.state.choice.task;
    const at = chosen !== null ? nodeOf[chosen]! : -1;
    const most = Math.max(...edges.map((e) => e.counts.reduce((a, b) => a + b)), 1);
    const lines = edges.map((edge) => {
      const [a, b] = [this.nodes[edge.from]!, this.nodes[edge.to]!];
      const total = edge.counts.reduce((x, y) => x + y);
      const main = edge.counts.indexOf(Math.max(...edge.counts));
      const text = `${count(total)} dependencies: ${edge.counts.map((n, k) => (n ? `${count(n)} ${EDGE_KINDS[k]}` : "")).filter(Boolean).join(", ")}`;
      const wide = 1 + 4 * Math.sqrt(total / most);
      const self = edge.from === edge.to;
      const path = self ? `M ${a.x + NODE_W} ${a.y + 12} c 26 -8 26 32 0 24` : curve(a, b);
      const far = b.y - a.y - NODE_H > 2 * GAP_Y;
      const [tx, ty] = self ? [a.x + NODE_W + 22, a.y + 27] : [(a.x + b.x + NODE_W) / 2 + (far ? NODE_W * 0.58 : 6), (a.y + b.y + NODE_H) / 2];
      return svg("g", { class: `edge kind-${EDGE_KINDS[main]}` }, svg("title", {}, text), svg("path", { d: path, "stroke-width": wide.toFixed(1), "marker-end": "url(#arrow)" }), svg("text", { x: tx, y: ty, class: "axis" }, count(total)));
    });
    const [starts, order] = grouped(run.site, run.sites.length);
    const boxes = this.nodes.map((node, i) => {
      const site = run.sites[node.site]!;
      const size = node.to - node.from;
      const first = order[starts[node.site]! + node.from]!;
      const act = () => (size === 1 ? this.state.chooseTask(first) : this.open(node));
      const label = size === 1 ? `task ${count(run.taskNumber(first))}` : node.depth ? `tasks ${count(run.taskNumber(first))} … (${count(size)})` : `${count(size)} tasks`;
      return svg(
        "g",
        { class: `node ${i === at || (chosen === null && site.kernel === this.state.choice.kernel) ? "chosen" : ""}`, tabindex: 0, role: "button", transform: `translate(${node.x} ${node.y})`, onclick: act, onkeydown: (e: KeyboardEvent) => e.key === "Enter" && act() },
        svg("title", {}, `${run.kernelName(site.kernel)} at ${run.placeText(site.place)}; ${size > 1 ? "click to open" : "click to choose"}`),
        svg("rect", { width: NODE_W, height: NODE_H, rx: 7 }),
        svg("rect", { width: 6, height: NODE_H, rx: 3, fill: kernelColour(run.rank[site.kernel]!) }),
        svg("text", { x: 14, y: 18, class: "name" }, shorten(run.kernelName(site.kernel), 24)),
        svg("text", { x: 14, y: 34, class: "axis" }, `${label}  ${run.placeText(site.place)}`.slice(0, 32)),
      );
    });
    const races = this.races(run, nodeOf);
    const width = 6 * (NODE_W + GAP_X) + 60;
    const height = Math.max(...this.nodes.map((n) => n.y), 0) + NODE_H + 40;
    const opened = [...new Set(this.nodes.filter((n) => n.depth).map((n) => n.site))];
    this.element.replaceChildren(
      h(
        "div",
        { class: "row" },
        h("p", { class: "hint" }, "A node is a call with all its tasks; click it to split them. Numbers at edges: how many dependencies there are between the two, drawn solid if the runtime found them, dashed if the first use of a tensor makes them, blue if `deps=` names them (hover for the kinds); dotted red: a race, the edge that is missing."),
        opened.map((site) => h("button", { type: "button", onclick: () => this.close(site) }, `Close ${shorten(run.kernelName(run.sites[site]!.kernel), 24)}`)),
      ),
      h(
        "div",
        { class: "scroll panel" },
        svg(
          "svg",
          { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "dependencies" },
          svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M 0 0 L 8 4 L 0 8 z", class: "head" }))),
          lines,
          boxes,
          races,
        ),
      ),
    );
  }

  /** Findings that name two tasks: the edge that is not there. */
  private races(run: Run, nodeOf: Uint32Array): SVGElement[] {
    const found: SVGElement[] = [];
    for (const finding of run.header.findings ?? []) {
      const tasks = finding.places.map((p) => (p.task === null ? -1 : run.taskOfNumber(p.task))).filter((t) => t >= 0);
      if (finding.check !== "race" || tasks.length < 2) continue;
      const [a, b] = [this.nodes[nodeOf[tasks[0]!]!]!, this.nodes[nodeOf[tasks[1]!]!]!];
      found.push(svg("g", { class: "edge race" }, svg("title", {}, finding.message), svg("path", { d: a === b ? `M ${a.x} ${a.y + 12} c -26 -8 -26 32 0 24` : curve(a, b), "stroke-width": 2.5 }), svg("text", { x: a.x + 4, y: a.y - 5, class: "axis bad" }, "race")));
    }
    return found;
  }
}

function curve(a: Node, b: Node): string {
  const [x0, y0, x1, y1] = [a.x + NODE_W / 2, a.y + NODE_H, b.x + NODE_W / 2, b.y];
  // An edge past other layers goes around what stands in between.
  if (y1 - y0 > 2 * GAP_Y) {
    const side = (x0 + x1) / 2 + NODE_W * 0.75;
    return `M ${x0} ${y0} C ${side} ${y0 + GAP_Y}, ${side} ${y1 - GAP_Y}, ${x1} ${y1}`;
  }
  if (y1 > y0) return `M ${x0} ${y0} C ${x0} ${(y0 + y1) / 2}, ${x1} ${(y0 + y1) / 2}, ${x1} ${y1}`;
  return `M ${a.x} ${a.y + NODE_H / 2} C ${a.x - 60} ${a.y + NODE_H / 2}, ${b.x - 60} ${b.y + NODE_H / 2}, ${b.x} ${b.y + NODE_H / 2}`;
}
