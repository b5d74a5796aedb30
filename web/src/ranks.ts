// Several ranks: one lane per rank with its tasks and waits, and messages as lines
// from sender to receiver. The wheel zooms, dragging pans.

import { kernelColor } from "./colors";
import type { RankSpan, RanksData } from "./data";
import { h, svg } from "./dom";
import { bytes, moment, niceStep, time } from "./format";
import type { State } from "./state";

const WIDTH = 1200;
const LEFT = 64;
const BAR = 7;
const WAIT = 8;
const GAP = 26;
/** Maximum rows of bars per rank; further tasks share the last row. */
const MOST_ROWS = 24;

/** Assign each span to the first row that is free when it starts. */
export function rowsOf(spans: RankSpan[], most: number): number[] {
  const free: number[] = [];
  return spans.map((span) => {
    let row = free.findIndex((end) => end <= span.start_us);
    if (row < 0) row = Math.min(free.length, most - 1);
    free[row] = Math.max(free[row] ?? 0, span.end_us);
    return row;
  });
}

export class Ranks {
  readonly element = h("section", { class: "ranks" });
  private from = 0;
  private to = 1;

  constructor(private readonly state: State) {}

  show(): void {
    this.from = 0;
    this.to = Math.max(this.data?.total_us ?? 0, 1);
    this.draw();
  }

  update(): void {}

  theme(): void {
    this.draw();
  }

  private get data(): RanksData | undefined {
    return this.state.run.header.ranks;
  }

  private draw(): void {
    const data = this.data;
    if (!data) return;
    const kernels = [...new Set(data.spans.map((s) => s.kernel))];
    const x = (us: number) => LEFT + ((us - this.from) / (this.to - this.from)) * (WIDTH - LEFT - 8);
    const seen = (a: number, b: number) => b >= this.from && a <= this.to;
    const bars: SVGElement[] = [];
    const middle = new Map<number, number>();
    let y = 22;
    for (const { rank, end_us } of data.ranks) {
      const spans = data.spans.filter((s) => s.rank === rank).sort((a, b) => a.start_us - b.start_us);
      const rows = rowsOf(spans, MOST_ROWS);
      const height = (Math.max(0, ...rows) + 1) * BAR;
      bars.push(svg("text", { x: 4, y: y + 12, class: "lane" }, `rank ${rank}`), svg("rect", { x: LEFT, y, width: WIDTH - LEFT - 8, height: height + WAIT, class: "lane" }));
      spans.forEach((s, i) => {
        if (!seen(s.start_us, s.end_us)) return;
        const label = `${s.kernel} on rank ${rank}, ${time(s.end_us - s.start_us)} from ${moment(s.start_us, 0.1)}`;
        bars.push(svg("rect", { x: x(s.start_us), y: y + rows[i]! * BAR, width: Math.max(x(s.end_us) - x(s.start_us), 0.5), height: BAR - 1, fill: kernelColor(kernels.indexOf(s.kernel)) }, svg("title", {}, label)));
      });
      for (const w of data.waits.filter((w) => w.rank === rank && seen(w.start_us, w.end_us)))
        bars.push(svg("rect", { x: x(w.start_us), y: y + height + 1, width: Math.max(x(w.end_us) - x(w.start_us), 0.5), height: WAIT - 2, class: "wait" }, svg("title", {}, `${w.kernel} waits ${time(w.end_us - w.start_us)} for rank ${w.source}, line ${w.line}`)));
      bars.push(svg("line", { x1: x(end_us), x2: x(end_us), y1: y, y2: y + height + WAIT, class: "end" }, svg("title", {}, `rank ${rank} ends`)));
      middle.set(rank, y + height + WAIT);
      y += height + WAIT + GAP;
    }
    const lines = data.messages
      .filter((m) => seen(m.start_us, m.end_us))
      .map((m) => {
        const down = middle.get(m.target)! > middle.get(m.source)!;
        const what = m.bytes > 4 ? bytes(m.bytes) : "a signal";
        return svg(
          "line",
          { x1: x(m.start_us), y1: middle.get(m.source)!, x2: x(m.end_us), y2: middle.get(m.target)! + (down ? -4 : 4), class: m.bytes > 4 ? "message" : "message signal" },
          svg("title", {}, `${what} from rank ${m.source} to rank ${m.target}, ${time(m.end_us - m.start_us)}, line ${m.line}`),
        );
      });
    const step = niceStep(this.to - this.from, 8);
    const ticks: SVGElement[] = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) ticks.push(svg("text", { x: x(at), y: 12, class: "tick" }, moment(at, step)));
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${y}`, role: "img", "aria-label": "what every rank does, and the messages between ranks", onwheel: (e: WheelEvent) => this.zoom(e), onpointerdown: (e: PointerEvent) => this.drag(e) }, ticks, bars, lines);
    const legend = kernels.map((k, i) => h("span", {}, h("i", { style: `background:${kernelColor(i)}` }), k));
    const sent = data.messages.reduce((sum, m) => sum + m.bytes, 0);
    this.element.replaceChildren(
      h("p", {}, `${data.ranks.length} ranks, ${time(data.total_us)} modelled; ${data.messages.length} messages, ${bytes(sent)}${data.left_out ? `; ${data.left_out} tasks and messages are not drawn` : ""}`),
      h("div", { class: "picture" }, picture as unknown as Node),
      h("p", { class: "legend" }, legend, h("span", {}, h("i", { class: "wait" }), "waits"), h("span", {}, h("i", { class: "message" }), "messages")),
    );
  }

  private zoom(event: WheelEvent): void {
    event.preventDefault();
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const share = Math.min(1, Math.max(0, ((event.clientX - box.left) / box.width - LEFT / WIDTH) / (1 - LEFT / WIDTH)));
    const at = this.from + share * (this.to - this.from);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    const whole = Math.max(this.data!.total_us, 1);
    this.from = Math.max(0, at - (at - this.from) * factor);
    this.to = Math.min(whole, Math.max(this.from + 0.1, at + (this.to - at) * factor));
    this.draw();
  }

  private drag(event: PointerEvent): void {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const [begin, from, to] = [event.clientX, this.from, this.to];
    const move = (e: PointerEvent) => {
      const whole = Math.max(this.data!.total_us, 1);
      const by = Math.min(from, Math.max(to - whole, ((e.clientX - begin) / box.width) * (to - from)));
      [this.from, this.to] = [from - by, to - by];
      this.draw();
    };
    const end = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", end);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end);
  }
}
