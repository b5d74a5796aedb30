// Changes to the script that were tried: speed-up, diff and location of each.

import type { Advice, Change } from "./data";
import { h } from "./dom";
import { bytes, count, plural, time } from "./format";
import type { State } from "./state";

const CLAIMS: Record<string, string> = {
  proved: "Proved for all inputs of these sizes",
  "holds for the inputs tried": "Holds for the inputs tried, not proved",
};

export function faster(change: Change): string {
  return `${(change.before.us / change.after.us).toFixed(2)}x faster`;
}

/** All changes, best first; empty if none was tried. */
export function advicePanel(state: State, advice: Advice | undefined): HTMLElement[] {
  if (!advice) return [];
  if (!advice.changes.length) return [h("h2", {}, "What to change"), h("p", {}, "Changes were tried; none makes this program faster.")];
  return [
    h("h2", {}, "What to change"),
    h("ol", { class: "first advice" }, advice.changes.map((c, i) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => chooseChange(state, c, "source") }, `${faster(c)}${placeText(state, c)}`), h("div", {}, c.message), changeText(c, i === 0)))),
    h("p", { class: "hint" }, "To apply them: ", [...new Set(advice.changes.map((c) => c.applied_by))].flatMap((by, i) => [i ? ", " : "", h("code", {}, commandOf(by, advice.script))]), document.body.dataset.served ? "" : [". Keep this page up to date while you edit: ", h("code", {}, `tilelet view ${advice.script} --open`)]),
  ];
}

function commandOf(appliedBy: string, script: string): string {
  const [command, ...options] = appliedBy.split(" ");
  return ["tilelet", command, script, ...options, ...(command === "advise" && script.endsWith(".py") ? ["--in-place"] : [])].join(" ");
}

/** Speed-up, claim about the results, and diff of one change. */
export function changeText(change: Change, open: boolean): HTMLElement {
  const { before, after } = change;
  const figures = [`${time(before.us)} → ${time(after.us)}`];
  if (before.tasks !== after.tasks) figures.push(`${count(before.tasks)} → ${plural(after.tasks, "task", "tasks")}`);
  if (before.gm_bytes !== after.gm_bytes) figures.push(`${bytes(before.gm_bytes)} → ${bytes(after.gm_bytes)} of global memory`);
  const claim = `${CLAIMS[change.claim] ?? change.claim}: results equal${change.rounding ? " but for rounding" : ", bit for bit"}.`;
  return h(
    "details",
    { class: "change", open },
    h("summary", {}, `${figures.join(", ")} (modelled)`),
    h("div", { class: "soft" }, claim),
    h("pre", { class: "diff", "aria-label": "diff" }, change.diff.split("\n").filter((line) => !/^(---|\+\+\+) /.test(line)).map((line) => h("span", { class: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@") ? "soft" : "" }, `${line}\n`))),
  );
}

/** Buttons above the lanes; each shows the tasks that the change is about. */
export function adviceChips(state: State, advice: Advice | undefined): HTMLElement | null {
  const changes = advice?.changes ?? [];
  if (!changes.length) return null;
  return h(
    "div",
    { class: "chips advice-chips" },
    h("b", {}, "What to change"),
    changes.map((c) => h("button", { type: "button", title: c.message, onclick: () => chooseChange(state, c, "timeline") }, h("b", {}, faster(c)), placeText(state, c))),
  );
}

function placeText(state: State, change: Change): string {
  return change.place ? ` at ${state.run.placeText(change.place)}` : "";
}

function chooseChange(state: State, change: Change, view: "source" | "timeline"): void {
  const place = change.place;
  if (!place) return state.set({ view });
  // A loop submits nothing itself: the tasks are those of the first scope in it.
  const inside = view === "timeline" ? state.run.sites.map((s) => s.place).filter((p) => p && p[0] === place[0] && p[1] >= place[1]).sort((a, b) => a![1] - b![1])[0] : null;
  state.chooseLine(inside ?? place, { view });
}
