// What waits for a person: calls that a rule holds back, definitions and certificates that changed, entries of projects.
import { get, post } from "./api.js";
import { words } from "./diff.js";
import { h, mono, soft } from "./h.js";
import { button, command, empty, long } from "./parts.js";
import { state } from "./state.js";
import { ago, counted, flat, line, pretty, said } from "./text.js";
import { address, attempt, redraw, tell, ui } from "./ui.js";

/** What the daemon has told, and of which state of things. @type {{ told: any, of: string, error: string }} */
const known = { told: null, of: "", error: "" };

/** Servers of a project's config that nobody has approved. */
const entries = () => [...state.servers.values()].filter((server) => server.state === "disabled" && /\bnot approved\b/.test(server.lastError ?? server.cause ?? ""));

/** How much waits. */
export const count = () => state.asks.size + state.approvals.reduce((sum, each) => sum + each.changed.length, 0) + entries().length;

function refresh() {
  const of = JSON.stringify([[...state.asks.keys()], state.approvals, [...state.servers.values()].map((server) => [server.name, server.state, server.changed])]);
  if (known.of === of) return;
  known.of = of;
  get("approvals").then((told) => Object.assign(known, { told, error: "" })).catch((error) => Object.assign(known, { error: error.message })).finally(redraw);
}

/** Looks again, whatever has changed. */
const again = () => {
  known.of = "";
  redraw();
};

const decide = (ask, verdict) => attempt(async () => {
  await post("decide", { ask: ask.id, verdict });
  state.asks.delete(ask.id);
  again();
  tell(`The call of ${flat(ask.name)} is ${verdict === "no" ? "refused" : "allowed"}.`);
});

const approve = (kind, { server, hash }, what) => attempt(async () => {
  try {
    await post("approve", { kind, server, hash });
    if (kind === "definitions") state.approvals = state.approvals.filter((each) => each.server !== server);
    tell(`${what} of ${flat(server)} approved.`);
  } finally {
    again();
  }
});

export function view() {
  refresh();
  const { definitions = [], certificates = [], asks = [] } = known.told ?? {};
  const projects = entries();
  if (known.error) return h("p", { class: "problem" }, said(known.error));
  if (!known.told) return empty("The daemon is asked …");
  if (definitions.length + certificates.length + asks.length + projects.length === 0) {
    return empty("Nothing waits for you.", soft("Here you decide on calls that a rule holds back, and on what servers changed since you approved it."));
  }
  const part = (title, kids) => kids.length > 0 && h("section", { key: title, "aria-label": title }, h("h2", null, title), kids);
  return h("div", { class: "narrow-page" }, part("Calls that wait for your permission", asks.map(ask)), part("Definitions that differ from what was approved", definitions.map(defined)),
    part("Certificates that changed", certificates.map(certificate)), part("Servers of a project's config", projects.map(entry)));
}

function ask(ask) {
  const deed = (label, verdict, kind) => button(label, () => decide(ask, verdict), { kind, about: `the call of ${flat(ask.name)}` });
  const since = state.asks.get(ask.id)?.at;
  return h("div", { key: ask.id, class: "question ours", role: "group", "aria-label": `Call of ${flat(ask.name)}` },
    h("p", null, h("strong", null, said(ask.client ?? ask.principal)), ask.client ? " (as it calls itself)" : null, " wants to call ", mono(line(ask.name, 100)), " of ", h("a", { href: address("servers", ask.server) }, said(ask.server)), "."),
    ask.arguments ? long(json(ask.arguments), `ask ${ask.id}`) : null,
    soft("Held back by the rule ", mono(flat(ask.rule)), `${since ? `, ${ago(ui.now - since)} ago` : ""}.${ask.personOnly ? " Only you can decide, not its client." : ""}`),
    !ui.isReadOnly && h("div", { class: "buttons" }, deed("Allow once", "once", "primary"), ask.rememberSecs && deed(`Allow for ${ago(ask.rememberSecs * 1000)}`, "remember"), deed("Refuse", "no")));
}

function json(text) {
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

function defined(of) {
  const withheld = state.servers.get(of.server)?.withheld ?? 0;
  return h("div", { key: of.server, class: "panel" },
    h("h3", null, h("a", { href: address("servers", of.server) }, said(of.server))),
    of.items.slice(0, 200).map((item) => h("div", { key: `${item.what} ${item.name}`, class: "changed" },
      h("p", null, `${item.what} `, mono(said(item.name))),
      item.renamed && h("p", { class: "wait" }, "It looks like ", mono(said(item.renamed)), ", which is gone, under another name."),
      item.unstable && h("p", { class: "wait" }, "Unstable: the server listed three forms of it or more within an hour. Each needs its own approval."),
      item.passes && soft("Clients see it: the config reaches the server in another way than before."),
      item.findings.map((each, at) => h("p", { key: `finding ${at}`, class: each.hard ? "bad" : "wait" }, `${each.hard ? "Suspicious" : "Look"}: ${each.what} at ${flat(each.path)}: `, mono(said(each.shown)))),
      item.changes.map((each, at) => h("div", { key: at }, h("p", { class: "caption" }, `${each.class} at ${flat(each.path)}`), change(each, `${of.server} ${item.name} ${at}`))),
      h("details", null, h("summary", null, "All of it, as it is now"), long(json(item.text), `defined ${of.server} ${item.name}`)))),
    soft(withheld > 0 ? `${counted(withheld, "definition is", "definitions are")} withheld from clients until you approve.` : "Clients see them as they are now."),
    !ui.isReadOnly && of.items.length <= 200 ? h("div", { class: "buttons" }, button(`Approve ${of.items.length === 1 ? "it" : `all ${of.items.length}`}`, () => approve("definitions", of, counted(of.items.length, "definition")), { kind: of.items.some((item) => item.findings.some((each) => each.hard)) ? "" : "primary", about: `of ${of.server}` })) : command(`mcp-host approve ${of.server}`));
}

function change(of, key) {
  const { before, after } = of;
  if (before !== null && after !== null) return (of.diff ??= words(before, after));
  return before === null ? h("ins", null, long(after ?? "", `${key} after`)) : h("del", null, long(before, `${key} before`));
}

function certificate(of) {
  return h("div", { key: of.server, class: "panel" }, h("h3", null, said(of.server)), h("p", null, mono(said(of.origin)), " shows another certificate than the one that was trusted. Somebody may be in between. Ask whoever runs it for the fingerprint."),
    h("dl", { class: "commands" }, h("div", null, h("dt", null, "trusted"), h("dd", null, mono(said(of.known)))), h("div", null, h("dt", null, "shown now"), h("dd", null, mono(said(of.hash))))),
    !ui.isReadOnly && h("div", { class: "buttons" }, button("Trust the new one", () => approve("certificate", of, "The certificate"), { about: `of ${of.server}` })));
}

const entry = (server) => h("div", { key: server.name, class: "panel" }, h("p", null, mono(said(server.name)), " comes from a project's config and is not started. What adds a program is approved in a terminal:"), h("p", null, command(`mcp-host approve ${server.name}`)));
