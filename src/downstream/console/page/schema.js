// Reads a JSON Schema of a server as fields of a form, and reads what was typed as a value.
//
// In: a schema and drafts (what was typed, by JSON pointer). Out: the kind of each field, its limits in words, a value,
// and what is wrong with it, by field.
//
// Invariant: a pattern of a server is shown and never run, since one can keep the page busy forever.

/** How deep forms go; what lies deeper is typed as JSON. */
const DEPTH = 3;
/** How many choices and fields are shown one by one. */
const MANY = 200;

/**
 * @typedef {{ kind: "text" | "number" | "integer" | "boolean" | "choice" | "many" | "list" | "object" | "branch" | "json" | "const",
 *   schema: any, options?: Array<{ value: any, title: string }>, fields?: Array<Field>, branches?: any[], item?: any }} Shape
 * @typedef {{ name: string, schema: any, isNeeded: boolean }} Field
 * @typedef {Map<string, string>} Texts
 */

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Follows `$ref` within the schema, and takes `null` out of alternatives. @returns {any} */
export function resolved(schema, root) {
  let at = isObject(schema) ? schema : {};
  for (let step = 0; step < 8; step += 1) {
    if (typeof at.$ref === "string" && at.$ref.startsWith("#/")) {
      let target = root;
      for (const part of at.$ref.slice(2).split("/")) target = isObject(target) ? target[part.replace(/~1/g, "/").replace(/~0/g, "~")] : undefined;
      if (!isObject(target)) return {};
      const { $ref: _, ...beside } = at;
      at = { ...target, ...beside };
      continue;
    }
    const of = at.anyOf ?? at.oneOf;
    if (Array.isArray(of)) {
      const rest = of.filter((each) => !(isObject(each) && each.type === "null"));
      if (rest.length === 1 && isObject(rest[0])) {
        const { anyOf: _, oneOf: __, ...beside } = at;
        at = { ...rest[0], ...beside };
        continue;
      }
    }
    if (Array.isArray(at.type)) {
      const rest = at.type.filter((each) => each !== "null");
      if (rest.length === 1) at = { ...at, type: rest[0] };
    }
    return at;
  }
  return at;
}

/** @param {any} schema @param {any} root @param {number} [depth] @returns {Shape} */
export function shape(schema, root, depth = 0) {
  const at = resolved(schema, root);
  if ("const" in at) return { kind: "const", schema: at };
  const options = choices(at);
  if (options) return { kind: "choice", schema: at, options };
  const branches = branchesOf(at, root);
  if (branches && depth < DEPTH) return { kind: "branch", schema: at, branches };
  const type = at.type ?? (isObject(at.properties) ? "object" : undefined);
  if (type === "object" && !at.oneOf && !at.anyOf && isObject(at.properties) && depth < DEPTH) {
    const names = Object.keys(at.properties);
    const needed = Array.isArray(at.required) ? at.required : [];
    if (names.length > 0 && names.length <= MANY && needed.every((name) => names.includes(name))) {
      const fields = names.map((name) => ({ name, schema: at.properties[name], isNeeded: needed.includes(name) }));
      return { kind: "object", schema: at, fields };
    }
    return { kind: names.length === 0 && needed.length === 0 && depth === 0 ? "object" : "json", schema: at, fields: [] };
  }
  if (type === "object" && depth === 0 && !at.oneOf && !at.anyOf && !at.additionalProperties && !at.patternProperties) return { kind: "object", schema: at, fields: [] };
  if (type === "array" && depth < DEPTH) {
    const item = resolved(at.items, root);
    const of = choices(item);
    if (of) return { kind: "many", schema: at, options: of };
    if (["string", "number", "integer"].includes(item.type)) return { kind: "list", schema: at, item };
  }
  if (type === "string") return { kind: "text", schema: at };
  if (type === "number" || type === "integer" || type === "boolean") return { kind: type, schema: at };
  return { kind: "json", schema: at };
}

/** @returns {Array<{ value: any, title: string }> | undefined} */
function choices(at) {
  if (Array.isArray(at.enum) && at.enum.length > 0 && at.enum.length <= MANY) {
    const names = Array.isArray(at.enumNames) ? at.enumNames : [];
    return at.enum.map((value, index) => ({ value, title: titled(names[index], value) }));
  }
  const of = at.oneOf ?? at.anyOf;
  if (Array.isArray(of) && of.length > 0 && of.length <= MANY && of.every((each) => isObject(each) && "const" in each)) {
    return of.map((each) => ({ value: each.const, title: titled(each.title, each.const) }));
  }
  return undefined;
}

