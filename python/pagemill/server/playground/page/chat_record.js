// A chat as plain data: what the browser keeps, and what a file of an exported chat holds.
//
//     {format, version, title, changed, settings, messages: [{parent, shown, role, ...}]}
//
// `messages` lists all versions of all messages, each after the one that it follows: `parent` is that
// one's index, -1 for the first message. Probabilities of tokens are not kept: they take a hundred
// times as much room as the text.

import { Answer } from "./answer.js";
import { Conversation } from "./conversation.js";

const FORMAT = "pagemill chat";
const VERSION = 1;
const MOST_MESSAGES = 10_000;
const TITLE_CHARS = 60;

/** A text that does not hold a chat; its message says why. */
export class ChatError extends Error {}

/** The record of `conversation` with `settings`, which are strings by name. */
export function recordOf(conversation, settings) {
  const messages = [];
  const add = (node, parent) => {
    const at = messages.push({
      parent,
      shown: node.parent.children[node.parent.selected] === node,
      role: node.role,
      ...contentOf(node),
    });
    return node.children.map((child) => [child, at - 1]);
  };
  const waiting = conversation.root.children.map((child) => [child, -1]);
  while (waiting.length > 0) waiting.unshift(...add(...waiting.shift()));
  const changed = new Date().toISOString();
  return { format: FORMAT, version: VERSION, title: titleOf(messages), changed, settings, messages };
}

/** The chat of a record, and its settings. Throws ChatError for what is no record. */
export function chatOf(record) {
  check(record?.format === FORMAT, "This is not a chat of the playground.");
  check(record.version === VERSION, "This chat is of another version of the playground.");
  const { messages } = record;
  check(Array.isArray(messages) && messages.length <= MOST_MESSAGES, "It has too many messages.");
  const conversation = new Conversation();
  const nodes = [];
  for (const message of messages) {
    const { parent, role } = message ?? {};
    const follows = parent === -1 ? conversation.root : nodes[Number.isInteger(parent) ? parent : -1];
    const kind = KINDS.get(role);
    check(kind?.follows.includes(follows?.role), "Its messages are not in an order of a chat.");
    nodes.push(conversation.add(follows, role, kind.read(message)));
  }
  messages.forEach(({ shown }, at) => {
    const { parent } = nodes[at];
    if (shown === true) parent.selected = parent.children.indexOf(nodes[at]);
  });
  return { conversation, settings: stringsOf(record.settings) };
}

/** The record in `text`. Throws ChatError for what is no JSON. */
export function parseRecord(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ChatError("This is not a chat of the playground: it is not JSON.");
  }
}

/** What each role follows, and how the content of its messages is read. */
const KINDS = new Map([
  [
    "user",
    {
      follows: ["root", "assistant"],
      read: ({ text, images }) => ({ text: stringOf(text), images: imagesOf(images ?? []) }),
    },
  ],
  [
    "assistant",
    { follows: ["root", "user", "tool"], read: ({ answer }) => ({ answer: answerOf(answer) }) },
  ],
  ["tool", { follows: ["assistant"], read: ({ results }) => ({ results: resultsOf(results) }) }],
]);

function contentOf({ role, text, images, answer, results }) {
  if (role === "user") return images.length === 0 ? { text } : { text, images };
  if (role === "tool") return { results };
  const { model, state, reasoning, content, calls, finishReason, usage, error } = answer;
  return {
    answer: {
      ...{ model, reasoning, content, finishReason, usage },
      calls: calls.filter(Boolean),
      state: answer.running ? "stopped" : state, // what has arrived stays
      error: error && { message: error.message, status: error.status, param: error.param },
      firstMs: answer.firstAt && answer.firstAt - answer.began,
      lastMs: answer.lastAt && answer.lastAt - answer.began,
    },
  };
}

function answerOf(data) {
  check(data !== null && typeof data === "object", "A message has no answer.");
  const answer = new Answer(stringOf(data.model));
  answer.state = ["finished", "stopped", "failed"].includes(data.state) ? data.state : "stopped";
  answer.reasoning = stringOf(data.reasoning);
  answer.content = stringOf(data.content);
  answer.calls = listOf(data.calls).map((call) => ({
    id: stringOf(call.id),
    name: stringOf(call.name),
    arguments: stringOf(call.arguments),
  }));
  answer.finishReason = typeof data.finishReason === "string" ? data.finishReason : null;
  answer.usage = usageOf(data.usage);
  answer.error = data.error ? errorOf(data.error) : null;
  answer.began = 0;
  answer.firstAt = numberOf(data.firstMs);
  answer.lastAt = numberOf(data.lastMs);
  return answer;
}

/** Images are in the record itself: a chat of a file loads nothing from elsewhere. */
function imagesOf(data) {
  const holds = Array.isArray(data) && data.every((url) => /^data:image\//.test(url));
  check(holds, "A message has something else for an image.");
  return data;
}

function resultsOf(data) {
  return listOf(data).map(({ id, name, text }) => ({
    id: stringOf(id),
    name: stringOf(name),
    text: stringOf(text),
  }));
}

function usageOf(data) {
  const prompt_tokens = numberOf(data?.prompt_tokens);
  const completion_tokens = numberOf(data?.completion_tokens);
  if (prompt_tokens === null || completion_tokens === null) return null;
  const cached_tokens = numberOf(data.prompt_tokens_details?.cached_tokens) ?? 0;
  return { prompt_tokens, completion_tokens, prompt_tokens_details: { cached_tokens } };
}

function errorOf({ message, status, param }) {
  const error = { message: stringOf(message), status: numberOf(status) ?? 0 };
  return { ...error, param: typeof param === "string" ? param : null };
}

function titleOf(messages) {
  const text = messages.find(({ role }) => role === "user")?.text ?? "";
  const line = text.trim().split("\n", 1)[0];
  return line.length > TITLE_CHARS ? `${line.slice(0, TITLE_CHARS)}…` : line;
}

function check(holds, sentence) {
  if (!holds) throw new ChatError(sentence);
}

function stringOf(value) {
  check(typeof value === "string", "A message has no text.");
  return value;
}

function numberOf(value) {
  return Number.isFinite(value) ? value : null;
}

function listOf(value) {
  const holds = Array.isArray(value) && value.every((one) => one !== null && typeof one === "object");
  check(holds, "A message has no list of calls or results.");
  return value;
}

/** The strings of `data`, by name. */
function stringsOf(data) {
  const entries = Object.entries(data ?? {});
  return Object.fromEntries(entries.filter(([, value]) => typeof value === "string"));
}
