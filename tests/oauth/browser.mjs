// A user with a browser: headless Chromium on the login pages of the issuer. Each user has a profile of their own.
import { chromium } from "playwright-core";

export class Browser {
  static async start(executablePath) {
    const browser = new Browser();
    // Without a sandbox of its own it runs as root, too; all it sees is loopback.
    browser.chromium = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
    browser.users = new Map();
    return browser;
  }

  // Opens a page, signs in as that user and agrees, until the browser is sent back to `end`; the URL that it ends at.
  async signIn(page, user, end) {
    if (!this.users.has(user)) this.users.set(user, await this.chromium.newContext());
    const tab = await this.users.get(user).newPage();
    let last;
    tab.on("request", (request) => {
      if (request.isNavigationRequest() && request.url().startsWith(end)) last = request.url();
    });
    try {
      await tab.goto(page).catch((error) => {
        if (!last) throw error; // nobody may be there where it is sent back to
      });
      for (let step = 0; step < 5 && !last; step += 1) {
        const name = tab.locator("input[name=login]");
        if (await name.count()) {
          await name.fill(user);
          await tab.locator("input[name=password]").fill("a password");
        }
        await tab.locator("button[type=submit]").click({ timeout: 10_000 }).catch((error) => {
          if (!last) throw error;
        });
        await tab.waitForLoadState().catch(() => {});
      }
      if (!last) throw new Error(`the browser ended at ${tab.url()}`);
      return last;
    } finally {
      await tab.close();
    }
  }

  stop() {
    return this.chromium.close();
  }
}
