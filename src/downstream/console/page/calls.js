// The calls of all clients, as they begin and end.
import { dim, h, mono, soft } from "./h.js";
import { Window, button, choices, empty, filter, outcome, select, toggle } from "./parts.js";
import { runs } from "./run.js";
import { isBad, state } from "./state.js";
import { bytes, clock, line, said, took } from "./text.js";
import { address, redraw, ui } from "./ui.js";

const ROW = 36;
const rows = new Window("Calls", ROW);

/** The newest first. */
export function found() {
  const chosen = choices("calls");
  const { text = "", server = "", failed = false } = chosen;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = chosen.paused ?? [...state.calls, ...[...state.running.values()].sort((one, other) => one.id - other.id)];
  const kept = all.filter((call) => {
    if (server && call.server !== server) return false;
    if (failed && !(call.end && isBad(call.end.outcome))) return false;
    const told = `${call.server ?? ""} ${call.tool ?? ""} ${call.method} ${call.client ?? ""} ${call.end?.outcome ?? "running"} ${call.end?.kind ?? ""}`.toLowerCase();
    return words.every((word) => told.includes(word));
  });
  return kept.reverse();
}

export function view() {
  const all = found();
  const chosen = choices("calls");
  const mine = runs.filter((run) => !run.end);
  const pause = () => {
    chosen.paused = chosen.paused ? undefined : [...state.calls, ...state.running.values()];
    redraw();
  };
  const names = [...state.servers.keys()];
  return h("div", { class: "fill" },
    h("div", { class: "bar" }, filter("calls", "filter calls"), names.length > 1 && select("calls", "server", "Server", names),
      toggle("calls", "failed", "failed only"), h("span", { class: "push" }), (chosen.paused || all.length > 0) && button(chosen.paused ? "Go on" : "Pause", pause, { kind: "quiet" })),
    mine.length > 0 && h("ul", { class: "mine", "aria-label": "Calls of this page" }, mine.map((run) => h("li", { key: run.id }, outcome("running"), h("a", { href: address("tools", run.tool.name) }, mono(said(run.tool.name))),
      h("span", { class: "soft number" }, took(ui.now - run.began)), run.questions.length > 0 && h("span", { class: "asks" }, "asks you something"), button("Cancel", () => run.cancel(), { about: run.tool.name })))),
    all.length === 0 ? nothing() : rows.show(all.length, (from, to, above, below) => h("table", { class: "calls", "aria-rowcount": all.length + 1 },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Time"), h("th", { scope: "col" }, "Call"), h("th", { scope: "col", class: "wide" }, "Client"), h("th", { scope: "col", class: "wide" }, "Size"), h("th", { scope: "col" }, "Took"), h("th", { scope: "col" }, h("span", { class: "word" }, "Outcome")))),
      above > 0 && h("tbody", { key: "above", "aria-hidden": "true" }, h("tr", null, h("td", { colspan: 6, class: "space", style: { height: `${above}px` } }))),
      h("tbody", { key: "rows" }, all.slice(from, to).map(row)),
      below > 0 && h("tbody", { key: "below", "aria-hidden": "true" }, h("tr", null, h("td", { colspan: 6, class: "space", style: { height: `${below}px` } }))))));
}

function nothing() {
  if (state.calls.length + state.running.size > 0) return empty("No call is like that.");
  return empty("Nothing called yet.", soft("Calls appear here as clients make them."),
    h("div", { class: "buttons" }, h("a", { class: "button primary", href: address("connect") }, "Connect a client"), h("a", { class: "button", href: address("tools") }, "Call a tool yourself")));
}

function row(call) {
  const ms = call.end?.ms ?? Math.max(0, ui.now - call.at);
  const parts = call.end ? split(call.end) : [];
  const what = call.method === "tools/call" ? call.tool : [call.method, " ", call.tool];
  return h("tr", { key: call.id, class: call.end ? undefined : "is-running" },
    h("td", { class: "number soft" }, clock(call.at)),
    h("td", { class: "call" }, mono([what].flat().filter(Boolean).map((part) => line(part, 100))), call.server !== undefined && h("a", { href: address("servers", call.server), class: "of" }, line(call.server, 40))),
    h("td", { class: "wide soft" }, line(call.client ?? "", 40), call.door && h("span", { class: "door" }, call.door)),
    h("td", { class: "wide number soft" }, call.end && [bytes(call.bytesIn), " → ", bytes(call.end.bytesOut)]),
    h("td", { class: "took", title: parts.map(([name, , of]) => `${name} ${took(of)}`).join(", ") }, h("span", { class: "number" }, took(ms)), h("span", { class: "bar-box", "aria-hidden": "true" }, h("span", { class: "length", style: { width: `${share(ms)}%` } }, parts.map(([, color, of]) => h("i", { class: color, style: { width: `${(100 * of) / ms}%` } }))))),
    h("td", null, outcome(call.end?.outcome ?? "running", call.end?.kind), call.end?.rule && dim(" ", said(call.end.rule)), call.end?.cached && dim(" cached")));
}

/** What took the time. @returns {Array<[string, string, number]>} */
const split = ({ ms, hostMs = ms, queueMs = 0, personMs = 0 }) =>
  /** @type {Array<[string, string, number]>} */ ([["mcp-host", "", hostMs], ["queue", "wait", queueMs], ["server", "soft", ms - hostMs - queueMs - personMs], ["person", "asks", personMs]]).filter(([, , of]) => of > 0);

/** A bar of ten times the time is 20 parts longer. */
const share = (ms) => Math.max(2, Math.min(100, 20 * Math.log10(Math.max(1, ms))));
