// Rasterize lanes: any number of bars becomes one row of colors, each weighted by its coverage of
// a pixel. Bars narrower than a pixel still count.

export class Row {
  /** four values per pixel: red, green, blue and coverage */
  readonly sums: Float32Array;

  constructor(readonly width: number) {
    this.sums = new Float32Array(width * 4);
  }

  clear(): void {
    this.sums.fill(0);
  }

  /** Add a bar of one color from `x0` to `x1` (fractional pixels). */
  add(x0: number, x1: number, color: Float32Array | number[], weight = 1): void {
    if (x1 <= 0 || x0 >= this.width) return;
    if (x0 < 0) x0 = 0;
    if (x1 > this.width) x1 = this.width;
    const first = x0 | 0;
    const last = x1 >= this.width ? this.width - 1 : x1 | 0;
    const r = color[0]!;
    const g = color[1]!;
    const b = color[2]!;
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

  /** Blend the row with a background into the pixels of `into` from `offset`. */
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

/** Fill the pixel rows `top` to `bottom` of a lane with one row of colors. */
export function fillLane(pixels: Uint32Array, width: number, top: number, bottom: number): void {
  for (let y = top + 1; y < bottom; y++) pixels.copyWithin(y * width, top * width, (top + 1) * width);
}

/** Rows over a whole run as prefix sums: any interval, at any scale, is the difference of two
 *  entries. */
export class Columns {
  private readonly upTo: Float32Array[];

  constructor(rows: Row[]) {
    this.upTo = rows.map(({ sums }) => {
      const found = new Float32Array(sums.length + 4);
      for (let i = 0; i < sums.length; i++) found[i + 4] = found[i]! + sums[i]!;
      return found;
    });
  }

  /** Write the content between two columns as the pixels of `into`. */
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

/** Column positions of the edges of `width` pixels, common to all lanes of a frame. */
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
