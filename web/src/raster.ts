// Lanes as pixels: any number of bars becomes one row of colours, each weighted by what it covers of
// a pixel. So a frame costs the number of visible bars plus the number of pixels, and what is too
// narrow to be seen alone still counts.

export class Row {
  private readonly sums: Float32Array;

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
