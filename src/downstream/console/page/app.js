// The page: opens the session and the feed, draws what is known, and reads keys.
import * as api from "./api.js";
import * as approve from "./approve.js";
import * as calls from "./calls.js";
import * as config from "./config.js";
import * as connect from "./connect.js";
import { dim, draw, h, mono, soft } from "./h.js";
import * as lines from "./lines.js";
import { button, command, copy, empty, icon } from "./parts.js";
import { runs } from "./run.js";
import * as servers from "./servers.js";
import { STATES, SLICE, apply, forgetAll, news, state } from "./state.js";
import { clock, counted, said, sentence, tokens } from "./text.js";
import * as tools from "./tools.js";
import { VIEWS, address, go, locate, redraw, redrawSoon, ui, whenDue } from "./ui.js";

const VIEW = { servers, tools, calls, lines, approve, config, connect };
const title = (view) => view[0].toUpperCase() + view.slice(1);
/** @type {Record<string, string>} */
const KEYS = { s: "servers", t: "tools", c: "calls", l: "lines", a: "approve", o: "config", n: "connect" };
/** How long a tab is hidden before it drops its feed. */
const HIDDEN = 60_000;
const RETRY = 2000;
const SPOKEN = 5000;
const NOTICED = 8000;

/** @type {AbortController | null} */
let feed = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let hiding;

async function start() {
  const code = api.code();
  try {
    if (code) await api.begin(code);
  } catch (error) {
    return close(error.message);
  }
  const session = api.session();
  if (!session) return close("This page opens by mcp-host open.");
  ui.isReadOnly = session.readOnly;
  follow();
}

function close(message, help) {
  api.forget();
  ui.phase = "closed";
  ui.closed = { message, help };
  forgetAll();
  redraw();
}

/** Reads the feed until there is no session; tries again when the daemon is gone. */
async function follow() {
  if (feed) return;
  const stop = (feed = new AbortController());
  while (!stop.signal.aborted) {
    const from = state.hello && state.ready ? `&from=${state.seq}` : "";
    const boot = state.hello?.boot;
    const began = Date.now();
    try {
      await api.stream("GET", `feed?past=500${from}`, undefined, stop.signal, (event) => {
        if (event.type === "hello" && boot !== undefined && event.boot !== boot) {
          forgetAll();
          if (from) throw new Again();
        }
        apply(event);
        ui.phase = "live";
        ui.downAt = 0;
        redrawSoon();
      });
      // A feed also ends with its session.
      if (Date.now() - began > RETRY) continue;
    } catch (error) {
      if (stop.signal.aborted) break;
      const { status, message, word } = error;
      if (error instanceof Again) continue;
      if (status === 401 || status === 403) {
        feed = null;
        return close(message);
      }
      if (status === 404) {
        feed = null;
        return close("This daemon has no page.", "Set host.console to \"local\" in its config.");
      }
      down(word === "busy" || word === "stopping" ? message : undefined);
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY));
  }
}

/** Drops the feed. */
function drop() {
  feed?.abort();
  feed = null;
}

class Again extends Error {}

function down(why) {
  ui.phase = "down";
  ui.downAt ||= Date.now();
  ui.closed = why ? { message: why } : null;
  redraw();
}

function drawPage() {
  tools.refresh();
  if (ui.notice && !ui.notice.isBad && ui.now - ui.notice.at > NOTICED) ui.notice = null;
  const root = /** @type {Element} */ (document.getElementById("page"));
  draw(root, ui.phase === "closed" ? closed() : page());
  const bad = [...state.servers.values()].filter((server) => server.state === "failed").length;
  document.title = `${title(ui.view)} · mcp-host${ui.phase === "down" ? " · not running" : bad > 0 ? ` · ${bad} failed` : ""}`;
}

function closed() {
  const { message = "", help } = ui.closed ?? {};
  return h("main", { class: "closed" }, h("h1", null, "mcp-host"), h("p", { class: "lead" }, said(sentence(message))), help ? h("p", null, said(sentence(help))) : [soft("Type this in a terminal. It opens a new page:"), command("mcp-host open")]);
}

