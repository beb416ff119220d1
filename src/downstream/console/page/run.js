// One call that the page makes: its arguments, its progress, its questions, and its result.
import { post, stream } from "./api.js";
import { Form } from "./form.js";
import { dim, h, mono, soft } from "./h.js";
import { button, copier, long, outcome } from "./parts.js";
import { news } from "./state.js";
import { bytes, flat, pretty, said, took, weight } from "./text.js";
import { address, attempt, focus, redraw, tell, ui } from "./ui.js";

/** How many log messages of a call are kept. */
const LOGS = 500;

/** The calls of this page, the newest first. @type {Run[]} */
export const runs = [];

export class Run {
  constructor(tool, given) {
    this.tool = tool;
    this.given = given;
    this.id = `${Date.now()}.${runs.length}`;
    this.began = Date.now();
    /** @type {string | undefined} */ this.server = undefined;
    /** @type {number | undefined} */ this.call = undefined;
    /** @type {any} */ this.progress = null;
    /** @type {any[]} */ this.logs = [];
    /** @type {Array<{ event: any, form: Form | null, isSent: boolean }>} */ this.questions = [];
    /** @type {any} */ this.end = null;
    this.isRaw = false;
    this.stop = new AbortController();
    runs.unshift(this);
    if (runs.length > 50) runs.pop();
    this.run();
  }

  async run() {
    try {
      await stream("POST", "call", { tool: this.tool.name, arguments: this.given }, this.stop.signal, (event) => this.on(event));
      if (!this.end) this.fail("the daemon ended the connection before the result");
    } catch (error) {
      const { message, help, word } = error;
      if (!this.end) this.fail(this.stop.signal.aborted ? "cancelled" : help ? `${message}. ${help}` : message, word);
    }
    this.questions = [];
    redraw();
  }

  fail(message, word) {
    this.end = { outcome: message === "cancelled" ? "cancelled" : "host_error", kind: word || undefined, ms: Date.now() - this.began, error: message === "cancelled" ? undefined : { message }, isOurs: true };
  }

  on(event) {
    switch (event.type) {
      case "begin":
        this.call = event.call;
        this.server = event.server;
        break;
      case "progress":
        this.progress = event;
        break;
      case "line":
        this.logs.push(event);
        if (this.logs.length > LOGS) this.logs.shift();
        break;
      case "question":
        this.ask(event);
        break;
      case "withdrawn":
        this.questions = this.questions.filter((each) => each.event.question !== event.question);
        break;
      case "end":
        this.end = event;
        news.push(`${this.tool.name} ended: ${event.outcome}.`);
        break;
    }
    redraw();
  }

  ask(event) {
    const schema = event.params?.requestedSchema;
    /** @type {{ event: any, form: Form | null, isSent: boolean }} */
    const question = { event, form: null, isSent: false };
    if (schema) question.form = new Form(schema, { isPrefilled: true, submit: () => this.answer(question, "accept") });
    this.questions.push(question);
    news.push(`${event.from === "host" ? "mcp-host" : event.server} asks a question.`);
    // A person who waits for the result goes on with the question; nothing is pressed for who types something else.
    const at = document.activeElement;
    if (!at || at === document.body || at.closest(".run")) focus(`[id="question${event.question}.${this.id}"]${question.form?.fields.length ? " :is(input, textarea, select)" : ""}`);
  }

  answer(question, action) {
    /** @type {any} */ let content;
    if (action === "accept" && question.form) {
      content = question.form.value();
      if (content === undefined) return question.form.showProblem();
    }
    question.isSent = true;
    return attempt(async () => {
      try {
        await post("answer", { call: this.call, question: question.event.question, action, ...(content !== undefined && { content }) });
        this.questions = this.questions.filter((each) => each !== question);
        focus(`[id="run.${this.id}"]`);
      } finally {
        question.isSent = false;
      }
    });
  }

  cancel() {
    if (this.call === undefined) this.stop.abort();
    else attempt(() => post("cancel", { call: this.call }));
  }

  view() {
    const { tool, end, progress } = this;
    const ms = end ? end.ms : ui.now - this.began;
    return h("section", { key: this.id, id: `run.${this.id}`, tabindex: "-1", class: `run ${end ? "" : "is-running"}`, "aria-label": `Call of ${flat(tool.name)}` },
      h("div", { class: "run-head" }, outcome(end ? end.outcome : "running", end?.kind), h("span", { class: "number soft" }, took(ms)),
        !end && button("Cancel", () => this.cancel(), { kind: "quiet" }), end?.result && dim(bytes(weight(end.result))),
        end?.result && button(this.isRaw ? "As text" : "As JSON", () => {
          this.isRaw = !this.isRaw;
          redraw();
        }, { kind: "quiet" }), end?.result && copier("Copy result", () => pretty(end.result), "The result")),
      progress && !end && this.bar(),
      this.questions.map((each) => this.question(each)),
      this.logs.length > 0 && h("details", { class: "logs" }, h("summary", null, `Log messages: ${this.logs.length}`),
        h("ol", { class: "plain-lines" }, this.logs.map((each, index) => h("li", { key: index }, dim(said(each.level), each.logger ? [" ", said(each.logger)] : null), " ",
          mono(said(typeof each.data === "string" ? each.data.slice(0, 4000) : JSON.stringify(each.data)?.slice(0, 4000))))))),
      end && this.result());
  }

