import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";

import { fromBase64, readColumn, unpack } from "../src/data";
import { bytes, kib, moment, niceStep, time } from "../src/format";
import { Columns, Places, Row } from "../src/raster";
import { grouped, lowerBound, windowText } from "../src/run";

function packed(header: object, columns: Uint8Array, magic = "TLPAGE01"): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, text.length, true);
  const body = deflateSync(Buffer.concat([size, text, columns]));
  return new Uint8Array(Buffer.concat([Buffer.from(magic), body]));
}

test("columns are planes of bytes, and differences add up modulo 2**32", async () => {
  const planes = Uint8Array.from([0x34, 0xff, 0x12, 0x00]);
  const { header, columns } = await unpack(packed({ runs: [] }, planes));
  assert.deepEqual(header.runs, []);
  assert.deepEqual([...readColumn(columns, { type: "u2", count: 2, at: 0 })], [0x1234, 0x00ff]);
  assert.deepEqual([...readColumn(columns, { type: "u1", count: 4, at: 0, delta: true })], [0x34, 0x133, 0x145, 0x145]);
  const wrap = Uint8Array.from([5, 254, 0, 255, 0, 255, 0, 255]);
  assert.deepEqual([...readColumn(wrap, { type: "u4", count: 2, at: 0, delta: true })], [5, 3]);
});

test("damaged data and other versions are refused", async () => {
  await assert.rejects(unpack(packed({}, new Uint8Array(), "TLPAGE02")), /version 02/);
  await assert.rejects(unpack(new Uint8Array(12)), /damaged/);
  const whole = packed({ runs: [1, 2, 3] }, new Uint8Array(100));
  await assert.rejects(unpack(whole.slice(0, 20)));
});

test("base64", () => {
  assert.deepEqual([...fromBase64(" AAEC/w== \n")], [0, 1, 2, 255]);
});

test("bars are weighted by what they cover of a pixel", () => {
  const row = new Row(3);
  row.add(0.5, 2, [200, 100, 0]);
  row.add(-5, 0.25, [0, 0, 80]);
  const pixels = new Uint32Array(3);
  row.paint(pixels, 0, [0, 0, 0]);
  assert.equal(pixels[0]! & 255, 100);
  assert.equal((pixels[0]! >> 16) & 255, 20);
  assert.equal(pixels[1]! & 255, 200);
  assert.equal(pixels[2]! & 255, 0);
});

test("a crowded pixel is the mean of its bars", () => {
  const row = new Row(1);
  for (let i = 0; i < 10; i++) row.add(0, 1, [i % 2 ? 200 : 100, 0, 0]);
  const pixels = new Uint32Array(1);
  row.paint(pixels, 0, [9, 9, 9]);
  assert.equal(pixels[0]! & 255, 150);
});

test("columns that were added up once give the same pixels", () => {
  const bars = Array.from({ length: 500 }, (_, i) => [i * 2.05, i * 2.05 + 0.3 + (i % 7) / 5, (i * 37) % 256] as const);
  const [columns, width] = [4096, 100];
  const fine = new Row(columns);
  for (const [a, b, red] of bars) fine.add((a * columns) / 1024, (b * columns) / 1024, [red, 255 - red, 9]);
  const added = new Columns([new Row(columns), fine]);
  for (const [from, to] of [[0, 1024], [-20, 1044], [100.5, 700], [300, 360]] as const) {
    const direct = new Row(width);
    for (const [a, b, red] of bars) direct.add(((a - from) * width) / (to - from), ((b - from) * width) / (to - from), [red, 255 - red, 9]);
    const taken = new Row(width);
    taken.sums.fill(7); // of the frame before
    added.fill(taken, 1, new Places(columns, (from * columns) / 1024, (to * columns) / 1024, width));
    // Where a pixel ends inside of a column, some of a bar may count for its neighbour.
    const allowed = (1024 / columns / ((to - from) / width)) * 0.5 * 255 + 0.5;
    direct.sums.forEach((value, i) => assert.ok(Math.abs(value - taken.sums[i]!) <= allowed, `${from} ${to} ${i}: ${value} ${taken.sums[i]}`));
  }
});

test("grouping and searching", () => {
  const [start, order] = grouped([2, 0, 2, 1], 3);
  assert.deepEqual([...start], [0, 1, 2, 4]);
  assert.deepEqual([...order], [1, 3, 0, 2]);
  assert.equal(lowerBound([1, 3, 3, 7], 3), 1);
  assert.equal(lowerBound([1, 3, 3, 7], 8), 4);
});

test("windows are given by their strides", () => {
  assert.equal(windowText(16 * 128 + 64, { shape: [16, 64], strides: [128, 1], dtype: "FP32" }), "[16:32, 64:128] FP32");
  assert.equal(windowText(5, { shape: [1, 4], strides: [128, 1], dtype: "BF16" }), "[0, 5:9] BF16");
});

test("numbers for people", () => {
  assert.equal(time(0.25), "250 ns");
  assert.equal(time(65521.7), "65.52 ms");
  assert.equal(bytes(1.6e9), "1.6 GB");
  assert.equal(kib(32768), "32 KiB");
  assert.equal(niceStep(100, 10), 10);
  assert.equal(niceStep(130, 10), 20);
  assert.notEqual(moment(65520.1, 0.1), moment(65520.2, 0.1));
});
