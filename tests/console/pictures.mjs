// Makes a picture of every view: without servers, with a few, with fifty under load, with something that waits for a person,
// and without a daemon; light and dark; 1280 and 390 wide.
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { Browser, VIEWS } from "./browser.mjs";
import { until } from "./daemon.mjs";
import { Program } from "./program.mjs";
import { load, many, none, some, waiting } from "./world.mjs";

const [binary, chromium, scratch, ...more] = process.argv.slice(2);
const folder = resolve(more[more.indexOf("--pictures") + 1] ?? "pictures");
mkdirSync(folder, { recursive: true });
const worlds = { empty: [none, []], small: [some, [["servers", "broken"], ["tools", "files__forms"], ["tools", "echo__ask"]]], fifty: [many, [["servers", "server-00-of-the-platform-team"]]] };
const browser = await Browser.start(chromium);
let count = 0;

async function picture(tab, name, fullPage) {
  await tab.page.waitForTimeout(400);
  await tab.page.screenshot({ path: join(folder, `${name}.png`), fullPage });
  count += 1;
}

// Lets `body` make pictures in each look.
async function each(body) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const tab = await browser.tab({ colorScheme, viewport: { width, height: 800 } });
      await body(tab, `${colorScheme}-${width}`, width < 1000);
      await tab.close();
    }
  }
}

for (const [world, [config, items]] of Object.entries(worlds)) {
  const host = new Program(binary, join(scratch, world), config({ binary, here: scratch }));
  await host.serve();
  await host.settled();
  const names = (await host.servers()).filter(({ state, alias }) => state === "connected" && alias !== "files").map(({ alias }) => `${alias}__echo`);
  // A page that watches from the beginning knows what each server did meanwhile.
  const watcher = await (await browser.tab()).open(await host.link());
  const work = names.length > 0 ? await load(host, names, world === "fifty" ? 200 : 5) : null;
  if (work) {
    void work.call(`${names[0].replace("__echo", "__countdown")}`, { from: 60 });
    await watcher.page.waitForTimeout(4000);
  }
  await each(async (tab, look, isNarrow) => {
    await tab.open(await host.link());
    for (const [view, item] of [...VIEWS.map((view) => [view]), ...items]) {
      await tab.go(view, item);
      if (item === "echo__ask") {
        await tab.page.click("form.panel button[type=submit]");
        await tab.page.waitForSelector(".question");
      }
      await picture(tab, `${world}-${look}-${view}${item ? `-${item}` : ""}`, isNarrow && !["calls", "lines"].includes(view));
    }
  });
  await work?.stop();
  await watcher.close();
  await host.stop();
}

// A call that a rule holds back, a definition that changed, a tab without a session, and one whose daemon has ended.
const file = join(scratch, "words");
writeFileSync(file, "Writes a note, and keeps it here.");
const host = await new Program(binary, join(scratch, "waiting"), waiting({ here: scratch, file })).serve();
await host.settled();
const caller = await (await browser.tab()).open(await host.link());
await caller.go("tools", "notes__write");
await caller.page.fill("form.panel textarea", "notes.txt");
await caller.page.click("form.panel button[type=submit]");
await caller.page.click("#confirm");
await caller.page.waitForSelector(".badge.asks");
await each(async (tab, look, isNarrow) => {
  await tab.open(await host.link());
  await tab.go("approve");
  await tab.page.waitForSelector(".question");
  await picture(tab, `waiting-${look}-held`, isNarrow);
});
await caller.close();
writeFileSync(file, "Writes a note, and sends it \u202eaway.");
await host.run("restart", "notes");
await until("the definition is withheld", async () => (await host.servers())[0].withheld === 1);
await each(async (tab, look, isNarrow) => {
  await tab.open(await host.link());
  await tab.go("approve");
  await tab.page.waitForSelector(".changed");
  await picture(tab, `waiting-${look}-changed`, isNarrow);
});
await each(async (tab, look, isNarrow) => {
  await tab.page.goto(`${host.origin}/`);
  await tab.page.waitForSelector(".closed");
  await picture(tab, `closed-${look}`, isNarrow);
});
let isServed = true;
await each(async (tab, look, isNarrow) => {
  if (!isServed) await host.serve(host.port);
  await tab.open(await host.link());
  await host.stop();
  isServed = false;
  await tab.page.waitForSelector(".gone");
  await picture(tab, `gone-${look}`, isNarrow);
});
await browser.stop();
console.log(`${count} pictures in ${folder}`);
process.exit(0);
