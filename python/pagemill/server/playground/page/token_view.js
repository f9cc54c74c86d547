// The tokens of an answer: the less likely one was, the stronger its colour; its probability and what
// else the model might have written appear on hover or focus.

import { element } from "./elements.js";

const STEPS = [0.9, 0.6, 0.3, 0.1]; // probabilities at which the colour becomes stronger

let views = 0; // numbers the views of the page, for ids

/** A region with the tokens of an answer. Left and right arrows move between them. */
export class TokenView {
  constructor() {
    views += 1;
    const id = `token-details-${views}`;
    this.details = element("div", { className: "token-details", id, hidden: true });
    this.line = element("div", {
      className: "tokens",
      role: "group",
      "aria-label": "Tokens; arrow keys move between them",
    });
    this.element = element("div", { className: "token-view" }, this.line, this.details);
    this.shown = 0;
    this.line.addEventListener("pointerover", (event) => this.#show(event.target));
    this.line.addEventListener("focusin", (event) => this.#show(event.target));
    this.line.addEventListener("keydown", (event) => this.#move(event));
    this.element.addEventListener("pointerleave", () => this.#hide());
    this.line.addEventListener("focusout", () => this.#hide());
  }

  /** Shows `tokens`, to which later calls add. */
  update(tokens) {
    for (const token of tokens.slice(this.shown)) {
      const level = STEPS.filter((step) => probability(token) < step).length;
      const properties = { className: `token level-${level}`, tabIndex: -1, role: "note" };
      const made = element("span", properties, token.token.replaceAll("\n", "\u21b5\n"));
      made.setAttribute("aria-label", `${visible(token.token)}, ${percent(token)}`);
      made.setAttribute("aria-describedby", this.details.id);
      made.token = token;
      this.line.append(made);
    }
    if (this.shown === 0 && tokens.length > 0) this.line.firstElementChild.tabIndex = 0;
    this.shown = tokens.length;
  }

  #move(event) {
    if (event.key === "Escape") this.#hide();
    const next = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" };
    const target = event.target[next[event.key]];
    if (!target) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  #show(target) {
    if (!target.token) return;
    const { token } = target;
    const others = token.top_logprobs.length > 0 ? token.top_logprobs : [token];
    const isChosen = (one) => one.token === token.token && one.logprob === token.logprob;
    const rows = others.map((other) => alternative(other, isChosen(other)));
    if (!others.some(isChosen)) rows.push(alternative(token, true));
    this.details.replaceChildren(element("table", {}, element("tbody", {}, ...rows)));
    this.details.hidden = false;
    const room = this.element.clientWidth - this.details.offsetWidth;
    this.details.style.left = `${Math.max(0, Math.min(target.offsetLeft, room))}px`;
    this.details.style.top = `${target.offsetTop + target.offsetHeight + 4}px`;
  }

  #hide() {
    this.details.hidden = true;
  }
}

function alternative(token, chosen) {
  const meter = element("meter", { min: 0, max: 1, value: probability(token) });
  meter.setAttribute("aria-hidden", "true");
  return element(
    "tr",
    { className: chosen ? "chosen" : "" },
    element("th", { scope: "row" }, visible(token.token)),
    element("td", {}, meter),
    element("td", {}, percent(token)),
  );
}

function probability(token) {
  return Math.exp(token.logprob);
}

function percent(token) {
  const value = 100 * probability(token);
  return `${value >= 0.1 || value === 0 ? value.toFixed(1) : value.toExponential(0)} %`;
}

/** The token with spaces and line breaks made visible. */
function visible(text) {
  return text.replaceAll(" ", "\u2423").replaceAll("\n", "\u21b5").replaceAll("\t", "\u21e5");
}
