// Odd schemas, results, and questions: whatever a server sends, its form and its result are made, and no error breaks the page.
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ATTACKS } from "./attacks.mjs";

const ROUNDS = 20_000;

// Random numbers that are the same in each run.
function dice(seed) {
  let state = seed;
  const next = () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
  const upTo = (most) => Math.floor(next() * most);
  return { upTo, of: (all) => all[upTo(all.length)] };
}

const WORDS = ["type", "properties", "required", "enum", "enumNames", "oneOf", "anyOf", "const", "items", "default", "title", "description", "minimum", "maximum", "minLength", "maxLength", "pattern",
  "format", "$ref", "$defs", "minItems", "additionalProperties", "content", "structuredContent", "isError", "text", "resource", "uri", "data", "mimeType", "name", "a/b~c", "__proto__"];
const VALUES = ["object", "string", "integer", "number", "boolean", "array", "null", "text", "image", "audio", "resource_link", "resource", "#/$defs/a", "#", "#/properties/x", " HTTPS://host/", "javascript:1", null, true, false, 0, -1, 2.5, 1e300, ...ATTACKS];

// A tree of words that mean something and of those that do not.
function tree(random, depth) {
  const kind = depth === 0 ? 2 : random.upTo(4);
  if (kind === 0) return Array.from({ length: random.upTo(4) }, () => tree(random, depth - 1));
  if (kind === 1 || kind === 3) {
    const found = Object.create(null);
    for (let count = random.upTo(6); count >= 0; count -= 1) found[random.of(WORDS)] = tree(random, depth - 1);
    return JSON.parse(JSON.stringify(found));
  }
  return random.of(VALUES);
}

// A tree that mostly has the form of a schema.
function schema(random, depth) {
  if (depth === 0 || random.upTo(8) === 0) return tree(random, 2);
  const found = { type: random.of(["object", "string", "integer", "number", "boolean", "array", ["string", "null"], undefined]) };
  for (let count = random.upTo(4); count > 0; count -= 1) found[random.of(WORDS)] = tree(random, 2);
  if (found.type === "object") {
    found.properties = Object.fromEntries(Array.from({ length: random.upTo(5) }, (_, at) => [random.of([...ATTACKS, "x", "__proto__"]) + at, schema(random, depth - 1)]));
    if (random.upTo(2)) found.required = Object.keys(found.properties).slice(0, random.upTo(3));
  }
  if (random.upTo(4) === 0) found[random.of(["oneOf", "anyOf"])] = Array.from({ length: random.upTo(4) }, () => schema(random, depth - 1));
  if (found.type === "array") found.items = schema(random, depth - 1);
  return JSON.parse(JSON.stringify(found));
}

export async function odd({ check, holds }, page) {
  const script = (name) => import(pathToFileURL(join(page, name)));
  // The scripts touch the document only when they draw.
  globalThis.requestAnimationFrame = () => {};
  globalThis.document = { activeElement: null, body: null };
  const [{ Form }, { Run }, { said }, { words }] = await Promise.all(["form.js", "run.js", "text.js", "diff.js"].map(script));
  const walk = (node) => {
    if (typeof node === "string") return;
    for (const [name, value] of Object.entries(node.props)) {
      if (name === "href") holds(/^(#|https?:\/\/)/.test(value), `a link to ${value}`);
      if (name.startsWith("on")) holds(value === undefined || typeof value === "function", `${name} is ${typeof value}`);
    }
    node.kids.forEach(walk);
  };
  const each = (seed, body) => {
    try {
      body(dice(seed));
    } catch (error) {
      throw new Error(`seed ${seed}: ${error.stack}`);
    }
  };
  await check(`${ROUNDS} odd schemas have a form, and what it gives is JSON`, () => {
    for (let seed = 0; seed < ROUNDS; seed += 1) {
      each(seed, (random) => {
        const form = new Form(schema(random, 3), { isPrefilled: random.upTo(2) === 0, submit: () => {} });
        walk(form.view());
        JSON.stringify(form.value());
        walk(form.view());
        JSON.stringify(form.draft());
        form.toJson();
        form.toFields();
        walk(form.view());
      });
    }
  });
  await check(`${ROUNDS} odd results and questions are shown`, () => {
    // A run that asks nobody.
    const run = Object.assign(Object.create(Run.prototype), { tool: { name: "odd" }, id: "1", began: 0, logs: [], questions: [], progress: null, server: "odd" });
    for (let seed = 0; seed < ROUNDS; seed += 1) {
      each(seed, (random) => {
        Object.assign(run, { end: null, logs: [], questions: [], progress: { progress: tree(random, 1), total: tree(random, 1), message: tree(random, 2) }, isRaw: random.upTo(3) === 0 });
        run.on({ type: "line", level: tree(random, 1), logger: tree(random, 1), data: tree(random, 3) });
        run.on({ type: "question", question: seed, from: "server", server: "odd", method: "elicitation/create", params: { mode: random.of(["form", "url", undefined]), message: tree(random, 1), url: random.of(VALUES), requestedSchema: random.upTo(2) ? schema(random, 2) : tree(random, 1) } });
        walk(run.view());
        run.on({ type: "end", outcome: "ok", ms: 1, ...(random.upTo(3) ? { result: random.upTo(2) ? { content: tree(random, 3), structuredContent: tree(random, 2) } : tree(random, 3) } : { error: { code: tree(random, 1), message: tree(random, 1), data: tree(random, 3) } }) });
        walk(run.view());
      });
    }
  });
  await check("a difference of two texts has both of them", () => {
    const text = (node) => (typeof node === "string" ? node : node.kids.map(text).join(""));
    for (let seed = 0; seed < 2000; seed += 1) {
      each(seed, (random) => {
        const [before, after] = [1, 2].map(() => Array.from({ length: random.upTo(30) }, () => random.of(["one ", "two ", "three, ", "<b>", "\u202e", "\n"])).join(""));
        const parts = words(before, after).kids;
        const of = (left) => parts.filter((part) => typeof part === "string" || part.tag === "span" || part.tag === left).map(text).join("");
        const shown = (value) => said(value).map(text).join("");
        const same = (one, other) => one.replace(/\s/g, "") === other.replace(/\s/g, "");
        holds(same(of("del"), shown(before)) && same(of("ins"), shown(after)), `${JSON.stringify([before, after])}: ${of("del")} | ${of("ins")}`);
      });
    }
  });
}
