// Search by kernel, line, tensor or task number.

import { h } from "./dom";
import { count, shorten } from "./format";
import type { State } from "./state";

interface Hit {
  text: string;
  kind: string;
  go: () => void;
}

export class Search {
  readonly input = h("input", { type: "search", placeholder: "kernel, line, tensor, #12", title: "search (/)", "aria-label": "search" }) as HTMLInputElement;
  private readonly list = h("ul", { class: "hits", role: "listbox" });
  readonly element = h("div", { class: "search" }, this.input, this.list);
  private hits: Hit[] = [];
  private at = 0;

  constructor(private readonly state: State) {
    this.input.addEventListener("input", () => this.update());
    this.input.addEventListener("keydown", (e) => this.key(e));
    // Deferred, so that a click on a hit still works; skipped if the field regained focus.
    this.input.addEventListener("blur", () => setTimeout(() => document.activeElement !== this.input && this.close(), 150));
  }

  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      this.close();
      this.input.blur();
    } else if (event.key === "Enter") this.take(this.hits[this.at]);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.at = Math.max(0, Math.min(this.hits.length - 1, this.at + (event.key === "ArrowDown" ? 1 : -1)));
      this.draw();
    }
  }

  private close(): void {
    this.list.replaceChildren();
  }

  private take(hit: Hit | undefined): void {
    if (!hit) return;
    hit.go();
    this.close();
    this.input.blur();
  }

  private update(): void {
    this.hits = this.find(this.input.value.trim());
    this.at = 0;
    this.draw();
  }

  private draw(): void {
    const none = this.input.value.trim() && !this.hits.length;
    this.list.replaceChildren(
      ...this.hits.map((hit, i) => h("li", { role: "option", "aria-selected": String(i === this.at), onmousedown: () => this.take(hit) }, h("em", {}, hit.kind), ` ${hit.text}`)),
      ...(none ? [h("li", {}, "nothing found")] : []),
    );
  }

  find(text: string): Hit[] {
    if (!text) return [];
    const run = this.state.run;
    const found: Hit[] = [];
    const number = /^#?([\d,]+)$/.exec(text);
    if (number) {
      const task = run.taskOfNumber(Number(number[1]!.replaceAll(",", "")));
      if (task >= 0) found.push({ kind: "task", text: `${count(run.taskNumber(task))} (${shorten(run.kernelName(run.kernelOfTask[task]!), 40)})`, go: () => this.state.chooseTask(task, { view: "timeline" }) });
    }
    const lower = text.toLowerCase();
    run.kernels.forEach((k, i) => {
      if (k.name && k.name.toLowerCase().includes(lower)) found.push({ kind: "kernel", text: shorten(k.name, 60), go: () => this.state.chooseKernel(i) });
    });
    for (const t of run.header.runtime?.tensors ?? []) if (t.toLowerCase().includes(lower)) found.push({ kind: "tensor", text: shorten(t, 60), go: () => this.state.set({ tensor: t }) });
    const places = new Map<string, [number, number]>();
    for (const site of run.sites) if (site.place) places.set(run.placeText(site.place), site.place);
    for (const line of run.header.lines ?? []) places.set(run.placeText([line[0]!, line[1]!]), [line[0]!, line[1]!]);
    for (const [name, place] of places) if (name.toLowerCase().includes(lower) || (number && place[1] === Number(number[1]))) found.push({ kind: "line", text: name, go: () => this.state.chooseLine(place) });
    return found.slice(0, 14);
  }
}
