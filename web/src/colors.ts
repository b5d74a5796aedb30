// Colors of kernels and causes, for both themes. Nothing is told by color alone: bars have labels,
// tables have names, causes are written into gaps that are wide enough. The palettes keep their
// distances under red-green blindness (test/colors.test.ts).

import type { Cause } from "./run";

export const LIGHT = ["#3568d4", "#d9822b", "#00ccbb", "#990033", "#117799", "#ee99ff", "#bbaa77", "#007766", "#775500", "#224488", "#aa6644", "#554466"];
export const DARK = ["#6f9bff", "#f0a356", "#44ffee", "#dd5577", "#44aacc", "#bbeeaa", "#887733", "#66bbaa", "#bb5599", "#ff8877", "#eeee77", "#888800"];

const CAUSE_LIGHT: Record<Cause, string> = {
  submit: "#dfe4ea",
  window: "#d3c3ee",
  dependency: "#fbe3b0",
  dispatch: "#f9c8bf",
  handover: "#c3d3e0",
  none: "#f2f3f5",
};
const CAUSE_DARK: Record<Cause, string> = {
  submit: "#333a45",
  window: "#4b3b69",
  dependency: "#5c4a1e",
  dispatch: "#663530",
  handover: "#3a5062",
  none: "#20242b",
};

export function isDark(): boolean {
  return document.documentElement.dataset.theme === "dark";
}

export function kernelColor(rank: number): string {
  const palette = isDark() ? DARK : LIGHT;
  return palette[rank % palette.length]!;
}

export function causeColor(cause: Cause): string {
  return (isDark() ? CAUSE_DARK : CAUSE_LIGHT)[cause];
}

export function rgb(hex: string): [number, number, number] {
  const n = parseInt(hex.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

export function cssColor(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888888";
}
