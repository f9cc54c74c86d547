// One message on the page: who wrote it, its content, its figures and what can be done with it.

import { AnswerView } from "./answer_view.js";
import { copyButton } from "./clipboard.js";
import { button, element, sends } from "./elements.js";
import { resultCards } from "./tool_call_view.js";

let messages = 0; // numbers the messages of the page, for ids

/**
 * `actions` has what the buttons do: edit(node, text), regenerate(node), turn(node, step),
 * results(node, results).
 */
export class MessageView {
  constructor(node, actions) {
    messages += 1;
    this.node = node;
    this.actions = actions;
    this.body = element("div", { className: "body" });
    this.bar = element("div", { className: "bar" });
    const title = element("h2", { id: `message-${messages}` }, titleOf(node));
    this.article = element("article", { className: node.role }, title, this.body, this.bar);
    this.article.setAttribute("aria-labelledby", title.id);
    this.element = element("li", {}, this.article);
    this.#fill();
  }

  /** Shows what has changed. `last`: no message follows. */
  update(last) {
    const { node } = this;
    this.answer?.update(node.answer, last);
    this.article.setAttribute("aria-busy", String(node.answer?.running ?? false));
    const count = node.parent.children.length;
    const at = node.parent.children.indexOf(node);
    const state = `${count} ${at} ${node.answer?.running} ${node.answer?.tokens.length > 0}`;
    if (state === this.state) return; // buttons that stay keep the focus
    this.state = state;
    this.bar.replaceChildren(...this.#branches(at, count), ...this.#buttons());
  }

  /** Moves the focus to the first tool result that is wanted. */
  focusResults() {
    this.answer.calls.focus();
  }

  /** Moves the focus to the button that shows the version `step` places away, or to the other. */
  focusVersions(step) {
    const buttons = [...this.bar.querySelectorAll(".branches button:not(:disabled)")];
    buttons.at(step > 0 ? -1 : 0).focus();
  }

  #fill() {
    const { node } = this;
    if (node.role === "assistant") {
      this.answer = new AnswerView((results) => this.actions.results(node, results));
      this.body.replaceChildren(this.answer.element);
    } else if (node.role === "tool") {
      this.body.replaceChildren(...resultCards(node.results));
    } else {
      this.body.replaceChildren(...this.#asked());
    }
  }

  #asked() {
    const { text, images } = this.node;
    const shown = images.map((url, at) => element("img", { src: url, alt: `Image ${at + 1}` }));
    const parts = shown.length > 0 ? [element("div", { className: "images" }, ...shown)] : [];
    return text.trim() === "" ? parts : [...parts, element("p", { className: "text" }, text)];
  }

  #branches(at, count) {
    if (count < 2) return [];
    const turn = (step) => () => this.actions.turn(this.node, step);
    return [
      element(
        "span",
        { className: "branches", role: "group", "aria-label": "Versions" },
        button("‹", turn(-1), { disabled: at === 0, "aria-label": "Previous version" }),
        element("span", {}, `${at + 1} / ${count}`),
        button("›", turn(1), { disabled: at === count - 1, "aria-label": "Next version" }),
      ),
    ];
  }

  #buttons() {
    const { node } = this;
    if (node.role === "user") {
      return [...copyButton("Copy", () => node.text), button("Edit", () => this.#edit())];
    }
    if (node.role !== "assistant" || node.answer.running) return [];
    const buttons = node.answer.content ? copyButton("Copy", () => node.answer.content) : [];
    buttons.push(button("Regenerate", () => this.actions.regenerate(node)));
    if (node.answer.tokens.length > 0) buttons.push(this.#tokensButton());
    return buttons;
  }

  #tokensButton() {
    const made = button("Tokens", () => {
      this.answer.showTokens(!this.answer.tokensShown);
      made.setAttribute("aria-pressed", String(this.answer.tokensShown));
    });
    made.setAttribute("aria-pressed", String(this.answer.tokensShown));
    return made;
  }

  #edit() {
    const { node } = this;
    const input = element("textarea", { value: node.text, rows: 3, "aria-label": "Your message" });
    const end = () => {
      this.#fill();
      this.bar.hidden = false;
      this.bar.querySelector("button:last-child").focus();
    };
    const form = element(
      "form",
      { className: "edit" },
      input,
      element("div", { className: "row" }, button("Cancel", end), submitButton("Send")),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const isEmpty = input.value.trim() === "" && node.images.length === 0;
      if (!isEmpty) this.actions.edit(node, input.value);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") end();
      if (event.target !== input || !sends(event)) return;
      event.preventDefault();
      form.requestSubmit();
    });
    this.bar.hidden = true;
    this.body.replaceChildren(form);
    input.focus();
  }
}

function submitButton(label) {
  return element("button", { type: "submit", className: "primary" }, label);
}

function titleOf(node) {
  if (node.role === "assistant") return node.answer.model || "Model";
  return node.role === "user" ? "You" : "Tools";
}
