// What it costs in memory that somebody can look: an open page, and all that is remembered with fifty servers.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Program } from "./program.mjs";
import { load } from "./world.mjs";

const [binary, scratch] = process.argv.slice(2);
// What may be added, in MiB: by a page that is open, and by all that is remembered.
const PAGE = 1;
const FULL = 20;
const SERVERS = 50;
let failed = 0;

function told(holds, text) {
  if (!holds) failed += 1;
  console.log(`${holds ? "ok  " : "FAIL"} ${text}`);
}

// What the daemon has written and holds, in MiB. Its code is not in it: the program gives that up when it is quiet.
function written({ daemon }) {
  const status = readFileSync(`/proc/${daemon.child.pid}/status`, "utf8");
  return Number(/RssAnon:\s+(\d+) kB/.exec(status)[1]) / 1024;
}

// Waits until the daemon has given back what it can, and returns what it holds then.
async function settled(host) {
  let [last, same] = [written(host), 0];
  for (let second = 0; second < 90 && same < 35; second += 1) {
    await pause(1000);
    const now = written(host);
    same = Math.abs(now - last) < 0.05 ? same + 1 : 0;
    last = now;
  }
  return last;
}

// Opens the page as a browser does: a session, the feed with everything, the tools.
async function page(host, query) {
  const [, code] = (await host.link()).split("#k=");
  const headers = { Origin: host.origin, "Content-Type": "application/json" };
  const begun = await fetch(`${host.origin}/console/session`, { method: "POST", headers, body: JSON.stringify({ code }) });
  const { token } = await begun.json();
  const authorization = { Authorization: `Bearer ${token}` };
  await (await fetch(`${host.origin}/console/tools`, { headers: authorization })).text();
  const feed = await fetch(`${host.origin}/console/feed${query}`, { headers: authorization });
  const reader = feed.body.getReader();
  void (async () => {
    while (!(await reader.read().catch(() => ({ done: true }))).done);
  })();
  return { close: () => reader.cancel().catch(() => {}) };
}

const servers = (script) => ({
  mcpServers: Object.fromEntries(Array.from({ length: SERVERS }, (_, at) => [`s${at}`, { command: "/bin/sh", args: ["-c", `${script}exec "$0" __demo-server`, binary] }])),
});

async function begun(name, config) {
  const host = new Program(binary, join(scratch, name), config);
  await host.serve();
  await host.settled();
  return host;
}

const quiet = await begun("quiet", servers(""));
const before = await settled(quiet);
const open = await page(quiet, "?past=200");
const opened = await settled(quiet);
told(opened - before <= PAGE, `an open page adds ${(opened - before).toFixed(1)} MiB to ${before.toFixed(1)} (${PAGE} at most)`);
await open.close();
await quiet.stop();

// 400 kB of each server: more than is kept of one, and more than is kept of all.
const loud = await begun("loud", servers("head -c 400000 /dev/zero | tr '\\0' x | fold -w 250 >&2; "));
const watched = await page(loud, "?past=10000&arguments=masked");
const work = await load(loud, Array.from({ length: SERVERS }, (_, at) => `s${at}__echo`), 200);
// Two calls of fifty in a second have two events each, and a hundred lines of a server have one: all 4,096 are taken.
await pause(45000);
await work.stop();
const full = await settled(loud);
told(full - before <= FULL, `full rings of ${SERVERS} servers add ${(full - before).toFixed(1)} MiB to ${before.toFixed(1)} (${FULL} at most)`);
await watched.close();
await loud.stop();
process.exit(failed === 0 ? 0 : 1);
