// What waits for a person: calls that a rule holds back, and definitions that changed.
import { post } from "./api.js";
import { h } from "./h.js";
import { button, command, empty } from "./parts.js";
import { state } from "./state.js";
import { ago, counted, flat, line, said } from "./text.js";
import { address, attempt, redraw, tell, ui } from "./ui.js";

/** How much waits. */
export const count = () => state.asks.size + state.approvals.reduce((sum, each) => sum + each.changed.length, 0);

/** @param {any} ask @param {string} verdict */
const decide = (ask, verdict) => attempt(async () => {
  await post("decide", { ask: ask.id, verdict });
  state.asks.delete(ask.id);
  tell(verdict === "no" ? `The call of ${flat(ask.name)} is refused.` : `The call of ${flat(ask.name)} is allowed.`);
  redraw();
});

export function view() {
  if (count() === 0) {
    return empty("Nothing waits for you.", h("p", { class: "soft" }, "Here you see calls that a rule lets you decide on, and definitions that a server changed since you approved them."));
  }
  return h("div", { class: "narrow-page" },
    state.asks.size > 0 && h("section", { "aria-label": "Calls that wait" }, h("h2", null, "Calls that wait for your permission"), [...state.asks.values()].map(ask)),
    state.approvals.some((each) => each.changed.length > 0) && h("section", { "aria-label": "Definitions" }, h("h2", null, "Definitions that differ from what was approved"), state.approvals.map(definitions)));
}

function ask(ask) {
  return h("div", { key: ask.id, class: "question ours", role: "group", "aria-label": `Call ${ask.id}` },
    h("p", null, h("strong", null, said(ask.client ?? ask.principal ?? "a client")), " wants to call ", h("code", null, line(ask.name, 100)), " of ", h("a", { href: address("servers", ask.server) }, said(ask.server)), "."),
    h("p", { class: "soft" }, `Asked ${ago(ui.now - ask.at)} ago, by ${flat(ask.rule)}. `, ask.personOnly ? "Its client cannot be asked." : null),
    h("p", { class: "soft" }, "Its arguments are not shown here. ", command(`mcp-host asks ${ask.id}`), " shows them."),
    !ui.isReadOnly && h("div", { class: "buttons" }, button("Allow once", () => decide(ask, "once"), { kind: "primary", about: `the call of ${flat(ask.name)}` }), button("Allow and remember", () => decide(ask, "remember"), {}), button("Refuse", () => decide(ask, "no"), {})));
}

function definitions(of) {
  if (of.changed.length === 0) return null;
  return h("div", { key: of.server, class: "panel" },
    h("h3", null, h("a", { href: address("servers", of.server) }, said(of.server))),
    h("ul", { class: "changed" }, of.changed.slice(0, 100).map((/** @type {string} */ each, /** @type {number} */ at) => h("li", { key: at }, line(each, 400)))),
    h("p", { class: "soft" }, of.withheld > 0 ? `${counted(of.withheld, "definition")} withheld from clients until you approve. ` : "Clients see them as they are now. "),
    h("p", null, "See what changed, and approve it: ", command(`mcp-host approve ${of.server}`)));
}
