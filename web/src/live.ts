// A page that `tilelet view` serves: it reloads when there is newer data, and hands the trace to a
// Perfetto on this machine.

import { h } from "./dom";

const token = new URLSearchParams(location.search).get("token") ?? "";

export function live(): HTMLElement {
  const note = h("span", { class: "live", "aria-live": "polite" }, "live");
  let version = "";
  const ask = async () => {
    try {
      const answer = await fetch(`state?token=${encodeURIComponent(token)}`, { cache: "no-store" });
      const found = (await answer.json()) as { version: string; state: string; perfetto: string };
      note.textContent = found.state;
      if (found.perfetto && !note.dataset.perfetto) {
        note.dataset.perfetto = found.perfetto;
        note.after(h("button", { type: "button", onclick: () => void toPerfetto(found.perfetto) }, "Open in Perfetto"));
      }
      if (version && found.version !== version) location.reload();
      version = found.version;
    } catch {
      note.textContent = "the server is gone";
    }
    setTimeout(() => void ask(), 1000);
  };
  void ask();
  return note;
}

/** Perfetto's page says PONG when it is ready; then it takes the trace. */
async function toPerfetto(address: string): Promise<void> {
  const other = window.open(address);
  if (!other) return;
  const answer = await fetch(`trace?token=${encodeURIComponent(token)}`);
  const buffer = await answer.arrayBuffer();
  const origin = new URL(address).origin;
  const knock = setInterval(() => other.postMessage("PING", origin), 100);
  window.addEventListener("message", (event) => {
    if (event.origin !== origin || event.data !== "PONG") return;
    clearInterval(knock);
    other.postMessage({ perfetto: { buffer, title: document.title } }, origin);
  });
}
