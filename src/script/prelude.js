// What a script finds in its world: `call`, `console`, `CallError`, `input`. Returns what the engine needs.
(function (send, print, input, mostArguments, mostOutput) {
  "use strict";
  const { parse, stringify } = JSON;
  const waiting = new Map();
  let last = 0;

  class CallError extends Error {
    constructor(kind, tool, text) {
      super(text);
      Object.assign(this, { name: "CallError", kind, tool, text });
    }
  }

  const show = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    try {
      return stringify(value) ?? String(value);
    } catch {
      return String(value);
    }
  };
  const log = (...values) => print(stringify(values.map(show).join(" ").slice(0, mostOutput)));

  const call = (name, args) =>
    new Promise((resolve, reject) => {
      if (typeof name !== "string") throw new TypeError("call: the name of the tool is not a string");
      const given = args ?? {};
      if (typeof given !== "object" || Array.isArray(given)) {
        throw new TypeError(`call: the arguments of ${name} are not an object`);
      }
      const text = stringify(given);
      if (text.length > mostArguments) {
        throw new RangeError(`call: the arguments of ${name} have ${text.length} characters; ${mostArguments} at most (host.limits.body)`);
      }
      last += 1;
      const id = last;
      // The place of the call, for the error that may come of it.
      waiting.set(id, { resolve, reject, place: new Error().stack });
      send(id, stringify(name), text);
    });

  const console = { log, info: log, warn: log, error: log, debug: log };
  Object.assign(globalThis, { call, console, CallError, input: parse(input) });

  return {
    settle(id, ok, text) {
      const { resolve, reject, place } = waiting.get(id);
      waiting.delete(id);
      try {
        const value = parse(text);
        if (ok) resolve(value);
        else reject(Object.assign(new CallError(value.kind, value.tool, value.text), { stack: place }));
      } catch (error) {
        reject(error);
      }
    },
    encode(value) {
      return stringify(value) ?? "null";
    },
    fault(error) {
      const is = error instanceof Error;
      const line = is ? /\bscript:(\d+)/.exec(String(error.stack)) : null;
      return stringify({
        limit: is && error.name === "InternalError" && error.message === "out of memory" ? "memory" : null,
        name: is ? String(error.name) : "Error",
        kind: error instanceof CallError ? String(error.kind) : null,
        text: is ? String(error.message) : show(error),
        line: line ? Number(line[1]) : null,
      });
    },
  };
})
