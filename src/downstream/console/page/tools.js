// The tools: what there is, what each takes, and a form to call it by.
import { get } from "./api.js";
import { Form } from "./form.js";
import { h, mono, soft } from "./h.js";
import { Window, button, choices, copier, empty, filter, icon, long, select } from "./parts.js";
import { asking, call, runs } from "./run.js";
import { state } from "./state.js";
import { line, pretty, said, tokens } from "./text.js";
import { address, focus, redraw, ui } from "./ui.js";

/** @type {{ tools: any[], of: number, isAsked: boolean, error: string }} */
const listed = { tools: [], of: -1, isAsked: false, error: "" };
const rows = new Window("Tools", 52);
/** The form of each tool, kept while its definition stays. @type {Map<string, { definition: string, form: Form, isAsked: boolean }>} */
const forms = new Map();

export const tools = () => listed.tools;

/** Asks for the list if it may have changed. That starts servers that are idle, so they wait until somebody wants to see tools. */
export function refresh() {
  const servers = [...state.servers.values()];
  if (ui.view !== "tools" && servers.some((server) => server.state === "idle")) return;
  if (!state.ready || listed.isAsked || listed.of === state.offers) return;
  const of = state.offers;
  listed.isAsked = true;
  get("tools").then(({ tools }) => {
    Object.assign(listed, { tools, of, error: "" });
  }).catch((error) => {
    Object.assign(listed, { of, error: error.message });
  }).finally(() => {
    // A server may list its tools one after the other.
    setTimeout(() => {
      listed.isAsked = false;
      redraw();
    }, 500);
    redraw();
  });
}

