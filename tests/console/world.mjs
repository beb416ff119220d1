// The servers that the page shows in the checks and in the pictures.
import { createServer } from "node:http";
import { join } from "node:path";

// The server whose texts are attacks.
export const evil = ({ here }) => ({ mcpServers: { evil: { command: process.execPath, args: [join(here, "server.mjs")] } } });

// A server of each state that needs no network.
export const some = ({ binary, here }) => ({
  mcpServers: {
    files: { command: process.execPath, args: [join(here, "server.mjs")] },
    echo: { command: binary, args: ["__demo-server"] },
    search: { command: "no-such-command-uvx" },
    broken: { command: process.execPath, args: ["-e", "console.error('reading the settings'); console.error('error: no settings.json'); process.exit(1)"], restart: { maxRetries: 0 } },
    lazy: { command: process.execPath, args: [join(here, "server.mjs")], start: "lazy" },
    off: { command: process.execPath, args: [join(here, "server.mjs")], enabled: false },
  },
});

// A server whose definitions change with a file, and a rule that holds calls back.
export const waiting = ({ here, file }) => ({
  mcpServers: { notes: { command: process.execPath, args: [join(here, "server.mjs"), file] } },
  host: { approval: "tofu", policy: { proof: "person", rules: [{ name: "writes", verdict: "ask", tools: ["notes__write"], remember: "10m" }] } },
});

// Fifty servers; some do not start.
export const many = ({ binary }) => ({
  mcpServers: Object.fromEntries(Array.from({ length: 50 }, (_, at) => {
    const name = `server-${String(at).padStart(2, "0")}${at % 7 === 0 ? "-of-the-platform-team" : ""}`;
    return [name, at % 12 === 11 ? { command: `no-such-command-${at}` } : { command: binary, args: ["__demo-server"] }];
  })),
});

// Fifty servers in this process, each with 20 tools that answer at once.
export async function crowd() {
  const tools = Array.from({ length: 20 }, (_, at) => ({
    name: `tool_${String(at).padStart(2, "0")}`, description: "Answers with a word. It needs nothing, and changes nothing.", annotations: { readOnlyHint: true },
    inputSchema: { type: "object", properties: { text: { type: "string" }, count: { type: "integer" } } },
  }));
  const results = {
    initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "crowd", version: "1" } }),
    "tools/list": () => ({ tools }),
    "tools/call": () => ({ content: [{ type: "text", text: "word" }] }),
  };
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const { id, method, params } = request.method === "POST" ? JSON.parse(body) : {};
    if (id === undefined) return response.writeHead(request.method === "POST" ? 202 : 405).end();
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result: results[method]?.(params) ?? {} }));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const url = (at) => `http://127.0.0.1:${server.address().port}/${at}`;
  const entry = (at) => [`crowd-${String(at).padStart(2, "0")}`, { type: "http", era: "legacy", url: url(at) }];
  const config = { mcpServers: Object.fromEntries(Array.from({ length: 50 }, (_, at) => entry(at))) };
  return { config, stop: () => (server.closeAllConnections(), server.close()) };
}

// None.
export const none = () => ({ mcpServers: {} });

// Calls tools of a host, `each` of them a second, until `stop` is called.
export async function load({ origin }, names, each) {
  const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
  const send = (body, more) => fetch(`${origin}/mcp`, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify({ jsonrpc: "2.0", ...body }) });
  const clientInfo = { name: "claude-code", version: "2" };
  const begun = await send({ id: 0, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo } });
  const session = { "Mcp-Session-Id": begun.headers.get("mcp-session-id"), "MCP-Protocol-Version": "2025-11-25" };
  await begun.text();
  await send({ method: "notifications/initialized" }, session);
  let id = 0;
  let isOver = false;
  let ended = 0;
  const open = new Set();
  const call = (name, given) => {
    const answer = send({ id: (id += 1), method: "tools/call", params: { name, arguments: given } }, session).then((answer) => answer.text()).then(() => (ended += 1)).catch(() => {}).finally(() => open.delete(answer));
    open.add(answer);
    return answer;
  };
  const timer = setInterval(() => {
    for (let step = 0; step < each / 10 && open.size < 100; step += 1) {
      const name = names[id % names.length];
      void (id % 9 === 0 ? call(name.replace("__echo", "__countdown"), { from: 0 }) : call(name, { text: "hello" }));
    }
  }, 100);
  return {
    call,
    // How many calls have been answered.
    ended: () => ended,
    stop: async () => {
      if (isOver) return;
      isOver = true;
      clearInterval(timer);
      await Promise.all(open);
    },
  };
}
