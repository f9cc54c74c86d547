// Connects the parts of the page.

import { Answer } from "./answer.js";
import { Api } from "./api.js";
import { ApiKey } from "./api_key.js";
import { ChatError, chatOf, parseRecord, recordOf } from "./chat_record.js";
import { ChatStore } from "./chat_store.js";
import { ChatView } from "./chat_view.js";
import { ChatsDialog } from "./chats_dialog.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { byId } from "./elements.js";
import { Figures } from "./figures.js";
import { Settings, SettingsError } from "./settings.js";

const RETRY_MS = 2000; // while the server is loading or cannot be reached

class Playground {
  constructor() {
    this.key = new ApiKey(() => this.connect());
    this.api = new Api(() => this.key.value);
    this.models = []; // {id, takesImages}
    this.settings = new Settings();
    this.figures = new Figures(this.api);
    this.conversation = new Conversation();
    this.view = new ChatView(byId("messages"), byId("scroller"), {
      edit: (node, text) => this.ask(node.parent, text, node.images),
      regenerate: (node) => this.answer(node.parent),
      turn: (node, step) => this.turn(node, step),
      results: (node, results) => this.answer(node, "tool", { results }),
    });
    this.composer = new Composer({
      onSend: (text, images) => this.ask(this.conversation.last(), text, images),
      onStop: () => this.stop?.abort(),
      onProblem: showStatus,
    });
    this.store = new ChatStore();
    this.chats = new ChatsDialog({
      list: () => this.store.list(),
      shown: () => this.store.shown,
      open: (id) => this.open(id),
      remove: (id) => this.remove(id),
      removeAll: () => this.removeAll(),
      record: () => recordOf(this.conversation, this.settings.values),
      importText: (text) => this.import(text),
    });
    byId("new-chat").addEventListener("click", () => this.clear());
    byId("model").addEventListener("change", () => this.#allowImages());
    addEventListener("beforeunload", () => (this.leaving = true));
    addEventListener("pagehide", () => this.composer.busy && this.keep());
    for (const example of document.querySelectorAll(".example")) {
      const { textContent } = example;
      example.addEventListener("click", () => this.ask(this.conversation.last(), textContent));
    }
    connectPanel();
    const kept = this.#kept(this.store.shown); // before a reload, which kept the settings, too
    if (kept) this.#change(kept.conversation);
    this.connect();
  }

  /** Loads the list of models, and asks for a key if the server wants one. */
  async connect() {
    clearTimeout(this.retry);
    try {
      this.models = await this.api.models();
      this.settings.setModels(this.models.map(({ id }) => id));
      this.#allowImages();
      showStatus("");
      this.figures.retry();
    } catch (error) {
      showStatus(error.message);
      if (error.status === 401) this.askForKey(error);
      else this.retry = setTimeout(() => this.connect(), RETRY_MS);
    }
  }

  /** Opens the dialog for the key. */
  askForKey(error) {
    this.key.ask(this.key.value ? "The server refused this key." : error.message);
  }

  /** Adds a message of the user after `parent`, and answers it; returns whether it did. */
  ask(parent, text, images = []) {
    return this.answer(parent, "user", { text, images });
  }

  /**
   * Lets the model answer what ends with `parent`, or with a message of `role` and `content` that
   * is added after it. Returns false, and adds nothing, if an answer is running or a setting is
   * wrong.
   */
  answer(parent, role = "", content = {}) {
    if (this.composer.busy) return false;
    const messages = this.conversation.messages(parent);
    let request;
    try {
      request = this.settings.request(messages);
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      announce(error.message);
      return false;
    }
    const asked = role ? this.conversation.add(parent, role, content) : parent;
    if (role) request.messages.push(...asked.messages());
    const answer = new Answer(this.settings.model);
    this.conversation.add(asked, "assistant", { answer });
    this.#run(answer, request);
    return true;
  }

  /** Shows another branch. */
  turn(node, step) {
    if (this.composer.busy) return;
    const shown = this.conversation.turn(node, step);
    this.keep();
    this.#show();
    this.view.focusVersions(shown, step);
  }

  /** Begins another chat. */
  clear() {
    if (this.composer.busy) this.keep();
    this.store.begin();
    this.#change(new Conversation());
    this.composer.focus();
  }

  /** Lets the browser keep the chat that is shown, unless it is empty. */
  keep() {
    if (this.conversation.path().length === 0) return;
    const record = recordOf(this.conversation, this.settings.values);
    const kept = this.store.write(this.store.shown, record);
    if (!kept) showStatus("The browser has no room for this chat: it ends with this page.");
  }

  /** Shows the chat `id` with its settings. */
  open(id) {
    const kept = this.#kept(id);
    if (kept === null) return;
    if (this.composer.busy) this.keep();
    this.store.shown = id;
    this.settings.values = kept.settings;
    this.#change(kept.conversation);
  }

  /** Forgets the chat `id`. */
  remove(id) {
    this.store.remove(id);
    if (id === this.store.shown) this.#forget();
  }

  /** Forgets all chats. */
  removeAll() {
    this.store.clear();
    this.#forget();
  }

  /** Shows the chat whose record is `text`, beside those that there are. Throws ChatError. */
  import(text) {
    const { conversation, settings } = chatOf(parseRecord(text));
    this.clear();
    this.settings.values = settings;
    this.#change(conversation);
    this.keep();
  }

  /** The chat `id` and its settings; null if the browser has not kept it. */
  #kept(id) {
    const text = this.store.read(id);
    try {
      return text && chatOf(parseRecord(text));
    } catch (error) {
      if (!(error instanceof ChatError)) throw error;
      showStatus(error.message);
      return null;
    }
  }

