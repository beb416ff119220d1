// Prints the checks in a results directory that failed or warned: `node failures.mjs DIR`.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

for (const scenario of readdirSync(process.argv[2])) {
  const checks = JSON.parse(readFileSync(join(process.argv[2], scenario, "checks.json"), "utf8"));
  for (const { status, id, errorMessage, description } of checks) {
    if (status === "FAILURE" || status === "WARNING") {
      console.log(`    ${status.toLowerCase()} ${scenario} ${id}: ${(errorMessage || description || "").slice(0, 200)}`);
    }
  }
}
