// The servers: how each is, why one is not connected, and what can be done about it.
import { get, post } from "./api.js";
import { dim, h, mono, soft } from "./h.js";
import { button, choices, command, duration, empty, filter, icon, mark, outcome, spark, tone } from "./parts.js";
import { isBad, measured, state } from "./state.js";
import { tools } from "./tools.js";
import { ago, clock, counted, flat, line, said, took, tokens } from "./text.js";
import { address, attempt, go, redraw, tell, ui } from "./ui.js";

/** What `server?name=` has told. @type {Map<string, any>} */
const told = new Map();
/** How many rows are shown before one asks for more. */
const ROWS = 200;

const SORTS = ["state", "name", "rate", "p95"];
/** What needs a person comes first. @type {Record<string, number>} */
const RANK = { failed: 0, unauthorized: 1, reconnecting: 2, connecting: 3, initializing: 3, disconnecting: 4, disconnected: 4, connected: 5, idle: 6, disabled: 7 };

export function found() {
  const { text = "", sort = "state" } = choices("servers");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...state.servers.values()].map((server, at) => ({ server, at, of: measured(server, ui.now) }));
  const kept = all.filter(({ server }) => {
    const all = `${server.name} ${server.alias} ${server.state} ${server.transport ?? ""} ${reason(server)}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
  const name = (one, other) => (one.server.name < other.server.name ? -1 : 1);
  return kept.sort((one, other) => {
    if (sort === "name") return name(one, other);
    if (sort === "rate") return other.of.rate - one.of.rate || other.of.calls - one.of.calls || name(one, other);
    if (sort === "p95") return (other.of.p95 ?? -1) - (one.of.p95 ?? -1) || name(one, other);
    return (RANK[one.server.state] ?? 9) - (RANK[other.server.state] ?? 9) || one.at - other.at;
  });
}

/** Why a server is not connected, in the daemon's words. @returns {string} */
function reason(server) {
  if (server.state === "connected" || server.state === "idle") return "";
  if (server.state === "unauthorized") return "sign in needed";
  if (server.state === "connecting" || server.state === "initializing") return server.waitingFor ?? "";
  return server.lastError ?? server.cause ?? "";
}

export function view() {
  const all = found();
  const chosen = choices("servers");
  if (state.servers.size === 0) {
    return empty("No servers yet.", h("p", null, "Take over the servers of your clients:"), command("mcp-host migrate"), h("p", null, "Or add one:"), command("mcp-host add NAME -- COMMAND"));
  }
  const most = chosen.most ?? ROWS;
  return h("div", null,
    h("div", { class: "bar" }, filter("servers", "filter servers"), h("div", { class: "sorts", role: "group", "aria-label": "Sort" }, SORTS.map((sort) => h("button", {
      type: "button", key: sort, class: "sort", "aria-pressed": String((chosen.sort ?? "state") === sort), onclick: () => {
        chosen.sort = sort;
        redraw();
      },
    }, sort)))),
    all.length === 0 ? empty("No server has these words.") : h("table", { class: "servers" },
      h("thead", null, h("tr", null, ["Name", "State", "Transport", "p50 / p95", "Calls, 5 min", "Offers", "Actions"].map((head, at) => h("th", { key: head, scope: "col", class: at > 1 && at < 6 ? "wide" : undefined }, at === 6 ? h("span", { class: "hidden" }, head) : head)))),
      h("tbody", null, all.slice(0, most).map(({ server, of }) => [row(server, of), reason(server) && ui.item !== server.name && h("tr", { key: `why ${server.name}`, class: "narrow" }, h("td", { colspan: 7, class: `why ${tone(server.state)}` }, line(reason(server), 400))), ui.item === server.name ? h("tr", { key: `of ${server.name}`, class: "opened" }, h("td", { colspan: 7 }, detail(server, of))) : null]))),
    all.length > most && h("p", { class: "more" }, `${all.length - most} more servers. `, button("Show more", () => {
      chosen.most = most + ROWS;
      redraw();
    })));
}

function row(server, of) {
  const isOpen = ui.item === server.name;
  const why = reason(server);
  const isUp = why === "";
  const where = (isUp || server.state === "disabled") && [server.transport, server.revision].filter(Boolean).join("  ");
  const toggle = () => go("servers", isOpen ? undefined : server.name);
  return h("tr", { key: server.name, class: `row ${isOpen ? "is-open" : ""} ${isUp ? "" : "has-why"}`, onclick: (event) => {
    if (!event.target.closest("button, a") && String(getSelection()) === "") toggle();
  } },
    h("th", { scope: "row" }, h("button", { type: "button", class: "name", "aria-expanded": String(isOpen), onclick: toggle, "data-row": server.name }, icon(isOpen ? "down" : "right"), mono(said(server.name)))),
    h("td", null, mark(server.state)),
    isUp ? [
      h("td", { class: "wide soft" }, where),
      h("td", { class: "wide number" }, of.p50 === undefined ? dim("–") : `${took(of.p50)} / ${took(of.p95)}`),
      h("td", { class: "wide" }, spark(of.slices, of.failed)),
      h("td", { class: "wide number" }, offers(server)),
    ] : h("td", { class: `wide why ${tone(server.state)}`, colspan: 4 }, line(why, 400)),
    h("td", { class: "acts" }, act(server)));
}

function offers(server) {
  if (!server.tools && !server.prompts && !server.resources) return dim("–");
  const size = server.tokens ?? tools().reduce((sum, tool) => sum + (tool.server === server.name ? (tool.tokens ?? 0) : 0), 0);
  return [counted(server.tools ?? 0, "tool"), size > 0 && dim(`  ${tokens(size)}`)];
}

/** What a person does next about it. */
function act(server) {
  if (ui.isReadOnly) return null;
  if (server.state === "unauthorized") return button("Sign in", () => signIn(server), { kind: "primary", about: `to ${server.name}` });
  if (["failed", "reconnecting", "disconnected"].includes(server.state)) return button("Restart", () => restart(server), { about: server.name });
  return null;
}

const restart = (server) => attempt(async () => {
  await post("restart", { server: server.name });
  tell(`${flat(server.name)} restarts.`);
});

const signIn = (server, device = false) => attempt(async () => {
  const login = await post("login", { server: server.name, device });
  told.set(server.name, { ...told.get(server.name), login });
  go("servers", server.name);
});

const signOut = (server) => attempt(async () => {
  const { forgotten } = await post("logout", { server: server.name });
  tell(forgotten ? `${flat(server.name)} is signed out.` : `There was no login for ${flat(server.name)}.`);
});

const edit = (server, deed) => attempt(async () => {
  const { undo } = await post(deed, { server: server.name });
  const more = told.get(server.name);
  told.set(server.name, { ...more, undo });
  tell(`${flat(server.name)} is ${deed}d in the config.`);
});

/** Asks for what the feed does not tell. */
function ask(name, at) {
  const had = told.get(name);
  if (had?.at === at) return had;
  told.set(name, { ...had, at });
  get(`server?name=${encodeURIComponent(name)}`).then((answer) => told.set(name, { ...told.get(name), ...answer })).catch(() => {}).finally(redraw);
  return told.get(name);
}

function detail(server, of) {
  const more = ask(server.name, `${server.state} ${server.since}`);
  const why = reason(server);
  const calls = state.calls.filter((call) => call.server === server.name);
  const lines = linesOf(server.name, more);
  return h("div", { class: "detail", "aria-label": `Server ${flat(server.name)}`, role: "region" },
    more?.login && signing(server, more.login),
    why && h("div", { class: `reason ${tone(server.state)}` }, h("p", null, said(why)), (server.stderr ?? []).length > 0 && [
      h("p", { class: "caption" }, "Its last lines on standard error:"), h("pre", { class: "said" }, said(server.stderr.join("\n")))],
      (server.notInherited ?? []).length > 0 && soft("It did not get these variables of the host: ", mono(said(server.notInherited.join(" "))), ". Programs like it may need them: ", mono("inheritEnv"))),
    band(server),
    h("dl", { class: "facts-list" }, facts(server, of, more).map(([name, value]) => h("div", { key: name, class: ["starts", "entry", "last error"].includes(name) ? "whole-row" : undefined }, h("dt", null, name), h("dd", null, value)))),
    (server.problems ?? []).length > 0 && h("div", { class: "note" }, h("p", { class: "caption" }, "Definitions that mcp-host repaired or left out:"), h("ul", null, server.problems.slice(0, 20).map((each, at) => h("li", { key: at }, line(each, 400))))),
    (server.changed ?? []).length > 0 && h("p", { class: "note" }, `${counted(server.changed.length, "definition")} changed since they were approved. `, h("a", { href: address("approve") }, "Look at them")),
    h("div", { class: "pair" },
      h("section", { "aria-label": "Tools by use" }, h("h2", null, "Tools in its last calls"), byUse(server, calls)),
      h("section", { "aria-label": "Last calls" }, h("h2", null, "Last calls"), calls.length === 0 ? soft("None yet.") : h("ul", { class: "short-list" }, calls.slice(-6).reverse().map((call) => h("li", { key: call.id }, outcome(call.end.outcome, call.end.kind), mono(line(call.tool ?? call.method, 60)), duration(call.end.ms), h("span", { class: "soft number" }, clock(call.at))))))),
    h("section", { "aria-label": "Last lines" }, h("h2", null, "Last lines"), lines.length === 0 ? soft("It has written none.") : h("ol", { class: "plain-lines" }, lines.slice(-8).map((each, at) => h("li", { key: at }, h("span", { class: "soft number" }, clock(each.at)), " ", mono(line(each.text, 500)))))),
    h("div", { class: "buttons" },
      h("a", { class: "button", href: address("tools"), onclick: () => (choices("tools").server = server.name) }, "Its tools"),
      h("a", { class: "button", href: address("calls"), onclick: () => (choices("calls").server = server.name) }, "Its calls"),
      h("a", { class: "button", href: address("lines"), onclick: () => (choices("lines").server = server.name) }, "Its lines"),
      h("span", { class: "push" }), !ui.isReadOnly && deeds(server, more)),
    more?.undo && h("p", { class: "note" }, "To take that back: ", command(more.undo)));
}

function deeds(server, more) {
  const asks = choices("servers");
  if (asks.asked === `${server.name} disable`) {
    return [dim("Its tools go away for all clients."), button("Disable it", () => {
      asks.asked = undefined;
      edit(server, "disable");
    }, { kind: "primary" }), button("Not now", () => {
      asks.asked = undefined;
      redraw();
    }, {})];
  }
  return [
    server.state === "disabled" ? more?.editable && button("Enable", () => edit(server, "enable"), { kind: "primary" }) : button("Restart", () => restart(server), {}),
    server.state === "connected" && ["http", "sse"].includes(server.transport) && button("Sign out", () => signOut(server), {}),
    server.state !== "disabled" && more?.editable && button("Disable", () => {
      asks.asked = `${server.name} disable`;
      redraw();
    }, {}),
  ];
}

function signing(server, { page, issuer, code, byCode }) {
  if (server.state === "connected") return null;
  const isLink = /^https?:\/\//.test(page);
  return h("div", { class: "question ours", role: "group", "aria-label": "Sign in" }, h("p", null, "Sign in at ", h("strong", null, said(issuer)), ". This page shows when it is done."),
    isLink ? h("p", { class: "leave" }, h("a", { class: "button primary", href: page, target: "_blank", rel: "noopener noreferrer" }, "Open the sign-in page")) : mono(said(page)),
    code ? h("p", null, "Enter this code there: ", h("code", { class: "lead" }, said(code))) : byCode && h("p", null, "Is your browser on another machine? ", button("Use a code", () => signIn(server, true), { kind: "quiet" })));
}

/** @returns {Array<[string, any]>} */
function facts(server, of, more) {
  /** @type {Array<[string, any]>} */
  const all = [];
  const add = (name, value) => value !== undefined && value !== null && value !== "" && all.push([name, value]);
  add("since", `${clock(server.since)}, ${ago(ui.now - server.since)}`);
  add("transport", server.transport);
  add("revision", server.revision && (server.revisions?.length > 1 ? server.revisions.join(", ") : server.revision));
  add("calls itself", server.serverInfo && line(`${server.serverInfo.name ?? ""} ${server.serverInfo.version ?? ""}`, 80));
  add("leases", server.leases > 0 && String(server.leases));
  add("processes", (server.pids ?? []).join(", "));
  add("calls", `${(server.calls ?? 0).toLocaleString("en")}${server.callsRunning > 0 ? `, ${server.callsRunning} running` : ""}`);
  add("failed, 5 min", of.bad > 0 && String(of.bad));
  add("losses", server.restarts > 0 && String(server.restarts));
  add("ready after", server.readyAfterMs !== undefined && took(server.readyAfterMs));
  add("offers", [[server.tools, "tool"], [server.prompts, "prompt"], [(server.resources ?? 0) + (server.resourceTemplates ?? 0), "resource"]].filter(([count]) => count).map(([count, word]) => counted(count, word)).join(", "));
  add("last error", server.lastError && !reason(server) && [line(server.lastError, 300), dim(` ${ago(ui.now - (server.lastErrorAt ?? ui.now))} ago`)]);
  add("starts", more?.target && mono(line(more.target, 500)));
  add("entry", more?.source && mono(line(more.source, 500)));
  return all.filter(([, value]) => value);
}

function linesOf(name, more) {
  const live = state.lines.filter((each) => each.server === name);
  const first = live[0]?.seq ?? Infinity;
  return [...(more?.lines ?? []).filter((each) => each.seq < first && !live.some((other) => other.at === each.at && other.text === each.text)), ...live];
}

/** @param {any} server @param {any[]} calls */
function byUse(server, calls) {
  /** @type {Map<string, { calls: number, bad: number }>} */
  const uses = new Map();
  for (const call of calls) {
    if (call.tool === undefined) continue;
    const use = uses.get(call.tool) ?? { calls: 0, bad: 0 };
    use.calls += 1;
    use.bad += isBad(call.end.outcome) ? 1 : 0;
    uses.set(call.tool, use);
  }
  const all = [...uses].sort((one, other) => other[1].calls - one[1].calls).slice(0, 6);
  if (all.length === 0) return soft("None yet.");
  const most = all[0][1].calls;
  return h("ul", { class: "uses" }, all.map(([name, use]) => h("li", { key: name }, mono(line(name, 60)), h("span", { class: "use", "aria-hidden": "true" }, h("span", { class: "done", style: { width: `${(use.calls / most) * 100}%` } })), h("span", { class: "number" }, counted(use.calls, "call"), use.bad > 0 && h("span", { class: "bad" }, `, ${use.bad} failed`)))));
}

/** The states over time; a part tells its cause when it has the focus. */
function band(server) {
  const { changes } = server;
  const chosen = choices("band");
  const shown = chosen.server === server.name ? changes.find((each) => each.at === chosen.at) : undefined;
  const until = (at) => changes[at + 1]?.at ?? ui.now;
  const words = (each, at) => `${clock(each.at)} ${each.state} for ${took(Math.max(0, until(at) - each.at))}${each.cause ? `: ${each.cause}` : ""}`;
  const look = (each) => () => {
    Object.assign(chosen, { server: server.name, at: each.at });
    redraw();
  };
  return h("div", null, h("div", { class: "band", role: "group", "aria-label": "States over time" }, changes.map((each, at) => h("button", {
    type: "button", key: `${each.at} ${each.state}`, class: `part ${tone(each.state)}`, style: { "flex-grow": String(Math.max(1, until(at) - each.at)) }, "aria-label": flat(words(each, at)), onfocus: look(each), onmouseenter: look(each), onclick: look(each),
  }, ["failed", "reconnecting", "unauthorized"].includes(each.state) ? icon(each.state) : null))),
    h("p", { class: "soft band-words" }, shown ? said(words(shown, changes.indexOf(shown))) : h("span", null, `${clock(changes[0].at)} to now. Point at a part for its cause.`)));
}
