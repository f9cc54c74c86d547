// One answer of the model, put together from the chunks of its stream.

/** What has arrived of an answer. Times are in milliseconds of `performance.now()`. */
export class Answer {
  constructor(model) {
    this.model = model;
    this.state = "running"; // then "finished", "stopped" or "failed"
    this.reasoning = "";
    this.content = "";
    this.calls = []; // {id, name, arguments}
    this.tokens = []; // {token, logprob, top_logprobs}
    this.finishReason = null;
    this.usage = null;
    this.error = null;
    this.began = performance.now();
    this.firstAt = null;
    this.lastAt = null;
  }

  /** Adds a chunk of the stream. */
  add(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    for (const choice of chunk.choices) {
      const { delta } = choice;
      if (delta.content || delta.reasoning || delta.tool_calls) this.#arrived();
      this.content += delta.content ?? "";
      this.reasoning += delta.reasoning ?? "";
      for (const call of delta.tool_calls ?? []) this.#addCall(call);
      this.tokens.push(...(choice.logprobs?.content ?? []));
      this.finishReason = choice.finish_reason ?? this.finishReason;
    }
  }

  /** Ends the answer; `state` is one of those above. */
  end(state, error = null) {
    this.state = state;
    this.error = error;
  }

  get running() {
    return this.state === "running";
  }

  /** Whether the model waits for results of the tools that it called. */
  get waitsForTools() {
    return this.state === "finished" && this.calls.length > 0;
  }

  /** Seconds from the request to the first output; null before it. */
  get secondsToFirst() {
    return this.firstAt === null ? null : (this.firstAt - this.began) / 1000;
  }

  /** Speed after the first token; null if it is not known. Calls arrive in one piece when they are
   * complete, so their tokens have no times. */
  get tokensPerSecond() {
    if (this.calls.length > 0) return null;
    const tokens = (this.usage?.completion_tokens ?? 0) - 1;
    const seconds = (this.lastAt - this.firstAt) / 1000;
    return tokens > 0 && seconds > 0 ? tokens / seconds : null;
  }

  /** The message that later requests carry. Calls of an answer that did not end are left out: their
   * arguments may be half of what the model meant. */
  message() {
    const message = { role: "assistant", content: this.content };
    if (this.waitsForTools) {
      message.tool_calls = this.calls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: call.arguments },
      }));
    }
    return message;
  }

  #arrived() {
    this.lastAt = performance.now();
    this.firstAt ??= this.lastAt;
  }

  #addCall(delta) {
    this.calls[delta.index] ??= { id: "", name: "", arguments: "" };
    const call = this.calls[delta.index];
    call.id = delta.id ?? call.id;
    call.name += delta.function?.name ?? "";
    call.arguments += delta.function?.arguments ?? "";
  }
}
