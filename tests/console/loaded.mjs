// Fifty servers and 200 calls a second: the page stays small and quick.
import { setTimeout as pause } from "node:timers/promises";
import { load, many } from "./world.mjs";

const SECONDS = 60;

export async function loaded({ check, holds, harmless }, browser, program) {
  const host = program("loaded", many);
  await host.serve();
  const tab = await browser.tab();
  const { page } = tab;
  try {
    await host.settled();
    const names = (await host.servers()).filter(({ state }) => state === "connected").map(({ alias }) => `${alias}__echo`);
    await tab.open(await host.link());
    const debug = await tab.context.newCDPSession(page);
    const heap = async () => {
      await debug.send("HeapProfiler.collectGarbage");
      return (await debug.send("Runtime.getHeapUsage")).usedSize;
    };
    await page.evaluate(() => {
      window.tasks = [];
      new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ["longtask"] });
    });
    const work = await load(host, names, 200);
    await pause(5000);
    const before = await heap();
    await check(`50 servers, 200 calls a second, ${SECONDS} s: few elements, a small heap`, async () => {
      let most = 0;
      for (let second = 0; second < SECONDS; second += 5) {
        await tab.go(["servers", "calls", "lines", "tools"][(second / 5) % 4]);
        await pause(5000);
        most = Math.max(most, await page.evaluate(() => document.getElementsByTagName("*").length));
      }
      const grown = ((await heap()) - before) / 1024 / 1024;
      const tasks = await page.evaluate(() => window.tasks.sort((one, other) => one - other));
      holds(most <= 5000, `${most} elements`);
      holds(grown <= 10, `the heap grew by ${grown.toFixed(1)} MiB`);
      return `${most} elements, heap ${grown.toFixed(1)} MiB more, ${tasks.length} tasks over 50 ms, the longest ${Math.round(tasks.at(-1) ?? 0)} ms`;
    });
    await work.stop();
    await check("under load the page asked nobody else, and broke no rule of its own", () => harmless(tab, host));
  } finally {
    await tab.close();
    await host.stop();
  }
}
