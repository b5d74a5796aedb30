// Lanes as pixels: any number of bars becomes one row of colours, each weighted by what it covers of
// a pixel. What is too narrow to be seen alone still counts.

export class Row {
  /** four for each pixel: red, green, blue, and how much of it is covered */
  readonly sums: Float32Array;

  constructor(readonly width: number) {
    this.sums = new Float32Array(width * 4);
  }

  clear(): void {
    this.sums.fill(0);
  }

  /** A bar from `x0` to `x1` (pixels, fractions count) of one colour. */
  add(x0: number, x1: number, colour: Float32Array | number[], weight = 1): void {
    if (x1 <= 0 || x0 >= this.width) return;
    if (x0 < 0) x0 = 0;
    if (x1 > this.width) x1 = this.width;
    const first = x0 | 0;
    const last = x1 >= this.width ? this.width - 1 : x1 | 0;
    const r = colour[0]!;
    const g = colour[1]!;
    const b = colour[2]!;
    const sums = this.sums;
    for (let x = first; x <= last; x++) {
      const cover = ((x1 < x + 1 ? x1 : x + 1) - (x0 > x ? x0 : x)) * weight;
      const at = x * 4;
      sums[at] = sums[at]! + r * cover;
      sums[at + 1] = sums[at + 1]! + g * cover;
      sums[at + 2] = sums[at + 2]! + b * cover;
      sums[at + 3] = sums[at + 3]! + cover;
    }
  }

  /** The row over a background, as pixels of `into` from `offset` on. */
  paint(into: Uint32Array, offset: number, background: number[]): void {
    const sums = this.sums;
    for (let x = 0; x < this.width; x++) {
      const at = x * 4;
      const cover = sums[at + 3]!;
      const scale = cover > 1 ? 1 / cover : 1;
      const rest = cover > 1 ? 0 : 1 - cover;
      const r = sums[at]! * scale + background[0]! * rest;
      const g = sums[at + 1]! * scale + background[1]! * rest;
      const b = sums[at + 2]! * scale + background[2]! * rest;
      into[offset + x] = 0xff000000 | ((b & 255) << 16) | ((g & 255) << 8) | (r & 255);
    }
  }
}

/** The pixel rows of a lane: one row of colours repeated from `top` to `bottom`. */
export function fillLane(pixels: Uint32Array, width: number, top: number, bottom: number): void {
  for (let y = top + 1; y < bottom; y++) pixels.copyWithin(y * width, top * width, (top + 1) * width);
}

/** Rows over a whole run, each at half the width of the one before: a frame takes the level of which
 *  four to eight columns are a pixel, if there is one. */
export class Pyramid {
  private readonly levels: Float32Array[][];

  /** `rows` are of one width, a power of two. */
  constructor(rows: Row[]) {
    this.levels = [rows.map((row) => row.sums)];
    for (let width = rows[0]?.width ?? 1; width > 1; width /= 2) {
      const finer = this.levels[this.levels.length - 1]!;
      this.levels.push(finer.map(halved));
    }
  }

  /** What is between two places, given in columns of the finest level, as `width` pixels. */
  row(number: number, from: number, to: number, width: number): Row {
    const found = new Row(width);
    const perPixel = (to - from) / width;
    const level = Math.max(0, Math.min(this.levels.length - 1, Math.floor(Math.log2(perPixel)) - 2));
    const sums = this.levels[level]![number]!;
    const columns = sums.length / 4;
    const step = perPixel / 2 ** level;
    const begin = from / 2 ** level;
    for (let x = 0; x < width; x++) {
      const a = Math.max(0, begin + x * step);
      const b = Math.min(columns, begin + (x + 1) * step);
      for (let i = Math.floor(a); i < b; i++) {
        const share = (Math.min(b, i + 1) - Math.max(a, i)) / step;
        for (let part = 0; part < 4; part++) found.sums[4 * x + part] = found.sums[4 * x + part]! + share * sums[4 * i + part]!;
      }
    }
    return found;
  }
}

function halved(sums: Float32Array): Float32Array {
  const made = new Float32Array(sums.length / 2);
  for (let i = 0; i < made.length; i += 4) for (let part = 0; part < 4; part++) made[i + part] = (sums[2 * i + part]! + sums[2 * i + 4 + part]!) / 2;
  return made;
}
