// What a script finds in its world: `call`, `console`, `CallError`, `input`. Returns what the engine needs.
(function (send, print, input, mostArguments, mostOutput) {
  "use strict";
  const { parse, stringify } = JSON;
  const mostName = 1024;
  // A script can change what a Map does.
  const waiting = { __proto__: null };
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
      if (name.length > mostName) throw new RangeError(`call: the name of the tool has more than ${mostName} characters`);
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
      waiting[id] = { resolve, reject, place: new Error().stack };
      send(id, stringify(name), text);
    });

  const console = { log, info: log, warn: log, error: log, debug: log };
  Object.assign(globalThis, { call, console, CallError, input: parse(input) });

  return {
    settle(id, ok, text) {
      const { resolve, reject, place } = waiting[id];
      delete waiting[id];
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
      // What a script throws can do anything when it is looked at.
      try {
        const is = error instanceof Error;
        const line = is ? /\bscript:(\d+)/.exec(String(error.stack)) : null;
        const text = is ? String(error.message) : show(error);
        return stringify({
          limit: is && error.name === "InternalError" && error.message === "out of memory" ? "memory" : null,
          name: is ? String(error.name).slice(0, mostName) : "Error",
          kind: error instanceof CallError ? String(error.kind).slice(0, mostName) : null,
          text: text.slice(0, mostOutput),
          line: line ? Number(line[1]) : null,
        });
      } catch {
        return stringify({ name: "Error", text: "what the script threw cannot be shown" });
      }
    },
  };
})
