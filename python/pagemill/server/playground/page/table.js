// Tables of Markdown: a line of headings, a line of dashes, and rows.

import { element } from "./elements.js";
import { inline } from "./inline.js";

const MOST_COLUMNS = 100;
const DASHES = /^:?-+:?$/;
const BREAK = /(?<!\\)\|/;

/**
 * The table that begins at line `at`, as the index of the line after it and what makes its element;
 * null if none begins there. A line for which `startsBlock` is true ends it.
 */
export function tableAt(lines, at, startsBlock) {
  if (!startsTable(lines, at)) return null;
  const classes = cellsOf(lines[at + 1]).map(alignment);
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !startsBlock(lines[end])) end += 1;
  const make = () => {
    const [head, , ...rows] = lines.slice(at, end).map(cellsOf);
    const table = element(
      "table",
      {},
      element("thead", {}, rowOf("th", head, classes)),
      element("tbody", {}, ...rows.map((row) => rowOf("td", row, classes))),
    );
    const properties = { className: "table", tabIndex: 0, role: "group", "aria-label": "Table" };
    return element("div", properties, table);
  };
  return [end, make];
}

/** Whether line `at` is one of headings: one of as many dashes follows. */
export function startsTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return false;
  const dashes = cellsOf(lines[at + 1]);
  if (dashes.length > MOST_COLUMNS || !dashes.every((cell) => DASHES.test(cell))) return false;
  return cellsOf(lines[at]).length === dashes.length;
}

/** The texts between the bars of a line, without those at its ends. */
function cellsOf(line) {
  const cells = line.trim().split(BREAK);
  if (cells[0].trim() === "") cells.shift();
  if (cells.at(-1)?.trim() === "") cells.pop();
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function alignment(dashes) {
  const [left, right] = [dashes.startsWith(":"), dashes.endsWith(":")];
  if (right) return left ? "centered" : "right";
  return "";
}

function propertiesOf(className) {
  return className ? { className } : {};
}

/** A row; cells beyond the headings are dropped, and none are added. */
function rowOf(name, cells, classes) {
  const made = cells
    .slice(0, classes.length)
    .map((cell, at) => element(name, propertiesOf(classes[at]), ...inline(cell)));
  return element("tr", {}, ...made);
}
