// JSON Schemas of an OpenAPI document as tables of fields.

import { element } from "./elements.js";

const BOUNDS = [
  ["minimum", "at least"],
  ["exclusiveMinimum", "more than"],
  ["maximum", "at most"],
  ["exclusiveMaximum", "less than"],
  ["minLength", "characters: at least"],
  ["maxLength", "characters: at most"],
  ["minItems", "items: at least"],
  ["maxItems", "items: at most"],
];

const NO_BOUND = 2 ** 31 - 1; // what a number is stored in, and nothing to read

export class Schemas {
  constructor(description) {
    this.named = description.components?.schemas ?? {};
  }

  /** A table of the fields of an object, or the type of anything else. */
  view(schema) {
    const { properties = {}, required = [] } = this.#resolved(schema);
    const rows = Object.entries(properties).map(([name, each]) =>
      this.#row(name, each, required.includes(name)),
    );
    return rows.length ? table(rows) : element("p", {}, this.type(schema));
  }

  /** A table of the parameters of a path and a query. */
  parameters(parameters) {
    return table(parameters.map((each) => this.#row(each.name, each.schema, each.required)));
  }

  /** The names of an object's fields. */
  names(schema) {
    return Object.keys(this.#resolved(schema).properties ?? {});
  }

  /** The type in words. */
  type(schema) {
    if (schema === true || schema === undefined) return "any value";
    if (schema.$ref) return nameOf(schema);
    if ("const" in schema) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
    const ways = schema.anyOf ?? schema.oneOf;
    if (ways) return ways.map((each) => this.type(each)).join(" or ");
    if (schema.type === "array") return `list of ${this.type(schema.items)}`;
    if (schema.type === "object" && schema.additionalProperties) {
      return `object of ${this.type(schema.additionalProperties)}`;
    }
    return schema.type ?? "any value";
  }

  #row(name, schema, isRequired) {
    const said = [this.type(schema) + (isRequired ? ", required" : "")];
    const ways = [schema, ...(schema.anyOf ?? [])];
    for (const way of ways) {
      for (const [key, words] of BOUNDS) {
        if (Math.abs(way[key]) < NO_BOUND) said.push(`${words} ${way[key]}`);
      }
    }
    const standard = schema.default;
    if (standard !== undefined && standard !== null) said.push(`default ${JSON.stringify(standard)}`);
    const about = ways.map((way) => way.description).find(Boolean);
    const cell = element("td", {}, about ? element("p", {}, about) : "");
    const inner = this.#objects(schema).map((each) => this.#inner(each));
    cell.append(...inner);
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, element("code", {}, name)),
      element("td", {}, said.join("; ")),
      cell,
    );
  }

  // Filled when it is opened: schemas may refer to themselves.
  #inner(schema) {
    const view = element("details", {}, element("summary", {}, nameOf(schema)));
    const once = () => view.append(element("div", {}, this.view(schema)));
    view.addEventListener("toggle", once, { once: true });
    return view;
  }

  /** References to objects with fields, in a schema and in the alternatives and items of it. */
  #objects(schema) {
    if (typeof schema !== "object") return [];
    if (schema.$ref) return this.names(schema).length ? [schema] : [];
    const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), schema.items];
    return parts.filter((each) => each !== undefined).flatMap((each) => this.#objects(each));
  }

  #resolved(schema) {
    return schema.$ref ? (this.named[nameOf(schema)] ?? {}) : schema;
  }
}

function nameOf(schema) {
  return schema.$ref.split("/").at(-1);
}

function table(rows) {
  const heads = ["Field", "Type", ""].map((text) => element("th", { scope: "col" }, text));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows),
  );
}
