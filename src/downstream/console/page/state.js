// What the page knows: the events of the feed, put together.
//
// In: events (`src/record/feed.schema.json`). Out: `state`, which the views read, and `news`, one line to be spoken.

/** @typedef {{ at: number, state: string, cause?: string }} Change */
/**
 * @typedef {{ name: string, alias: string, state: string, since: number, changes: Change[], ended: Array<{ at: number, ms: number }>,
 *   slices: Array<{ slice: number, calls: number, failed: number }>, [member: string]: any }} Server
 */
/** @typedef {{ id: number, at: number, server?: string, tool?: string, method: string, client?: string, end?: any, [member: string]: any }} Call */

/** How many calls and lines are kept. */
export const CALLS = 1000;
export const LINES = 3000;
/** Rates and times are those of the last five minutes, in slices of ten seconds. */
export const SPAN = 300_000;
export const SLICE = 10_000;
const CHANGES = 64;
/** Of how many calls of a server the times are kept. */
const SAMPLES = 500;

export const STATES = [
  "connected", "connecting", "initializing", "reconnecting", "idle", "unauthorized", "failed", "disconnecting", "disconnected", "disabled",
];
const CHANGE = new RegExp(`^(${STATES.join("|")}) -> (${STATES.join("|")})(?:: ([\\s\\S]*))?$`);

const fresh = () => ({
  /** @type {any} */ hello: null,
  seq: 0,
  /** Whether a snapshot has come. */
  ready: false,
  /** @type {Map<string, Server>} */ servers: new Map(),
  /** The oldest first. @type {Call[]} */ calls: [],
  /** @type {Map<number, Call>} */ running: new Map(),
  /** The oldest first. @type {any[]} */ lines: [],
  /** @type {any} */ config: {},
  /** @type {any} */ reloaded: null,
  /** @type {any[]} */ approvals: [],
  /** @type {Map<number, any>} */ asks: new Map(),
  /** Counts changes of what tools are listed. */
  offers: 0,
});

export const state = fresh();

export function forgetAll() {
  Object.assign(state, fresh());
}

/** @type {string[]} */
export const news = [];

export function apply(event) {
  if (typeof event?.seq === "number") state.seq = Math.max(state.seq, event.seq);
  switch (event?.type) {
    case "hello":
      state.hello = event;
      break;
    case "snapshot":
      snapshot(event);
      break;
    case "server":
      changed(event);
      break;
    case "servers":
      for (const each of event.changed ?? []) server(each, event.at);
      for (const name of event.gone ?? []) {
        state.servers.delete(name);
        state.offers += 1;
      }
      break;
    case "call":
      call(event);
      break;
    case "line":
      line(event);
      break;
    case "config":
      state.reloaded = { ...event.config, at: event.at };
      if (event.config.reloaded) state.config = { ...state.config, problems: undefined, reloads: (state.config.reloads ?? 0) + 1, pending: event.config.changes?.pending ?? [] };
      else state.config = { ...state.config, problems: event.config.problems ?? [] };
      news.push(event.config.reloaded ? "The config was read again." : "The config has a problem.");
      break;
    case "ask":
      ask(event.ask, event.at);
      break;
    case "approval":
      approval(event.approval);
      break;
  }
}

function snapshot(event) {
  const before = state.servers;
  state.servers = new Map();
  for (const each of event.servers) {
    const old = before.get(each.name);
    if (old) state.servers.set(each.name, { ...old, stderr: undefined, lastError: undefined });
    server(each, event.at);
  }
  state.config = event.config ?? {};
  state.approvals = event.approvals ?? [];
  state.asks = new Map((event.asks ?? []).map((each) => [each.id, { ...each, at: event.at - 1000 * (each.waitsSecs ?? 0) }]));
  const running = new Map();
  for (const each of event.running ?? []) running.set(each.id, state.running.get(each.id) ?? each);
  state.running = running;
  state.ready = true;
  state.offers += 1;
}

function server(record, at) {
  const { name, ...members } = record;
  const had = state.servers.get(name);
  /** @type {Server} */
  const server = had ?? { name, alias: name, state: "disconnected", since: at, changes: [], ended: [], slices: [] };
  const tools = server.tools;
  for (const [member, value] of Object.entries(members)) {
    if (value === null) delete server[member];
    else server[member] = value;
  }
  if (typeof members.sinceMs === "number") server.since = at - members.sinceMs;
  else if (members.state) server.since = at;
  if (typeof members.lastErrorMs === "number") server.lastErrorAt = at - members.lastErrorMs;
  else if (members.lastError) server.lastErrorAt = at;
  if (server.changes.length === 0) server.changes.push({ at: server.since, state: server.state });
  if (!had) {
    state.servers.set(name, server);
    // What came before the snapshot.
    for (const each of state.lines) if (each.server === name && each.source === "state") noteChange(server, each);
    for (const each of state.calls) if (each.server === name && each.end) noteEnd(server, each);
  }
  if (tools !== server.tools || members.changed !== undefined) state.offers += 1;
}

