// The content of an answer while it arrives and afterwards.

import { element } from "./elements.js";
import { showMarkdown } from "./markdown.js";
import { TokenView } from "./token_view.js";
import { ToolCallView } from "./tool_call_view.js";

const NOTES = {
  length: "The answer reached the largest number of tokens.",
  content_filter: "The answer was filtered.",
};

/** Shows an `Answer`. `onResults` gets results of the tools that it calls. */
export class AnswerView {
  constructor(onResults) {
    this.thoughts = element("div", { className: "thoughts" });
    this.reasoning = element(
      "details",
      { className: "reasoning", hidden: true },
      element("summary", {}, "Reasoning"),
      this.thoughts,
    );
    this.waiting = element("p", { className: "waiting" }, "Waiting for the first token");
    this.text = element("div", { className: "text" });
    this.tokens = new TokenView();
    this.calls = new ToolCallView(onResults);
    this.error = element("div", { className: "error", role: "alert", hidden: true });
    this.figures = element("p", { className: "figures" });
    this.element = element(
      "div",
      {},
      ...[this.reasoning, this.waiting, this.text, this.tokens.element],
      ...[this.calls.element, this.error, this.figures],
    );
    this.showTokens(true);
  }

  /** Whether tokens are shown instead of the text. */
  get tokensShown() {
    return !this.tokens.element.hidden;
  }

  /** Shows tokens, if there are some, or the text. */
  showTokens(shown) {
    this.tokens.element.hidden = !shown;
    this.text.hidden = shown && this.tokens.shown > 0;
  }

  /** Shows `answer`; `last`: no message follows. */
  update(answer, last) {
    this.reasoning.hidden = answer.reasoning === "";
    this.reasoning.classList.toggle("active", answer.running && answer.content === "");
    this.thoughts.textContent = answer.reasoning.trim();
    this.waiting.hidden = !answer.running || answer.firstAt !== null;
    this.tokens.update(answer.tokens);
    this.showTokens(this.tokensShown);
    showMarkdown(this.text, answer.content);
    this.calls.update(answer.calls, last && answer.waitsForTools);
    this.#showEnd(answer);
  }

  #showEnd(answer) {
    const stopped = answer.state === "stopped" ? ["Stopped."] : [];
    const note = NOTES[answer.finishReason];
    const parts = [...stopped, ...(note ? [note] : []), ...figuresOf(answer)];
    this.figures.textContent = answer.running ? "" : parts.join(" · ");
    const { error } = answer;
    if (error === null || !this.error.hidden) return; // an alert is read once
    const details = [
      error.status ? `status ${error.status}` : "",
      error.param ? `field ${error.param}` : "",
      error.retryAfter ? `try again in ${error.retryAfter} s` : "",
      error.requestId ? `request ${error.requestId}` : "",
    ];
    this.error.append(element("p", {}, error.message));
    const line = details.filter(Boolean).join(" · ");
    if (line) this.error.append(element("p", { className: "figures" }, line));
    this.error.hidden = false;
  }
}

function figuresOf(answer) {
  const parts = [];
  const { usage, secondsToFirst, tokensPerSecond } = answer;
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    const fromCache = cached > 0 ? ` (${cached} cached)` : "";
    parts.push(`${usage.prompt_tokens}${fromCache} prompt tokens`);
    parts.push(`${usage.completion_tokens} tokens`);
  }
  if (secondsToFirst !== null) parts.push(`first after ${secondsToFirst.toFixed(2)} s`);
  if (tokensPerSecond !== null) parts.push(`${tokensPerSecond.toFixed(1)} tokens/s`);
  return parts;
}
