// The part of Markdown that models write most: headings, lists, quotes, tables and code; `inline.js`
// has what is within a line.

import { copyButton } from "./clipboard.js";
import { element } from "./elements.js";
import { inline } from "./inline.js";
import { startsTable, tableAt } from "./table.js";

const FENCE = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)/;
const ITEM = /^(\s{0,40})([-*+]|\d{1,9}[.)])\s+(.*)/;

/**
 * Shows `text` in `target`. Blocks that have not changed since the last call keep their elements,
 * so that a selection survives while text is added at the end.
 */
export function showMarkdown(target, text) {
  const found = blocks(text);
  const kept = [...target.children];
  let same = 0;
  while (same < found.length && kept[same]?.source === found[same].source) same += 1;
  for (const old of kept.slice(same)) old.remove();
  for (const block of found.slice(same)) {
    const made = block.make();
    made.source = block.source;
    target.append(made);
  }
}

/** The blocks of `text`: what each is made from, and how. */
function blocks(text) {
  const lines = text.split("\n");
  const found = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [end, make] = blockAt(lines, at);
    found.push({ source: lines.slice(at, end).join("\n"), make });
    at = end;
  }
  return found;
}

function blockAt(lines, at) {
  const fence = FENCE.exec(lines[at]);
  if (fence) return codeBlock(lines, at, fence);
  const heading = HEADING.exec(lines[at]);
  if (heading) {
    const level = Math.min(heading[1].length + 2, 6); // below the message's own heading
    return [at + 1, () => element(`h${level}`, {}, ...inline(heading[2]))];
  }
  if (ITEM.test(lines[at])) return list(lines, at);
  const table = tableAt(lines, at, startsBlock);
  if (table) return table;
  const quoted = lines[at].startsWith(">");
  const continues = (line) => line.startsWith(">") === quoted && !startsBlock(line);
  let end = at + 1;
  while (end < lines.length && continues(lines[end]) && !startsTable(lines, end)) end += 1;
  const text = lines.slice(at, end).map((line) => (quoted ? line.replace(/^>\s?/, "") : line));
  const name = quoted ? "blockquote" : "p";
  return [end, () => element(name, {}, ...inline(text.join("\n")))];
}

function startsBlock(line) {
  return line.trim() === "" || FENCE.test(line) || HEADING.test(line) || ITEM.test(line);
}

/** The index of the first line after `at` that does not continue the block. */
function endOf(lines, at, continues) {
  let end = at + 1;
  while (end < lines.length && continues(lines[end])) end += 1;
  return end;
}

function codeBlock(lines, at, [, mark, language]) {
  const close = endOf(lines, at, (line) => !line.trim().startsWith(mark));
  const code = lines.slice(at + 1, close).join("\n");
  const make = () =>
    element(
      "div",
      { className: "code" },
      element(
        "div",
        { className: "code-head" },
        element("span", {}, language || "code"),
        ...copyButton("Copy code", () => code),
      ),
      element("pre", { tabIndex: 0 }, element("code", {}, code)),
    );
  return [Math.min(close + 1, lines.length), make];
}

/** A list and those in it, by their indentation. */
function list(lines, at) {
  const items = [];
  let end = at;
  for (let next = at; next < lines.length; next += 1) {
    const line = lines[next];
    const item = ITEM.exec(line);
    if (item) items.push({ indent: item[1].length, mark: item[2], text: item[3] });
    else if (/^\s+\S/.test(line) && !FENCE.test(line)) items.at(-1).text += `\n${line.trim()}`;
    else if (line.trim() !== "") break;
    if (line.trim() !== "") end = next + 1; // an empty line counts if the list continues after it
  }
  return [end, () => listOf(items)];
}

function listOf(items) {
  const ordered = /\d/.test(items[0].mark);
  const made = element(ordered ? "ol" : "ul");
  if (ordered) made.start = parseInt(items[0].mark, 10);
  for (let at = 0; at < items.length; ) {
    const end = endOf(items, at, (item) => item.indent > items[0].indent + 1);
    const inner = items.slice(at + 1, end);
    const nested = inner.length > 0 ? [listOf(inner)] : [];
    made.append(element("li", {}, ...inline(items[at].text), ...nested));
    at = end;
  }
  return made;
}
