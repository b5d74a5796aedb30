import assert from "node:assert/strict";
import test from "node:test";

import { DARK, LIGHT, rgb } from "../src/colors";

type Matrix = number[][];

// Linear RGB to XYZ; linear RGB as seen without one kind of cone (Machado et al., severity 1).
const XYZ: Matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
const SEEN_BY: Record<string, Matrix> = {
  everyone: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  deuteranopes: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  protanopes: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
};
const WHITE = [0.9505, 1, 1.089];

const times = (m: Matrix, v: number[]) => m.map((row) => row.reduce((sum, a, i) => sum + a * v[i]!, 0));

function lab(hex: string, seen: Matrix): number[] {
  const linear = rgb(hex).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const clipped = times(seen, linear).map((c) => Math.min(1, Math.max(0, c)));
  const [x, y, z] = times(XYZ, clipped).map((c, i) => (c / WHITE[i]! > 0.008856 ? Math.cbrt(c / WHITE[i]!) : (7.787 * c) / WHITE[i]! + 16 / 116));
  return [116 * y! - 16, 500 * (x! - y!), 200 * (y! - z!)];
}

for (const [name, palette] of Object.entries({ LIGHT, DARK }))
  for (const [who, seen] of Object.entries(SEEN_BY))
    test(`${name}: ${who} can tell every two colors apart`, () => {
      const places = palette.map((c) => lab(c, seen));
      places.forEach((a, i) => places.slice(0, i).forEach((b, j) => assert.ok(Math.hypot(...a.map((v, k) => v - b[k]!)) > 15, `${palette[i]} ${palette[j]}`)));
    });