  #allowImages() {
    const chosen = this.models.find(({ id }) => id === this.settings.model);
    this.composer.attachments.allowed = chosen?.takesImages ?? false;
  }

  #forget() {
    this.store.begin();
    this.#change(new Conversation());
  }

  #change(conversation) {
    this.stop?.abort();
    this.conversation = conversation;
    this.#show();
  }

  async #run(answer, request) {
    const { conversation } = this;
    const stop = new AbortController();
    this.stop = stop;
    this.leaving = false; // the page; its requests fail then
    this.composer.setBusy(true);
    document.body.classList.add("busy");
    this.keep();
    this.#show();
    this.view.toEnd();
    try {
      for await (const chunk of this.api.chat(request, stop.signal)) {
        answer.add(chunk);
        this.view.updateSoon();
      }
      answer.end("finished");
    } catch (error) {
      if (stop.signal.aborted || this.leaving) answer.end("stopped");
      else answer.end("failed", error);
    }
    document.body.classList.remove("busy");
    this.composer.setBusy(false);
    this.view.update();
    if (this.conversation !== conversation) return;
    this.keep();
    this.#afterEnd(answer);
  }

  #afterEnd(answer) {
    if (answer.state === "failed") {
      if (answer.error.status === 401) this.askForKey(answer.error);
    } else if (answer.waitsForTools) {
      announce(`The model calls ${answer.calls.map((call) => call.name).join(", ")}.`);
      if (!this.composer.input.value) this.view.focusResults();
    } else {
      announce(`${answer.state === "stopped" ? "Stopped" : "Answer"}: ${answer.content}`);
    }
  }

  #show() {
    const path = this.conversation.path();
    byId("welcome").hidden = path.length > 0;
    this.view.show(path);
    if (document.activeElement === document.body) this.composer.focus(); // its element has gone
  }
}

/** Lets a screen reader say `text`. */
function announce(text) {
  byId("announcements").textContent = text;
}

function showStatus(text) {
  const status = byId("status");
  status.textContent = text;
  status.hidden = text === "";
}

/** The button that shows and hides the settings. Narrow windows begin without them. */
function connectPanel() {
  const toggle = byId("settings-button");
  const narrow = matchMedia("(max-width: 52rem)");
  const show = (shown) => {
    document.body.classList.toggle("with-settings", shown);
    toggle.setAttribute("aria-expanded", String(shown));
  };
  toggle.addEventListener("click", () => show(toggle.getAttribute("aria-expanded") !== "true"));
  byId("settings-form").addEventListener("problem", () => show(true));
  narrow.addEventListener("change", () => show(!narrow.matches));
  show(!narrow.matches);
}

new Playground();
