// The server's HTTP API, as far as the playground uses it.

import { eventData } from "./event_stream.js";

const BASE = new URL("../", import.meta.url); // also right behind a proxy that adds a path

/** A refusal of the server, or a failure to reach it (status 0). */
export class ApiError extends Error {
  constructor(message, { status = 0, param = null, requestId = "", retryAfter = "" } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }
}

/** Calls the server with the key that `key()` returns; "" is no key. */
export class Api {
  constructor(key) {
    this.key = key;
  }

  /** The served models: {id, takesImages} of each. */
  async models() {
    const response = await this.#fetch("v1/models");
    return (await response.json()).data.map(({ id, input_modalities }) => ({
      id,
      takesImages: input_modalities?.includes("image") ?? false,
    }));
  }

  /** The server's OpenAPI document. */
  async description() {
    return await (await this.#fetch("openapi.json")).json();
  }

  /** The server's metrics as Prometheus text. */
  async metrics() {
    return await (await this.#fetch("metrics")).text();
  }

  /** Yields the chunks of a streamed chat completion; aborting `signal` ends it. */
  async *chat(fields, signal) {
    const body = { ...fields, stream: true, stream_options: { include_usage: true } };
    const response = await this.#fetch("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    const requestId = response.headers.get("x-request-id") ?? "";
    let ended = false;
    for await (const data of reachable(eventData(response.body))) {
      if (data === "[DONE]") {
        ended = true;
        continue;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw refusal(chunk.error, chunk.error.code, requestId);
      yield chunk;
    }
    if (!ended) throw new ApiError("The stream ended early.", { requestId });
  }

  async #fetch(path, options = {}) {
    const headers = { ...options.headers };
    const key = this.key();
    if (key) headers.Authorization = `Bearer ${key}`;
    let response;
    try {
      response = await fetch(new URL(path, BASE), { ...options, headers, cache: "no-store" });
    } catch (error) {
      throw unreachable(error);
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => ({}));
    throw refusal(
      body.error ?? { message: `The server answered with status ${response.status}.` },
      response.status,
      response.headers.get("x-request-id") ?? "",
      response.headers.get("retry-after") ?? "",
    );
  }
}

function refusal(error, status, requestId, retryAfter = "") {
  return new ApiError(error.message, { status, param: error.param, requestId, retryAfter });
}

function unreachable(error) {
  if (error.name === "AbortError") return error;
  return new ApiError(`The server cannot be reached (${error.message}).`);
}

async function* reachable(events) {
  try {
    yield* events;
  } catch (error) {
    throw unreachable(error);
  }
}
