// DOM helpers. Text becomes text nodes only: user text is never parsed as markup.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

function fill(node: Element, props: Props, children: (Child | Child[])[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value as EventListener);
    else if (name === "class") node.setAttribute("class", String(value));
    else if (name === "style") node.setAttribute("style", String(value));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export function h(tag: string, props: Props = {}, ...children: (Child | Child[])[]): HTMLElement {
  const node = document.createElement(tag);
  fill(node, props, children);
  return node;
}

export function svg(tag: string, props: Props = {}, ...children: (Child | Child[])[]): SVGElement {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, props, children);
  return node;
}

export interface TableColumn<T> {
  head: string;
  hint?: string;
  cell: (row: T) => Child | Child[];
  /** sort key; columns without one cannot be sorted */
  key?: (row: T) => number | string;
  left?: boolean;
  wrap?: boolean;
}

export interface TableOptions<T> {
  sort?: number;
  chosen?: (row: T) => boolean;
  choose?: (row: T) => void;
  most?: number;
  label: string;
}

/** A table sorted by clicking its headers; rows are selected by click or Enter. */
export function table<T>(rows: T[], columns: TableColumn<T>[], options: TableOptions<T>): HTMLElement {
  const root = h("table", { class: "data", "aria-label": options.label });
  let sorted = options.sort ?? -1;
  let down = true;
  const draw = () => {
    const shown = [...rows];
    const key = sorted >= 0 ? columns[sorted]!.key : undefined;
    if (key)
      shown.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        const order = x < y ? -1 : x > y ? 1 : 0;
        return down ? -order : order;
      });
    const heads = columns.map((c, i) => {
      const mark = i === sorted ? (down ? " ▾" : " ▴") : "";
      const sort = () => {
        down = i === sorted ? !down : true;
        sorted = i;
        draw();
      };
      return h(
        "th",
        { class: c.left ? "left" : "", title: c.hint, scope: "col", "aria-sort": i === sorted ? (down ? "descending" : "ascending") : undefined },
        c.key ? h("button", { type: "button", onclick: sort }, c.head + mark) : c.head,
      );
    });
    const most = options.most ?? 500;
    const body = shown.slice(0, most).map((row) => {
      const choose = options.choose && (() => options.choose!(row));
      return h(
        "tr",
        {
          class: options.chosen?.(row) ? "chosen" : "",
          tabindex: choose ? 0 : undefined,
          "aria-selected": options.chosen ? String(options.chosen(row)) : undefined,
          onclick: choose,
          onkeydown: choose && ((e: KeyboardEvent) => e.key === "Enter" && choose()),
        },
        columns.map((c) => h("td", { class: `${c.left ? "left" : ""} ${c.wrap ? "wrap" : ""}` }, c.cell(row))),
      );
    });
    const rest = rows.length - most;
    if (rest > 0) body.push(h("tr", {}, h("td", { class: "left", colspan: columns.length }, `and ${rest} more`)));
    root.replaceChildren(h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body));
  };
  draw();
  return root;
}

/** A bar inside a table cell, with text beside it. */
export function bar(share: number, text: string, kind = ""): HTMLElement {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: `bar ${kind}` }, h("i", { style: `width:${width}` }), h("b", {}, text));
}

/** Text that may break after slashes, colons and underscores. */
export function breakable(text: string): HTMLElement {
  return h("span", {}, text.split(/(?<=[/:_.])/).flatMap((part) => [part, h("wbr")]));
}

export function empty(what: string, how: string, command = ""): HTMLElement {
  return h("div", { class: "empty" }, h("h2", {}, what), h("p", {}, how), command && h("code", {}, command));
}

export interface Drag {
  start?: (event: PointerEvent) => void;
  /** movement since the last call */
  move: (event: PointerEvent, dx: number, dy: number) => void;
  /** called for a press and release without movement */
  click?: (event: PointerEvent) => void;
}

/** Track a pointer drag that starts on an element, also outside of it. */
export function onDrag(element: HTMLElement, drag: Drag): void {
  let last: { x: number; y: number; moved: boolean } | null = null;
  element.addEventListener("pointerdown", (event) => {
    last = { x: event.clientX, y: event.clientY, moved: false };
    element.setPointerCapture(event.pointerId);
    drag.start?.(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (!last) return;
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    if (!last.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    last = { x: event.clientX, y: event.clientY, moved: true };
    drag.move(event, dx, dy);
  });
  element.addEventListener("pointerup", (event) => {
    if (last && !last.moved) drag.click?.(event);
    last = null;
  });
  element.addEventListener("pointercancel", () => (last = null));
}