const titled = (title, value) => (typeof title === "string" && title ? title : typeof value === "string" ? value : JSON.stringify(value));

function branchesOf(at, root) {
  const of = at.oneOf ?? at.anyOf;
  if (!Array.isArray(of) || of.length < 2 || of.length > 20) return undefined;
  const all = of.map((each) => resolved(each, root));
  return all.every((each) => typeof each.title === "string" || typeof each.type === "string") ? all : undefined;
}

/** Says what a branch is. @param {any} branch */
export const branchTitle = (branch, index) => (typeof branch.title === "string" ? branch.title : (branch.type ?? `form ${index + 1}`));

/** Type, limits, and default, in words. @param {Shape} shape */
export function limits({ kind, schema }) {
  const words = [];
  const type = { text: schema.format ?? "text", number: "number", integer: "integer", boolean: "true or false", choice: "one of these", many: "some of these",
    list: "list", object: "object", branch: "one of these forms", json: `JSON${typeof schema.type === "string" ? `: ${schema.type}` : ""}`, const: "always the same" }[kind];
  words.push(String(type));
  const number = (value) => typeof value === "number";
  const range = (low, high, unit) => {
    if (number(low) && number(high)) words.push(low === high ? `exactly ${low}${unit}` : `${low} to ${high}${unit}`);
    else if (number(low)) words.push(`at least ${low}${unit}`);
    else if (number(high)) words.push(`at most ${high}${unit}`);
  };
  if (kind === "number" || kind === "integer") {
    range(schema.minimum, schema.maximum, "");
    if (number(schema.exclusiveMinimum)) words.push(`more than ${schema.exclusiveMinimum}`);
    if (number(schema.exclusiveMaximum)) words.push(`less than ${schema.exclusiveMaximum}`);
    if (number(schema.multipleOf)) words.push(`a multiple of ${schema.multipleOf}`);
  }
  if (kind === "text") {
    range(schema.minLength > 1 ? schema.minLength : undefined, schema.maxLength, " characters");
    if (typeof schema.pattern === "string") words.push(`pattern ${schema.pattern}`);
  }
  if (kind === "list" || kind === "many") range(schema.minItems, schema.maxItems, " items");
  if (schema.default !== undefined) words.push(`default ${typeof schema.default === "string" ? schema.default : JSON.stringify(schema.default)}`);
  return words.join(", ");
}

/** @param {string} pointer @param {string | number} part */
export const under = (pointer, part) => `${pointer}/${String(part).replace(/~/g, "~0").replace(/\//g, "~1")}`;

/**
 * Reads what was typed. An empty field is left out; `undefined` means that there is nothing.
 * @param {Texts} drafts @param {Texts} problems @returns {any}
 */
export function value(schema, root, drafts, problems, pointer = "", isNeeded = true, depth = 0) {
  const of = shape(schema, root, depth);
  const draft = drafts.get(pointer) ?? "";
  const lacks = () => {
    if (isNeeded) problems.set(pointer, "needed");
    return undefined;
  };
  switch (of.kind) {
    case "const":
      return isNeeded ? of.schema.const : undefined;
    case "object":
      return object(of, root, drafts, problems, pointer, isNeeded, depth);
    case "branch": {
      const index = draft === "" ? -1 : Number(draft);
      const branch = of.branches?.[index];
      return branch === undefined ? lacks() : value(branch, root, drafts, problems, under(pointer, `:${index}`), true, depth + 1);
    }
    case "choice": {
      const option = draft === "" ? undefined : of.options?.[Number(draft)];
      return option ? option.value : lacks();
    }
    case "many": {
      const picked = (of.options ?? []).filter((_, index) => drafts.get(under(pointer, index)) === "on").map((option) => option.value);
      return items(of, picked, problems, pointer, isNeeded);
    }
    case "list": {
      const all = [];
      for (let index = 0; index < Number(drafts.get(`${pointer}#`) ?? 0); index += 1) {
        const item = value(of.item, root, drafts, problems, under(pointer, index), true, depth + 1);
        if (item !== undefined) all.push(item);
      }
      return items(of, all, problems, pointer, isNeeded);
    }
    case "boolean":
      return draft === "" ? lacks() : draft === "true";
    default:
      return draft.trim() === "" && !(of.kind === "text" && draft !== "") ? lacks() : scalar(of, draft, problems, pointer);
  }
}

