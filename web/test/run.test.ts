import assert from "node:assert/strict";
import test from "node:test";

import type { ColumnEntry, RunHeader } from "../src/data";
import { firstOf } from "../src/first";
import { CAUSES, Run } from "../src/run";
import { State } from "../src/state";

/** Columns of 32-bit numbers, as `report/columns.py` would pack them. */
function columns(values: Record<string, number[]>): [Record<string, ColumnEntry>, Uint8Array] {
  const entries: Record<string, ColumnEntry> = {};
  const bytes: number[] = [];
  for (const [name, numbers] of Object.entries(values)) {
    entries[name] = { type: "u4", count: numbers.length, at: bytes.length };
    for (let plane = 0; plane < 4; plane++) bytes.push(...numbers.map((n) => (n >>> (8 * plane)) & 255));
  }
  return [entries, Uint8Array.from(bytes)];
}

/** Tasks of one kernel, one after the other on core 0; another core runs the first and the last. */
function serial(tasks: number): Run {
  const every = Array.from({ length: tasks }, (_, i) => i);
  const two = tasks + 2;
  const task = [...every, 0, tasks - 1];
  const dispatch = task.map((t) => 100 * t + 10);
  const order = [...task.keys()].sort((a, b) => dispatch[a]! - dispatch[b]!);
  const in_order = (of: (i: number) => number) => order.map(of);
  const [entries, bytes] = columns({
    "record.task": in_order((i) => task[i]!),
    "record.core": in_order((i) => (i < tasks ? 0 : 1)),
    "record.dispatch": in_order((i) => dispatch[i]!),
    "record.head": Array(two).fill(20),
    "record.exec": Array(two).fill(30),
    "record.tail": Array(two).fill(10),
    "task.site": every.map(() => 0),
    "task.cost": every.map(() => 0),
    "task.submitted": every.map((t) => 100 * t),
    "task.wait": every.map(() => 5),
    path: [],
  });
  const row = { name: "k", where: "a.py:1", cores: "AIV", tasks, exec_us: 3, bound: "dispatch", path_us: 3, path_tasks: tasks, read: 1, written: 1, least_read: 1, least_written: 1, flops: 0, gflops: 0, roof_gflops: 0, memory: {} };
  const header = {
    name: "run",
    machine: "m",
    profile: { total_us: 10, tasks, kernels: [row], tensors: [], path: { exec: 3, head: 4, tail: 3 }, busy: { AIC: 0.3, AIV: 0 }, window_stall_us: 1, heap_stall_us: 0 },
    kernels: [{ name: "k", cores: "AIV", place: [0, 1], steps: [], events: [] }],
    sites: [{ kernel: 0, place: [0, 1], tasks, shown: tasks, tensors: [], directions: [], scalars: [] }],
    runtime: { clusters: 2, vectors_per_cluster: 0, threads: 1, submit_us: 0.01, submit_arg_us: 0, window: 4, window_stall_us: 1, heap_stall_us: 0, layouts: [], tensors: [] },
    columns: entries,
  };
  return new Run(header as unknown as RunHeader, bytes);
}

test("busy time and causes of idle time add up to all time of all cores", () => {
  const run = serial(200); // submission stops 199 times, all of them in the gap on core 1
  assert.equal(run.stalls().length, 199);
  const [idle] = run.idle();
  const busy = 30 * 202;
  assert.equal(CAUSES.reduce((sum, c) => sum + idle![c], 0) + busy, 2 * run.last);
  assert.ok(idle!.window > 90 * 150);
});

test("pieces of a gap within a window are those of the whole gap", () => {
  const run = serial(200);
  const core = run.coreOrder(1);
  const whole = [...run.waits(core[1]!, core[0]!)].filter(([a, b]) => b > 5000 && a < 5300);
  const part = [...run.waits(core[1]!, core[0]!, 5000, 5300)].filter(([a, b]) => b > 5000 && a < 5300);
  const clipped = (pieces: typeof whole) => pieces.map(([a, b, c]) => [Math.max(a, 5000), Math.min(b, 5300), c]);
  assert.deepEqual(clipped(part), clipped(whole));
  assert.ok(part.length >= 6);
});

test("what to look at first is what takes most of the time", () => {
  const state = new State([serial(200)]);
  const found = firstOf(state, { outputs: [{ name: "y", ok: false, mismatched: 3, total: 4 }] });
  assert.match(found[0]!.head, /1 output is wrong/);
  assert.match(found[1]!.head, /^70.% of the time is the runtime's/);
  assert.match(found[1]!.text, /200 tasks one after the other.*all 200 tasks/);
  found[1]!.go();
  assert.equal(state.choice.kernel, 0);
  found[0]!.go();
  assert.equal(state.choice.view, "numbers");
});

test("the time of each is that of one block", () => {
  const run = serial(3);
  const row = run.profile.kernels[0]!;
  assert.equal(run.each(row), 1);
  run.profile.functions = [{ name: "k", count: 6 }];
  assert.equal(run.each(row), 0.5);
});