function changed(event) {
  const server = state.servers.get(event.server);
  if (!server) return;
  Object.assign(server, { state: event.to, since: event.at });
  if (event.cause) server.cause = event.cause;
  else delete server.cause;
  if (event.to === "connected") state.offers += 1;
  if (["failed", "unauthorized", "connected", "reconnecting"].includes(event.to)) {
    const words = event.to === "unauthorized" ? "needs a sign-in" : `is ${event.to}`;
    news.push(`${event.server} ${words}${event.to === "failed" && event.cause ? `: ${event.cause}` : ""}.`);
  }
}

/** @param {Server} server */
function noteChange(server, line) {
  const found = CHANGE.exec(line.text);
  if (!found) return;
  const last = server.changes.at(-1);
  const change = { at: line.at, state: found[2], cause: found[3] };
  // The first one is a guess from the age of the state.
  if (last && last.state === change.state && Math.abs(last.at - change.at) < 2000) server.changes.pop();
  if (server.changes.length === 1 && server.changes[0].at > change.at) server.changes.unshift(change);
  else server.changes.push(change);
  server.changes.sort((one, other) => one.at - other.at);
  if (server.changes.length > CHANGES) server.changes.shift();
}

function line(event) {
  state.lines.push(event);
  if (state.lines.length > LINES) state.lines.splice(0, LINES / 10);
  const server = event.source === "state" && state.servers.get(event.server);
  if (server) noteChange(server, event);
}

function call(event) {
  if (event.phase === "progress") return;
  if (event.phase === "counts") {
    for (const { server, calls, failed } of event.counts) {
      const of = state.servers.get(server);
      if (of) count(of, event.at, calls, failed);
    }
    return;
  }
  const begun = state.running.get(event.id);
  // The past comes again with each feed.
  if (!begun && state.calls.some((each) => each.id === event.id)) return;
  /** @type {Call} */
  const call = begun ?? { ...event, at: event.phase === "end" ? event.at - (event.ms ?? 0) : event.at };
  if (event.phase === "begin") {
    state.running.set(event.id, call);
    return;
  }
  state.running.delete(event.id);
  // Its server and its tool are known once it is routed.
  Object.assign(call, { ...event, at: call.at, end: event });
  state.calls.push(call);
  if (state.calls.length > CALLS) state.calls.splice(0, CALLS / 10);
  const server = call.server === undefined ? undefined : state.servers.get(call.server);
  if (server) noteEnd(server, call);
}

export const isBad = (outcome) => ["tool_error", "error", "host_error"].includes(outcome);

/** @param {Server} server @param {Call} call */
function noteEnd(server, call) {
  server.ended.push({ at: call.end.at, ms: call.end.ms });
  if (server.ended.length > SAMPLES) server.ended.splice(0, SAMPLES / 10);
  count(server, call.end.at, 1, isBad(call.end.outcome) ? 1 : 0);
}

function ask(ask, at) {
  if (ask.what === "open") {
    state.asks.set(ask.id, { ...ask, at });
    news.push(`A call of ${ask.name} waits for your permission.`);
  } else state.asks.delete(ask.id);
}

function approval(approval) {
  const line = `${approval.what} ${approval.name}`;
  let of = state.approvals.find((each) => each.server === approval.server);
  if (!of) state.approvals.push((of = { server: approval.server, changed: [], withheld: 0 }));
  if (!of.changed.some((each) => each === line || each.startsWith(`${line}:`))) {
    of.changed.push(line);
    of.withheld += approval.withheld ? 1 : 0;
  }
  state.offers += 1;
  news.push(`${approval.server} has changed ${line}.`);
}

/** Counts calls that ended. @param {Server} server */
function count(server, at, calls, failed) {
  const slice = Math.floor(at / SLICE);
  let last = server.slices.at(-1);
  if (!last || last.slice < slice) {
    server.slices.push((last = { slice, calls: 0, failed: 0 }));
    if (server.slices.length > SPAN / SLICE + 1) server.slices.shift();
  }
  const of = last.slice === slice ? last : server.slices.find((each) => each.slice === slice);
  if (!of) return;
  of.calls += calls;
  of.failed += failed;
}

/**
 * What the calls of the last five minutes were like.
 * @param {Server} server @param {number} now
 */
export function measured(server, now) {
  const last = Math.floor(now / SLICE);
  const slices = new Array(SPAN / SLICE).fill(0);
  const failed = new Array(SPAN / SLICE).fill(0);
  let recent = 0;
  for (const each of server.slices) {
    const back = last - each.slice;
    if (back < 0 || back >= slices.length) continue;
    slices[slices.length - 1 - back] = each.calls;
    failed[slices.length - 1 - back] = each.failed;
    if (back < 2) recent += each.calls;
  }
  const from = now - SPAN;
  const times = server.ended.filter((each) => each.at >= from).map((each) => each.ms).sort((one, other) => one - other);
  const at = (part) => (times.length === 0 ? undefined : times[Math.min(times.length - 1, Math.floor(times.length * part))]);
  const rate = (recent * 1000) / (SLICE + (now % SLICE));
  const sum = (/** @type {number[]} */ all) => all.reduce((one, other) => one + other, 0);
  return { slices, failed, p50: at(0.5), p95: at(0.95), rate, calls: sum(slices), bad: sum(failed) };
}
