// A call that needs a login, from a client on the official SDK that can open pages (elicitation by URL): a user signs in at the
// page, and the same call gets its answer.
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ElicitationCompleteNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { freePort, until } from "./daemon.mjs";
import { Program } from "./program.mjs";
import { protectedServer } from "./server.mjs";

export async function invited({ binary, scratch, issuer, browser, check, same, holds }) {
  const server = await protectedServer(issuer);
  issuer.lives.set(server.resource, 5);
  const config = { mcpServers: { guarded: { type: "http", url: server.resource } } };
  const program = new Program(binary, join(scratch, "invited"), await freePort(), config);
  await program.serve();
  const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: { url: {} } } });
  const [asked, ended, signedIn] = [[], [], []];
  let action = "accept";
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params);
    if (action === "accept") signedIn.push(browser.signIn(params.url, "ada", `${new URL(params.url).origin}/callback`));
    return { action };
  });
  client.setNotificationHandler(ElicitationCompleteNotificationSchema, ({ params }) => void ended.push(params.elicitationId));
  const whoami = async () => {
    const { content, isError } = await client.callTool({ name: "guarded__whoami", arguments: {} });
    return isError ? { error: content[0].text } : JSON.parse(content[0].text);
  };
  // The issuer ends the login; calls succeed until the token expires.
  const lost = async (condition) => {
    await issuer.endGrants();
    return until("a call fails for want of a login", async () => condition(await whoami()));
  };
  try {
    await program.login("guarded", browser, "ada");
    await client.connect(new StreamableHTTPClientTransport(new URL(program.url)));
    await until("a call", async () => (await whoami()).subject === "ada");
    await check("a call that needs a login asks its client to open a page, and continues after the user has signed in", async () => {
      const before = issuer.events.granted;
      await lost(({ subject, error }) => {
        same(subject, "ada", `whose token (${error})`);
        return asked.length > 0;
      });
      const [{ mode, url, message, elicitationId }] = asked;
      same([asked.length, mode, new URL(url).hostname], [1, "url", "127.0.0.1"], "what was asked");
      holds(message.includes("guarded") && message.includes(new URL(issuer.url).host), message);
      await Promise.all(signedIn);
      same([ended, issuer.events.granted - before], [[elicitationId], 1], "ids completed, codes redeemed");
      same((await program.state("guarded")).state, "connected", "state");
    });
    await check("a user who declines gets an error that says what to do, and is not asked again", async () => {
      action = "decline";
      const { error } = await lost((answer) => answer.error && answer);
      holds(error.includes("mcp-host login guarded"), error);
      holds((await whoami()).error, "a call succeeded");
      same(asked.length, 2, "asked");
    });
    await check("here, too, no output at debug level holds a token, a code or a verifier", () => {
      for (const secret of issuer.secrets) holds(!program.said.includes(secret), "the output holds one");
    });
  } finally {
    await client.close();
    await program.stop();
    await server.stop();
  }
}
