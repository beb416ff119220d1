// Runs the cases in order: the program as a client of a protected server, then as the protected server.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Browser } from "./browser.mjs";
import { invited } from "./invite.mjs";
import { Issuer } from "./issuer.mjs";
import { freePort, until } from "./daemon.mjs";
import { Program } from "./program.mjs";
import { protectedServer } from "./server.mjs";

const [binary, chromium, scratch] = process.argv.slice(2);
let passed = 0;
let failed = 0;

async function check(name, body) {
  try {
    await body();
    passed += 1;
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${String(error?.stack ?? error).split(/\s+/).join(" ").slice(0, 900)}`);
  }
}

function same(got, want, what) {
  const [left, right] = [got, want].map((value) => JSON.stringify(value));
  if (left !== right) throw new Error(`${what}: ${left} instead of ${right}`);
}

function holds(condition, what) {
  if (!condition) throw new Error(what);
}

// Makes one call with a new client; returns the tool's text, or its error.
async function call(url, tool, token) {
  const client = new Client({ name: "test", version: "1" });
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  try {
    const { content, isError } = await client.callTool({ name: tool, arguments: {} });
    return isError ? { error: content[0].text } : JSON.parse(content[0].text);
  } finally {
    await client.close();
  }
}

// A user who signs in with a program on the official SDK: the state that the SDK needs, and the browser.
class User {
  constructor(name) {
    this.name = name;
    this.redirectUrl = "http://127.0.0.1:1/callback";
    this.clientMetadata = {
      client_name: "a program of the test",
      redirect_uris: [this.redirectUrl],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
      application_type: "native",
    };
  }
  clientInformation = () => this.client;
  saveClientInformation = (client) => void (this.client = client);
  tokens = () => this.kept;
  saveTokens = (tokens) => void (this.kept = tokens);
  redirectToAuthorization = (page) => void (this.page = page.href);
  saveCodeVerifier = (verifier) => void (this.verifier = verifier);
  codeVerifier = () => this.verifier;

  // Signs in at the endpoint; returns the token.
  async signIn(url, browser) {
    this.kept = undefined;
    const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: this });
    const refused = await new Client({ name: "test", version: "1" }).connect(transport).catch((error) => error);
    holds(refused instanceof UnauthorizedError, `it was not told to sign in: ${refused}`);
    const end = await browser.signIn(this.page, this.name, this.redirectUrl);
    await transport.finishAuth(new URL(end).searchParams.get("code"));
    return this.kept.access_token;
  }
}

const post = (url, token, more = {}) =>
  fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(token && { authorization: `Bearer ${token}` }),
      ...more,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }),
  });

const initialize = async (url, token) => {
  const client = new Client({ name: "test", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
  await client.connect(transport);
  return { client, session: transport.sessionId };
};

async function signingIn(issuer, browser) {
  const server = await protectedServer(issuer);
  issuer.lives.set(server.resource, 5);
  const config = { mcpServers: { guarded: { type: "http", url: server.resource } } };
  const program = new Program(binary, join(scratch, "client"), await freePort(), config);
  await program.serve();
  const whoami = () => call(program.url, "guarded__whoami");
  const state = async () => (await program.state("guarded")).state;
  try {
    await check("before a login: the server is unauthorized, and nothing was opened", async () => {
      await until("unauthorized", async () => (await state()) === "unauthorized");
      const { code, out } = await program.run("auth");
      same([code, out.includes("guarded")], [0, true], "auth");
      same(issuer.events.granted, 0, "tokens given");
    });
    await check("login: a user signs in and consents in the browser, and the server is connected", async () => {
      await program.login("guarded", browser, "ada");
      await until("connected", async () => (await state()) === "connected");
      same([issuer.events.granted, issuer.events.registered], [1, 1], "codes taken, clients registered");
    });
    let first;
    await check("use: a call carries the token of that user for that server", async () => {
      first = await whoami();
      same([first.subject, first.key], ["ada", issuer.keys[0].kid], "whose token");
    });
    await check("refresh: calls succeed over several token lifetimes, without a page", async () => {
      const seen = new Set([first.token]);
      await until("three more tokens", async () => {
        const { token, error } = await whoami();
        holds(token, error);
        return seen.add(token).size >= 4;
      });
      holds(issuer.events.refreshed >= 3, "tokens were not renewed");
      same(issuer.events.granted, 1, "codes taken");
    });
    await check("rotation: the issuer signs with a new key, and calls succeed", async () => {
      const key = await issuer.rotate();
      await until("a token signed with the new key", async () => {
        const { key: used, error } = await whoami();
        holds(used, error);
        return used === key;
      });
      same(issuer.events.granted, 1, "codes taken");
    });
    await check("expiry: when the issuer ends a login, the server is unauthorized and says what to do; no page opens by itself", async () => {
      await issuer.endGrants();
      const { error } = await until("a call that is refused", async () => {
        const answer = await whoami();
        return answer.error && answer;
      });
      holds(error.includes("mcp-host login guarded"), error);
      same([await state(), issuer.events.granted], ["unauthorized", 1], "state, codes taken");
    });
    await check("login again: another token, and calls go", async () => {
      await program.login("guarded", browser, "ada");
      await until("connected", async () => (await state()) === "connected");
      same((await whoami()).subject, "ada", "whose token");
      same(issuer.events.granted, 2, "codes taken");
    });
    await check("logout: the token is revoked at the issuer, nothing is kept, the server is unauthorized", async () => {
      const before = issuer.events.revoked;
      const { code, out } = await program.run("logout", "guarded");
      same(code, 0, out);
      await until("unauthorized", async () => (await state()) === "unauthorized");
      holds(issuer.events.revoked > before, "the issuer was not told");
      const held = JSON.parse((await program.run("auth", "--json")).out);
      same(held[0].holding ?? null, null, "held");
      const { error } = await whoami();
      holds(error?.includes("mcp-host login guarded"), `a call succeeded: ${error}`);
      same(await state(), "unauthorized", "state");
    });
    await check("login by a code: a user enters it at the issuer's page, the server is connected, and the token is renewed", async () => {
      const before = { ...issuer.events };
      await program.loginByCode("guarded", browser, "grace");
      await until("connected", async () => (await state()) === "connected");
      const { subject, token } = await whoami();
      same([subject, issuer.events.granted], ["grace", before.granted + 1], "whose token, codes taken");
      await until("another token", async () => (await whoami()).token !== token);
      holds(issuer.events.refreshed > before.refreshed, "the token was not renewed");
      same(issuer.events.granted, before.granted + 1, "codes taken");
      const held = JSON.parse((await program.run("auth", "--json")).out);
      same(held[0].holding?.renewable, true, "held");
    });
    await check("no output at debug level holds a token, a code or a verifier", () => {
      holds(issuer.secrets.size > 10, "too few secrets to look for");
      for (const secret of issuer.secrets) holds(!program.said.includes(secret), "the output holds one");
    });
  } finally {
    await program.stop();
    await server.stop();
  }
}

async function beingSignedInAt(issuer, browser) {
  const other = await protectedServer(issuer);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/mcp`;
  const home = join(scratch, "endpoint");
  const auth = { type: "oauth", issuer: issuer.url, audience: url, scopes: ["mcp"] };
  const config = { mcpServers: {}, host: { auth } };
  const program = new Program(binary, home, port, config);
  await program.serve();
  issuer.lives.delete(url);
  const statusOf = async (token, more) => (await post(url, token, more)).status;
  let old, current;
  try {
    await check("without a token: 401, which names the issuer", async () => {
      const refused = await post(url);
      const place = `http://127.0.0.1:${port}/.well-known/oauth-protected-resource/mcp`;
      same([refused.status, refused.headers.get("www-authenticate")], [401, `Bearer resource_metadata="${place}", scope="mcp"`], "refused");
      const metadata = await (await fetch(place)).json();
      same([metadata.resource, metadata.authorization_servers], [url, [issuer.url]], "metadata");
    });
    let short;
    await check("a program on the official SDK discovers the issuer: a user signs in, and is served", async () => {
      issuer.lives.set(url, 1);
      short = { token: await new User("ada").signIn(url, browser), at: Date.now() };
      issuer.lives.delete(url);
      old = await new User("ada").signIn(url, browser);
      const { client, session } = await initialize(url, old);
      holds(session && (await client.ping()), "no session");
      await client.close();
    });
    await check("a token of the same issuer for another server: 401", async () => {
      const token = await new User("ada").signIn(other.resource, browser);
      const refused = await post(url, token);
      holds(refused.headers.get("www-authenticate")?.endsWith('error="invalid_token"'), "the challenge does not say so");
      same(refused.status, 401, "status");
    });
    await check("a session of one user does not exist for another", async () => {
      const { client, session } = await initialize(url, old);
      const bob = await new User("bob").signIn(url, browser);
      const more = { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" };
      same([await statusOf(old, more), await statusOf(bob, more)], [200, 404], "statuses");
      await client.close();
    });
    await check("a host of the same program signs in at it", async () => {
      const client = new Program(binary, join(scratch, "second"), await freePort(), { mcpServers: { own: { type: "http", url } } });
      await client.serve();
      try {
        await client.login("own", browser, "ada");
        await until("connected", async () => (await client.state("own")).state === "connected");
      } finally {
        await client.stop();
      }
    });
    await check("rotation: tokens signed with the new key and with the old key are accepted", async () => {
      await issuer.rotate();
      current = await new User("ada").signIn(url, browser);
      await until("served", async () => (await statusOf(current)) !== 401, 15);
      same([await statusOf(current), await statusOf(old)], [400, 400], "statuses, without a session");
    });
    await check("a withdrawn key is no longer valid once the next one is known", async () => {
      await issuer.rotate({ keep: false });
      const next = await new User("ada").signIn(url, browser);
      await until("served", async () => (await statusOf(next)) !== 401, 15);
      same([await statusOf(next), await statusOf(old), await statusOf(current)], [400, 401, 401], "statuses");
      old = next;
    });
    await check("expiry: an expired token is refused", async () => {
      await pause(Math.max(0, short.at + 35_000 - Date.now()));
      same(await statusOf(short.token), 401, "status");
    });
    await check("the issuer is unreachable: known users are served, and none after a restart", async () => {
      await issuer.stop();
      same(await statusOf(old), 400, "known keys");
      await program.stop();
      const again = new Program(binary, home, port, config);
      await again.serve();
      try {
        same([await statusOf(old), await statusOf()], [503, 401], "statuses");
        holds(/cannot fetch the keys of the issuer/.test(again.said), "the log does not say why");
      } finally {
        await again.stop();
      }
    });
  } finally {
    await program.stop();
    await other.stop();
  }
}

// oidc-provider warns about plain http and its own login pages, which are fine in a test.
console.warn = console.info = () => {};
mkdirSync(scratch, { recursive: true });
const issuer = await Issuer.start();
const browser = await Browser.start(chromium);
try {
  await signingIn(issuer, browser);
  await invited({ binary, scratch, issuer, browser, check, same, holds });
  await beingSignedInAt(issuer, browser);
} catch (error) {
  failed += 1;
  console.log(`FAIL the whole run: ${String(error?.stack ?? error)}`);
} finally {
  await browser.stop();
  issuer.server.closeAllConnections();
  issuer.server.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed || !passed ? 1 : 0;
