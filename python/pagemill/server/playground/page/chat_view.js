// The messages of the chat on the page.

import { MessageView } from "./message_view.js";

const NEAR_END_PX = 80;

/** Keeps `list` showing the path of a conversation. `scroller` is what scrolls it. */
export class ChatView {
  constructor(list, scroller, actions) {
    this.list = list;
    this.scroller = scroller;
    this.actions = actions;
    this.views = [];
    this.frame = 0;
  }

  /** Shows `nodes`; messages that were there before keep their elements. */
  show(nodes) {
    let same = 0;
    while (same < nodes.length && this.views[same]?.node === nodes[same]) same += 1;
    for (const view of this.views.splice(same)) view.element.remove();
    for (const node of nodes.slice(same)) {
      const view = new MessageView(node, this.actions);
      this.views.push(view);
      this.list.append(view.element);
    }
    this.update();
  }

  /** Shows what has changed in the messages. */
  update() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.views.forEach((view, at) => view.update(at === this.views.length - 1));
    if (atEnd) this.toEnd();
  }

  /** Calls `update` before the next frame, once. */
  updateSoon() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.update();
    });
  }

  /** Scrolls to the last message. */
  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Moves the focus to the buttons that turn to other versions of `node`. */
  focusVersions(node, step) {
    this.views.find((view) => view.node === node).focusVersions(step);
  }

  /** Moves the focus to the result that the last answer waits for. */
  focusResults() {
    this.views.at(-1)?.focusResults();
  }
}
