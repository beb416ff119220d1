// What the person looks at: the place in the page, filters, what is open. And when the page is drawn again.
import { sentence } from "./text.js";

export const VIEWS = ["servers", "tools", "calls", "lines", "approve", "config", "connect"];

export const ui = {
  /** `opening`, `closed` (no session), `live`, `down` (the daemon does not answer). */
  phase: "opening",
  /** Why there is no session. @type {{ message: string, help?: string } | null} */
  closed: null,
  /** Since when the daemon does not answer. */
  downAt: 0,
  isReadOnly: false,
  view: "servers",
  /** The server or tool that is open. @type {string | undefined} */
  item: undefined,
  /** What gets the focus at the next place. */
  next: "",
  isHelpOpen: false,
  /** A sentence about what the person did last. @type {{ text: string, isBad: boolean, at: number } | null} */
  notice: null,
  now: Date.now(),
  /** Filters and other choices, by view. @type {Record<string, any>} */
  chosen: {},
};

let drawAll = () => {};
let isDue = false;

/** @param {() => void} draw */
export function whenDue(draw) {
  drawAll = draw;
}

/** Draws the page with the next frame. */
export function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    ui.now = Date.now();
    drawAll();
    const found = /** @type {HTMLElement | null} */ (wanted && document.querySelector(wanted.selector));
    found?.focus();
    if (found || (wanted && wanted.until < ui.now)) wanted = undefined;
  });
}

/** What gets the focus once it is drawn. @type {{ selector: string, until: number } | undefined} */
let wanted;

export function focus(selector) {
  wanted = { selector, until: Date.now() + 2000 };
  redraw();
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let soon;

/** Draws the page in a moment: events come faster than anybody reads. */
export function redrawSoon() {
  soon ??= setTimeout(() => {
    soon = undefined;
    redraw();
  }, 150);
}

export const address = (view, item) => `#${view}${item === undefined ? "" : `/${encodeURIComponent(item)}`}`;

export function go(view, item) {
  const hash = address(view, item);
  if (location.hash !== hash) location.hash = hash;
}

/** Reads the place from the address. */
export function locate() {
  const [view, item] = location.hash.slice(1).split("/");
  ui.view = VIEWS.includes(view) ? view : "servers";
  try {
    ui.item = item === undefined || item === "" ? undefined : decodeURIComponent(item);
  } catch {
    ui.item = undefined;
  }
  if (ui.next) focus(ui.next);
  ui.next = "";
  redraw();
}

export function tell(text, isBad = false) {
  ui.notice = { text, isBad, at: Date.now() };
  redraw();
}

/** Does something, and tells what went wrong. @param {() => Promise<unknown>} deed */
export async function attempt(deed) {
  try {
    await deed();
  } catch (error) {
    const { message, help } = /** @type {{ message: string, help?: string }} */ (error);
    tell(sentence(message) + (help ? ` ${sentence(help)}` : ""), true);
  }
  redraw();
}
