// Entry point: decodes the data, creates the views, and links them by the selection.

import { Compare } from "./compare";
import { type Advice, fromBase64, unpack } from "./data";
import { Details } from "./details";
import { empty, h } from "./dom";
import { count, shorten, time } from "./format";
import { Graph } from "./graph";
import { Kernels } from "./kernels";
import { live } from "./live";
import { Memory } from "./memory";
import { Model } from "./model";
import { Numbers } from "./numbers";
import { Run } from "./run";
import { Ranks } from "./ranks";
import { Search } from "./search";
import { Source } from "./source";
import { State, VIEWS, type ViewName } from "./state";
import { Timeline } from "./timeline";

interface View {
  element: HTMLElement;
  show(): void;
  update(): void;
  theme?(): void;
}

const KEYS: [string, string][] = [
  ["1 … 8", "the views"],
  ["/", "search by kernel, line, tensor or task"],
  ["W S, + −, wheel", "zoom the timeline"],
  ["A D, drag, Shift+wheel", "move along"],
  ["Alt+wheel, drag", "scroll the lanes"],
  ["← →", "the task before and after on the same core"],
  ["↑ ↓", "the core above and below"],
  ["Enter, double click", "zoom to the selected task"],
  ["F", "the whole run"],
  ["P, I, L", "critical path, causes of idle time, tall lanes"],
  ["T", "light or dark"],
  ["Esc", "select nothing"],
];

async function main(): Promise<void> {
  const begun = performance.now();
  const app = document.getElementById("app")!;
  const element = document.getElementById("data")!;
  const { header, columns } = await unpack(fromBase64(element.textContent ?? ""));
  element.remove();
  const state = new State(header.runs.map((run) => new Run(run, columns)));
  const views: Record<ViewName, View> = {
    timeline: timelineView(state, header.advice),
    source: new Source(state, header.advice),
    kernels: new Kernels(state),
    memory: new Memory(state),
    graph: new Graph(state),
    numbers: new Numbers(state, header.numbers),
    model: new Model(state),
    compare: new Compare(state, header.comparison),
  };
  const details = new Details(state, header.numbers, header.advice);
  const search = new Search(state);
  const tabs = new Map(
    VIEWS.map((name, i) => [
      name,
      h("button", { type: "button", role: "tab", "data-view": name, title: `key ${i + 1}`, onclick: () => state.set({ view: name }) }, name[0]!.toUpperCase() + name.slice(1)),
    ]),
  );
  const place = h("main", {});
  const help = h("dialog", { class: "help" }, h("h2", {}, "Keys"), h("dl", {}, KEYS.flatMap(([key, text]) => [h("dt", {}, key), h("dd", {}, text)])), h("form", { method: "dialog" }, h("button", {}, "Close"))) as HTMLDialogElement;
  const theme = () => {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    for (const view of Object.values(views)) view.theme?.();
    views[state.choice.view].show();
    details.update();
  };
  const served = document.body.dataset.served ? live() : null;
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  app.replaceChildren(
    h(
      "header",
      {},
      h("div", { class: "title" }, h("b", { class: "logo" }, "tilelet"), runPicker(state)),
      h("nav", { role: "tablist", "aria-label": "views" }, [...tabs.values()]),
      h("div", { class: "tools" }, served?.corner ?? null, search.element, h("button", { type: "button", onclick: theme, title: "light or dark (T)", "aria-label": "light or dark" }, "◐"), h("button", { type: "button", onclick: () => help.showModal(), title: "keys (?)", "aria-label": "keys" }, "?")),
    ),
    ...(served ? [served.message] : []),
    h("div", { class: "body" }, place, details.element),
    help,
  );
  let shown: ViewName | null = null;
  state.listen((choice, before) => {
    details.element.hidden = state.run.header.ranks !== undefined;
    for (const [name, tab] of tabs) tab.setAttribute("aria-selected", String(name === choice.view));
    if (shown !== choice.view || choice.run !== before.run) {
      shown = choice.view;
      place.replaceChildren(views[choice.view].element);
      // Start every view at its top: on a narrow screen the previous one may have been scrolled down.
      for (const box of [place, place.parentElement!, document.documentElement]) box.scrollTop = 0;
      views[choice.view].show();
    } else views[choice.view].update();
    details.update();
    try {
      history.replaceState(null, "", state.toHash());
    } catch {
      // A sandboxed frame has no history of its own.
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement || help.open) return;
    const number = Number(event.key);
    if (number >= 1 && number <= VIEWS.length && !event.ctrlKey && !event.metaKey && !event.altKey) state.set({ view: VIEWS[number - 1]! });
    else if (event.key === "/") {
      event.preventDefault();
      search.input.focus();
    } else if (event.key === "?") help.showModal();
    else if (event.key === "Escape") state.clear();
    else if (event.key === "t" && !event.ctrlKey && !event.metaKey) theme();
    else if (state.choice.view === "timeline" && !event.defaultPrevented && !(event.target instanceof HTMLCanvasElement)) (views.timeline as View & { key?: (e: KeyboardEvent) => boolean }).key?.(event);
  });
  const first: Partial<typeof state.choice> = header.kind === "compare" ? { view: "compare" } : state.run.hasTasks || state.run.header.ranks ? {} : { view: header.kind === "check" ? "model" : "kernels" };
  const wanted = location.hash; // read before the first selection replaces it
  state.set(first);
  if (wanted.length > 1) state.fromHash(wanted);
  requestAnimationFrame(() => {
    document.body.dataset.ready = String(Math.round(performance.now() - begun));
  });
  Object.assign(window, { tileletPage: { state, timeline: views.timeline } });
}

function timelineView(state: State, advice: Advice | undefined): View {
  if (state.runs.some((r) => r.header.ranks)) return new Ranks(state);
  if (state.runs.some((r) => r.hasTasks)) return new Timeline(state, advice);
  return { element: h("section", {}, empty("No timeline", "There are no tasks in this page: a saved profile.json has figures only, and a check records none. Make the page from the script:", "tilelet profile kernel.py --html out.html")), show() {}, update() {} };
}

function runPicker(state: State): HTMLElement {
  const text = (run: Run) => `${shorten(run.header.name, 60)} on ${run.header.machine}`;
  const total = h("span", { class: "total" });
  const say = () => {
    const p = state.run.profile;
    const [low, high] = p.interval ?? [];
    total.title = low !== undefined && high !== undefined ? `between ${time(low)} and ${time(high)}: see Model` : "";
    const ranks = state.run.header.ranks;
    total.textContent = ranks ? `${time(ranks.total_us)} modelled` : `${time(p.total_us)} modelled, ${count(p.tasks)} tasks`;
  };
  state.listen(say);
  if (state.runs.length < 2) return h("span", {}, h("span", { class: "name" }, text(state.run)), total);
  const pick = h(
    "select",
    { "aria-label": "run", onchange: (e: Event) => state.set({ run: Number((e.target as HTMLSelectElement).value), task: null, kernel: null, line: null, tensor: null }) },
    state.runs.map((run, i) => h("option", { value: i }, text(run))),
  ) as HTMLSelectElement;
  state.listen((choice) => (pick.value = String(choice.run)));
  return h("span", {}, pick, total);
}

main().catch((error: unknown) => {
  const text = error instanceof Error ? error.message : String(error);
  document.getElementById("app")!.replaceChildren(empty("This page cannot be read", `Its data is damaged, or of another version: ${text}`));
});
