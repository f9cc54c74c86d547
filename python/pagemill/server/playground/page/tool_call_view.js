// The tools that an answer calls, as cards; the user writes the results.

import { element, sends } from "./elements.js";
import { indented } from "./tools.js";

let cards = 0; // numbers the cards of the page, for ids

/** The calls of one answer. `onResults` gets the results, a list of {id, name, text}. */
export class ToolCallView {
  constructor(onResults) {
    this.element = element("div", { className: "calls" });
    this.cards = [];
    this.form = element("form", { className: "results" });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      onResults(this.#results());
    });
    this.form.addEventListener("keydown", (event) => this.#enter(event));
    this.send = element("button", { type: "submit", className: "primary" }, "Send results");
    this.element.append(this.form);
  }

  /** Shows `calls`; `open` asks for their results. */
  update(calls, open) {
    calls.forEach((call, at) => {
      this.cards[at] ??= this.#card(call);
      this.cards[at].name.textContent = call.name;
      this.cards[at].arguments.textContent = indented(call.arguments);
      this.cards[at].field.hidden = !open;
      this.cards[at].call = call;
    });
    if (open) this.form.append(this.send);
    else this.send.remove();
  }

  /** Moves the focus to the first result. */
  focus() {
    this.cards[0]?.input.focus();
  }

  #card(call) {
    cards += 1;
    const name = element("span", { className: "call-name" });
    const shown = element("code");
    const input = element("textarea", { id: `result-${cards}`, rows: 2 });
    input.placeholder = "What the tool returns";
    const label = element("label", { htmlFor: input.id }, `Result of ${call.name}`);
    const field = element("div", { className: "field" }, label, input);
    const head = element("div", { className: "call-head" }, element("span", {}, "Calls "), name);
    const card = element("div", { className: "call" }, head, element("pre", {}, shown), field);
    this.form.append(card);
    return { name, arguments: shown, input, field, call };
  }

  /** Enter goes to the next result, and from the last one sends all. */
  #enter(event) {
    if (!sends(event)) return;
    const at = this.cards.findIndex((card) => card.input === event.target);
    if (at < 0) return;
    event.preventDefault();
    if (at + 1 < this.cards.length) this.cards[at + 1].input.focus();
    else this.form.requestSubmit();
  }

  #results() {
    return this.cards.map(({ call, input }) => ({
      id: call.id,
      name: call.name,
      text: input.value,
    }));
  }
}

/** Results that were sent, as cards. */
export function resultCards(results) {
  return results.map(({ name, text }) => {
    const head = element("div", { className: "call-head" }, element("span", {}, "Result of "));
    head.append(element("span", { className: "call-name" }, name));
    return element("div", { className: "call" }, head, element("pre", {}, indented(text)));
  });
}
