// A user with a browser: headless Chromium on the issuer's login pages. Each user has a profile.
import { chromium } from "playwright-core";

export class Browser {
  static async start(executablePath) {
    const browser = new Browser();
    // Without its sandbox it also runs as root; it sees only loopback.
    browser.chromium = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
    browser.users = new Map();
    return browser;
  }

  async #tab(user) {
    if (!this.users.has(user)) this.users.set(user, await this.chromium.newContext());
    return this.users.get(user).newPage();
  }

  // Enters the user's name, if the page asks for it.
  async #fill(tab, user) {
    const name = tab.locator("input[name=login]");
    if (await name.count()) {
      await name.fill(user);
      await tab.locator("input[name=password]").fill("a password");
    }
  }

  // Enters a code at the page for codes, compares the code shown, signs in as that user and consents.
  async enterCode(page, code, user) {
    const tab = await this.#tab(user);
    try {
      await tab.goto(page);
      await tab.locator("input[name=user_code]").fill(code);
      let compared = false;
      for (let step = 0; step < 6; step += 1) {
        await this.#fill(tab, user);
        await tab.locator("button[type=submit]").first().click({ timeout: 10_000 });
        await tab.waitForLoadState();
        if (await tab.getByText("Sign-in Success").count()) {
          if (!compared) throw new Error("no page showed the code again");
          return;
        }
        const shown = tab.locator("code");
        if (await shown.count()) compared = (await shown.textContent()).trim() === code;
      }
      throw new Error(`the browser ended at ${tab.url()}`);
    } finally {
      await tab.close();
    }
  }

  // Opens a page, signs in as that user and consents, until the browser is redirected to `end`; returns the final URL.
  async signIn(page, user, end) {
    const tab = await this.#tab(user);
    let last;
    tab.on("request", (request) => {
      if (request.isNavigationRequest() && request.url().startsWith(end)) last = request.url();
    });
    try {
      await tab.goto(page).catch((error) => {
        if (!last) throw error; // nothing may listen at the redirect URL
      });
      for (let step = 0; step < 5 && !last; step += 1) {
        await this.#fill(tab, user);
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
