// How one text differs from another, word by word.
import { h } from "./h.js";
import { said } from "./text.js";

/** Texts of more words are shown whole, one after the other. */
const MOST = 1500;

export function words(before, after) {
  const [old, now] = [before, after].map((text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []);
  if (old.length > MOST || now.length > MOST) return h("pre", { class: "said" }, h("del", null, said(before)), "\n", h("ins", null, said(after)));
  // The longest common parts, from the end.
  const width = now.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = old[i] === now[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  /** @type {Array<[string, string]>} */
  const parts = [];
  const add = (kind, word) => {
    const last = parts.at(-1);
    if (last && last[0] === kind) last[1] += word;
    else parts.push([kind, word]);
  };
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      add("", old[i]);
      i += 1;
      j += 1;
    } else if (i < old.length && (j === now.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      add("del", old[i]);
      i += 1;
    } else {
      add("ins", now[j]);
      j += 1;
    }
  }
  return h("pre", { class: "said" }, parts.map(([kind, text], at) => (kind ? h(kind, { key: at }, said(text)) : said(text))));
}
