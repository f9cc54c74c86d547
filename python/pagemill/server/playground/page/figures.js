// Live figures of the server, from its metrics.

import { byId } from "./elements.js";

const INTERVAL_MS = 2000;
const REFUSED = [401, 403, 404];

/** Shows figures while the page is visible; nothing if the key does not allow `/metrics`. */
export class Figures {
  constructor(api) {
    this.api = api;
    this.list = byId("figures");
    this.before = null; // the last generated tokens, with their time
    this.refused = false;
    document.addEventListener("visibilitychange", () => this.#next());
    this.#next();
  }

  /** Tries again after a refusal: the key has changed. */
  retry() {
    this.refused = false;
    this.#next();
  }

  #next(delay = 0) {
    clearTimeout(this.timer);
    if (this.refused || document.hidden) return;
    this.timer = setTimeout(() => this.#refresh(), delay);
  }

  async #refresh() {
    try {
      this.#show(sums(await this.api.metrics()));
    } catch (error) {
      this.refused = REFUSED.includes(error.status);
      this.list.hidden = true;
    }
    this.#next(INTERVAL_MS);
  }

  #show(values) {
    this.list.hidden = !values.has("num_requests_running");
    if (this.list.hidden) return; // the model is being loaded
    const set = (name, text) => (byId(`figure-${name}`).textContent = text);
    set("running", values.get("num_requests_running"));
    set("waiting", values.get("num_requests_waiting"));
    set("cache", `${Math.round(100 * values.get("kv_cache_usage_perc"))} %`);
    set("speed", this.#speed(values.get("generation_tokens_total")));
  }

  #speed(tokens) {
    const now = performance.now();
    const { before } = this;
    this.before = { tokens, now };
    if (before === null || tokens < before.tokens) return "0";
    return Math.round((1000 * (tokens - before.tokens)) / (now - before.now));
  }
}

/** The sum of the samples of each family of Pagemill's in Prometheus text, by name. */
function sums(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const name = /^pagemill:(\w+)/.exec(line)?.[1];
    if (!name) continue;
    const value = Number(line.slice(line.lastIndexOf(" ")));
    found.set(name, (found.get(name) ?? 0) + value);
  }
  return found;
}
