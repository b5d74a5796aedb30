// The task graph: one node per call, split into ranges of tasks when expanded.

import { kernelColor } from "./colors";
import { empty, h, svg } from "./dom";
import { count, plural, shorten } from "./format";
import { EDGE_KINDS, type Run, grouped } from "./run";
import type { State } from "./state";

interface Node {
  id: number;
  site: number;
  /** the node holds the tasks [from, to) of its call */
  from: number;
  to: number;
  depth: number;
  /** their loop iterations, if known */
  rounds: string;
  x: number;
  y: number;
}

interface Edge {
  from: number;
  to: number;
  counts: number[];
}

interface Race {
  from: number;
  to: number;
  message: string;
}

const PARTS = 8;
const MOST_NODES = 160;
const MARGIN = 20;
const [NODE_W, NODE_H, GAP_X, GAP_Y] = [178, 44, 26, 58];

export class Graph {
  readonly element = h("section", { class: "graph" });
  private nodes: Node[] = [];
  private built: Run | null = null;
  private width = 0;

  constructor(private readonly state: State) {}

  show(): void {
    const run = this.state.run;
    if (this.built !== run) {
      this.built = run;
      this.nodes = run.sites.map((site, i) => ({ id: i, site: i, from: 0, to: site.shown, depth: 0, rounds: "", x: 0, y: 0 })).filter((n) => n.to > 0);
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
    const races = this.races(run, nodeOf);
    this.place([...edges, ...races.map((r) => ({ from: r.from, to: r.to, counts: [] }))]);
    this.draw(run, nodeOf, edges, races);
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

  /** Edges between nodes with counts by kind; an edge through a join counts once per end. */
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

  /** Layering: a node is below all its dependencies; back edges (loops) are ignored. */
  private place(edges: Edge[]): void {
    const order = this.nodes.map((_, i) => i);
    const layer = new Map<number, number>(order.map((i) => [i, 0]));
    const forward = edges.filter((e) => e.from < e.to);
    for (const edge of [...forward].sort((a, b) => a.to - b.to || a.from - b.from)) layer.set(edge.to, Math.max(layer.get(edge.to)!, layer.get(edge.from)! + 1));
    const rows: number[][] = [];
    for (const i of order) (rows[layer.get(i)!] ??= []).push(i);
    const filled = rows.filter((r) => r);
    const perRow = Math.min(6, Math.max(...filled.map((r) => r.length), 1));
    this.width = perRow * (NODE_W + GAP_X);
    let y = 24;
    for (const row of filled) {
      row.forEach((i, n) => {
        const line = Math.floor(n / perRow);
        const across = Math.min(row.length - line * perRow, perRow);
        this.nodes[i]!.x = MARGIN + (n % perRow) * (NODE_W + GAP_X) + ((perRow - across) * (NODE_W + GAP_X)) / 2;
        this.nodes[i]!.y = y + line * (NODE_H + 14);
      });
      y += Math.ceil(row.length / perRow) * (NODE_H + 14) + GAP_Y;
    }
  }

  private open(node: Node): void {
    const size = node.to - node.from;
    const at = this.nodes.indexOf(node);
    if (size <= 1 || this.nodes.length + PARTS > MOST_NODES) return;
    const parts = this.split(node).map(([from, to, rounds], i) => ({ ...node, id: node.id * 100 + i + 1, from, to, rounds, depth: node.depth + 1 }));
    this.nodes.splice(at, 1, ...parts);
    this.update();
  }

  /** Split a node's tasks by iterations of the outermost varying loop, else into equal parts. */
  private split(node: Node): [number, number, string][] {
    const run = this.state.run;
    const [starts, order] = grouped(run.site, run.sites.length);
    const values = Array.from({ length: node.to - node.from }, (_, i) => run.scalars(order[starts[node.site]! + node.from + i]!));
    const names = run.sites[node.site]!.scalars;
    let loop = -1;
    let bounds: number[] = [];
    for (let j = 0; j < names.length; j++) {
      const changes = values.flatMap((v, i) => (i > 0 && v[j]![1] !== values[i - 1]![j]![1] ? [i] : []));
      if (changes.length && (loop < 0 || changes.length < bounds.length)) [loop, bounds] = [j, changes];
    }
    const begins = loop < 0 ? values.map((_, i) => i) : [0, ...bounds];
    const step = Math.ceil(begins.length / PARTS);
    const found: [number, number, string][] = [];
    for (let i = 0; i < begins.length; i += step) {
      const [from, to] = [begins[i]!, begins[i + step] ?? values.length];
      const [low, high] = loop < 0 ? [0, 0] : [values[from]![loop]![1], values[to - 1]![loop]![1]];
      const rounds = loop < 0 ? "" : `${shorten(names[loop]!, 12)} = ${low === high ? low : `${low} … ${high}`}`;
      found.push([node.from + from, node.from + to, rounds]);
    }
    return found;
  }

  private close(site: number): void {
    const first = this.nodes.findIndex((n) => n.site === site);
    const rest = this.nodes.filter((n) => n.site !== site);
    rest.splice(first, 0, { id: site, site, from: 0, to: this.state.run.sites[site]!.shown, depth: 0, rounds: "", x: 0, y: 0 });
    this.nodes = rest;
    this.update();
  }

  private draw(run: Run, nodeOf: Uint32Array, edges: Edge[], races: Race[]): void {
    const chosen = this.state.choice.task;
    const at = chosen !== null ? nodeOf[chosen]! : -1;
    const most = Math.max(...edges.map((e) => e.counts.reduce((a, b) => a + b)), 1);
    const route = new Routes(this.nodes);
    const lines = edges.map((edge) => {
      const total = edge.counts.reduce((x, y) => x + y);
      const main = edge.counts.indexOf(Math.max(...edge.counts));
      const text = `${plural(total, "dependency", "dependencies")}: ${edge.counts.map((n, k) => (n ? `${count(n)} ${EDGE_KINDS[k]}` : "")).filter(Boolean).join(", ")}`;
      const wide = 1 + 4 * Math.sqrt(total / most);
      const { path, x, y } = route.of(edge.from, edge.to);
      return svg("g", { class: `edge kind-${EDGE_KINDS[main]}` }, svg("title", {}, text), svg("path", { d: path, "stroke-width": wide.toFixed(1), "marker-end": "url(#arrow)" }), svg("text", { x, y, class: "axis" }, count(total)));
    });
    const missing = races.map((race) => {
      const { path, x, y } = route.of(race.from, race.to);
      return svg("g", { class: "edge race" }, svg("title", {}, race.message), svg("path", { d: path, "stroke-width": 2.5, "marker-end": "url(#missing)" }), svg("text", { x, y, class: "axis bad" }, "race"));
    });
    const [starts, order] = grouped(run.site, run.sites.length);
    const boxes = this.nodes.map((node, i) => {
      const site = run.sites[node.site]!;
      const size = node.to - node.from;
      const first = order[starts[node.site]! + node.from]!;
      const act = () => (size === 1 ? this.state.chooseTask(first) : this.open(node));
      const label = size === 1 ? `task ${count(run.taskNumber(first))}` : node.depth && !node.rounds ? `tasks ${count(run.taskNumber(first))} … (${count(size)})` : `${count(size)} tasks`;
      return svg(
        "g",
        { class: `node ${i === at || (chosen === null && site.kernel === this.state.choice.kernel) ? "chosen" : ""}`, tabindex: 0, role: "button", transform: `translate(${node.x} ${node.y})`, onclick: act, onkeydown: (e: KeyboardEvent) => e.key === "Enter" && act() },
        svg("title", {}, `${run.kernelName(site.kernel)} at ${run.placeText(site.place)}; ${size > 1 ? "click to open" : "click to choose"}`),
        svg("rect", { width: NODE_W, height: NODE_H, rx: 7 }),
        svg("rect", { width: 6, height: NODE_H, rx: 3, fill: kernelColor(run.rank[site.kernel]!) }),
        // An inner svg clips text that is too long for the node.
        svg("svg", { width: NODE_W - 4, height: NODE_H }, svg("text", { x: 14, y: 18, class: "name" }, shorten(run.kernelName(site.kernel), 40)), svg("text", { x: 14, y: 34, class: "axis" }, shorten(`${label}  ${node.rounds || run.placeText(site.place)}`, 60))),
      );
    });
    const width = Math.max(MARGIN + this.width, route.right) + MARGIN;
    const height = Math.max(...this.nodes.map((n) => n.y), 0) + NODE_H + 40;
    const opened = [...new Set(this.nodes.filter((n) => n.depth).map((n) => n.site))];
    this.element.replaceChildren(
      h(
        "div",
        { class: "row" },
        h("p", { class: "hint" }, "A node is a call with all its tasks; click it to split them by the outermost loop. Numbers at edges: how many dependencies there are between the two, drawn solid if the runtime found them, dashed if the first use of a tensor makes them, blue if `deps=` names them (hover for the kinds); dotted red: a race, the edge that is missing."),
        opened.map((site) => h("button", { type: "button", onclick: () => this.close(site) }, `Close ${shorten(run.kernelName(run.sites[site]!.kernel), 24)}`)),
      ),
      h(
        "div",
        { class: "scroll panel" },
        svg(
          "svg",
          { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "dependencies" },
          svg("defs", {}, ["arrow", "missing"].map((id) => svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M 0 0 L 8 4 L 0 8 z", class: id === "missing" ? "head bad" : "head" })))),
          lines,
          boxes,
          missing,
        ),
      ),
    );
  }

  /** Draw findings about two tasks as missing edges. */
  private races(run: Run, nodeOf: Uint32Array): Race[] {
    const found: Race[] = [];
    for (const finding of run.header.findings ?? []) {
      const tasks = finding.places.map((p) => (p.task === null ? -1 : run.taskOfNumber(p.task))).filter((t) => t >= 0);
      if (finding.check !== "race" || tasks.length < 2) continue;
      const [a, b] = [Math.min(tasks[0]!, tasks[1]!), Math.max(tasks[0]!, tasks[1]!)];
      found.push({ from: nodeOf[a]!, to: nodeOf[b]!, message: finding.message });
    }
    return found;
  }
}

/** Routes of edges and positions of their labels. */
class Routes {
  /** rightmost coordinate */
  right = 0;
  private readonly taken: [number, number, number][] = [];

  constructor(private readonly nodes: Node[]) {}

  of(from: number, to: number): { path: string; x: number; y: number } {
    const [a, b] = [this.nodes[from]!, this.nodes[to]!];
    if (a === b) return { path: `M ${a.x + NODE_W} ${a.y + 14} c 26 -8 26 24 0 16`, x: a.x + NODE_W + 22, y: a.y + 25 };
    const [x0, y0, x1, y1] = [a.x + NODE_W / 2, a.y + NODE_H, b.x + NODE_W / 2, b.y];
    if (y1 > y0 && y1 - y0 < 2 * GAP_Y) return { path: `M ${x0} ${y0} C ${x0} ${(y0 + y1) / 2}, ${x1} ${(y0 + y1) / 2}, ${x1} ${y1}`, x: (x0 + x1) / 2 + 6, y: (y0 + y1) / 2 };
    return this.around(a, b);
  }

  /** Route around the nodes in between, on their right, with one channel per edge. */
  private around(a: Node, b: Node): { path: string; x: number; y: number } {
    const [top, bottom] = [Math.min(a.y, b.y), Math.max(a.y, b.y) + NODE_H];
    const between = this.nodes.filter((n) => n.y + NODE_H >= top && n.y <= bottom);
    let x = Math.max(...between.map((n) => n.x)) + NODE_W + 44;
    while (this.taken.some(([tx, t, e]) => Math.abs(tx - x) < 34 && t < bottom && e > top)) x += 17;
    this.taken.push([x, top, bottom]);
    this.right = Math.max(this.right, x + 44);
    const [ax, ay, bx, by] = [a.x + NODE_W, a.y + NODE_H - 6, b.x + NODE_W, b.y + 6];
    const turn = by > ay ? 24 : -24;
    return { path: `M ${ax} ${ay} C ${x} ${ay}, ${x} ${ay}, ${x} ${ay + turn} L ${x} ${by - turn} C ${x} ${by}, ${x} ${by}, ${bx} ${by}`, x: x + 4, y: (ay + by) / 2 };
  }
}
