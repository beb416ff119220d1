// A form for the arguments of a tool or the answer to a question, made of a schema.
/** @import { Field, Shape, Texts } from "./schema.js" */
import { h, mono } from "./h.js";
import { branchTitle, defaults, fill, limits, resolved, shape, under, value } from "./schema.js";
import { flat, line, pretty, said } from "./text.js";
import { button } from "./parts.js";
import { focus, redraw } from "./ui.js";

let count = 0;

export class Form {
  /**
   * @param {any} schema @param {{ isPrefilled?: boolean, submit: () => void }} more
   */
  constructor(schema, { isPrefilled = false, submit }) {
    count += 1;
    this.id = `form${count}`;
    this.schema = schema;
    this.submit = submit;
    /** @type {Texts} */ this.drafts = new Map();
    /** @type {Texts} */ this.problems = new Map();
    this.isJson = shape(schema, schema).kind !== "object";
    this.text = "{}";
    if (isPrefilled) fill(schema, schema, defaults(schema, schema), this.drafts);
  }

  get fields() {
    return shape(this.schema, this.schema).fields ?? [];
  }

  /** Returns the value; `undefined`, with the problems noted, if it is not valid. */
  value() {
    this.problems.clear();
    if (this.isJson) {
      try {
        const given = JSON.parse(this.text.trim() || "{}");
        if (typeof given === "object" && given !== null && !Array.isArray(given)) return given;
        this.problems.set("", "not a JSON object");
      } catch (error) {
        this.problems.set("", `not JSON: ${/** @type {Error} */ (error).message}`);
      }
      return undefined;
    }
    const given = value(this.schema, this.schema, this.drafts, this.problems);
    return this.problems.size === 0 ? given : undefined;
  }

  /** The value as far as it is valid, for copies. */
  draft() {
    const given = this.value() ?? value(this.schema, this.schema, this.drafts, new Map()) ?? {};
    this.problems.clear();
    return given;
  }

  toJson() {
    this.text = pretty(this.draft());
    this.isJson = true;
    this.problems.clear();
    redraw();
  }

  toFields() {
    const given = this.value();
    if (given !== undefined) {
      this.drafts.clear();
      fill(this.schema, this.schema, given, this.drafts);
      this.isJson = false;
    }
    redraw();
  }

  /** Puts the focus on the first field that is wrong. */
  showProblem() {
    redraw();
    focus(`[data-form="${this.id}"] [aria-invalid="true"]`);
  }

  view() {
    const onkeydown = (/** @type {KeyboardEvent} */ event) => {
      const { target } = event;
      if (event.key !== "Enter" || event.isComposing || event.shiftKey) return;
      const isText = target instanceof HTMLInputElement || (target instanceof HTMLTextAreaElement && (target.dataset.kind === "text" || event.ctrlKey || event.metaKey));
      if (!isText) return;
      event.preventDefault();
      this.submit();
    };
    return h("div", { class: "form", "data-form": this.id, onkeydown },
      this.isJson ? this.json("", "arguments as JSON", this.text, (text) => (this.text = text)) : this.fields.map((each) => this.field(each, "", 1)));
  }

  name(pointer) {
    return `${this.id}${encodeURIComponent(pointer).replace(/%/g, ".")}`;
  }

  set(pointer, text) {
    if (text === "") this.drafts.delete(pointer);
    else this.drafts.set(pointer, text);
    this.problems.delete(pointer);
    redraw();
  }

  /** @param {Field} field @param {string} parent @param {number} depth @returns {any} */
  field({ name, schema, isNeeded }, parent, depth) {
    const pointer = under(parent, name);
    const of = shape(schema, this.schema, depth);
    const title = of.schema.title && of.schema.title !== name ? [line(of.schema.title, 80), " ", h("code", { class: "soft" }, said(name))] : mono(said(name));
    const label = [title, isNeeded ? h("span", { class: "needed" }, "needed") : null];
    const about = this.about(of, pointer);
    if (["object", "many", "list", "branch"].includes(of.kind)) {
      return h("fieldset", { key: pointer, class: "group", "aria-describedby": `${this.name(pointer)}.about` }, h("legend", null, label), about, this.inside(of, pointer, depth), this.problem(pointer));
    }
    return h("div", { key: pointer, class: "field" }, h("label", { for: this.name(pointer) }, label), this.input(of, pointer, isNeeded), about, this.problem(pointer));
  }

  /** @param {Shape} of */
  about(of, pointer) {
    const description = typeof of.schema.description === "string" ? of.schema.description : "";
    return h("p", { class: "about", id: `${this.name(pointer)}.about` }, said(limits(of)), description && " · ", said(description.slice(0, 2000)));
  }

  problem(pointer) {
    const problem = this.problems.get(pointer);
    return problem && h("p", { class: "problem", id: `${this.name(pointer)}.problem` }, problem);
  }

  naming(pointer, isNeeded = false) {
    const isWrong = this.problems.has(pointer);
    const about = `${this.name(pointer)}.about${isWrong ? ` ${this.name(pointer)}.problem` : ""}`;
    return { id: this.name(pointer), "aria-describedby": about, "aria-invalid": isWrong ? "true" : undefined, "aria-required": isNeeded ? "true" : undefined };
  }

