// The dialog of the chats that this browser keeps: open, delete, export and import.

import { button, byId, element } from "./elements.js";

const MOST_IMPORTED_BYTES = 10_000_000;

/**
 * `actions` has what the buttons do: list(), shown(), open(id), remove(id), removeAll(), record() of
 * the chat that is shown, and importText(text), which throws an Error with a sentence.
 */
export class ChatsDialog {
  constructor(actions) {
    this.actions = actions;
    this.dialog = byId("chats-dialog");
    this.list = byId("chats");
    this.message = byId("chats-message");
    this.file = byId("chats-file");
    byId("chats-button").addEventListener("click", () => this.#show());
    byId("chats-close").addEventListener("click", () => this.dialog.close());
    byId("chats-export").addEventListener("click", () => this.#export());
    byId("chats-import").addEventListener("click", () => this.file.click());
    this.file.addEventListener("change", () => this.#import());
    byId("chats-clear").addEventListener("click", () => {
      this.#confirm("Delete all chats?", () => this.actions.removeAll());
    });
  }

  #show() {
    this.message.textContent = "";
    this.#fill();
    this.dialog.showModal();
  }

  #fill() {
    const shown = this.actions.shown();
    const chats = this.actions.list();
    this.list.replaceChildren(...chats.map((chat) => this.#row(chat, chat.id === shown)));
    byId("chats-empty").hidden = chats.length > 0;
    byId("chats-clear").disabled = chats.length === 0;
  }

  #row({ id, title, changed }, shown) {
    const name = title || "Without a question";
    const open = button(name, () => {
      this.actions.open(id);
      this.dialog.close();
    });
    if (shown) open.setAttribute("aria-current", "true");
    const remove = button("Delete", () => {
      this.actions.remove(id);
      this.#fill();
      (this.list.querySelector("button") ?? byId("chats-close")).focus();
    });
    remove.setAttribute("aria-label", `Delete: ${name}`);
    const time = element("time", { dateTime: changed }, timeOf(changed));
    return element("li", {}, open, time, remove);
  }

  #confirm(question, act) {
    this.message.replaceChildren(
      question,
      button("Delete", () => {
        act();
        this.message.textContent = "";
        this.#fill();
        byId("chats-close").focus();
      }),
      button("Keep", () => {
        this.message.textContent = "";
        byId("chats-clear").focus();
      }),
    );
    this.message.querySelector("button:last-child").focus();
  }

  #export() {
    const record = this.actions.record();
    const blob = new Blob([JSON.stringify(record, null, 1)], { type: "application/json" });
    const address = URL.createObjectURL(blob);
    element("a", { href: address, download: "chat.json" }).click();
    setTimeout(() => URL.revokeObjectURL(address));
  }

  async #import() {
    const [file] = this.file.files;
    if (!file) return;
    this.file.value = ""; // the same file can be chosen again
    try {
      if (file.size > MOST_IMPORTED_BYTES) throw new Error("The file is larger than 10 MB.");
      this.actions.importText(await file.text());
      this.dialog.close();
    } catch (error) {
      this.message.textContent = error.message;
    }
  }
}

function timeOf(changed) {
  const date = new Date(changed);
  if (Number.isNaN(date.valueOf())) return "";
  return date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}
