// Reads what the test of the ledger prints (`tokens`, package, estimate, definition), and counts the tokens of each definition.
const fs = require("fs");
const { encode } = require("gpt-tokenizer/encoding/o200k_base");

const [found, write] = process.argv.slice(2);
const servers = new Map();
for (const line of fs.readFileSync(found, "utf8").split("\n")) {
  const [mark, name, estimate, text] = line.split("\t");
  if (mark !== "tokens") continue;
  const server = servers.get(name) ?? { tools: 0, estimated: 0, counted: 0 };
  server.tools += 1;
  server.estimated += Number(estimate);
  server.counted += encode(text).length;
  servers.set(name, server);
}
if (servers.size === 0) {
  console.error("tokens: nothing was recorded");
  process.exit(2);
}
const all = { tools: 0, estimated: 0, counted: 0 };
let [passed, failed] = [0, 0];
const row = (name, { tools, estimated, counted }, most) => {
  const off = (100 * estimated) / counted - 100;
  const holds = Math.abs(off) <= most;
  holds ? passed++ : failed++;
  const numbers = [tools, counted, estimated].map((number) => String(number).padStart(7)).join("");
  console.log(`${holds ? "ok  " : "FAIL"} ${name.padEnd(52)}${numbers} ${off.toFixed(1).padStart(6)} %`);
};
console.log(`     ${"server".padEnd(52)}${["tools", "o200k", "ledger"].map((head) => head.padStart(7)).join("")}`);
for (const [name, server] of [...servers].sort()) {
  for (const key of Object.keys(all)) all[key] += server[key];
  row(name, server, server.tools < 5 ? Infinity : 20);
}
row("all", all, 5);
if (write) {
  const lines = [...servers].sort().map(([name, { counted }]) => `${name}\t${counted}\n`);
  fs.writeFileSync(write, lines.join(""));
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
