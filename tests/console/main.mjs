// Runs the checks in order: types, a newcomer by keyboard alone, every view, attacks of a server, who gets in.
import { execFileSync } from "node:child_process";
import { cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { access } from "./access.mjs";
import { attacked } from "./attacked.mjs";
import { Browser, VIEWS } from "./browser.mjs";
import { loaded } from "./loaded.mjs";
import { newcomer } from "./newcomer.mjs";
import { odd } from "./odd.mjs";
import { Program } from "./program.mjs";
import { views } from "./views.mjs";
import { decided } from "./waiting.mjs";

const [binary, chromium, scratch, ...more] = process.argv.slice(2);
const isWhole = more.includes("--whole");
let passed = 0;
let failed = 0;

async function check(name, body) {
  try {
    const told = await body();
    passed += 1;
    console.log(`ok   ${name}${typeof told === "string" ? `: ${told}` : ""}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${String(error?.stack ?? error).split(/\s+/).join(" ").slice(0, 1500)}`);
  }
}

function same(got, want, what) {
  const [left, right] = [got, want].map((value) => JSON.stringify(value));
  if (left !== right) throw new Error(`${what}: ${left} instead of ${right}`);
}

function holds(condition, what) {
  if (!condition) throw new Error(what);
}

// What a tab must not have done.
async function harmless(tab, program) {
  const elsewhere = tab.requests.filter((url) => !url.startsWith(`${program.origin}/`));
  same(elsewhere, [], "requests elsewhere");
  same(await tab.reports(), [], "reports of the content policy");
  same(tab.wrong, [], "errors, dialogs, refusals");
}

const tools = { check, same, holds, harmless, isWhole, views: VIEWS };
const program = (name, config) => new Program(binary, join(scratch, name), config?.({ binary, here: scratch }));

await check("the scripts of the page have the types that they say", async () => {
  const root = process.env.MCP_HOST_ROOT;
  const tsc = join(scratch, "node_modules/.bin/tsc");
  try {
    execFileSync(tsc, ["-p", join(root, "tests/console/types.json")], { encoding: "utf8" });
  } catch (error) {
    throw new Error(error.stdout || error.message);
  }
});

// Beside a package.json that says so, the scripts are modules for Node, too.
const page = join(scratch, "page");
cpSync(join(process.env.MCP_HOST_ROOT, "src/downstream/console/page"), page, { recursive: true });
writeFileSync(join(page, "package.json"), '{ "type": "module" }');
await odd(tools, page);

const browser = await Browser.start(chromium, ["--host-resolver-rules=MAP rebound.test 127.0.0.1"]);
try {
  await newcomer(tools, browser, program);
  await views(tools, browser, program);
  await decided(tools, browser, program);
  await attacked(tools, browser, program);
  await access(tools, browser, program);
  if (isWhole) await loaded(tools, browser, program);
} finally {
  await browser.stop();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
