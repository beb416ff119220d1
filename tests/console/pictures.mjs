// Makes a picture of every view: without servers, with a few, with fifty under load; light and dark; 1280 and 390 wide.
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { Browser, VIEWS } from "./browser.mjs";
import { Program } from "./program.mjs";
import { load, many, none, some } from "./world.mjs";

const [binary, chromium, scratch, ...more] = process.argv.slice(2);
const folder = resolve(more[more.indexOf("--pictures") + 1] ?? "pictures");
mkdirSync(folder, { recursive: true });
const worlds = { empty: [none, []], small: [some, [["servers", "broken"], ["tools", "files__forms"], ["tools", "echo__ask"]]], fifty: [many, [["servers", "server-00-of-the-platform-team"]]] };
const browser = await Browser.start(chromium);
let count = 0;

for (const [world, [config, items]] of Object.entries(worlds)) {
  const host = new Program(binary, join(scratch, world), config({ binary, here: scratch }));
  await host.serve();
  await host.settled();
  const names = (await host.servers()).filter(({ state, alias }) => state === "connected" && alias !== "files").map(({ alias }) => `${alias}__echo`);
  // The daemon keeps calls from the first feed on, so a page watches while they are made.
  const watcher = await (await browser.tab()).open(await host.link());
  const work = names.length > 0 ? await load(host, names, world === "fifty" ? 200 : 5) : null;
  if (work) {
    void work.call(`${names[0].replace("__echo", "__countdown")}`, { from: 60 });
    await watcher.page.waitForTimeout(4000);
  }
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const tab = await browser.tab({ colorScheme, viewport: { width, height: 800 } });
      await tab.open(await host.link());
      for (const [view, item] of [...VIEWS.map((view) => [view]), ...items]) {
        await tab.go(view, item);
        if (item === "echo__ask") {
          await tab.page.click("form.panel button[type=submit]");
          await tab.page.waitForSelector(".question");
        }
        await tab.page.waitForTimeout(400);
        await tab.page.screenshot({ path: join(folder, `${world}-${colorScheme}-${width}-${view}${item ? `-${item}` : ""}.png`), fullPage: width < 1000 && !["calls", "lines"].includes(view) });
        count += 1;
      }
      await tab.close();
    }
  }
  await work?.stop();
  await watcher.close();
  await host.stop();
}
await browser.stop();
console.log(`${count} pictures in ${folder}`);
process.exit(0);
