// The program: a daemon, and links to its page.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Daemon, freePort, until } from "./daemon.mjs";

export class Program extends Daemon {
  // Without a config it serves the demo.
  constructor(binary, home, config) {
    super(binary, home, process.env.PATH);
    mkdirSync(home, { recursive: true });
    this.config = config;
    this.file = join(home, "config.json");
    if (config) writeFileSync(this.file, JSON.stringify(config, null, 2), { mode: 0o600 });
  }

  async serve(port) {
    this.port = port ?? (await freePort());
    await this.begin(...(this.config ? ["--config", this.file] : ["--demo"]));
    return this;
  }

  // Runs a command; what it prints is not kept, since it may be a link.
  async run(...args) {
    const { code, out, err } = await this.spawn(args, false).ended;
    if (code !== 0) throw new Error(`mcp-host ${args.join(" ")} ended with ${code}: ${err}`);
    return out;
  }

  // A new link to the page.
  async link(...args) {
    const out = await this.run("open", "--no-browser", ...args);
    const found = /http:\/\/127\.0\.0\.1:\d+\/#k=\S+/.exec(out)?.[0];
    if (!found) throw new Error(`no link in: ${out}`);
    return found;
  }

  async servers() {
    return JSON.parse(await this.run("status", "--json")).servers;
  }

  settled() {
    return until("all servers have been tried", async () => (await this.servers()).every(({ state }) => !["connecting", "initializing", "disconnected"].includes(state)), 60);
  }
}