function page() {
  const isDown = ui.phase === "down";
  return [
    h("a", { key: "skip", class: "skip", href: "#main", onclick: (/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById("main")?.focus();
    } }, "Skip to the content"),
    h("header", { key: "head", class: "top" }, head()),
    h("nav", { key: "nav", class: "views", "aria-label": "Views" }, VIEWS.map((view) => h("a", { key: view, href: address(view), class: "view", "aria-current": ui.view === view ? "page" : undefined }, h("span", null, title(view)), badge(view)))),
    h("main", { key: "main", id: "main", tabindex: "-1", class: isDown ? "is-down" : undefined },
      isDown && h("div", { key: "down", class: "gone", role: "status" }, h("strong", null, ui.closed?.message ?? `Not running since ${clock(ui.downAt, false)}.`), " ", ui.closed ? "The page tries again." : [command("mcp-host serve"), " The page tries again by itself."]),
      ui.notice && ui.notice.text && h("div", { key: "notice", class: `notice ${ui.notice.isBad ? "bad" : ""}`, role: ui.notice.isBad ? "alert" : "status" }, h("span", null, said(ui.notice.text)), button("Close", () => {
        ui.notice = null;
        redraw();
      }, { kind: "quiet small", about: "this message" })),
      waiting(),
      h("h1", { key: "title", class: ui.view === "tools" && ui.item ? "over-item" : undefined }, title(ui.view)),
      h("div", { key: ui.view, class: `content ${ui.view}` }, state.ready ? view() : empty("The daemon is asked …"))),
    ui.isHelpOpen && help(),
  ];
}

/** If one view fails, the others still work. */
function view() {
  try {
    return VIEW[/** @type {keyof typeof VIEW} */ (ui.view)].view();
  } catch (error) {
    return h("p", { class: "problem" }, `The page fails to show this: ${error.message}`);
  }
}

