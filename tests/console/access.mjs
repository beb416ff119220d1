// Who gets in: pages of other ports and names, frames, forms, codes that come twice or late, tokens of clients.
import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { until } from "./daemon.mjs";

const post = (url, body, headers = {}) => fetch(url, { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) });

// A page of another port, as any program of this machine can serve one.
async function stranger() {
  const server = createServer((_, response) => {
    response.setHeader("Content-Type", "text/html");
    response.end("<!doctype html><title>stranger</title><iframe name=target></iframe>");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { origin: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

// The link that `mcp-host open` hands to a browser, which only writes it down.
async function handed(host) {
  const [bin, file] = [join(host.home, "bin"), join(host.home, "opened")];
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(bin, "xdg-open"), `#!/bin/sh\nprintf %s "$1" >"${file}.new" && mv "${file}.new" "${file}"\n`, { mode: 0o755 });
  host.env.PATH = `${bin}:${host.env.PATH}`;
  const at = Date.now();
  await host.run("open");
  const read = () => {
    try {
      return readFileSync(file, "utf8");
    } catch {
      return "";
    }
  };
  return { at, link: await until("a browser gets the link", read) };
}

export async function access({ check, same, holds }, browser, program) {
  const token = `mcph_${randomBytes(32).toString("hex")}`;
  const clients = { laptop: `sha256:${createHash("sha256").update(token).digest("hex")}` };
  const host = program("access", ({ binary }) => ({ mcpServers: { echo: { command: binary, args: ["__demo-server"] } }, host: { auth: { type: "bearer", clients } } }));
  await host.serve();
  const other = await stranger();
  const secrets = [];
  const link = async (...args) => {
    const found = await host.link(...args);
    secrets.push(found.split("#k=")[1]);
    return found;
  };
  try {
    await host.settled();
    const old = await handed(host);
    secrets.push(old.link.split("#k=")[1]);
    const own = await (await browser.tab()).open(await link());
    const held = await own.page.evaluate(() => JSON.parse(sessionStorage.getItem("mcp-host session")).token);
    secrets.push(held);
    holds(held.startsWith("mcpc_"), "a token of a session");
    const bearer = { Authorization: `Bearer ${held}` };

    await check("without a token, and with a token of a client, the API gives nothing", async () => {
      for (const headers of [{}, { Authorization: `Bearer ${token}` }]) {
        for (const path of ["feed", "tools", "server?name=echo"]) {
          const answer = await fetch(`${host.origin}/console/${path}`, { headers });
          same([answer.status, (await answer.json()).error], [401, "no_session"], path);
        }
        const answer = await post(`${host.origin}/console/call`, { tool: "echo__echo", arguments: {} }, { ...headers, Origin: host.origin });
        same(answer.status, 401, "a call");
      }
    });
    await check("a token of the page opens nothing else", async () => {
      const body = { jsonrpc: "2.0", id: 1, method: "ping" };
      const accept = { Accept: "application/json, text/event-stream" };
      same((await post(`${host.origin}/mcp`, body, { ...accept, ...bearer })).status, 401, "/mcp by the page's token");
      holds((await post(`${host.origin}/mcp`, body, { ...accept, Authorization: `Bearer ${token}` })).status !== 401, "/mcp by the client's token");
      same((await fetch(`${host.origin}/metrics`, { headers: bearer })).status, 401, "/metrics");
    });
    await check("a page of another port gets nothing: no fetch, no code, no frame, no form, no window", async () => {
      const tab = await browser.tab();
      const code = (await link()).split("#k=")[1];
      await tab.page.goto(other.origin);
      const got = await tab.page.evaluate(async ([origin, token, code]) => {
        const headers = { Authorization: `Bearer ${token}` };
        const tried = async (path, options) => fetch(`${origin}${path}`, options).then(async (answer) => `${answer.type} ${answer.status} ${(await answer.text()).length}`, () => "nothing");
        const frame = document.querySelector("iframe");
        const loaded = new Promise((done) => (frame.onload = done));
        frame.src = `${origin}/`;
        await loaded;
        const opened = open(`${origin}/`);
        let inside = "nothing";
        try {
          inside = opened?.document?.title ?? "nothing";
        } catch {
          // Another origin.
        }
        const form = document.createElement("form");
        Object.assign(form, { method: "post", action: `${origin}/console/session`, enctype: "text/plain", target: "target" });
        const input = document.createElement("input");
        Object.assign(input, { name: `{"code":"${code}","x":"`, value: '"}' });
        form.append(input);
        document.body.append(form);
        form.submit();
        return {
          plain: await tried("/console/tools", { headers }), hidden: await tried("/console/feed", { mode: "no-cors" }), page: await tried("/", {}),
          session: await tried("/console/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) }),
          simple: await tried("/console/session", { method: "POST", mode: "no-cors", body: JSON.stringify({ code }) }),
          inside, frame: (() => { try { return frame.contentDocument?.title ?? "nothing"; } catch { return "nothing"; } })(),
        };
      }, [host.origin, held, code]);
      for (const [name, what] of Object.entries(got)) holds(what === "nothing" || what === "" || /^opaque 0 0$/.test(what), `${name}: ${what}`);
      const framed = tab.page.frames().map((frame) => frame.url());
      holds(!framed.some((url) => url === `${host.origin}/`), `a frame shows the page: ${framed}`);
      await tab.close();
      const fresh = await (await browser.tab()).open(`${host.origin}/#k=${code}`);
      await fresh.close();
    });
    await check("a name that leads here gets nothing", async () => {
      const tab = await browser.tab();
      const answer = await tab.page.goto(`http://rebound.test:${host.port}/`);
      holds(answer.status() >= 400, `${answer.status()}`);
      holds(!(await tab.page.content()).includes("app.js"), "the page");
      await tab.close();
    });
    await check("a code that comes twice ends the session that it began, and the page says so", async () => {
      const twice = await link();
      const first = await (await browser.tab()).open(twice);
      const second = await browser.tab();
      await second.page.goto(twice);
      await second.page.waitForSelector(".closed");
      holds(/twice/.test(await second.page.textContent(".closed")), await second.page.textContent(".closed"));
      await first.page.waitForSelector(".closed");
      await first.close();
      await second.close();
    });
    await check("an unknown code begins nothing, and the page says how to get one", async () => {
      const tab = await browser.tab();
      await tab.page.goto(`${host.origin}/#k=${"0".repeat(64)}`);
      await tab.page.waitForSelector(".closed");
      holds((await tab.page.textContent(".closed")).includes("mcp-host open"), "the command");
      same(await tab.page.evaluate(() => sessionStorage.length), 0, "what the tab keeps");
      await tab.page.goto(`${host.origin}/`);
      await tab.page.waitForSelector(".closed");
      await tab.close();
    });
    await check("a link that a browser did not take within 30 seconds begins nothing", async () => {
      await until("the link is old", () => Date.now() - old.at > 31_000, 40);
      const tab = await browser.tab();
      await tab.page.goto(old.link);
      await tab.page.waitForSelector(".closed");
      const said = await tab.page.textContent(".closed");
      holds(said.includes("This link is not good any more") && said.includes("mcp-host open"), said);
      same(await tab.page.evaluate(() => sessionStorage.length), 0, "what the tab keeps");
      await tab.close();
    });
    await check("the session outlives a reload of its tab", async () => {
      await own.page.reload();
      await own.page.waitForSelector("tr.row");
    });
    await check("token and code are in no URL, cookie, log, and element", async () => {
      const { page } = own;
      same(await own.context.cookies(), [], "cookies");
      same(await page.evaluate(() => localStorage.length), 0, "what the browser keeps");
      const html = await page.content();
      const logs = `${host.said}${await host.run("logs", "--json")}${await host.run("status", "--json")}`;
      for (const secret of secrets) {
        // The code is in the address until the page has read it; a request never has it.
        for (const url of own.requests.map((url) => url.split("#")[0])) holds(!url.includes(secret), `a URL: ${url}`);
        holds(!html.includes(secret) && !page.url().includes(secret), "the page");
        holds(!logs.includes(secret), "the logs");
      }
      holds(host.said.length > 0, "there are logs");
    });
    await check("open --revoke ends all sessions at once", async () => {
      await host.run("open", "--revoke");
      await own.page.waitForSelector(".closed");
      same((await fetch(`${host.origin}/console/tools`, { headers: bearer })).status, 401, "the token");
    });
    await own.close();
  } finally {
    other.stop();
    await host.stop();
  }
}
