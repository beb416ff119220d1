// The requests of the page: its session, and streams of JSON by lines.
//
// Invariant: the token is in the tab's own storage and in one header. It is in no URL, cookie, log, or element.

const KEPT = "mcp-host session";

/** A refusal of the daemon, or no answer at all (`status` 0). */
export class Refusal extends Error {
  /** @param {number} status @param {{ error?: string, message?: string, help?: string }} told */
  constructor(status, told) {
    super(told.message ?? `the daemon answers with ${status}`);
    this.status = status;
    this.word = told.error ?? "";
    this.help = told.help ?? "";
  }
}

/** @returns {{ token: string, readOnly: boolean } | null} */
export function session() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
    return typeof kept?.token === "string" ? kept : null;
  } catch {
    return null;
  }
}

export const forget = () => sessionStorage.removeItem(KEPT);

/** Takes the code out of the address, and returns it. */
export function code() {
  const found = /^#k=([^&]+)$/.exec(location.hash)?.[1];
  if (found) history.replaceState(null, "", "/");
  return found;
}

/** Begins a session with a code. */
export async function begin(found) {
  forget();
  const { token, readOnly } = await post("session", { code: found });
  sessionStorage.setItem(KEPT, JSON.stringify({ token, readOnly: readOnly === true }));
}

/** Ends the session, here and in the daemon. */
export async function end() {
  try {
    await request("DELETE", "session");
  } finally {
    forget();
  }
}

/** @param {string} path @param {unknown} body @returns {Promise<any>} */
export async function post(path, body) {
  const answer = await request("POST", path, body);
  return read(answer);
}

/** @param {string} path @returns {Promise<any>} */
export async function get(path) {
  return read(await request("GET", path));
}

/** @param {Response} answer */
async function read(answer) {
  try {
    return await answer.json();
  } catch {
    throw new Refusal(0, { message: "the daemon ended the connection in the middle of its answer" });
  }
}

/**
 * Reads an answer of lines, one JSON object each, until it ends or `signal` fires.
 * @param {string} method @param {string} path @param {unknown} body @param {AbortSignal} signal
 * @param {(event: any) => void} each
 */
export async function stream(method, path, body, signal, each) {
  const answer = await request(method, path, body, signal);
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  /** The pieces of a line that has not ended. @type {string[]} */
  let pieces = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = decoder.decode(value, { stream: true }).split("\n");
      pieces.push(lines[0]);
      for (const next of lines.slice(1)) {
        const line = pieces.join("");
        pieces = [next];
        if (line.trim()) each(JSON.parse(line));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
async function request(method, path, body, signal) {
  /** @type {Record<string, string>} */
  const headers = {};
  const held = session();
  if (held) headers.Authorization = `Bearer ${held.token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`/console/${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, { message: "the daemon does not answer" });
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, told);
}
