// Every view: no violation that axe-core finds, no scrolling sideways, and what it must show.
import { readFileSync } from "node:fs";
import { until } from "./daemon.mjs";
import { some } from "./world.mjs";

export async function views({ check, same, holds, harmless, isWhole, views }, browser, program) {
  const host = program("views", some);
  await host.serve();
  const places = [...views.map((view) => [view]), ["servers", "search"], ["servers", "broken"], ["servers", "echo"], ["tools", "files__forms"], ["tools", "files__write"]];
  const looks = [["light, 1280 wide", {}]];
  if (isWhole) {
    looks.push(["dark, 1280 wide", { colorScheme: "dark" }], ["light, 390 wide", { viewport: { width: 390, height: 780 } }], ["dark, 390 wide", { colorScheme: "dark", viewport: { width: 390, height: 780 } }],
      ["320 wide", { viewport: { width: 320, height: 640 } }], ["twice as large, 1280 wide", { viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 }], ["forced colors", { forcedColors: "active" }]);
  }
  try {
    await host.settled();
    await check("who only looks starts no server that is idle", async () => {
      const tab = await (await browser.tab()).open(await host.link());
      for (const view of views.filter((view) => view !== "tools")) await tab.go(view);
      await tab.go("servers", "lazy");
      same((await host.servers()).find(({ name }) => name === "lazy").state, "idle", "its state");
      await tab.close();
    });
    for (const [name, options] of looks) {
      const tab = await browser.tab(options);
      await tab.open(await host.link());
      await check(`${name}: axe-core finds nothing in any view, and nothing scrolls sideways`, async () => {
        const found = [];
        for (const [view, item] of places) {
          await tab.go(view, item);
          for (const violation of await tab.axe()) found.push(`${view} ${item ?? ""}: ${violation}`);
          if ((await tab.sideways()) > 0) found.push(`${view} ${item ?? ""}: scrolls sideways`);
        }
        await tab.page.keyboard.press("?");
        await tab.page.waitForSelector("[role=dialog]");
        for (const violation of await tab.axe()) found.push(`help: ${violation}`);
        same(found, [], "violations");
      });
      await check(`${name}: the page asked nobody else, and broke no rule of its own`, () => harmless(tab, host));
      await tab.close();
    }
    const tab = await (await browser.tab()).open(await host.link());
    const { page } = tab;
    await check("a server that does not start has its reason and its last lines, in the words of `status`", async () => {
      const told = Object.fromEntries((await host.servers()).map((server) => [server.name, server]));
      for (const name of ["search", "broken"]) {
        await tab.go("servers", name);
        same(told[name].state, "failed", name);
        same(await page.textContent(".reason > p"), told[name].lastError, `the reason of ${name}`);
      }
      same(await page.textContent(".reason pre"), told.broken.stderr.join("\n"), "its last lines");
      holds(told.broken.stderr.includes("error: no settings.json"), "the lines of the process");
      await tab.go("lines");
      await page.selectOption(".choice:has-text('Server') select", "broken");
      const lines = await page.$$eval(".one-line .text", (all) => all.map((line) => line.textContent));
      holds(lines.includes("error: no settings.json"), `lines: ${lines}`);
    });
    await check("a server is restarted by its button", async () => {
      await tab.go("servers");
      await page.click("tr.row:has-text('broken') >> text=Restart");
      await page.waitForSelector(".notice:has-text('broken restarts')");
      await until("it has failed a second time", async () => (await host.run("logs", "broken", "--json")).split("initializing -> failed").length === 3);
    });
    await check("a server is disabled and enabled in its entry, and the page shows the way back", async () => {
      await tab.go("servers", "echo");
      const before = readFileSync(host.file, "utf8");
      await page.click(".detail >> text=Disable");
      await page.click(".detail >> text=Disable it");
      await page.waitForSelector("tr.row:has-text('echo') .mark:has-text('disabled')");
      holds(readFileSync(host.file, "utf8") !== before, "the file");
      holds(/^mcp-host undo \S+$/.test(await page.textContent(".detail .note code")), "the way back");
      await page.click(".detail >> text=Enable");
      await page.waitForSelector("tr.row:has-text('echo') .mark:has-text('connected')");
    });
    await check("what does not say that it only reads asks first", async () => {
      await tab.go("tools", "files__write");
      await page.fill("form.panel textarea", "/tmp/x");
      await page.click("form.panel button[type=submit]");
      await page.waitForSelector(".confirm");
      same(await page.$$eval(".run", (all) => all.length), 0, "calls before the answer");
      await page.click(".confirm >> text=Call it");
      await page.waitForSelector(".run .result");
      same(JSON.parse(await page.textContent(".run .result pre")), { path: "/tmp/x" }, "arguments");
    });
    await check("a form gives the values of its schema, and JSON gives the same", async () => {
      await tab.go("tools", "files__forms");
      const field = (label) => page.locator(`form.panel .field:has(> label:has-text("${label}")) >> :is(input, select, textarea)`).first();
      await field("text").fill("ab");
      await field("count").fill("3");
      await field("flag").selectOption("true");
      await field("color").selectOption({ label: "green" });
      await field("size").selectOption({ label: "Large" });
      await page.click("text=Add an item");
      await page.fill("[aria-label='item 1']", "one");
      await field("deepest").fill("1.5");
      await field("any").fill("[null]");
      await page.click("form.panel >> text=As JSON");
      const want = { text: "ab", count: 3, flag: true, color: "green", size: 2, tags: ["one"], deep: { deeper: { deepest: 1.5 } }, any: [null] };
      same(JSON.parse(await page.inputValue("form.panel textarea[id$='.json']")), want, "as JSON");
      await page.click("form.panel >> text=As a form");
      await page.click("form.panel button[type=submit]");
      await page.waitForSelector(".run .result");
      same(JSON.parse(await page.textContent(".run .result pre")), want, "arguments");
    });
    await check("a hidden tab drops its feed after a minute, and takes it up again when it is seen", async () => {
      const tab = await browser.tab();
      await tab.page.clock.install();
      await tab.open(await host.link());
      const feeds = () => tab.requests.filter((url) => url.includes("/console/feed")).length;
      const ended = tab.page.waitForEvent("requestfailed", (request) => request.url().includes("/console/feed"));
      const see = (isHidden) => tab.page.evaluate((isHidden) => {
        Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, isHidden);
      await see(true);
      await tab.page.clock.fastForward(61_000);
      await ended;
      same(feeds(), 1, "feeds while it was seen");
      await see(false);
      await until("it asks again", () => feeds() === 2);
      holds(tab.requests.at(-1).includes("from="), tab.requests.at(-1));
      await tab.close();
    });
    await check("the session ends by its button, and the tab keeps nothing", async () => {
      await page.keyboard.press("Escape");
      await tab.go("servers");
      await page.click(".top button:has-text('?')");
      await page.click("text=End this session");
      await page.waitForSelector(".closed");
      same(await page.evaluate(() => sessionStorage.length), 0, "what the tab keeps");
    });
    await tab.close();
    const looker = await (await browser.tab()).open(await host.link("--read-only"));
    await check("a session that only reads shows no button that does something, and gets no call", async () => {
      await looker.go("servers", "broken");
      same(await looker.page.$$eval("button", (all) => all.map((button) => button.textContent).filter((text) => /Restart|Sign in|Enable|Disable/.test(text))), [], "buttons");
      await looker.go("tools", "files__plain");
      same(await looker.page.$$eval("form.panel [type=submit]", (all) => all.length), 0, "buttons to call");
      const status = await looker.page.evaluate(async () => {
        const { token } = JSON.parse(sessionStorage.getItem("mcp-host session"));
        const answer = await fetch("/console/call", { method: "POST", headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }, body: '{"tool":"files__plain","arguments":{}}' });
        return [answer.status, (await answer.json()).error];
      });
      same(status, [403, "read_only"], "a call of such a session");
    });
    await looker.close();
  } finally {
    await host.stop();
  }
}
