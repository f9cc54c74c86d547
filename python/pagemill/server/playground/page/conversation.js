// The messages of a chat as a tree: regenerating and editing add a branch, and nothing is lost.

/**
 * A message and what followed it. `role` is "user" (with `text` and `images`, a list of data: URLs), "assistant" (with `answer`) or
 * "tool" (with `results`, a list of {id, name, text}).
 */
class Node {
  constructor(parent, role, content) {
    this.parent = parent;
    this.role = role;
    this.children = [];
    this.selected = 0; // the child that is shown
    Object.assign(this, content);
  }

  /** The messages that requests carry for this node. */
  messages() {
    if (this.role === "assistant") return [this.answer.message()];
    if (this.role === "user") return [{ role: "user", content: this.#content() }];
    return this.results.map(({ id, text }) => ({ role: "tool", tool_call_id: id, content: text }));
  }

  #content() {
    if (this.images.length === 0) return this.text;
    const images = this.images.map((url) => ({ type: "image_url", image_url: { url } }));
    return this.text.trim() === "" ? images : [...images, { type: "text", text: this.text }];
  }
}

/** A chat, of which one path from the first message to the last is shown. */
export class Conversation {
  constructor() {
    this.root = new Node(null, "root", {});
  }

  /** Adds a message after `parent`, beside those that are there, and shows it. */
  add(parent, role, content) {
    const node = new Node(parent, role, content);
    parent.selected = parent.children.push(node) - 1;
    return node;
  }

  /** The nodes that are shown, first to last. */
  path() {
    const nodes = [];
    let node = this.root;
    while (node.children.length > 0) {
      node = node.children[node.selected];
      nodes.push(node);
    }
    return nodes;
  }

  /** The last node that is shown; the root of an empty chat. */
  last() {
    return this.path().at(-1) ?? this.root;
  }

  /** Shows the branch `step` places after the one that `node` begins; returns its first node. */
  turn(node, step) {
    const { parent } = node;
    const at = parent.children.indexOf(node) + step;
    parent.selected = Math.min(Math.max(at, 0), parent.children.length - 1);
    return parent.children[parent.selected];
  }

  /** The messages up to `node`, as a request carries them. */
  messages(node) {
    const messages = [];
    for (let at = node; at.parent !== null; at = at.parent) messages.unshift(...at.messages());
    return messages;
  }
}
