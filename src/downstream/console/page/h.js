// Makes elements from descriptions, and changes only what differs from the last time.
//
// h("td", { class: "name" }, text) describes an element. draw(root, ...nodes) makes the children of `root` what the
// descriptions say. Elements with a `key` stay the same elements when their place in the list changes.
//
// Invariant: a string becomes a text node, whatever it holds. No string becomes markup, a script, or a handler.

/** @typedef {{ tag: string, key: any, props: Record<string, any>, kids: Array<Node_ | string> }} Node_ */
/** @typedef {Node_ | string | number | null | undefined | false | Child[]} Child */

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["path", "circle", "line"]);
/** Properties of elements, where the attribute is only the first value. */
const LIVE = new Set(["value", "checked", "disabled"]);
/** Attributes that are set by name; beside them all of `aria-` and `data-`. */
const PLAIN = new Set(
  ("class id type for href target rel role title tabindex placeholder rows autocomplete spellcheck scope colspan inputmode" +
    " d cx cy r x1 y1 x2 y2 viewBox").split(" "),
);

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} kids
 * @returns {Node_}
 */
export function h(tag, props, ...kids) {
  const { key, ...rest } = props ?? {};
  return { tag, key, props: rest, kids: flat(kids, []) };
}

/** A name, or a part of a code. @param {...Child} kids */
export const mono = (...kids) => h("code", null, ...kids);

/** A part that is less important. @param {...Child} kids */
export const dim = (...kids) => h("span", { class: "soft" }, ...kids);

/** A paragraph that is less important. @param {...Child} kids */
export const soft = (...kids) => h("p", { class: "soft" }, ...kids);

/** @param {any[]} kids @param {Array<Node_ | string>} into */
function flat(kids, into) {
  for (const kid of kids) {
    if (Array.isArray(kid)) flat(kid, into);
    else if (typeof kid === "number") into.push(String(kid));
    else if (typeof kid === "string" ? kid !== "" : kid) into.push(kid);
  }
  return into;
}

/** The description that each element was last drawn from. @type {WeakMap<Node, Node_>} */
const drawn = new WeakMap();

/** @param {Element} root @param {...Child} kids */
export function draw(root, ...kids) {
  children(root, flat(kids, []));
}

/** @param {Element} parent @param {Array<Node_ | string>} kids */
function children(parent, kids) {
  /** @type {Map<string, Node[]>} */
  const old = new Map();
  for (const node of parent.childNodes) {
    const name = nameOf(drawn.get(node) ?? "");
    const same = old.get(name);
    if (same) same.push(node);
    else old.set(name, [node]);
  }
  const wanted = kids.map((kid) => [kid, old.get(nameOf(kid))?.shift()]);
  // What is gone goes first, so that nothing else has to move: a moved element loses the focus.
  for (const rest of old.values()) for (const node of rest) node.parentNode?.removeChild(node);
  let at = parent.firstChild;
  for (const [kid, found] of /** @type {Array<[any, Node | undefined]>} */ (wanted)) {
    const node = found ?? made(kid, parent);
    if (typeof kid === "string") {
      if (node.nodeValue !== kid) node.nodeValue = kid;
    } else update(/** @type {Element} */ (node), kid);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    if (!found) kid.props?.made?.(node);
  }
}

/** Nodes of one name can stand for each other. @param {Node_ | string} kid */
function nameOf(kid) {
  return typeof kid === "string" ? "" : kid.key === undefined ? kid.tag : `${kid.tag} ${kid.key}`;
}

/** @param {Node_ | string} kid @param {Element} parent */
function made(kid, parent) {
  if (typeof kid === "string") return document.createTextNode(kid);
  const inSvg = kid.tag === "svg" || (DRAWN.has(kid.tag) && parent.namespaceURI === SVG);
  return inSvg ? document.createElementNS(SVG, kid.tag) : document.createElement(kid.tag);
}

/** @param {any} element @param {Node_} node */
function update(element, node) {
  const before = drawn.get(element)?.props ?? {};
  for (const name of Object.keys(before)) if (!(name in node.props)) set(element, name, undefined, before[name]);
  // Options come first: the value of a list is one of them.
  children(element, node.kids);
  for (const [name, value] of Object.entries(node.props)) if (LIVE.has(name) || value !== before[name]) set(element, name, value, before[name]);
  drawn.set(element, node);
}

function set(element, name, value, before) {
  if (name === "made") return;
  if (/^on[a-z]+$/.test(name)) {
    if (value !== undefined && typeof value !== "function") throw new TypeError(`${name} is not a function`);
    element[name] = value ?? null;
  } else if (name === "style") {
    for (const each of Object.keys(before ?? {})) if (!(each in (value ?? {}))) element.style.removeProperty(each);
    for (const [each, text] of Object.entries(value ?? {})) element.style.setProperty(each, text);
  } else if (LIVE.has(name)) {
    const wanted = value ?? (name === "value" ? "" : false);
    if (element[name] !== wanted) element[name] = wanted;
  } else if (value === undefined || value === null || value === false) {
    element.removeAttribute(name);
  } else if (name === "href" && !/^(#|https?:\/\/)/.test(value)) {
    throw new TypeError("not a link");
  } else if (PLAIN.has(name) || /^(aria|data)-[a-z-]+$/.test(name)) {
    element.setAttribute(name, value === true ? "" : String(value));
  } else {
    throw new TypeError(`not an attribute: ${name}`);
  }
}