export function found() {
  const { text = "", server = "", kind = "" } = choices("tools");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return listed.tools.filter((tool) => {
    if (server && tool.server !== server) return false;
    if (kind === "reads" && !tool.readOnly) return false;
    if (kind === "changes" && tool.readOnly) return false;
    const all = `${tool.name} ${tool.definition?.title ?? ""} ${tool.definition?.description ?? ""}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

export function view() {
  const all = found();
  const open = listed.tools.find((tool) => tool.name === ui.item);
  const servers = [...new Set(listed.tools.map((tool) => tool.server).filter(Boolean))];
  return h("div", { class: `split ${ui.item ? "has-item" : ""}` },
    h("div", { class: "side-list" },
      h("div", { class: "bar" }, filter("tools", "search tools"),
        servers.length > 1 && select("tools", "server", "Server", servers),
        select("tools", "kind", "Kind", [["reads", "read-only"], ["changes", "may change things"]])),
      listed.error && h("p", { class: "problem" }, listed.error),
      all.length === 0 ? nothing() : rows.show(all.length, (from, to, above, below) => [
        h("div", { key: "above", style: { height: `${above}px` } }),
        h("ul", { key: "list", class: "tool-list" }, all.slice(from, to).map(row)),
        h("div", { key: "below", style: { height: `${below}px` } }),
      ])),
    h("div", { class: "side-item" }, open ? detail(open) : ui.item && listed.of >= 0 ? missing() : listed.tools.length > 0 && empty("Choose a tool.", soft("Arrow keys or j and k go through the list, Enter opens one."))));
}

function nothing() {
  if (listed.of < 0) return empty("Tools are read …");
  if (listed.tools.length > 0) return empty("No tool has these words.");
  return empty("No tools yet.", soft("Tools appear here as soon as a server is connected."));
}

const missing = () => empty("This tool is not there now.", h("p", null, mono(said(ui.item))), soft("Its server may be down, or it has changed its list."));

function row(tool) {
  const isOpen = tool.name === ui.item;
  return h("li", { key: tool.name }, h("a", { class: `tool-row ${isOpen ? "is-open" : ""}`, href: address("tools", tool.name), "aria-current": isOpen ? "true" : undefined, "data-row": tool.name, onclick: (event) => event.detail === 0 && (ui.next = "form.panel :is(input, select, textarea, button)") },
    h("span", { class: "tool-name" }, mono(said(tool.name)), !tool.readOnly && h("span", { class: "dot", title: "may change things" }, "changes")),
    h("span", { class: "tool-about" }, line(tool.definition?.description ?? tool.definition?.title ?? "", 120))));
}

function formOf(tool) {
  const definition = JSON.stringify(tool.definition);
  let kept = forms.get(tool.name);
  if (!kept || kept.definition !== definition) {
    kept = { definition, form: new Form(tool.definition?.inputSchema ?? { type: "object" }, { submit: () => ask(tool) }), isAsked: false };
    forms.set(tool.name, kept);
  }
  return kept;
}

/** Calls the tool, at once if its server says that it only reads. */
function ask(tool) {
  const kept = formOf(tool);
  const given = kept.form.value();
  if (given === undefined) return kept.form.showProblem();
  if (tool.readOnly || kept.isAsked) {
    kept.isAsked = false;
    call(tool, given);
  } else {
    kept.isAsked = true;
    focus("#confirm");
  }
  redraw();
}

function detail(tool) {
  const kept = formOf(tool);
  const { definition, readOnly, destructive } = tool;
  const mine = runs.filter((run) => run.tool.name === tool.name).slice(0, 5);
  const of = definition?.annotations ?? {};
  const claims = [readOnly ? "read-only" : null, destructive ? "destructive" : null, of.idempotentHint === true ? "repeatable" : null, of.openWorldHint === true ? "reaches the outside" : null].filter(Boolean);
  return h("article", { key: tool.name, class: "caller" },
    h("p", { class: "back" }, h("a", { href: address("tools") }, icon("left"), "All tools")),
    h("h2", { class: "mono" }, said(tool.name)),
    h("p", { class: "facts" }, tool.server && h("a", { href: address("servers", tool.server) }, said(tool.server)), h("span", null, claims.length > 0 ? `its server says: ${claims.join(", ")}` : "its server does not say that it only reads"), h("span", { title: "what its definition takes of a model's context" }, `${tokens(tool.tokens)} tokens`)),
    definition?.description && h("div", { class: "theirs-text" }, long(String(definition.description), `about ${tool.name}`)),
    h("form", { class: "panel", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      ask(tool);
    } },
      kept.form.fields.length === 0 && !kept.form.isJson ? soft("It takes no arguments.") : kept.form.view(),
      ui.isReadOnly ? soft("This session only reads. mcp-host open gives one that can call tools.") : kept.isAsked ? confirm(tool, kept) : h("div", { class: "buttons" },
        h("button", { type: "submit", class: "button primary" }, "Call"),
        kept.form.isJson ? kept.form.fields.length > 0 && button("As a form", () => kept.form.toFields(), { kind: "quiet" }) : kept.form.fields.length > 0 && button("As JSON", () => kept.form.toJson(), { kind: "quiet" }),
        h("span", { class: "together" },
          copier("Command", () => typed(tool.name, kept.form.draft()), "The command"),
          copier("JSON-RPC", () => request(tool.name, kept.form.draft()), "The request")))),
    mine.map((run) => run.view()),
    h("details", { class: "raw" }, h("summary", null, "Definition"), h("div", { class: "raw-body" }, h("p", null, copier("Copy", () => pretty(definition), "The definition")), long(pretty(definition), `definition ${tool.name}`))));
}

function confirm(tool, kept) {
  const back = () => {
    kept.isAsked = false;
    redraw();
  };
  return h("div", { class: "confirm", role: "group", "aria-label": "Call it?" },
    h("p", null, tool.destructive ? "Its server says that this tool can destroy something." : "This tool may change something: its server does not say that it only reads."),
    h("div", { class: "buttons" }, button("Call it", () => ask(tool), { kind: "primary", id: "confirm" }), button("Not now", back, {})));
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`);

/** The call as a command. */
const typed = (name, given) => `mcp-host call ${quoted(name)}${Object.keys(given).length > 0 ? ` ${quoted(JSON.stringify(given))}` : ""}`;

const request = (name, given) => JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given } }, null, 2);

/** The sum of all definitions, and how many tools there are. */
export const sums = () => {
  const servers = [...state.servers.values()];
  return listed.of >= 0 ? { count: listed.tools.length, tokens: total(listed.tools, "tokens") } : { count: total(servers, "tools"), tokens: total(servers, "tokens") };
};

const total = (all, member) => all.reduce((sum, each) => sum + (each[member] ?? 0), 0);

export const waits = () => asking().length;
