// Texts of others, numbers, and times, as the page shows them.
import { h } from "./h.js";

// Characters that show nothing or change the order of others: controls (except tab and line feed), marks of direction,
// joiners, fillers, variation selectors, tags, and halves of pairs.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}\u{1d173}-\u{1d17a}\ud800-\udfff]/u;
const EACH = new RegExp(`${HIDDEN.source}+`, "gu");
const EMOJI = /\p{Extended_Pictographic}[\u{1f3fb}-\u{1f3ff}]?$/u;

/** @type {Record<string, string>} */
const NAMES = { "\u001b": "ESC", "\r": "CR", "\u0000": "NUL" };

/** The name of one character that cannot be seen. */
export const nameOf = (c) => NAMES[c] ?? `U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/**
 * The text with the names of the characters that cannot be seen. One emoji keeps its selector and its joiner.
 * @param {unknown} value
 * @returns {Array<string | import("./h.js").Node_>}
 */
export function said(value) {
  const text = typeof value === "string" ? value : value === undefined || value === null ? "" : String(value);
  if (!HIDDEN.test(text)) return [text];
  const out = [];
  let from = 0;
  for (const found of text.matchAll(EACH)) {
    const run = found[0];
    const before = text.slice(Math.max(0, found.index - 4), found.index);
    const isOfEmoji = (run === "\ufe0f" || run === "\u200d" || run === "\ufe0f\u200d") && EMOJI.test(before);
    if (isOfEmoji) continue;
    out.push(text.slice(from, found.index));
    const all = [...run];
    const shown = all.slice(0, 8).map(nameOf).join(" ") + (all.length > 8 ? ` and ${all.length - 8} more` : "");
    out.push(h("span", { class: "unseen", title: "characters that cannot be seen" }, shown));
    from = found.index + run.length;
  }
  out.push(text.slice(from));
  return out;
}

/** The same as plain text, for attributes and options, on one line. @param {unknown} value */
export function flat(value, most = 200) {
  const text = String(value ?? "").replace(/\s+/g, " ").trim();
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return said(cut).map((part) => (typeof part === "string" ? part : `[${part.kids.join("")}]`)).join("");
}

/** One line of a text, cut. @param {unknown} value */
export function line(value, most = 200) {
  const text = String(value ?? "").replace(/\s+/g, " ").trim();
  return said(text.length > most ? `${text.slice(0, most)}…` : text);
}

/** @param {number | null | undefined} ms */
export function took(ms) {
  if (ms === undefined || ms === null || !Number.isFinite(ms)) return "";
  if (ms < 9.95) return `${ms.toFixed(1).replace(/\.0$/, "")} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return ago(ms);
}

/** A duration in its largest unit. */
export function ago(ms) {
  if (!Number.isFinite(ms)) return "";
  const [seconds, minutes, hours] = [ms / 1000, ms / 60_000, ms / 3_600_000];
  if (seconds < 1) return "now";
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (hours < 1) return `${Math.floor(minutes)} min`;
  if (hours < 48) return `${Math.floor(hours)} h`;
  return `${Math.floor(hours / 24)} d`;
}

/** @param {number} at milliseconds since 1970 */
export function clock(at, exact = true) {
  const time = new Date(at);
  const two = (number) => String(number).padStart(2, "0");
  const seconds = exact ? `:${two(time.getSeconds())}` : "";
  return `${two(time.getHours())}:${two(time.getMinutes())}${seconds}`;
}

/** @param {number | null | undefined} count */
export function bytes(count) {
  if (count === undefined || count === null) return "";
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(count < 10_240 ? 1 : 0)} KiB`;
  return `${(count / 1024 / 1024).toFixed(1)} MiB`;
}

/** About how many tokens. */
export const tokens = (count) => (count < 1000 ? `~${count}` : `~${(count / 1000).toFixed(count < 9950 ? 1 : 0)}k`);

export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** JSON on several lines. @param {unknown} value */
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

const encoder = new TextEncoder();
/** How many bytes the value has as JSON. @param {unknown} value */
export const weight = (value) => encoder.encode(JSON.stringify(value) ?? "").length;

/** A message of the daemon as a sentence. */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? "" : "."}`;
