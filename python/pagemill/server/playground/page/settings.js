// The panel of settings: the model, sampling parameters, tools and what else a request carries.

import { byId, element } from "./elements.js";
import { EXAMPLE, parseJson, parseTools } from "./tools.js";

const STORED = "pagemill.settings"; // in the browser's storage for this server
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];
const ALTERNATIVES = 5; // shown for a token

/** A setting that cannot be sent. */
export class SettingsError extends Error {}

/** Reads the form of the page. */
export class Settings {
  constructor() {
    this.form = byId("settings-form");
    this.#fill(JSON.parse(localStorage.getItem(STORED) ?? "{}"));
    this.form.addEventListener("input", () => this.#changed());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    byId("tools-example").addEventListener("click", () => {
      this.#field("tools").value = EXAMPLE;
      this.#changed();
      this.#field("tools").focus();
    });
    byId("reset-settings").addEventListener("click", () => {
      const model = this.model;
      this.form.reset();
      this.#field("model").value = model;
      this.#changed();
    });
    this.#changed();
  }

  /** The name of the chosen model; "" before the list of models is there. */
  get model() {
    return this.#field("model").value;
  }

  /** What the form holds: strings by name. */
  get values() {
    return Object.fromEntries(new FormData(this.form));
  }

  /** Fills the form with `values`. The model stays if theirs is not served. */
  set values(values) {
    const { model } = this;
    this.form.reset();
    this.#fill(values);
    if (this.model === "") this.#field("model").value = model;
    this.#changed();
  }

  /** Offers `models`. */
  setModels(models) {
    const select = this.#field("model");
    const chosen = select.value || this.stored.model;
    select.replaceChildren(...models.map((name) => element("option", { value: name }, name)));
    if (models.includes(chosen)) select.value = chosen;
  }

  /**
   * The request with `messages` and these settings. Fields that are left empty are not sent, so the
   * server's defaults hold.
   *
   * Throws SettingsError, and moves the focus to the field at fault.
   */
  request(messages) {
    const request = { messages: this.#withSystem(messages) };
    if (this.model) request.model = this.model;
    for (const name of NUMBERS) {
      const field = this.#field(name);
      if (!field.checkValidity()) throw this.#at(name, field.validationMessage);
      if (field.value !== "") request[name] = Number(field.value);
    }
    const stop = this.#field("stop").value.split("\n").filter((line) => line !== "");
    if (stop.length > 0) request.stop = stop;
    const format = this.#responseFormat();
    if (format) request.response_format = format;
    const tools = this.#reading("tools", parseTools);
    if (tools.length > 0) {
      request.tools = tools;
      request.tool_choice = this.#toolChoice();
    }
    if (this.#field("logprobs").checked) {
      request.logprobs = true;
      request.top_logprobs = ALTERNATIVES;
    }
    return request;
  }

  #withSystem(messages) {
    const system = this.#field("system").value;
    return system.trim() === "" ? messages : [{ role: "system", content: system }, ...messages];
  }

  #responseFormat() {
    const type = this.#field("response_format").value;
    if (type === "text") return null;
    if (type === "json_object") return { type };
    const schema = this.#reading("schema", parseJson);
    return { type, json_schema: { name: "answer", schema } };
  }

  #toolChoice() {
    const chosen = this.#field("tool_choice").selectedOptions[0];
    if (chosen.parentElement.localName !== "optgroup") return chosen.value;
    return { type: "function", function: { name: chosen.textContent } };
  }

  /** Offers the tools, if their text is right, to be called by name. */
  #offerTools() {
    let tools = [];
    try {
      tools = parseTools(this.#field("tools").value);
    } catch {
      return; // the text is being written
    }
    const select = this.#field("tool_choice");
    const chosen = select.value || this.stored.tool_choice;
    const names = tools.map((tool) => tool.function.name);
    byId("tool-names").replaceChildren(
      ...names.map((name) => element("option", { value: `named ${name}` }, name)),
    );
    select.value = chosen;
    if (select.value === "") select.value = "auto"; // the chosen tool has gone
    byId("tool-choice-row").hidden = tools.length === 0;
  }

  #reading(name, parse) {
    try {
      return parse(this.#field(name).value);
    } catch (error) {
      throw this.#at(name, error.message);
    }
  }

  #at(name, message) {
    this.#show(name, message);
    this.form.dispatchEvent(new Event("problem"));
    this.#field(name).focus();
    return new SettingsError(message);
  }

  #show(name, message) {
    const field = this.#field(name);
    const shown = document.getElementById(`${name}-error`);
    field.setAttribute("aria-invalid", String(message !== ""));
    if (shown) shown.textContent = message;
  }

  #changed() {
    for (const name of [...NUMBERS, "tools", "schema"]) this.#show(name, "");
    byId("schema-row").hidden = this.#field("response_format").value !== "json_schema";
    this.#offerTools();
    localStorage.setItem(STORED, JSON.stringify(this.values));
  }

  #fill(values) {
    this.stored = values;
    for (const [name, value] of Object.entries(values)) {
      const field = this.form.elements.namedItem(name);
      if (field?.type === "checkbox") field.checked = true;
      else if (field) field.value = value;
    }
  }

  #field(name) {
    return this.form.elements.namedItem(name);
  }
}
