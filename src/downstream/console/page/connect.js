// How each client is connected: its entry, with the address of this daemon.
import { h, mono, soft } from "./h.js";
import { choices, command, copier } from "./parts.js";
import { state } from "./state.js";
import { redraw } from "./ui.js";

/**
 * Name, file or command, and entry, of each client (`docs/clients.md`).
 * @type {Array<[string, string, (url: string) => string]>}
 */
const CLIENTS = [
  ["Claude Code", "a command", (url) => `claude mcp add --transport http --scope user host ${url}`],
  ["Claude Desktop", "claude_desktop_config.json (Settings, Developer, Edit Config)", () => json({ mcpServers: { host: { command: "mcp-host", args: ["stdio"] } } })],
  ["Cursor", "~/.cursor/mcp.json", (url) => json({ mcpServers: { host: { url } } })],
  ["VS Code", ".vscode/mcp.json", (url) => json({ servers: { host: { type: "http", url } } })],
  ["Codex", "~/.codex/config.toml", (url) => `[mcp_servers.host]\nurl = ${JSON.stringify(url)}`],
  ["Gemini CLI", "~/.gemini/settings.json", (url) => json({ mcpServers: { host: { httpUrl: url } } })],
  ["Windsurf", "~/.codeium/windsurf/mcp_config.json", (url) => json({ mcpServers: { host: { serverUrl: url } } })],
  ["Zed", "settings.json", (url) => json({ context_servers: { host: { url } } })],
  ["Cline", "cline_mcp_settings.json", (url) => json({ mcpServers: { host: { type: "streamableHttp", url } } })],
  ["Goose", "~/.config/goose/config.yaml", (url) => `extensions:\n  host:\n    enabled: true\n    type: streamable_http\n    name: host\n    uri: ${url}\n    timeout: 300`],
  ["opencode", "opencode.json", (url) => json({ mcp: { host: { type: "remote", url } } })],
  ["Continue", "~/.continue/config.yaml", (url) => `mcpServers:\n  - name: host\n    type: streamable-http\n    url: ${url}`],
];

/** What `mcp-host link` calls a client. */
const id = (name) => ({ "VS Code": "vscode", "Gemini CLI": "gemini" })[name] ?? name.toLowerCase().replace(" ", "-");

const json = (value) => JSON.stringify(value, null, 2);

export function view() {
  const chosen = choices("connect");
  const url = state.hello?.url ?? `${location.origin}/mcp`;
  const at = CLIENTS.findIndex(([name]) => name === (chosen.client ?? "Claude Code"));
  const [name, file, entry] = CLIENTS[at];
  const text = entry(url);
  const isCommand = file === "a command";
  return h("div", { class: "narrow-page" },
    h("p", null, "One entry in each client is enough. It gets the tools of all servers, under names such as ", mono("SERVER__TOOL"), "."),
    h("div", { class: "endpoint" }, h("span", { class: "caption" }, "Endpoint"), mono(url), copier("Copy", () => url, "The address")),
    h("div", { class: "clients", role: "group", "aria-label": "Client" }, CLIENTS.map(([each]) => h("button", { type: "button", key: each, class: "sort", "aria-pressed": String(each === name), onclick: () => {
      chosen.client = each;
      redraw();
    } }, each))),
    h("section", { class: "panel snippet", "aria-label": name },
      h("div", { class: "snippet-head" }, h("h2", null, name), !isCommand && h("code", { class: "soft" }, file), h("span", { class: "push" }), copier("Copy", () => text, isCommand ? "The command" : "The entry")),
      // An option is not broken between its dashes and its name.
      h("pre", null, isCommand ? text.split(/(--\w+)/).map((part, at) => h("span", { key: at, class: at % 2 ? "number" : "" }, part)) : text),
      soft(name === "Claude Desktop" ? "It starts mcp-host, which joins this daemon. If it does not find the program, give its full path." : isCommand ? "Type it in a terminal." : "Merge it into the file. Most clients read it when they start."),
      h("p", null, "Or let mcp-host do it: ", command(`mcp-host link ${id(name)}`))),
    soft("Other clients: ", mono("mcp-host clients"), " lists those that ", mono("mcp-host link"), " knows. A client that only starts programs runs ", mono("mcp-host stdio"), ", which joins this daemon. If the daemon wants tokens (", mono("host.auth"), "), ", mono("mcp-host token NAME"), " makes one for a client."));
}
