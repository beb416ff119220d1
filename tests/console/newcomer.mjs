// A newcomer with a keyboard: sees the two servers of the demo, calls a tool by its form, answers its question, sees the calls.
export async function newcomer({ check, same, holds, harmless }, browser, program) {
  const demo = await program("newcomer").serve();
  const tab = await browser.tab();
  const { page } = tab;
  const focused = () => page.evaluate(() => `${document.activeElement?.localName} ${document.activeElement?.id ?? ""}`);
  const began = Date.now();
  try {
    await check("a newcomer opens the page and sees both servers of the demo", async () => {
      await demo.settled();
      await tab.open(await demo.link());
      holds(!page.url().includes("#k="), `the code is still in the address: ${page.url()}`);
      await page.waitForFunction(() => document.querySelectorAll("tr.row .mark.ok").length === 2);
      const rows = await page.$$eval("tr.row", (all) => all.map((row) => [row.querySelector("code").textContent, row.querySelector(".mark").textContent]).sort());
      same(rows, [["clock", "connected"], ["echo", "connected"]], "rows");
    });
    await check("by the keyboard: finds a tool, opens it, fills in its form, and calls it", async () => {
      await page.keyboard.press("g");
      await page.keyboard.press("t");
      await page.waitForSelector(".tool-row");
      await page.keyboard.press("/");
      await page.keyboard.type("echo text");
      await page.waitForFunction(() => document.querySelectorAll(".tool-row").length === 1);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.matches(".tool-row"));
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.matches("form.panel textarea"), undefined, { timeout: 5000 });
      await page.keyboard.press("Enter");
      await page.waitForSelector(".problem");
      same(await page.textContent(".problem"), "needed", "a field that is missing");
      await page.keyboard.type("hello there");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".run .result");
      same(await page.textContent(".run .result pre"), "hello there", "the result");
    });
    await check("by the keyboard: a tool asks, the question has the focus, its answer reaches the server", async () => {
      await page.keyboard.press("/");
      await page.keyboard.press("Control+A");
      await page.keyboard.type("echo__ask");
      await page.waitForFunction(() => document.querySelector(".tool-row code")?.textContent === "echo__ask");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.matches(".tool-row"));
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.matches("form.panel button"));
      await page.keyboard.press("Enter");
      await page.waitForSelector(".question");
      same(await page.textContent(".question .asker"), "echo asks you. mcp-host does not know what it does with the answer.", "who asks");
      await page.waitForFunction(() => document.activeElement?.matches(".question textarea"), undefined, { timeout: 5000 });
      await page.keyboard.press("Enter");
      await page.waitForSelector(".question .problem");
      await page.keyboard.type("Ada");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".run .result");
      same(await page.textContent(".run .result pre"), "Hello Ada, green suits you.", "the result");
    });
    await check("by the keyboard: sees the progress of a call, and cancels it", async () => {
      await page.keyboard.press("/");
      await page.keyboard.press("Control+A");
      await page.keyboard.type("countdown");
      await page.waitForFunction(() => document.querySelector(".tool-row code")?.textContent === "echo__countdown");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.matches(".tool-row"));
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.activeElement?.matches("form.panel input"));
      await page.keyboard.type("61");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".problem");
      same(await page.textContent(".problem"), "at most 60", "a number that is too large");
      await page.keyboard.press("Control+A");
      await page.keyboard.type("60");
      await page.keyboard.press("Enter");
      await page.waitForSelector("[role=progressbar]");
      await page.waitForFunction(() => document.activeElement?.matches(".run"));
      await page.keyboard.press("Tab");
      holds((await focused()).startsWith("button"), `the focus is on ${await focused()}`);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelector(".run .mark")?.textContent === "cancelled");
    });
    await check("by the keyboard: sees the calls that it made", async () => {
      await page.keyboard.press("g");
      await page.keyboard.press("c");
      await page.waitForFunction(() => document.querySelectorAll("table.calls tbody tr:not(.is-running) .call").length === 3);
      const calls = await page.$$eval("table.calls tbody tr", (all) => all.map((row) => [row.querySelector(".call .of")?.textContent, row.querySelector(".call code")?.textContent, row.querySelector(".mark")?.textContent]));
      same(calls, [["echo", "countdown", "cancelled"], ["echo", "ask", "ok"], ["echo", "echo", "ok"]], "calls");
      return `${Math.round((Date.now() - began) / 1000)} s from the first page`;
    });
    await check("by the keyboard: help opens, keeps the focus, and closes; Escape leaves a server", async () => {
      await page.keyboard.press("?");
      await page.waitForSelector("[role=dialog]");
      for (const _ of [1, 2, 3]) {
        await page.keyboard.press("Tab");
        holds(await page.evaluate(() => document.activeElement.closest("[role=dialog]") !== null), "the focus left the dialog");
      }
      await page.keyboard.press("Escape");
      await page.waitForSelector("[role=dialog]", { state: "detached" });
      await page.keyboard.press("g");
      await page.keyboard.press("s");
      await page.waitForSelector("tr.row");
      await page.keyboard.press("j");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".detail");
      await page.keyboard.press("Escape");
      await page.waitForSelector(".detail", { state: "detached" });
    });
    await check("the page asked nobody else, and broke no rule of its own", () => harmless(tab, demo));
    await check("when the daemon ends, the page says so; when another one runs, it asks for a new link", async () => {
      const { port } = demo;
      await demo.stop();
      // While the daemon ends, the page may say that it is stopping.
      await page.waitForSelector('.gone:has-text("Not running since")');
      holds(/^Not running since \d\d:\d\d\. mcp-host serve/.test(await page.textContent(".gone")), await page.textContent(".gone"));
      holds((await page.$$eval("tr.row", (all) => all.length)) === 2, "the servers are still shown, greyed");
      await demo.serve(port);
      await page.waitForSelector(".closed");
      holds((await page.textContent(".closed")).includes("mcp-host open"), "the command");
    });
  } finally {
    await tab.close();
    await demo.stop();
  }
}
