// The API key: asked for in a dialog, kept in the tab's storage until the tab is closed.

import { byId } from "./elements.js";

const STORED = "pagemill.key";

/** The key, "" if there is none. `onChange` is called when the user has entered another one. */
export class ApiKey {
  constructor(onChange) {
    this.dialog = byId("key-dialog");
    this.input = byId("key");
    byId("key-form").addEventListener("submit", () => {
      this.value = this.input.value.trim();
      onChange();
    });
    byId("key-button").addEventListener("click", () => this.ask(""));
    byId("key-cancel").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => (this.input.value = ""));
  }

  get value() {
    return sessionStorage.getItem(STORED) ?? "";
  }

  set value(key) {
    sessionStorage.setItem(STORED, key);
  }

  /** Opens the dialog, which says `message`. */
  ask(message) {
    byId("key-message").textContent = message;
    this.input.value = this.value;
    if (!this.dialog.open) this.dialog.showModal();
    this.input.select();
  }
}
