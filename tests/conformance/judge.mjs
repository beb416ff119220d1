// Judges one run by the files that the suite wrote: `node judge.mjs DIR COUNT RUN WARNINGS`.
//
// DIR has a directory with a `checks.json` for each scenario, COUNT is their expected number. Prints `P/T`, then everything
// that is wrong; ends with 1 if anything is. Checks that `expected` (beside this file) lists for RUN must fail, all others must
// not. If WARNINGS is `count`, a warning is a failure, as for clients. A scenario without a single check counts as failed,
// unless `expected` has `nothing` for it. CONFORMANCE_VERBOSE=1 shows every check that failed or warned.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [directory, count, run, warnings] = process.argv.slice(2);
const expected = new Map();
for (const line of readFileSync(new URL("expected", import.meta.url), "utf8").split("\n")) {
  const [of, scenario, check] = line.split("#")[0].split(/\s+/);
  if (check && new RegExp(`^${of.replaceAll("*", ".*")}$`).test(run)) expected.set(`${scenario} ${check}`, false);
}

const bad = [];
let passed = 0;
// `auth/NAME` is in a directory of its group.
const scenarios = readdirSync(directory).flatMap((name) => {
  const inside = readdirSync(join(directory, name), { withFileTypes: true });
  const isGroup = inside.length > 0 && inside.every((entry) => entry.isDirectory());
  return isGroup ? inside.map((entry) => join(name, entry.name)) : [name];
});
for (const name of scenarios) {
  const scenario = name.replace(/^server-(?=.*-\d{4}-)/, "").replace(/-\d{4}-\d\d-\d\dT[\dZ-]+$/, "");
  const file = join(directory, name, "checks.json");
  const checks = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : [];
  const shown = checks.filter(({ status }) => status !== "INFO" && status !== "SKIPPED");
  const failed = shown.filter(({ status }) => status === "FAILURE" || (status === "WARNING" && warnings === "count"));
  const surprising = failed.filter(({ id }) => {
    const known = expected.has(`${scenario} ${id}`);
    if (known) expected.set(`${scenario} ${id}`, true);
    return !known;
  });
  if (failed.length === 0 && shown.length > 0) passed++;
  if (shown.length === 0) {
    if (expected.has(`${scenario} nothing`)) expected.set(`${scenario} nothing`, true);
    else bad.push(`${scenario} (nothing was checked)`);
  }
  if (surprising.length > 0) bad.push(`${scenario} (${[...new Set(surprising.map(({ id }) => id))].join(", ")})`);
  if (process.env.CONFORMANCE_VERBOSE === "1") {
    for (const { status, id, errorMessage, description } of checks) {
      if (status === "FAILURE" || status === "WARNING") {
        console.error(`    ${status.toLowerCase()} ${scenario} ${id}: ${(errorMessage || description || "").slice(0, 200)}`);
      }
    }
  }
}
for (const [check, seen] of expected) if (!seen) bad.push(`${check} (expected to fail, but passed)`);
if (scenarios.length !== Number(count)) bad.push(`${scenarios.length} scenarios instead of ${count}`);
const known = [...expected.values()].filter(Boolean).length;
const note = known > 0 ? `, ${known} checks fail as expected` : "";
console.log(`${passed}/${scenarios.length}${note}${bad.length > 0 ? `, wrong: ${bad.join("; ")}` : ""}`);
process.exit(bad.length > 0 ? 1 : 0);
