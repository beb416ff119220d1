// Headless Chromium, and what it did: requests, messages, dialogs, reports of the content policy.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const VIEWS = ["servers", "tools", "calls", "lines", "approve", "config", "connect"];

export class Browser {
  static async start(executablePath, more = []) {
    const browser = new Browser();
    // Without its sandbox it also runs as root; it sees only loopback.
    const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--js-flags=--expose-gc", ...more];
    browser.chromium = await chromium.launch({ executablePath, args });
    return browser;
  }

  // A tab with a profile of its own.
  async tab(options = {}) {
    const context = await this.chromium.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", ...options });
    return Tab.in(context);
  }

  stop() {
    return this.chromium.close();
  }
}

export class Tab {
  requests = [];
  wrong = [];

  static async in(context) {
    const tab = new Tab();
    tab.context = context;
    const page = (tab.page = await context.newPage());
    page.on("request", (request) => tab.requests.push(request.url()));
    page.on("pageerror", (error) => tab.wrong.push(`error: ${error.stack ?? error}`));
    page.on("dialog", (dialog) => {
      tab.wrong.push(`dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    page.on("console", (message) => {
      const text = message.text();
      if (/Content Security Policy|TrustedScript|Refused to/i.test(text)) tab.wrong.push(`console: ${text}`);
    });
    await page.addInitScript(() => {
      window.reports = [];
      addEventListener("securitypolicyviolation", (event) => window.reports.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    return tab;
  }

  // Opens the page by a link, and waits for what it knows.
  async open(link) {
    await this.page.goto(link);
    await this.page.waitForSelector("nav.views");
    await this.page.waitForSelector(".content :is(table, .empty, .split, .narrow-page, .fill)");
    return this;
  }

  // Goes to a view, or to an item of it.
  async go(view, item) {
    await this.page.evaluate((hash) => (location.hash = hash), `#${view}${item === undefined ? "" : `/${encodeURIComponent(item)}`}`);
    await this.page.waitForSelector(`.content.${view}`);
    if (item !== undefined) await this.page.waitForSelector(view === "tools" ? ".caller" : ".detail");
  }

  // What axe-core finds, a line for each rule. It is run by the debugger, past the content policy.
  async axe() {
    const session = await this.context.newCDPSession(this.page);
    const expression = `${AXE}; axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(" | ")))`;
    const { result, exceptionDetails } = await session.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    await session.detach();
    if (exceptionDetails) throw new Error(`axe-core: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  reports() {
    return this.page.evaluate(() => window.reports);
  }

  sideways() {
    return this.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  }

  close() {
    return this.context.close();
  }
}

// The elements and the names of their attributes, without texts. The marks that stand for characters that cannot be seen are
// texts, too.
export const skeleton = (root) => {
  const walk = (element) => {
    if (element.matches(".unseen")) return "";
    const names = element.getAttributeNames().sort().join(",");
    return `<${element.localName} ${names}>${[...element.children].map(walk).join("")}</>`;
  };
  return walk(root);
};
