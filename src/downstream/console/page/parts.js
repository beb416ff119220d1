// Small pieces that several views show.
import { h, mono } from "./h.js";
import { flat, said, took } from "./text.js";
import { redraw, tell, ui } from "./ui.js";

/** Outlines in a square of 16. @type {Record<string, string>} */
const ICONS = {
  connected: "M3 8.5l3.2 3.2L13 4.8",
  connecting: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  initializing: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  reconnecting: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v2.8h-2.8",
  idle: "M8 3.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9",
  unauthorized: "M8 3v6M8 12.4v.1",
  failed: "M4 4l8 8M12 4l-8 8",
  disconnecting: "M4 8h8",
  disconnected: "M4 8h8",
  disabled: "M8 3a5 5 0 1 0 0 10a5 5 0 1 0 0-10M4.6 11.4l6.8-6.8",
  copy: "M5.5 5.5v-2h7v7h-2M3.5 5.5h7v7h-7z",
  right: "M6 3.5L10.5 8L6 12.5",
  down: "M3.5 6L8 10.5L12.5 6",
  search: "M7 3a4 4 0 1 0 0 8a4 4 0 1 0 0-8M10 10l3.2 3.2",
  left: "M10 3.5L5.5 8L10 12.5",
};

export const icon = (name) =>
  h("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: ICONS[name] ?? ICONS.disconnected }));

/** The color of each state. @type {Record<string, string>} */
const TONES = {
  connected: "ok", connecting: "wait", initializing: "wait", reconnecting: "wait", disconnecting: "wait",
  unauthorized: "asks", failed: "bad",
};
export const tone = (state) => TONES[state] ?? "soft";

/** A state: a glyph, its word, and a color. */
export const mark = (state) => h("span", { class: `mark ${tone(state)}` }, icon(state), h("span", null, state));

/** @type {Record<string, [string, string]>} */
const OUTCOMES = {
  ok: ["ok", "connected"], tool_error: ["bad", "failed"], error: ["bad", "failed"], host_error: ["bad", "failed"],
  cancelled: ["soft", "disconnected"], input_required: ["asks", "unauthorized"], task: ["wait", "connecting"], running: ["wait", "connecting"],
};
/** How a call ended. */
export function outcome(word, kind) {
  const [color, glyph] = OUTCOMES[word] ?? ["soft", "disconnected"];
  return h("span", { class: `mark ${color}` }, icon(glyph), h("span", null, kind ? `${word}: ${kind}` : word));
}

/**
 * @param {string} label @param {() => unknown} onclick
 * @param {{ kind?: string, disabled?: boolean, title?: string, key?: any, about?: string, id?: string }} [more]
 */
export function button(label, onclick, { kind = "", disabled = false, title, key, about, id } = {}) {
  const name = about ? `${label} ${about}` : undefined;
  return h("button", { type: "button", class: `button ${kind}`, onclick, disabled, title, key, id, "aria-label": name }, label);
}

/** Copies a text. @param {() => string} text */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text());
    tell(`${what} is copied.`);
  } catch {
    tell(`This browser does not let the page copy. Select the text and press Ctrl+C.`, true);
  }
}

/** @param {string} label @param {() => string} text */
export const copier = (label, text, what) =>
  h("button", { type: "button", class: "button quiet", title: `Copy ${what.toLowerCase()}`, onclick: () => copy(text, what) }, icon("copy"), h("span", null, label));

/** Shows a command to type, with a button that copies it. */
export const command = (command) =>
  h("span", { class: "command" }, mono(command), h("button", {
    type: "button", class: "button quiet small", "aria-label": `Copy ${command}`, title: "Copy", onclick: () => copy(() => command, "The command"),
  }, icon("copy")));

/** @param {string} title @param {...any} kids */
export const empty = (title, ...kids) => h("div", { class: "empty" }, h("p", { class: "lead" }, title), ...kids);

/**
 * A field that filters. `/` focuses the first of a view.
 * @param {string} view @param {string} label
 */
