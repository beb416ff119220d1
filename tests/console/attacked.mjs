// A server whose every text is an attack: names, descriptions, results, lines, questions change text nodes only.
import { ATTACKS } from "./attacks.mjs";
import { skeleton } from "./browser.mjs";
import { evil } from "./world.mjs";

export async function attacked({ check, same, holds, harmless }, browser, program) {
  const host = program("attacked", evil);
  await host.serve();
  const tab = await browser.tab();
  const { page } = tab;
  try {
    await host.settled();
    await tab.open(await host.link());
    const shape = (selector) => page.$eval(selector, skeleton);
    const called = async (name) => {
      await tab.go("tools", name);
      await page.click(".raw summary");
      const before = await shape(".caller");
      await page.click("form.panel button[type=submit]");
      await page.waitForSelector(".run .result");
      return { before, after: await shape(".caller"), text: await page.textContent(".run .result") };
    };
    const plain = await called("evil__plain");
    await check(`${ATTACKS.length} attacks in definitions and results change text nodes only`, async () => {
      for (const [index, attack] of ATTACKS.entries()) {
        const found = await called(`evil__attack_${index}`);
        same(found.before, plain.before, `the definition ${index}`);
        same(found.after, plain.after, `the result ${index}`);
        const words = attack.match(/[a-z]{4,}/i)?.[0] ?? "";
        holds(found.text.includes(words), `the words of ${index} are shown: ${found.text.slice(0, 200)}`);
      }
      return ATTACKS.length;
    });
    await check("characters that cannot be seen have their names", async () => {
      await tab.go("tools", `evil__attack_${ATTACKS.findIndex((text) => text.includes("\u202e"))}`);
      const marks = await page.$$eval(".result .unseen", (all) => all.map((mark) => mark.textContent));
      for (const name of ["U+202E", "U+202C", "U+2066", "U+200E U+200F"]) holds(marks.includes(name), `${name} of ${marks}`);
    });
    await check("attacks in questions change text nodes only, and the server is named above them", async () => {
      await tab.go("tools", "evil__wonder");
      const asked = async (index) => {
        await page.fill("form.panel input", index === undefined ? "" : String(index));
        await page.click("form.panel button[type=submit]");
        await page.waitForSelector(".question");
        const found = await shape(".question");
        same(await page.textContent(".question .asker code"), "evil", "who asks");
        await page.click(".question >> text=Decline");
        await page.waitForSelector(".question", { state: "detached" });
        return found;
      };
      const plain = await asked();
      for (const index of ATTACKS.keys()) same(await asked(index), plain, `the question ${index}`);
    });
    await check("attacks in lines change text nodes only", async () => {
      await tab.go("tools", "evil__mutter");
      await page.click("form.panel button[type=submit]");
      await page.waitForSelector(".run .result");
      const logs = await page.$$eval(".run .logs li", (all) => all.length);
      holds(logs >= ATTACKS.length, `${logs} log messages`);
      await tab.go("lines");
      await page.selectOption(".choice:has-text('Source') select", "stderr");
      await page.waitForFunction(() => document.querySelectorAll(".one-line").length >= 20);
      const shapes = new Set();
      for (const each of await page.$$(".one-line")) shapes.add(await each.evaluate(skeleton));
      same(shapes.size, 1, `shapes of lines: ${[...shapes].join("\n")}`);
    });
    await check("a result of 5 MB is shown by steps", async () => {
      await tab.go("tools", "evil__huge");
      await page.click("form.panel button[type=submit]");
      await page.waitForSelector(".run .result .more", { timeout: 30_000 });
      const count = await page.evaluate(() => document.getElementsByTagName("*").length);
      const length = await page.$eval(".run .result pre", (pre) => pre.textContent.length);
      holds(count < 5000 && length < 200_000, `${count} elements, ${length} characters`);
      return `${count} elements`;
    });
    await check("of all that, nothing was asked elsewhere, nothing ran, nothing was reported", () => harmless(tab, host));
  } finally {
    await tab.close();
    await host.stop();
  }
}