  /** @param {Shape} of */
  input(of, pointer, isNeeded) {
    const draft = this.drafts.get(pointer) ?? "";
    const names = this.naming(pointer, isNeeded);
    const onchange = (event) => this.set(pointer, event.target.value);
    const hint = of.schema.default === undefined ? undefined : flat(typeof of.schema.default === "object" ? JSON.stringify(of.schema.default) : of.schema.default, 100);
    switch (of.kind) {
      case "const":
        return h("output", names, said(JSON.stringify(of.schema.const)));
      case "boolean":
      case "choice": {
        const options = of.kind === "choice" ? (of.options ?? []).map((option, index) => [String(index), option.title]) : [["true", "true"], ["false", "false"]];
        const none = hint !== undefined ? `default: ${hint}` : isNeeded ? "choose one" : "leave out";
        return h("select", { ...names, value: draft, onchange }, h("option", { value: "", key: "" }, none), options.map(([option, text]) => h("option", { value: option, key: option }, flat(text, 100))));
      }
      case "json":
        return h("textarea", { ...names, class: "code", rows: 4, value: draft, spellcheck: "false", oninput: onchange, placeholder: hint });
      case "text": {
        const isShort = of.schema.format !== undefined || of.schema.maxLength <= 100;
        if (isShort) return h("input", { ...names, type: "text", value: draft, autocomplete: "off", spellcheck: "false", oninput: onchange, placeholder: hint });
        return h("textarea", { ...names, rows: 1, "data-kind": "text", value: draft, spellcheck: "false", oninput: onchange, placeholder: hint });
      }
      default:
        return h("input", { ...names, type: "text", inputmode: of.kind === "integer" ? "numeric" : "decimal", class: "short", value: draft, autocomplete: "off", oninput: onchange, placeholder: hint });
    }
  }

  /** @param {Shape} of @param {string} pointer @param {number} depth @returns {any} */
  inside(of, pointer, depth) {
    if (of.kind === "object") return (of.fields ?? []).map((each) => this.field(each, pointer, depth + 1));
    if (of.kind === "many") {
      return h("div", { class: "checks" }, (of.options ?? []).map((option, index) => h("label", { class: "toggle", key: index }, h("input", {
        type: "checkbox", checked: this.drafts.get(under(pointer, index)) === "on", onchange: (event) => this.set(under(pointer, index), event.target.checked ? "on" : ""),
      }), h("span", null, line(option.title, 100)))));
    }
    if (of.kind === "list") return this.list(of, pointer);
    const draft = this.drafts.get(pointer) ?? "";
    const branches = of.branches ?? [];
    const chosen = draft === "" ? undefined : resolved(branches[Number(draft)], this.schema);
    const inner = under(pointer, `:${draft}`);
    const kind = chosen && shape(chosen, this.schema, depth + 1);
    return [
      h("select", { ...this.naming(pointer), "aria-label": "Form", value: draft, onchange: (event) => this.set(pointer, event.target.value) },
        h("option", { value: "", key: "" }, "leave out"), branches.map((branch, index) => h("option", { value: String(index), key: index }, flat(branchTitle(branch, index), 100)))),
      kind && (kind.kind === "object" ? this.inside(kind, inner, depth + 1) : ["many", "list", "branch"].includes(kind.kind) ? this.inside(kind, inner, depth + 1)
        : h("div", { class: "field" }, h("label", { for: this.name(inner) }, "value"), this.input(kind, inner, true), this.about(kind, inner), this.problem(inner))),
    ];
  }

  /** @param {Shape} of */
  list(of, pointer) {
    const length = Number(this.drafts.get(`${pointer}#`) ?? 0);
    const item = shape(of.item, this.schema, 1);
    const remove = (index) => {
      const rest = [];
      for (let at = 0; at < length; at += 1) if (at !== index) rest.push(this.drafts.get(under(pointer, at)) ?? "");
      for (let at = 0; at < length; at += 1) this.drafts.delete(under(pointer, at));
      rest.forEach((draft, at) => this.drafts.set(under(pointer, at), draft));
      this.set(`${pointer}#`, rest.length === 0 ? "" : String(rest.length));
    };
    return [
      Array.from({ length }, (_, index) => h("div", { class: "item", key: index },
        h("input", { ...this.naming(under(pointer, index)), "aria-describedby": undefined, "aria-label": `item ${index + 1}`, type: "text", value: this.drafts.get(under(pointer, index)) ?? "",
          autocomplete: "off", inputmode: item.kind === "text" ? "text" : "decimal", oninput: (event) => this.drafts.set(under(pointer, index), event.target.value) }),
        button("Remove", () => remove(index), { kind: "quiet", about: `item ${index + 1}` }), this.problem(under(pointer, index)))),
      h("p", null, button("Add an item", () => this.set(`${pointer}#`, String(length + 1)))),
    ];
  }

  /** @param {string} pointer @param {string} label @param {string} text @param {(text: string) => void} keep */
  json(pointer, label, text, keep) {
    const isWrong = this.problems.has(pointer);
    return h("div", { class: "field", key: "json" }, h("label", { for: `${this.id}.json` }, label), h("textarea", {
      id: `${this.id}.json`, class: "code", rows: 8, value: text, spellcheck: "false", "aria-invalid": isWrong ? "true" : undefined,
      "aria-describedby": isWrong ? `${this.name(pointer)}.problem` : undefined,
      oninput: (event) => {
        keep(event.target.value);
        this.problems.delete(pointer);
        redraw();
      },
    }), this.problem(pointer));
  }
}