  bar() {
    const { progress, total, message } = this.progress;
    const part = typeof total === "number" && total > 0 ? Math.max(0, Math.min(1, progress / total)) : undefined;
    return h("div", { class: "progress", key: "progress" },
      h("div", { class: `track ${part === undefined ? "is-unknown" : ""}`, role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": part === undefined ? undefined : Math.round(part * 100) },
        h("div", { class: "done", style: { width: part === undefined ? "30%" : `${part * 100}%` } })),
      h("span", { class: "number soft" }, total === undefined ? String(progress) : `${progress} of ${total}`), message && h("span", { class: "said-line" }, said(String(message).slice(0, 300))));
  }

  question(question) {
    const { event, form, isSent } = question;
    const isOurs = event.from === "host";
    const { message, url, mode } = event.params ?? {};
    const isLink = mode === "url" && typeof url === "string";
    return h("div", { key: `question ${event.question}`, id: `question${event.question}.${this.id}`, tabindex: "-1", class: `question ${isOurs ? "ours" : "theirs"}`, role: "group", "aria-label": `A question of ${isOurs ? "mcp-host" : flat(event.server)}` },
      h("p", { class: "asker" }, isOurs ? "mcp-host asks:" : [mono(said(event.server)), " asks you. mcp-host does not know what it does with the answer."]),
      message !== undefined && (isOurs ? h("p", null, said(message)) : h("blockquote", null, long(String(message), `question ${this.id} ${event.question}`))),
      isLink && link(url),
      form?.view(),
      !form && !isLink && event.method !== "elicitation/create" && h("details", null, h("summary", null, said(event.method)), long(pretty(event.params), `asked ${this.id} ${event.question}`)),
      h("div", { class: "buttons" },
        button(isLink ? "I have opened it" : form ? "Answer" : "Allow", () => this.answer(question, "accept"), { kind: "primary", disabled: isSent }),
        button("Decline", () => this.answer(question, "decline"), { disabled: isSent }),
        button("Cancel the question", () => this.answer(question, "cancel"), { kind: "quiet", disabled: isSent })));
  }

  result() {
    const { error, result, isOurs, kind } = this.end;
    if (error) {
      const ours = isOurs || kind !== undefined;
      return h("div", { class: `failure ${ours ? "ours" : "theirs"}` }, h("p", { class: "asker" }, ours ? "mcp-host says:" : [mono(said(this.server ?? "the server")), " answers with an error:"]),
        long(String(error.message ?? ""), `error ${this.id}`),
        kind === "auth_required" && this.server && h("p", null, h("a", { href: address("servers", this.server) }, "Sign in to it")),
      kind === "needs_approval" && h("p", null, h("a", { href: address("approve") }, "Look at what changed")),
      error.code !== undefined && soft(`code ${error.code}`), error.data !== undefined && long(pretty(error.data), `data ${this.id}`));
    }
    if (!result) return soft("No result.");
    if (this.isRaw) return h("div", { class: "result" }, long(pretty(result), `raw ${this.id}`));
    const content = Array.isArray(result.content) ? result.content : [];
    const texts = content.map((each, index) => block(each, `${this.id} ${index}`, index));
    const isRepeated = content.length === 1 && content[0]?.type === "text" && sameJson(content[0].text, result.structuredContent);
    return h("div", { class: `result ${result.isError ? "failure" : ""}` }, isRepeated ? null : texts,
      result.structuredContent !== undefined && h("div", { key: "structured" }, h("p", { class: "caption" }, "structured content"), long(pretty(result.structuredContent), `structured ${this.id}`)),
      content.length === 0 && result.structuredContent === undefined && soft("The result is empty."));
  }
}

function sameJson(text, value) {
  if (value === undefined || typeof text !== "string" || text.length > 1_000_000) return false;
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
  } catch {
    return false;
  }
}

/** A link of others: its host is shown, and nothing opens by itself. */
function link(url) {
  const parsed = URL.parse(url);
  const isLink = parsed && /^https?:$/.test(parsed.protocol);
  return h("p", { class: "leave" }, isLink ? [h("a", { href: parsed.href, target: "_blank", rel: "noopener noreferrer" }, "Open the page of ", h("strong", null, said(parsed.host))), h("br", null)] : "not a link: ", mono(said(url.slice(0, 2000))));
}

/** One piece of content. @param {any} each */
function block(each, key, index) {
  const caption = (text) => h("p", { class: "caption" }, text);
  switch (each?.type) {
    case "text":
      return h("div", { key: index }, long(String(each.text ?? ""), key));
    case "image":
    case "audio": {
      const size = Math.floor((String(each.data ?? "").length * 3) / 4);
      return h("div", { key: index }, caption([each.type, " ", said(each.mimeType), ", ", bytes(size), ". The page shows no pictures of others. "]), copier("Copy as Base64", () => String(each.data ?? ""), "The data"));
    }
    case "resource_link":
      return h("div", { key: index }, caption(["resource ", said(each.name)]), mono(said(String(each.uri ?? "").slice(0, 2000))));
    case "resource":
      return h("div", { key: index }, caption(["resource ", said(String(each.resource?.uri ?? "").slice(0, 2000))]), typeof each.resource?.text === "string" ? long(each.resource.text, key) : soft(bytes(Math.floor((String(each.resource?.blob ?? "").length * 3) / 4))));
    default:
      return h("div", { key: index }, long(pretty(each), key));
  }
}

/** Calls of this page that wait for an answer. */
export const asking = () => runs.filter((run) => run.questions.length > 0);

export function call(tool, given) {
  const run = new Run(tool, given);
  tell("");
  focus(`[id="run.${run.id}"]`);
  return run;
}
