// Above the lanes: breakdown of the critical path and of core time, and the legend of kernels.

import { causeColor, kernelColor } from "./colors";
import { h } from "./dom";
import { count, percent, shorten, time } from "./format";
import { CAUSES, CAUSE_SHORT, CAUSE_TEXT, type Run } from "./run";

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
  const chain = profile.kernels.reduce((sum, k) => sum + k.path_tasks, 0);
  const parts = Object.entries(profile.path).filter(([, us]) => us > 0.0005 * total);
  const path = card(`Critical path: ${chain === 1 ? "1 task" : `${count(chain)} tasks in a row`}`, "what the critical path was spent on", parts.map(([name, us]) => ({ mark: { class: `part-${name}` }, text: words[name] ?? name, share: us / total })));
  const idle = run.idle();
  const cores = [run.clusters, run.cores - run.clusters];
  const cards = ["AIC", "AIV"].map((kind, i) => {
    const whole = Math.max(run.last * cores[i]!, 1);
    const causes = run.thinned ? [] : CAUSES.filter((c) => idle[i]![c] / whole > 0.0005).sort((a, b) => idle[i]![b] - idle[i]![a]);
    const busy = profile.busy[kind] ?? 0;
    return card(`${cores[i]} ${kind}s: ${percent(busy)} busy${causes.length ? ", else" : ""}`, `what the ${kind}s did`, [{ mark: { class: "part-exec" }, text: "", share: busy }, ...(run.thinned ? [{ mark: { class: "idle" }, text: "idle; why needs all tasks", share: 1 - busy }] : []), ...causes.map((c) => ({ mark: { class: `idle idle-${c}`, style: `background-color:${causeColor(c)}` }, text: CAUSE_SHORT[c], long: CAUSE_TEXT[c], share: idle[i]![c] / whole }))]);
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
        h("i", { style: `background:${kernelColor(run.rank[k]!)}` }),
        shorten(run.kernelName(k), 34),
      );
    }),
    kernels.length > 14 && h("span", {}, `and ${kernels.length - 14} more`),
  );
  const note = run.header.thinned ? [h("p", { class: "note" }, run.header.thinned)] : [];
  return [h("div", { class: "cards" }, path, ...cards), legend, ...note];
}

interface Part {
  mark: Record<string, string>;
  /** omitted if the header states it */
  text: string;
  long?: string;
  share: number;
}

/** A stacked bar with its legend. */
function card(head: string, label: string, parts: Part[]): HTMLElement {
  const named = parts.filter((p) => p.text);
  return h(
    "div",
    { class: "card" },
    h("h3", {}, head),
    h("div", { class: "stack", role: "img", "aria-label": label }, parts.map((p) => h("i", { class: p.mark.class, style: `${p.mark.style ?? ""};flex:${p.share}`, title: `${p.long ?? (p.text || "busy")}: ${percent(p.share)}` }))),
    h("div", { class: "keys" }, named.map((p) => h("span", { title: p.long }, h("i", p.mark), `${p.text} `, h("b", {}, percent(p.share))))),
  );
}
