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

/** Rows over a whole run as running sums: any stretch of one, at any scale, is the difference of two
 *  places. */
export class Columns {
  private readonly upTo: Float32Array[];

  constructor(rows: Row[]) {
    this.upTo = rows.map(({ sums }) => {
      const found = new Float32Array(sums.length + 4);
      for (let i = 0; i < sums.length; i++) found[i + 4] = found[i]! + sums[i]!;
      return found;
    });
  }

  /** What is between two places, given in columns, as the pixels of `into`. */
  fill(into: Row, number: number, places: Places): void {
    const { column, share } = places;
    const sums = into.sums;
    const upTo = this.upTo[number]!;
    const scale = 1 / places.step;
    let [r, g, b, cover] = [0, 0, 0, 0];
    for (let x = 0; x <= into.width; x++) {
      const i = 4 * column[x]!;
      const part = share[x]!;
      const nextR = upTo[i]! + part * (upTo[i + 4]! - upTo[i]!);
      const nextG = upTo[i + 1]! + part * (upTo[i + 5]! - upTo[i + 1]!);
      const nextB = upTo[i + 2]! + part * (upTo[i + 6]! - upTo[i + 2]!);
      const nextCover = upTo[i + 3]! + part * (upTo[i + 7]! - upTo[i + 3]!);
      if (x > 0) {
        const p = 4 * x - 4;
        sums[p] = (nextR - r) * scale;
        sums[p + 1] = (nextG - g) * scale;
        sums[p + 2] = (nextB - b) * scale;
        sums[p + 3] = (nextCover - cover) * scale;
      }
      r = nextR;
      g = nextG;
      b = nextB;
      cover = nextCover;
    }
  }
}

/** Where the edges of `width` pixels lie between columns: the same for all lanes of a frame. */
export class Places {
  readonly column: Int32Array;
  readonly share: Float32Array;
  readonly step: number;

  constructor(columns: number, from: number, to: number, width: number) {
    this.column = new Int32Array(width + 1);
    this.share = new Float32Array(width + 1);
    this.step = (to - from) / width;
    for (let x = 0; x <= width; x++) {
      const at = Math.min(Math.max(from + x * this.step, 0), columns);
      const column = at >= columns ? columns - 1 : at | 0;
      this.column[x] = column;
      this.share[x] = at - column;
    }
  }
}
