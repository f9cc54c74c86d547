// The page of the HTTP API: what the server's OpenAPI document says, to be read.

import { Api } from "./api.js";
import { ApiKey } from "./api_key.js";
import { byId, element } from "./elements.js";
import { Schemas } from "./schemas.js";

const METHODS = ["get", "post", "put", "patch", "delete"];

class Page {
  constructor() {
    this.key = new ApiKey(() => this.load());
    this.api = new Api(() => this.key.value);
    this.routes = [];
    byId("filter").addEventListener("input", () => this.filter());
  }

  async load() {
    let description;
    try {
      description = await this.api.description();
    } catch (error) {
      byId("status").textContent = error.message;
      if (error.status === 401) this.key.ask(error.message);
      return;
    }
    const schemas = new Schemas(description);
    this.routes = Object.entries(description.paths).flatMap(([path, methods]) =>
      METHODS.filter((method) => method in methods).map((method) =>
        route(method, path, methods[method], schemas),
      ),
    );
    byId("routes").replaceChildren(...this.routes.map((each) => each.view));
    byId("about").textContent =
      `The routes of this server (version ${description.info.version}), with the fields of their ` +
      "bodies. Select one to read it.";
    this.filter();
  }

  filter() {
    const wanted = byId("filter").value.trim().toLowerCase();
    let shown = 0;
    for (const { view, words } of this.routes) {
      view.hidden = !words.includes(wanted);
      shown += !view.hidden;
    }
    byId("status").textContent = `${shown} of ${this.routes.length} routes`;
  }
}

function route(method, path, operation, schemas) {
  const request = Object.values(operation.requestBody?.content ?? {})[0]?.schema; // JSON or a form
  const summary = (operation.summary ?? "").replaceAll("`", "");
  const fields = request === undefined ? [] : schemas.names(request);
  const view = element(
    "details",
    {},
    element(
      "summary",
      {},
      element("code", {}, `${method.toUpperCase()} ${path}`),
      " ",
      element("p", {}, summary),
    ),
  );
  const once = () => view.append(details(operation, request, schemas));
  view.addEventListener("toggle", once, { once: true });
  return { view, words: [method, path, summary, ...fields].join(" ").toLowerCase() };
}

function details(operation, request, schemas) {
  const parts = [];
  if (operation.parameters?.length) {
    parts.push(element("h2", {}, "Parameters"), schemas.parameters(operation.parameters));
  }
  if (request !== undefined) {
    parts.push(element("h2", {}, "Body"), schemas.view(request));
  }
  const answers = operation.responses["200"]?.content ?? {};
  for (const [kind, { schema }] of Object.entries(answers)) {
    const isStream = kind === "text/event-stream";
    const title = isStream ? "An event of a stream" : "Answer";
    const payload = isStream ? schema.properties.data.anyOf[0].contentSchema.anyOf[0] : schema;
    parts.push(element("h2", {}, title), schemas.view(payload));
  }
  const refusals = Object.entries(operation.responses).filter(([status]) => status !== "200");
  if (refusals.length) {
    const written = refusals.map(([status, each]) => `${status} ${each.description}`).join(", ");
    parts.push(element("h2", {}, "Refusals"), element("p", {}, written));
  }
  return element("div", {}, ...parts);
}

new Page().load();
