// The program: a daemon and its commands, with their own home. Its browser writes to a file, which the test reads.
import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

// Returns a port that was free a moment ago: the URL of an endpoint must be known before it listens.
export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

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

  constructor(binary, home, port, config) {
    Object.assign(this, { binary, home, port });
    mkdirSync(join(home, "bin"), { recursive: true });
    writeFileSync(join(home, "config.json"), JSON.stringify(config));
    this.page = join(home, "page");
    const opener = join(home, "bin", "xdg-open");
    writeFileSync(opener, `#!/bin/sh\nprintf '%s' "$1" > "$HOME/page.new" && mv "$HOME/page.new" "$HOME/page"\n`);
    chmodSync(opener, 0o755);
    const places = Object.fromEntries(["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map((name) => [name, home]));
    this.env = { ...places, PATH: `${join(home, "bin")}:/usr/bin:/bin`, RUST_LOG: "mcp_host=debug" };
  }

  get url() {
    return `http://127.0.0.1:${this.port}/mcp`;
  }

  #spawn(args) {
    const child = spawn(this.binary, args, { env: this.env, cwd: this.home, stdio: ["ignore", "pipe", "pipe"] });
    running.add(child);
    let out = "";
    child.stdout.on("data", (data) => ((out += data), (this.said += data)));
    child.stderr.on("data", (data) => ((out += data), (this.said += data)));
    const ended = new Promise((done) => child.on("close", (code) => (running.delete(child), done({ code, out }))));
    return { child, ended, out: () => out };
  }

  async serve() {
    this.daemon = this.#spawn(["serve", "--config", "config.json", "--listen", `127.0.0.1:${this.port}`]);
    const healthy = () => fetch(`http://127.0.0.1:${this.port}/healthz`).then((answer) => answer.ok, () => false);
    await until("the endpoint serves", healthy);
  }

  async stop() {
    this.daemon?.child.kill("SIGTERM");
    return (await this.daemon?.ended)?.code;
  }

  // Runs a command; returns how it ended.
  run(...args) {
    return this.#spawn([...args, "--listen", `127.0.0.1:${this.port}`]).ended;
  }

  async state(server) {
    const { out } = await this.run("status", "--json");
    const text = out.slice(out.indexOf("{"));
    return JSON.parse(text).servers.find(({ name }) => name === server);
  }

  // Runs `mcp-host login --device`, with a user who types the code into a browser elsewhere.
  async loginByCode(server, browser, user) {
    const command = this.#spawn(["login", server, "--device", "--no-browser", "--listen", `127.0.0.1:${this.port}`]);
    let ended = false;
    void command.ended.then(() => (ended = true));
    const shown = () => command.out().match(/^go to (\S+) and enter (\S+)$/m);
    const [, page, code] = await until("a page and a code", () => {
      if (ended && !shown()) throw new Error(command.out());
      return shown();
    });
    await browser.enterCode(page, code, user);
    const { code: status, out } = await command.ended;
    if (status !== 0) throw new Error(`login ended with ${status}: ${out}`);
  }

  // Runs `mcp-host login`, with a user at the browser that it opens.
  async login(server, browser, user) {
    rmSync(this.page, { force: true });
    const command = this.#spawn(["login", server, "--listen", `127.0.0.1:${this.port}`]);
    const ended = command.ended.then(({ out }) => {
      if (!existsSync(this.page)) throw new Error(out);
    });
    await Promise.race([until("a browser is opened", () => existsSync(this.page)), ended]);
    const page = readFileSync(this.page, "utf8");
    await browser.signIn(page, user, new URL(page).searchParams.get("redirect_uri"));
    const { code, out } = await command.ended;
    if (code !== 0) throw new Error(`login ended with ${code}: ${out}`);
    return page;
  }
}
