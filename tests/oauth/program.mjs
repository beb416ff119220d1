// The program: a daemon and its commands. Its browser writes to a file, which the test reads.
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Daemon, until } from "./daemon.mjs";

export class Program extends Daemon {
  constructor(binary, home, port, config) {
    super(binary, home, `${join(home, "bin")}:/usr/bin:/bin`);
    this.port = port;
    mkdirSync(join(home, "bin"), { recursive: true });
    writeFileSync(join(home, "config.json"), JSON.stringify(config));
    this.page = join(home, "page");
    const opener = join(home, "bin", "xdg-open");
    writeFileSync(opener, `#!/bin/sh\nprintf '%s' "$1" > "$HOME/page.new" && mv "$HOME/page.new" "$HOME/page"\n`);
    chmodSync(opener, 0o755);
  }

  get url() {
    return `${this.origin}/mcp`;
  }

  serve() {
    return this.begin("--config", "config.json");
  }

  // Runs a command; returns how it ended.
  run(...args) {
    return this.spawn(args).ended.then(({ code, all }) => ({ code, out: all }));
  }

  async state(server) {
    const { out } = await this.run("status", "--json");
    const text = out.slice(out.indexOf("{"));
    return JSON.parse(text).servers.find(({ name }) => name === server);
  }

  // Runs `mcp-host login --device`, with a user who types the code into a browser elsewhere.
  async loginByCode(server, browser, user) {
    const command = this.spawn(["login", server, "--device", "--no-browser"]);
    let ended = false;
    void command.ended.then(() => (ended = true));
    const shown = () => command.all().match(/^go to (\S+) and enter (\S+)$/m);
    const [, page, code] = await until("a page and a code", () => {
      if (ended && !shown()) throw new Error(command.all());
      return shown();
    });
    await browser.enterCode(page, code, user);
    const { code: status, all } = await command.ended;
    if (status !== 0) throw new Error(`login ended with ${status}: ${all}`);
  }

  // Runs `mcp-host login`, with a user at the browser that it opens.
  async login(server, browser, user) {
    rmSync(this.page, { force: true });
    const command = this.spawn(["login", server]);
    const ended = command.ended.then(({ all }) => {
      if (!existsSync(this.page)) throw new Error(all);
    });
    await Promise.race([until("a browser is opened", () => existsSync(this.page)), ended]);
    const page = readFileSync(this.page, "utf8");
    await browser.signIn(page, user, new URL(page).searchParams.get("redirect_uri"));
    const { code: status, all } = await command.ended;
    if (status !== 0) throw new Error(`login ended with ${status}: ${all}`);
    return page;
  }
}
