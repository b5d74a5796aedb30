// Decodes the output of `report/columns.py`: a JSON header and typed columns, deflated.

export const VERSION = 1;

export interface ColumnEntry {
  type: "u1" | "u2" | "u4" | "i4" | "f4" | "f8";
  count: number;
  at: number;
  delta?: boolean;
}

/** File number and line. */
export type Place = [number, number];

export interface KernelRow {
  name: string;
  where: string;
  cores: string;
  tasks: number;
  exec_us: number;
  bound: string;
  path_us: number;
  path_tasks: number;
  read: number;
  written: number;
  least_read: number;
  least_written: number;
  flops: number;
  gflops: number;
  roof_gflops: number;
  memory: Record<string, number>;
}

export interface TensorRow {
  name: string;
  origin: string;
  size: number;
  read: number;
  written: number;
  least_read: number;
  least_written: number;
}

export interface Profile {
  program: string;
  machine: string;
  title: string;
  period: string;
  tasks: number;
  total_us: number;
  kernels: KernelRow[];
  /** executions by function; a mixed kernel has two rows, the cube's named `*_aic` */
  functions?: { name: string; count: number }[];
  tensors: TensorRow[];
  path: Record<string, number>;
  busy: Record<string, number>;
  cores: Record<string, number>;
  orchestrator_us: number;
  window_stall_us: number;
  heap_stall_us: number;
  scheduler_busy: number[];
  hbm_read: number;
  hbm_written: number;
  hbm_gbs: number;
  peak_gflops: number;
  limits: Record<string, number>;
  guesses: string[];
  /** what bounds the run: memory, cores or waiting */
  bound?: string;
  /** 90 % interval of published totals; empty if unknown */
  interval?: number[];
  /** sensitivity: change of the total in per cent per one per cent of each parameter */
  depends_on?: Record<string, number>;
  [more: string]: unknown;
}

export interface Kernel {
  name: string;
  cores: string;
  place: Place | null;
  /** position, pipe, description, source line, busy us, added us, repetitions */
  steps: [number, string, string, Place | null, number, number, number][];
  /** position (-1: omitted iterations), begin us, end us, repetitions */
  events: [number, number, number, number][];
  start_us?: number;
  all_events?: boolean;
  typical_cost?: number;
}

export interface Site {
  kernel: number;
  place: Place | null;
  tasks: number;
  shown: number;
  blocks: number | null;
  manual: boolean;
  ran: boolean | null;
  tensors: string[];
  directions: string[];
  scalars: string[];
}

export interface Cost {
  kernel: number;
  exec_us: number;
  cold_us: number;
  pipes: Record<string, [number, number, number]>;
  read: number;
  written: number;
  macs: number;
  bound: string;
}

export interface TilePlace {
  name: string;
  line: number;
  shape: number[];
  dtype: string;
  offset: number;
  bytes: number;
  buffers: number;
  live: [number, number];
  in_place_of: string | null;
}

export interface SpacePlan {
  space: string;
  used: number;
  limit: number;
  peak: number;
  /** the statement with the highest occupancy */
  peak_at?: number;
  peak_place: Place | null;
  resident: string[];
  tiles: TilePlace[];
}

export interface MemoryPlan {
  kernel: string;
  cores: string;
  spaces: SpacePlan[];
  steps: [number, string, Place | null][];
}

export interface Finding {
  check: string;
  code: string;
  severity: string;
  status: string;
  message: string;
  places: { place: Place | null; text: string; task: number | null; iteration?: Record<string, number> }[];
  notes: string[];
  helps: string[];
}

export interface Costs {
  us: number;
  tasks: number;
  gm_bytes: number;
}

/** A change to the script, as `report/advice.py` writes it. */
export interface Change {
  code: string;
  rule: string;
  message: string;
  claim: string;
  rounding: boolean;
  applied_by: string;
  place: Place | null;
  before: Costs;
  after: Costs;
  diff: string;
}

export interface Advice {
  script: string;
  changes: Change[];
}

export interface Layout {
  shape: number[];
  strides: number[];
  dtype: string;
}

export interface RankSpan {
  rank: number;
  kernel: string;
  start_us: number;
  end_us: number;
}

export interface RanksData {
  total_us: number;
  ranks: { rank: number; begin_us: number; end_us: number; waited_us: number }[];
  spans: RankSpan[];
  waits: { rank: number; kernel: string; source: number; start_us: number; end_us: number; line: number }[];
  messages: { source: number; target: number; bytes: number; start_us: number; end_us: number; line: number }[];
  /** number of tasks and messages omitted from the page */
  left_out: number;
}