/** @param {Shape} of @param {Texts} drafts @param {Texts} problems */
function object(of, root, drafts, problems, pointer, isNeeded, depth) {
  // An object that is not needed is there once one of its fields is.
  const isThere = isNeeded || [...drafts].some(([at, draft]) => at.startsWith(`${pointer}/`) && draft !== "");
  if (!isThere) return undefined;
  const found = Object.create(null);
  for (const { name, schema, isNeeded } of of.fields ?? []) {
    const member = value(schema, root, drafts, problems, under(pointer, name), isNeeded, depth + 1);
    if (member !== undefined) found[name] = member;
  }
  return found;
}

/** @param {Shape} of @param {Texts} problems */
function items({ schema }, all, problems, pointer, isNeeded) {
  if (all.length === 0 && !isNeeded) return undefined;
  if (typeof schema.minItems === "number" && all.length < schema.minItems) problems.set(pointer, `at least ${schema.minItems} items`);
  if (typeof schema.maxItems === "number" && all.length > schema.maxItems) problems.set(pointer, `at most ${schema.maxItems} items`);
  return all;
}

/** @param {Shape} of @param {Texts} problems */
function scalar({ kind, schema }, draft, problems, pointer) {
  const wrong = (what) => {
    problems.set(pointer, what);
    return undefined;
  };
  if (kind === "json") {
    try {
      return JSON.parse(draft);
    } catch (error) {
      return wrong(`not JSON: ${/** @type {Error} */ (error).message}`);
    }
  }
  if (kind === "text") {
    const length = [...draft].length;
    if (schema.minLength > length) return wrong(`at least ${schema.minLength} ${schema.minLength === 1 ? "character" : "characters"}`);
    if (schema.maxLength < length) return wrong(`at most ${schema.maxLength} characters`);
    return draft;
  }
  const text = draft.trim();
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/.test(text)) return wrong(kind === "integer" ? "not a whole number" : "not a number");
  const number = Number(text);
  if (!Number.isFinite(number)) return wrong("too large");
  if (kind === "integer" && !Number.isInteger(number)) return wrong("not a whole number");
  if (Number.isInteger(number) && !Number.isSafeInteger(number)) return wrong("a browser loses digits of this number; use mcp-host call");
  if (number < schema.minimum) return wrong(`at least ${schema.minimum}`);
  if (number > schema.maximum) return wrong(`at most ${schema.maximum}`);
  if (number <= schema.exclusiveMinimum) return wrong(`more than ${schema.exclusiveMinimum}`);
  if (number >= schema.exclusiveMaximum) return wrong(`less than ${schema.exclusiveMaximum}`);
  return number;
}

/**
 * Fills drafts from a value: defaults of a question, or arguments typed as JSON.
 * @param {Texts} drafts
 */
export function fill(schema, root, given, drafts, pointer = "", depth = 0) {
  if (given === undefined) return;
  const of = shape(schema, root, depth);
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  if (of.kind === "object" && isObject(given)) {
    for (const field of of.fields ?? []) fill(field.schema, root, Object.hasOwn(given, field.name) ? given[field.name] : undefined, drafts, under(pointer, field.name), depth + 1);
  } else if (of.kind === "choice") {
    const index = of.options?.findIndex((option) => same(option.value, given)) ?? -1;
    if (index >= 0) drafts.set(pointer, String(index));
  } else if (of.kind === "many" && Array.isArray(given)) {
    of.options?.forEach((option, index) => given.some((each) => same(each, option.value)) && drafts.set(under(pointer, index), "on"));
  } else if (of.kind === "list" && Array.isArray(given)) {
    drafts.set(`${pointer}#`, String(given.length));
    given.forEach((each, index) => fill(of.item, root, each, drafts, under(pointer, index), depth + 1));
  } else if (of.kind === "text" && typeof given === "string") drafts.set(pointer, given);
  else if (of.kind === "json") drafts.set(pointer, JSON.stringify(given, null, 2));
  else if (typeof given === (of.kind === "integer" ? "number" : of.kind)) drafts.set(pointer, String(given));
}

/** The defaults of the fields, as a value. */
export function defaults(schema, root) {
  const found = Object.create(null);
  for (const field of shape(schema, root).fields ?? []) {
    const given = resolved(field.schema, root).default;
    if (given !== undefined) found[field.name] = given;
  }
  return found;
}
