// Live updates of a page served by `tilelet view`: reload on new data, show why there is none, and
// pass the trace to a local Perfetto.

import { h } from "./dom";

const token = new URLSearchParams(location.search).get("token") ?? "";

interface Answer {
  version: string;
  state: string;
  /** error message of the script; empty if it succeeded */
  message: string;
  perfetto: string;
}

/** Status in the corner, and the error message of a failing script below the header. */
export function live(): { corner: HTMLElement; message: HTMLElement } {
  const note = h("span", { class: "live", "aria-live": "polite" }, "live");
  const again = h("button", { type: "button", title: "profile the script again", onclick: () => void fetch(`again?token=${encodeURIComponent(token)}`, { method: "POST" }) }, "Run again");
  const corner = h("span", { class: "tools" }, note, again);
  const text = h("pre", {});
  const message = h("div", { class: "failed", role: "alert", hidden: true }, h("strong", {}, "The script fails. What is shown is from before it was saved."), text);
  let version = "";
  const ask = async () => {
    try {
      const answer = await fetch(`state?token=${encodeURIComponent(token)}`, { cache: "no-store" });
      const found = (await answer.json()) as Answer;
      note.textContent = found.state;
      note.classList.toggle("bad", found.message !== "");
      message.hidden = found.message === "";
      if (text.textContent !== found.message) text.textContent = found.message;
      if (found.perfetto && !note.dataset.perfetto) {
        note.dataset.perfetto = found.perfetto;
        corner.append(h("button", { type: "button", onclick: () => void toPerfetto(found.perfetto) }, "Open in Perfetto"));
      }
      if (version && found.version !== version) location.reload();
      version = found.version;
    } catch {
      note.textContent = "the server is gone";
      note.classList.add("bad");
    }
    setTimeout(() => void ask(), 1000);
  };
  void ask();
  return { corner, message };
}

/** Perfetto's page answers PONG when it is ready for the trace. */
async function toPerfetto(address: string): Promise<void> {
  const other = window.open(address);
  if (!other) return;
  const answer = await fetch(`trace?token=${encodeURIComponent(token)}`);
  const buffer = await answer.arrayBuffer();
  const origin = new URL(address).origin;
  let left = 600;
  const knock = setInterval(() => (other.closed || left-- <= 0 ? clearInterval(knock) : other.postMessage("PING", origin)), 100);
  const hear = (event: MessageEvent) => {
    if (event.origin !== origin || event.data !== "PONG") return;
    clearInterval(knock);
    window.removeEventListener("message", hear);
    other.postMessage({ perfetto: { buffer, title: document.title } }, origin);
  };
  window.addEventListener("message", hear);
}
