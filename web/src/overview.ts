// The strip above the timeline: busy cores over the whole run, AIC above, AIV below.

import { cssColor } from "./colors";
import type { Run } from "./run";

export function paintOverview(context: CanvasRenderingContext2D, run: Run, { left, width, height }: { left: number; width: number; height: number }): void {
  const bins = Math.max(1, Math.floor(width - left));
  const sums = [new Float32Array(bins + 1), new Float32Array(bins + 1)];
  const scale = bins / Math.max(run.last, 1);
  for (let r = 0; r < run.recTask.length; r++) {
    const into = sums[run.recCore[r]! < run.clusters ? 0 : 1]!;
    const [x0, x1] = [run.start[r]! * scale, run.end[r]! * scale];
    for (let x = Math.floor(x0); x <= x1 && x < bins; x++) into[x] = into[x]! + Math.min(x1, x + 1) - Math.max(x0, x);
  }
  const half = height / 2;
  const counts = [run.clusters, run.cores - run.clusters];
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "right";
  sums.forEach((sum, kind) => {
    const top = kind * half;
    context.fillStyle = cssColor("--lane");
    context.fillRect(left, top + 1, bins, half - 2);
    context.fillStyle = cssColor(kind ? "--second" : "--accent");
    for (let x = 0; x < bins; x++) {
      const share = Math.min(1, sum[x]! / Math.max(counts[kind]!, 1));
      const tall = Math.max(share > 0 ? 1 : 0, share * (half - 3));
      context.fillRect(left + x, top + half - 1 - tall, 1, tall);
    }
    context.fillStyle = cssColor("--soft");
    context.fillText(kind ? "AIV busy" : "AIC busy", left - 8, top + half / 2);
  });
}