export function filter(view, label) {
  const chosen = choices(view);
  return h("label", { class: "filter" }, icon("search"), h("span", { class: "hidden" }, label), h("input", {
    type: "search", class: "search", placeholder: `/  ${label}`, value: chosen.text ?? "", autocomplete: "off", spellcheck: "false",
    oninput: (event) => {
      chosen.text = event.target.value;
      redraw();
    },
  }));
}

/** What was chosen in a view. @param {string} view @returns {any} */
export const choices = (view) => (ui.chosen[view] ??= {});

/** A list to choose one of, or all. @param {Array<string | string[]>} options values, or values with what is shown */
export function select(view, member, label, options) {
  const chosen = choices(view);
  return h("label", { class: "choice" }, h("span", null, label), h("select", {
    value: chosen[member] ?? "",
    onchange: (event) => {
      chosen[member] = event.target.value;
      redraw();
    },
  }, [["", "all"], ...options].map((each) => [each].flat()).map(([value, text = flat(value, 40)]) => h("option", { value, key: value }, text))));
}

export function toggle(view, member, label) {
  const chosen = choices(view);
  return h("label", { class: "toggle" }, h("input", {
    type: "checkbox", checked: chosen[member] === true,
    onchange: (event) => {
      chosen[member] = event.target.checked;
      redraw();
    },
  }), h("span", null, label));
}

/** Bars of calls over time, failures apart. @param {number[]} slices @param {number[]} failed */
export function spark(slices, failed) {
  const most = Math.max(4, ...slices);
  const tall = (calls) => (calls === 0 ? 0 : Math.max(2, (calls / most) * 20));
  const path = (of) => of.map((calls, at) => (calls === 0 ? "" : `M${at * 4} 20v-${tall(calls).toFixed(1)}h3V20z`)).join("");
  const all = slices.reduce((one, other) => one + other, 0);
  return h("svg", { class: "spark", viewBox: "0 0 120 20", role: "img", "aria-label": `${all} calls in five minutes` },
    h("line", { x1: 0, y1: 19.5, x2: 120, y2: 19.5, class: "base" }), h("path", { d: path(slices), class: "bar" }), h("path", { d: path(failed), class: "bar bad" }));
}

/** A text of others, whole by steps. */
export function long(text, key) {
  const shown = choices("long");
  const most = shown[key] ?? 20_000;
  const rest = text.length - most;
  return [
    h("pre", { class: "said", key: `${key} text` }, said(rest > 0 ? text.slice(0, most) : text)),
    rest > 0 && h("p", { class: "more", key: `${key} more` }, `${rest.toLocaleString("en")} more characters. `, button("Show more", () => {
      shown[key] = most + 200_000;
      redraw();
    }), " ", copier("Copy all", () => text, "The text")),
  ];
}

/** The time something took, or has taken so far. @param {number | undefined} ms */
export const duration = (ms) => h("span", { class: "number" }, took(ms));

/** Rows of a list that are in view. The rows have one height. */
export class Window {
  constructor(label, height) {
    this.label = label;
    this.height = height;
    this.top = 0;
    this.room = 800;
    /** @type {any} */ this.element = null;
    this.watch = new ResizeObserver(() => this.look());
  }

  look() {
    const { element } = this;
    if (!element?.isConnected) return;
    this.top = element.scrollTop;
    this.room = element.clientHeight;
    redraw();
  }

  /**
   * @param {number} count @param {(from: number, to: number, above: number, below: number) => any} rows
   */
  show(count, rows) {
    const { height, top, room } = this;
    const from = Math.max(0, Math.min(Math.floor(top / height) - 10, count - 1));
    const to = Math.min(count, Math.ceil((top + room) / height) + 10);
    return h("div", {
      class: "window", tabindex: "0", role: "region", "aria-label": this.label,
      onscroll: () => this.look(),
      made: (/** @type {Element} */ element) => {
        if (this.element) this.watch.unobserve(this.element);
        this.element = element;
        this.watch.observe(element);
      },
    }, rows(from, to, from * height, Math.max(0, (count - to) * height)));
  }
}
