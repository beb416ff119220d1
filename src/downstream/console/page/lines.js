// What servers write: standard error, log messages, changes of state; and lines of the host.
import { dim, h, soft } from "./h.js";
import { Window, button, choices, empty, filter, select } from "./parts.js";
import { state } from "./state.js";
import { clock, line, said } from "./text.js";
import { address, redraw } from "./ui.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const SOURCES = ["stderr", "log", "state", "host"];
const rows = new Window("Lines", 24);
let isFollowed = true;
/** @type {any} */
let opened = null;

/** The oldest first. */
export function found() {
  const { text = "", server = "", source = "", level = "" } = choices("lines");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const least = LEVELS.indexOf(level);
  return state.lines.filter((each) => {
    if (server && each.server !== server) return false;
    if (source && each.source !== source) return false;
    if (least > 0 && LEVELS.indexOf(each.level) < least) return false;
    const told = `${each.server ?? ""} ${each.text}`.toLowerCase();
    return words.every((word) => told.includes(word));
  });
}

export function view() {
  const all = found();
  const names = [...state.servers.keys()];
  if (isFollowed) toEnd();
  return h("div", { class: "fill" },
    h("div", { class: "bar" }, filter("lines", "filter lines"), names.length > 1 && select("lines", "server", "Server", names),
      select("lines", "source", "Source", SOURCES),
      select("lines", "level", "Level", LEVELS.slice(1, 5).map((each) => [each, `${each} and above`])),
      h("span", { class: "push" }), all.length > 0 && button(isFollowed ? "Stay here" : "Follow", () => {
        isFollowed = !isFollowed;
        redraw();
      }, { kind: "quiet" })),
    all.length === 0 ? empty(state.lines.length > 0 ? "No line is like that." : "No lines yet.", soft("What servers write on standard error, their log messages, and changes of their states appear here.")) :
      rows.show(all.length, (from, to, above, below) => [
        h("div", { key: "above", style: { height: `${above}px` } }),
        h("ol", { key: "lines", class: "lines" }, all.slice(from, to).map(row)),
        h("div", { key: "below", style: { height: `${below}px` } }),
      ]),
    opened && h("div", { class: "whole", role: "region", "aria-label": "The whole line" }, h("div", { class: "buttons" }, dim(`${clock(opened.at)} ${opened.source} ${opened.level}`), h("span", { class: "push" }), button("Close", () => {
      opened = null;
      redraw();
    }, { kind: "quiet" })), h("pre", { class: "said" }, said(opened.text))));
}

function row(each) {
  const color = ["error", "critical", "alert", "emergency"].includes(each.level) ? "bad" : each.level === "warning" ? "wait" : each.level === "debug" ? "soft" : "";
  return h("li", { key: `${each.seq} ${each.at}`, class: `one-line ${color}` },
    h("span", { class: "number soft" }, clock(each.at)),
    each.server === undefined ? h("span", { class: "of soft" }, "mcp-host") : h("a", { class: "of", href: address("servers", each.server), tabindex: "-1" }, line(each.server, 40)),
    h("span", { class: "source soft" }, color === "bad" || color === "wait" ? each.level : each.source),
    h("button", { type: "button", class: "text", tabindex: "-1", title: "Show the whole line", onclick: () => {
      opened = each;
      redraw();
    } }, line(each.text, 1000)));
}

function toEnd() {
  requestAnimationFrame(() => {
    const { element } = /** @type {any} */ (rows);
    if (!element?.isConnected) return;
    if (!element.dataset.watched) {
      element.dataset.watched = "";
      // Scrolling up stops following; returning to the end resumes it.
      for (const what of ["wheel", "keydown", "pointerdown"]) element.addEventListener(what, stay, { passive: true });
    }
    element.scrollTop = element.scrollHeight;
  });
}

function stay() {
  const { element } = /** @type {any} */ (rows);
  setTimeout(() => {
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 30;
    if (isFollowed !== isAtEnd) {
      isFollowed = isAtEnd;
      redraw();
    }
  }, 100);
}
