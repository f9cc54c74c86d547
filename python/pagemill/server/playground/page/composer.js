// The field for the next message, with Send, which is Stop while an answer arrives.

import { Attachments } from "./attachments.js";
import { byId, sends } from "./elements.js";

/** `onSend` gets the text and the images; `onStop` ends the answer; `onProblem` gets a sentence. */
export class Composer {
  constructor({ onSend, onStop, onProblem }) {
    this.attachments = new Attachments(onProblem);
    this.input = byId("prompt");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    const form = byId("composer");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(onSend);
    });
    this.input.addEventListener("keydown", (event) => {
      if (!sends(event)) return;
      event.preventDefault();
      this.#send(onSend);
    });
    this.input.addEventListener("input", () => this.#grow());
    this.stopButton.addEventListener("click", onStop);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.busy) onStop();
    });
  }

  get busy() {
    return this.sendButton.hidden;
  }

  /** Shows Stop instead of Send. The focus stays on the button that took the other's place. */
  setBusy(busy) {
    const focused = [this.sendButton, this.stopButton].includes(document.activeElement);
    this.sendButton.hidden = busy;
    this.stopButton.hidden = !busy;
    if (focused) (busy ? this.stopButton : this.input).focus();
  }

  focus() {
    this.input.focus();
  }

  #send(onSend) {
    const text = this.input.value;
    const images = this.attachments.urls;
    if (this.busy || (text.trim() === "" && images.length === 0)) return;
    if (!onSend(text, images)) return;
    this.input.value = "";
    this.attachments.clear();
    this.#grow();
  }

  #grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight + 2}px`;
  }
}
