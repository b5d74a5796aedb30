// Number and name formatting.

const grouped = new Intl.NumberFormat("en-US");

export function count(n: number): string {
  return grouped.format(Math.round(n));
}

/** `1 task`, `16,087 tasks`. */
export function plural(n: number, one: string, many: string): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Format microseconds in the most readable unit. */
export function time(us: number): string {
  const size = Math.abs(us);
  if (size >= 1e6) return `${(us / 1e6).toFixed(3)} s`;
  if (size >= 1e3) return `${(us / 1e3).toFixed(2)} ms`;
  if (size >= 100) return `${us.toFixed(1)} µs`;
  if (size >= 1) return `${us.toFixed(2)} µs`;
  return us === 0 ? "0" : `${(us * 1e3).toFixed(0)} ns`;
}

/** Format a time with the precision of `step`, so that axis labels differ. */
export function moment(us: number, step: number): string {
  const [unit, size] = Math.abs(us) >= 1e4 ? ["ms", 1e3] : ["µs", 1];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / (size as number)) - 1e-9)));
  return `${(us / (size as number)).toFixed(digits)} ${unit}`;
}

/** Bytes in decimal units, as used for memory traffic. */
export function bytes(n: number): string {
  let size = n;
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (size < 1000 || unit === "GB") return unit === "B" ? `${size.toFixed(0)} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1000;
  }
  return "";
}

/** Bytes in binary units, as used for on-chip memory. */
export function kib(n: number): string {
  return n < 1024 ? `${n} B` : `${(n / 1024).toFixed(n % 1024 ? 1 : 0)} KiB`;
}

export function percent(share: number, digits = 1): string {
  return `${(100 * share).toFixed(digits)}\u00a0%`;
}

export function times(value: number, base: number): string {
  return base ? `${(value / base).toFixed(2)}×` : "–";
}

export function shorten(text: string, most = 60): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** About `wanted` axis ticks at 1, 2 or 5 times a power of ten. */
export function niceStep(span: number, wanted: number): number {
  const raw = span / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const lead = raw / power;
  return (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10) * power;
}
