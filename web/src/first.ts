// What to look at first: the largest contributions to a run's time, each with a link to its view.

import type { Numbers } from "./data";
import { bytes, count, percent, plural, shorten, time } from "./format";
import { BOUND_TEXT } from "./kernels";
import { CAUSES, CAUSE_TEXT, type Run } from "./run";
import type { State } from "./state";

export interface First {
  /** share of the run's time or traffic; errors come first */
  weight: number;
  head: string;
  text: string;
  go: () => void;
}

const MOST = 5;

export function firstOf(state: State, numbers: Numbers | undefined): First[] {
  const run = state.run;
  const found = [...wrongOutputs(state, numbers), ...findings(state), ...overhead(state), ...kernels(state), ...cores(state), ...tensors(state), ...submission(run, state)];
  return found.filter((f) => f.weight >= 0.1).sort((a, b) => b.weight - a.weight).slice(0, MOST);
}

function wrongOutputs(state: State, numbers: Numbers | undefined): First[] {
  const wrong = (numbers?.outputs ?? []).filter((o) => !o.ok);
  if (!wrong.length) return [];
  const names = wrong.map((o) => shorten(o.name, 30)).join(", ");
  return [{ weight: 3, head: `${plural(wrong.length, "output is", "outputs are")} wrong`, text: `${names}: ${wrong[0]!.mismatched ? `${count(wrong[0]!.mismatched)} of ${count(wrong[0]!.total ?? 0)} elements differ from the golden` : "see the map"}.`, go: () => state.set({ view: "numbers" }) }];
}

function findings(state: State): First[] {
  const every = state.run.header.findings ?? [];
  const errors = every.filter((f) => f.severity === "error");
  const first = errors[0] ?? every[0];
  if (!first) return [];
  const place = first.places.find((p) => p.place)?.place ?? null;
  return [
    {
      weight: errors.length ? 2 : 0.3,
      head: errors.length ? plural(errors.length, "error", "errors") : plural(every.length, "finding", "findings"),
      text: `${first.code}: ${first.message}`,
      go: () => (place ? state.chooseLine(place, { view: "source" }) : state.set({ view: "model" })),
    },
  ];
}

/** Serialized tasks and the runtime's cost per task. */
function overhead(state: State): First[] {
  const { profile } = state.run;
  const total = profile.total_us || 1;
  const runtime = ["head", "tail", "scheduler"].reduce((sum, part) => sum + (profile.path[part] ?? 0), 0);
  const tasks = profile.kernels.reduce((sum, k) => sum + k.path_tasks, 0);
  const chain = [...profile.kernels].sort((a, b) => b.path_tasks - a.path_tasks)[0];
  if (!chain || tasks < 8) return [];
  const all = chain.path_tasks === chain.tasks ? `all ${count(chain.tasks)} tasks` : `${count(chain.path_tasks)} of ${count(chain.tasks)} tasks`;
  return [
    {
      weight: runtime / total,
      head: `${percent(runtime / total, 0)} of the time is the runtime's`,
      text: `The critical path has ${count(tasks)} tasks one after the other, and handing each over takes ${time(runtime / tasks)}. Most are of ${shorten(chain.name, 40)} (${chain.where}): ${all} follow one another. Fewer, larger tasks, or a sum that stays on chip.`,
      go: () => chooseNamed(state, chain.name, "timeline"),
    },
  ];
}

function kernels(state: State): First[] {
  const { profile } = state.run;
  const total = profile.total_us || 1;
  return [...profile.kernels]
    .filter((k) => k.bound !== "dispatch") // reported by `overhead`
    .sort((a, b) => b.path_us - a.path_us)
    .slice(0, 2)
    .map((k) => ({
      weight: k.path_us / total,
      head: `${shorten(k.name, 40)} runs for ${percent(k.path_us / total, 0)} of the time`,
      text: `${plural(k.path_tasks, "task", "tasks")} on the critical path, ${k.where}. Bound by ${BOUND_TEXT[k.bound] ?? k.bound}.`,
      go: () => chooseNamed(state, k.name, "kernels"),
    }));
}

/** The busiest kind of core, if it still idles most of the time. */
function cores(state: State): First[] {
  const run = state.run;
  if (!run.hasTasks || run.thinned) return [];
  const busy = ["AIC", "AIV"].map((kind) => run.profile.busy[kind] ?? 0);
  const kind = busy[0]! >= busy[1]! ? 0 : 1;
  const idle = run.idle()[kind]!;
  const cause = [...CAUSES].sort((a, b) => idle[b] - idle[a])[0]!;
  const whole = run.last * [run.clusters, run.cores - run.clusters][kind]! || 1;
  const name = ["AIC", "AIV"][kind]!;
  if (busy[kind]! > 0.6) return [];
  return [{ weight: 0.5 * (1 - busy[kind]!), head: `${name}s work for ${percent(busy[kind]!, 0)} of the time`, text: `Mostly (${percent(idle[cause] / whole, 0)}) a core ${CAUSE_REASON[cause]}. The timeline shows when.`, go: () => state.set({ view: "timeline" }) }];
}

const CAUSE_REASON: Record<keyof typeof CAUSE_TEXT, string> = {
  submit: "waits for a task that is not submitted yet",
  window: "waits because submission stopped: the window or the heap was full",
  dependency: "waits for a dependency",
  dispatch: "waits for a scheduler",
  handover: "is handed a task, or reports its end",
  none: "has no task left until the end",
};

/** Tensors that are moved more often than necessary. */
function tensors(state: State): First[] {
  const rows = state.run.profile.tensors.map((t) => ({ t, moved: t.read + t.written, more: t.read + t.written - t.least_read - t.least_written }));
  const total = rows.reduce((sum, r) => sum + r.moved, 0) || 1;
  const worst = rows.sort((a, b) => b.more - a.more)[0];
  if (!worst || worst.more / total < 0.12) return [];
  const { t, moved } = worst;
  const why = t.origin === "param" ? `${(moved / Math.max(t.least_read + t.least_written, 1)).toFixed(1)} times what is compulsory: keep it on chip for longer, or larger tiles.` : "It is the program's own and could stay on chip.";
  return [{ weight: (0.6 * worst.more) / total, head: `${shorten(t.name, 40)} moves ${bytes(moved)}`, text: `${percent(moved / total, 0)} of the traffic of global memory, for a tensor of ${bytes(t.size)}. ${why}`, go: () => state.set({ tensor: t.name, view: "memory" }) }];
}

function submission(run: Run, state: State): First[] {
  const p = run.profile;
  const total = p.total_us || 1;
  const stalled = p.window_stall_us + p.heap_stall_us;
  const found: First[] = [];
  if ((p.path.orchestrator ?? 0) > 0) found.push({ weight: p.path.orchestrator! / total, head: `Submission takes ${percent(p.path.orchestrator! / total, 0)} of the time`, text: `The orchestrator submits ${count(p.tasks)} tasks one by one, and cores wait for it. Fewer, larger tasks.`, go: () => state.set({ view: "timeline" }) });
  if (stalled > 0) found.push({ weight: (0.6 * stalled) / total, head: `Submission stops for ${time(stalled)}`, text: `The runtime's window or heap is full${run.header.runtime ? ` (${count(run.header.runtime.window)} tasks)` : ""}: tasks end more slowly than they are submitted.`, go: () => state.set({ view: "timeline" }) });
  return found;
}

function chooseNamed(state: State, name: string, view: "timeline" | "kernels"): void {
  const kernel = state.run.kernels.findIndex((k) => k.name === name);
  if (kernel >= 0) state.chooseKernel(kernel, { view });
  else state.set({ view });
}