export interface RunHeader {
  name: string;
  /** present for programs of several ranks, which have no single-device tasks */
  ranks?: RanksData;
  machine: string;
  profile: Profile;
  tick_us?: number;
  runtime?: {
    clusters: number;
    vectors_per_cluster: number;
    threads: number;
    submit_us: number;
    submit_arg_us: number;
    dispatch_us: number;
    complete_us: number;
    window: number;
    begin_us: number;
    orchestrator_end_us: number;
    window_stall_us: number;
    heap_stall_us: number;
    layouts: Layout[];
    tensors: string[];
  };
  kernels?: Kernel[];
  sites?: Site[];
  costs?: Cost[];
  /** file, line, time, path, called, called on path, read, written, tasks, scope, scope on path */
  lines?: number[][];
  memory?: MemoryPlan[];
  /** kernel, tensor, origin, read, written */
  moves?: [string, string, string, number, number][];
  /** name, value, evidence, source */
  parameters?: [string, number | string, string, string][];
  findings?: Finding[];
  checks?: { check: string; status: string; summary: string }[];
  hints?: string[];
  files?: { name: string; lines: string[] | null }[];
  thinned?: string;
  columns?: Record<string, ColumnEntry>;
}

export interface ErrorRegion {
  text: string;
  start?: number[];
  stop?: number[];
  place?: Place | null;
  kernel?: string;
  task?: number | null;
}

export interface OutputNumbers {
  name: string;
  ok: boolean;
  shape?: number[];
  total?: number;
  mismatched?: number;
  relative_l2?: number;
  rtol?: number;
  atol?: number;
  text?: string;
  /** fraction of wrong elements per cell of a grid over the output */
  map?: { rows: number; columns: number; cells: number[] } | null;
  /** counts of |error| / allowed by decade, from 10**first */
  histogram?: { first: number; counts: number[] } | null;
  regions?: ErrorRegion[];
}

export interface Numbers {
  outputs: OutputNumbers[];
  divergence?: { text: string; place?: Place | null; task?: number | null } | null;
}

export interface ComparisonData {
  verdict: string;
  notes?: string[];
  /** probability that the faster run is also faster on a board */
  likelihood?: number | null;
  difference_us: number;
  causes: { us: number; text: string }[];
  kernels: {
    name: string;
    a?: { name: string; tasks: number; exec_us: number; bytes: number; bound: string };
    b?: { name: string; tasks: number; exec_us: number; bytes: number; bound: string };
  }[];
}

export interface Header {
  format: string;
  version: number;
  generator: string;
  kind: string;
  title: string;
  runs: RunHeader[];
  comparison?: ComparisonData;
  numbers?: Numbers;
  advice?: Advice;
}

export type Column = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export interface Unpacked {
  header: Header;
  columns: Uint8Array;
}

export async function unpack(bytes: Uint8Array<ArrayBuffer>): Promise<Unpacked> {
  const magic = String.fromCharCode(...bytes.subarray(0, 8));
  if (!magic.startsWith("TLPAGE")) throw new Error("the data of this page is damaged");
  if (Number(magic.slice(6)) !== VERSION)
    throw new Error(`the data has version ${magic.slice(6)} of the format, this page reads ${VERSION}`);
  const body = await inflate(bytes.subarray(8) as Uint8Array<ArrayBuffer>);
  const size = new DataView(body.buffer, body.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(body.subarray(4, 4 + size))) as Header;
  return { header, columns: body.subarray(4 + size) };
}

const WIDTH = { u1: 1, u2: 2, u4: 4, i4: 4, f4: 4, f8: 8 };
const ARRAY = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
};

/** Decode a column: reassemble its byte planes and sum its differences. */
export function readColumn(columns: Uint8Array, entry: ColumnEntry): Column {
  const { count, at, type } = entry;
  const width = WIDTH[type];
  const made = new Uint8Array(count * width);
  for (let plane = 0; plane < width; plane++) {
    const from = at + plane * count;
    for (let i = 0, to = plane; i < count; i++, to += width) made[to] = columns[from + i]!;
  }
  const values = new ARRAY[type](made.buffer);
  if (!entry.delta) return values;
  const sums = new Uint32Array(count);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    sum = (sum + values[i]!) >>> 0;
    sums[i] = sum;
  }
  return sums;
}
