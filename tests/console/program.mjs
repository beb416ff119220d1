// The program: a daemon with a home of its own, and links to its page.
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

// Waits for an event that only shows from outside.
export async function until(what, condition, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await pause(100);
  }
}

// However the test ends, nothing that it started stays.
const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(2));

export class Program {
  said = "";

  // Without a config it serves the demo.
  constructor(binary, home, config) {
    Object.assign(this, { binary, home, config });
    mkdirSync(home, { recursive: true });
    this.file = join(home, "config.json");
    if (config) writeFileSync(this.file, JSON.stringify(config, null, 2), { mode: 0o600 });
    const places = Object.fromEntries(["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map((name) => [name, home]));
    this.env = { ...places, PATH: process.env.PATH, RUST_LOG: "mcp_host=debug" };
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  #spawn(args, keep = true) {
    const child = spawn(this.binary, args, { env: this.env, cwd: this.home, stdio: ["ignore", "pipe", "pipe"] });
    running.add(child);
    let [out, err] = ["", ""];
    child.stdout.on("data", (data) => (out += data));
    child.stderr.on("data", (data) => (err += data));
    if (keep) for (const each of [child.stdout, child.stderr]) each.on("data", (data) => (this.said += data));
    const ended = new Promise((done) => child.on("close", (code) => (running.delete(child), done({ code, out, err }))));
    return { child, ended };
  }

  async serve(port) {
    this.port = port ?? (await freePort());
    const from = this.config ? ["--config", this.file] : ["--demo"];
    this.daemon = this.#spawn(["serve", ...from, "--listen", `127.0.0.1:${this.port}`]);
    await until("the endpoint serves", () => fetch(`${this.origin}/healthz`).then((answer) => answer.ok, () => false));
    return this;
  }

  async stop() {
    this.daemon?.child.kill("SIGTERM");
    return (await this.daemon?.ended)?.code;
  }

  // Runs a command; what it prints is not kept, since it may be a link.
  async run(...args) {
    const { code, out, err } = await this.#spawn([...args, "--listen", `127.0.0.1:${this.port}`], false).ended;
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