function head() {
  const url = state.hello?.url ?? "";
  const all = [...state.servers.values()];
  const byState = STATES.map((each) => /** @type {[string, number]} */ ([each, all.filter((server) => server.state === each).length])).filter(([, count]) => count > 0);
  const sums = tools.sums();
  const isUp = state.ready && ui.phase !== "down";
  return [
    h("a", { class: "brand", href: address("servers") }, logo(), h("span", null, "mcp-host")),
    url && h("span", { class: "url" }, mono(url.replace(/^http:\/\//, "")), h("button", { type: "button", class: "button quiet small", "aria-label": "Copy the address of the endpoint", title: "Copy", onclick: () => copy(() => url, "The address") }, icon("copy"))),
    isUp && h("span", { class: "sum" }, counted(all.length, "server"), all.length > 0 && `: ${byState.map(([word, count]) => `${count} ${word}`).join(", ")}`),
    isUp && sums.count > 0 && h("span", { class: "sum wide", title: "what all definitions take of a model's context" }, counted(sums.count, "tool"), sums.tokens > 0 && dim(` ${tokens(sums.tokens)} tokens`)),
    isUp && h("span", { class: "sum wide number" }, `${rate()} calls/s`),
    ui.isReadOnly && h("span", { class: "read-only" }, "read-only"),
    h("span", { class: "push" }),
    button("?", () => {
      ui.isHelpOpen = !ui.isHelpOpen;
      redraw();
    }, { kind: "quiet", title: "Keys", about: "keys" }),
  ];
}

/** Calls per second, of the last moments. */
function rate() {
  let calls = 0;
  const last = Math.floor(ui.now / SLICE);
  for (const server of state.servers.values()) for (const each of server.slices) if (last - each.slice < 2) calls += each.calls;
  const rate = (calls * 1000) / (SLICE + (ui.now % SLICE));
  return rate >= 9.95 || rate === 0 ? String(Math.round(rate)) : rate.toFixed(1);
}

const logo = () => h("svg", { class: "logo", viewBox: "0 0 16 16", "aria-hidden": "true" }, h("path", { d: "M2.5 3.5h3l5 4.5M2.5 12.5h3l5-4.5M2.5 8h11" }), h("circle", { cx: 12.5, cy: 8, r: 1.8 }));

function badge(view) {
  const asks = tools.waits();
  if (view === "tools" && asks > 0) return h("span", { class: "badge asks" }, "asks");
  const count = view === "servers" ? state.servers.size : view === "tools" ? tools.sums().count : view === "approve" ? approve.count() : 0;
  const isBad = view === "config" && (state.config.problems ?? []).length > 0;
  if (isBad) return h("span", { class: "badge bad" }, "!");
  return count > 0 && h("span", { class: `badge ${view === "approve" ? "asks" : ""}` }, String(count));
}

/** A question of a call that is not in view. */
function waiting() {
  const run = runs.find((each) => each.questions.length > 0);
  const name = run?.tool.name;
  if (!run || (ui.view === "tools" && ui.item === name)) return null;
  return h("div", { key: "waiting", class: "notice asks" }, h("span", null, mono(said(name)), " asks you something."), h("a", { class: "button", href: address("tools", name) }, "Look"));
}

function help() {
  const close = () => {
    ui.isHelpOpen = false;
    redraw();
  };
  const keys = [...Object.entries(KEYS).map(([key, view]) => [`g ${key}`, title(view)]), ["/", "search"], ["j k", "next, previous"], ["Enter", "open, call"], ["Shift Enter", "new line in a field"], ["Esc", "back"], ["?", "this list"]];
  return h("div", { key: "help", class: "over", onclick: (/** @type {Event} */ event) => event.target === event.currentTarget && close() },
    h("div", { class: "sheet", role: "dialog", "aria-modal": "true", "aria-label": "Keys", tabindex: "-1", made: (/** @type {HTMLElement} */ element) => element.focus() },
      h("h2", null, "Keys"), h("dl", { class: "keys" }, keys.map(([key, what]) => h("div", { key }, h("dt", null, key.split(" ").map((each) => [h("kbd", { key: each }, each), " "])), h("dd", null, what)))),
      h("div", { class: "buttons" }, button("Close", close, {}), h("span", { class: "push" }), button("End this session", () => api.end().catch(() => {}).finally(() => {
        drop();
        close();
        closeSession();
      }), { kind: "quiet" }))));
}

const closeSession = () => close("The session is over.");

let isGoing = false;

/** @param {KeyboardEvent} event */
function onKey(event) {
  const { key, target } = event;
  const isTyping = target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (key === "Tab" && ui.isHelpOpen) return stayInHelp(event);
  if (key === "Escape") return back(isTyping ? /** @type {HTMLElement} */ (target) : null);
  if (isTyping) {
    if (key === "Enter" && target.classList.contains("search")) move(1);
    if (key === "ArrowDown" && target.classList.contains("search")) {
      event.preventDefault();
      move(1);
    }
    return;
  }
  const wasGoing = isGoing;
  isGoing = false;
  if (wasGoing && KEYS[key]) go(KEYS[key]);
  else if (key === "g") isGoing = true;
  else if (key === "?") {
    ui.isHelpOpen = !ui.isHelpOpen;
    redraw();
  } else if (key === "/") {
    event.preventDefault();
    /** @type {HTMLElement | null} */ (document.querySelector("main .search"))?.focus();
  } else if (key === "j" || (key === "ArrowDown" && isRow(target))) {
    event.preventDefault();
    move(1);
  } else if (key === "k" || (key === "ArrowUp" && isRow(target))) {
    event.preventDefault();
    move(-1);
  }
}

const isRow = (target) => target instanceof HTMLElement && target.dataset.row !== undefined;

const allRows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main [data-row]")]);

/** Goes to the next row or the one before; a list without rows to open scrolls. */
function move(step) {
  const rows = allRows();
  if (rows.length === 0) return document.querySelector("main .window")?.scrollBy(0, step * 36);
  const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))].focus();
}

/** @param {KeyboardEvent} event */
function stayInHelp(event) {
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".sheet button")]);
  const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  event.preventDefault();
  all[(at + (event.shiftKey ? all.length - 1 : 1)) % all.length]?.focus();
}

/** @param {HTMLElement | null} field */
function back(field) {
  if (ui.isHelpOpen) {
    ui.isHelpOpen = false;
    redraw();
  } else if (field) field.blur();
  else if (ui.item !== undefined) {
    // The focus goes back to the row that was open.
    ui.next = `[data-row="${CSS.escape(ui.item)}"]`;
    go(ui.view);
  }
}

/** Announces news: one line in five seconds at most. */
function speak() {
  if (news.length === 0) return;
  const line = news.splice(0).slice(-3).join(" ");
  draw(/** @type {Element} */ (document.getElementById("live")), line.slice(0, 300));
}

function onVisible() {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(drop, HIDDEN);
  } else if (ui.phase === "live" || ui.phase === "down") {
    follow();
    redraw();
  }
}

whenDue(drawPage);
addEventListener("hashchange", () => {
  if (/^#k=/.test(location.hash)) {
    drop();
    ui.phase = "opening";
    start();
  } else locate();
});
addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", onVisible);
setInterval(() => {
  if (!document.hidden && ui.phase !== "closed") redraw();
}, 1000);
setInterval(speak, SPOKEN);
start();
locate();
