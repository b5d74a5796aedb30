// Above the lanes: what the critical path and the cores were spent on, and the colours of kernels.

import { causeColour, kernelColour } from "./colours";
import { bar, h } from "./dom";
import { count, percent, shorten, time } from "./format";
import { CAUSES, CAUSE_TEXT, type Run } from "./run";

/** The cards and the legend; `choose` is called with the kernel that is clicked. */
export function summaryOf(run: Run, choose: (kernel: number) => void): HTMLElement[] {
  const profile = run.profile;
  const total = profile.total_us || 1;
  const words: Record<string, string> = {
    exec: "kernels running",
    head: "hand-over to a core",
    tail: "completion noticed",
    scheduler: "a scheduler was busy",
    orchestrator: "the orchestrator submits",
  };
  const parts = Object.entries(profile.path).filter(([, us]) => us > 0.0005 * total);
  const path = h(
    "div",
    { class: "card wide" },
    h("h3", {}, `Critical path: ${count(profile.kernels.reduce((s, k) => s + k.path_tasks, 0))} tasks one after the other`),
    h("div", { class: "stack", role: "img", "aria-label": "what the critical path was spent on" }, parts.map(([name, us]) => h("i", { class: `part-${name}`, style: `flex:${us}`, title: `${words[name] ?? name}: ${time(us)}` }))),
    h("div", { class: "keys" }, parts.map(([name, us]) => h("span", {}, h("i", { class: `part-${name}` }), `${words[name] ?? name} `, h("b", {}, percent(us / total))))),
  );
  const idle = run.idle();
  const cores = [run.clusters, run.cores - run.clusters];
  const cards = ["AIC", "AIV"].map((kind, i) => {
    const whole = Math.max(run.last * cores[i]!, 1);
    const rows = CAUSES.filter((c) => idle[i]![c] / whole > 0.004).sort((a, b) => idle[i]![b] - idle[i]![a]);
    return h(
      "div",
      { class: "card" },
      h("h3", {}, `${kind}: ${percent(profile.busy[kind] ?? 0)} busy, else`),
      rows.slice(0, 4).map((cause) => h("div", { class: "cause" }, h("i", { style: `background:${causeColour(cause)}` }), h("span", {}, CAUSE_TEXT[cause]), bar(idle[i]![cause] / whole, percent(idle[i]![cause] / whole)))),
    );
  });
  const kernels = [...run.kernels.keys()].sort((a, b) => run.rank[a]! - run.rank[b]!).filter((k) => run.kernels[k]!.name);
  const legend = h(
    "div",
    { class: "legend" },
    kernels.slice(0, 14).map((k) => {
      const row = run.rowOf.get(run.kernels[k]!.name);
      return h(
        "button",
        { type: "button", title: row ? `${count(row.tasks)} tasks, ${time(row.exec_us)}` : "", onclick: () => choose(k) },
        h("i", { style: `background:${kernelColour(run.rank[k]!)}` }),
        shorten(run.kernelName(k), 34),
      );
    }),
    kernels.length > 14 && h("span", {}, `and ${kernels.length - 14} more`),
  );
  const note = run.header.thinned ? [h("p", { class: "note" }, run.header.thinned)] : [];
  return [h("div", { class: "cards" }, path, ...cards), legend, ...note];
}
