// What is within a line of Markdown: code, bold, italic and links.
//
// Nothing that a model writes makes the browser load an address: images stay text, and a link is
// followed only if the user clicks on it.

import { element } from "./elements.js";

const LONGEST = 10_000; // characters; the expression below takes quadratic time
const CODE = /(`+)(?<code>[^`](?:.*?[^`])??)\1(?!`)/;
const STRONG = /\*\*(?<strong>\S(?:.*?\S)??)\*\*/;
const EMPHASIS = /\*(?<emphasis>\S(?:.*?\S)??)\*/;
const ADDRESS = /[^\s<>()]+(?:\([^\s<>()]*\)[^\s<>()]*)*/;
const LINK = new RegExp(String.raw`(?<!!)\[(?<label>[^\[\]]{1,1000})\]\((?<target>${ADDRESS.source})\)`);
const BARE = /\b(?<bare>https?:\/\/[^\s<>()"'`*|\\^{}[\]]+)/;
const WITHOUT_LINKS = new RegExp([CODE, STRONG, EMPHASIS].map(({ source }) => source).join("|"));
const WITH_LINKS = new RegExp(
  [CODE, LINK, BARE, STRONG, EMPHASIS].map(({ source }) => source).join("|"),
);
const PROTOCOLS = ["http:", "https:", "mailto:"];
const NO_END = /[.,:;!?]+$/; // of a sentence, not of the address in it

/** The nodes of a line of text. `linked`: addresses in it become links. */
export function inline(text, linked = true) {
  if (text.length > LONGEST) return [text];
  const nodes = [];
  let rest = text;
  const expression = linked ? WITH_LINKS : WITHOUT_LINKS;
  for (let found = expression.exec(rest); found; found = expression.exec(rest)) {
    const [made, length] = nodeOf(found, linked);
    nodes.push(rest.slice(0, found.index), made);
    rest = rest.slice(found.index + length);
  }
  return [...nodes, rest].filter((node) => node !== "");
}

/** The node for what was `found`, and how many characters it is made of. */
function nodeOf({ 0: whole, groups }, linked) {
  const { code, strong, emphasis, label, target, bare } = groups;
  if (code !== undefined) return [element("code", {}, code), whole.length];
  if (strong !== undefined) return [element("strong", {}, ...inline(strong, linked)), whole.length];
  if (emphasis !== undefined) return [element("em", {}, ...inline(emphasis, linked)), whole.length];
  if (bare !== undefined) {
    const address = bare.replace(NO_END, "");
    return [link(address, [address]) ?? address, address.length];
  }
  return [link(target, inline(label, false)) ?? whole, whole.length];
}

/** A link to `address`; null unless it is a whole address that is safe to follow. */
function link(address, children) {
  if (!URL.canParse(address)) return null;
  const { protocol, href } = new URL(address);
  if (!PROTOCOLS.includes(protocol)) return null;
  const properties = { href, target: "_blank", rel: "noopener noreferrer nofollow", title: href };
  return element("a", properties, ...children);
}
