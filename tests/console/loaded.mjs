// Fifty servers in one process, 1,000 tools, 200 calls a second: the page stays small and quick.
import { setTimeout as pause } from "node:timers/promises";
import { crowd, load } from "./world.mjs";

const SECONDS = 60;
// The most milliseconds of 95 of 100 tasks of the page, and until its first paint.
const TASK = 50;
const PAINT = 200;

// Measures each task of the page's thread, however short, from what the browser traces.
async function traced(browser, page, body) {
  await browser.startTracing(page, { categories: ["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline", "__metadata"] });
  await body();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  // The page's own thread is the one that runs its scripts and lays it out.
  const busiest = new Map();
  for (const { name, pid, tid } of traceEvents) if (name === "FunctionCall") busiest.set(`${pid} ${tid}`, (busiest.get(`${pid} ${tid}`) ?? 0) + 1);
  const [thread] = [...busiest].sort(([, one], [, other]) => other - one)[0] ?? [];
  const tasks = traceEvents.filter(({ name, pid, tid }) => name === "RunTask" && `${pid} ${tid}` === thread).map(({ dur }) => dur / 1000);
  return tasks.sort((one, other) => one - other);
}

export async function loaded({ check, holds, harmless }, browser, program) {
  const servers = await crowd();
  const host = program("loaded", () => servers.config);
  await host.serve();
  const tab = await browser.tab();
  const { page } = tab;
  let work;
  try {
    await host.settled();
    const told = await host.servers();
    holds(told.length === 50 && told.every(({ state, tools }) => state === "connected" && tools === 20), "50 servers with 20 tools each");
    const names = told.map(({ alias }) => `${alias}__tool_00`);
    await check(`the first paint comes within ${PAINT} ms`, async () => {
      // The first one starts the browser's own parts.
      await tab.open(await host.link());
      await page.reload();
      await page.waitForSelector("tr.row");
      const paint = await page.evaluate(() => performance.getEntriesByType("paint").find(({ name }) => name === "first-contentful-paint")?.startTime);
      holds(paint > 0 && paint <= PAINT, `${paint} ms`);
      return `${Math.round(paint)} ms`;
    });
    const debug = await tab.context.newCDPSession(page);
    const heap = async () => {
      await debug.send("HeapProfiler.collectGarbage");
      return (await debug.send("Runtime.getHeapUsage")).usedSize;
    };
    work = await load(host, names, 200);
    await pause(5000);
    const before = await heap();
    await check(`50 servers, 1,000 tools, 200 calls a second, ${SECONDS} s: few elements, a small heap, short tasks`, async () => {
      let most = 0;
      const began = work.ended();
      const tasks = await traced(browser.chromium, page, async () => {
        for (let second = 0; second < SECONDS; second += 5) {
          await tab.go(["servers", "calls", "lines", "tools"][(second / 5) % 4]);
          await pause(5000);
          most = Math.max(most, await page.evaluate(() => document.getElementsByTagName("*").length));
        }
      });
      const calls = (work.ended() - began) / SECONDS;
      const grown = ((await heap()) - before) / 1024 / 1024;
      const p95 = tasks[Math.floor(tasks.length * 0.95)];
      const told = `${calls.toFixed(0)} calls/s, ${most} elements, heap ${grown.toFixed(1)} MiB more, ${tasks.length} tasks: p95 ${p95?.toFixed(1)} ms, the longest ${tasks.at(-1)?.toFixed(0)} ms`;
      holds(calls >= 150, `this machine makes too few calls: ${told}`);
      holds(most <= 5000, told);
      holds(grown <= 10, told);
      holds(tasks.length > 100 && p95 <= TASK, told);
      return told;
    });
    await check("under load the page asked nobody else, and broke no rule of its own", () => harmless(tab, host));
  } finally {
    await work?.stop();
    await tab.close();
    await host.stop();
    servers.stop();
  }
}
