// The chats that this browser keeps, in its storage for the server's origin: so many, and so much of
// them. The oldest make room. Each tab shows a chat of its own, and keeps which one.

const PREFIX = "pagemill.chat.";
const SHOWN = "pagemill.shown-chat"; // in the tab's storage
const MOST_CHATS = 100;
const MOST_CHARS = 2_000_000; // of all records; browsers keep 5 MB of an origin, two bytes each

/** Records by their ids. */
export class ChatStore {
  /** The id of the chat that this tab shows, after a reload, too; a new one if there is none. */
  get shown() {
    return sessionStorage.getItem(SHOWN) ?? this.begin();
  }

  set shown(id) {
    sessionStorage.setItem(SHOWN, id);
  }

  /** Shows another chat, which is new; returns its id. */
  begin() {
    this.shown = [...crypto.getRandomValues(new Uint32Array(4))].join("-");
    return this.shown;
  }

  /** The text of a record; null if there is none. */
  read(id) {
    return localStorage.getItem(PREFIX + id);
  }

  /** Keeps `record`, and drops the oldest ones for it; false if there is no room even so. */
  write(id, record) {
    const text = JSON.stringify(record);
    if (text.length > MOST_CHARS) return false;
    const others = this.list().filter((chat) => chat.id !== id);
    let chars = text.length + others.reduce((sum, chat) => sum + chat.chars, 0);
    for (;;) {
      if (others.length < MOST_CHATS && chars <= MOST_CHARS && trySet(PREFIX + id, text)) return true;
      const oldest = others.pop();
      if (oldest === undefined) return false;
      chars -= oldest.chars;
      this.remove(oldest.id);
    }
  }

  remove(id) {
    localStorage.removeItem(PREFIX + id);
  }

  /** Removes all chats. */
  clear() {
    for (const id of this.#ids()) this.remove(id);
  }

  /** The id, title, time of the last change, and size of each chat, the newest first. */
  list() {
    const chats = this.#ids().map((id) => {
      const text = this.read(id);
      const { title, changed } = headOf(text);
      return { id, title, changed, chars: text.length };
    });
    return chats.sort((one, other) => (one.changed < other.changed ? 1 : -1));
  }

  #ids() {
    const keys = Array.from({ length: localStorage.length }, (_, at) => localStorage.key(at));
    return keys.filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length));
  }
}

function trySet(key, text) {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false; // the browser has no room, or keeps nothing
  }
}

function headOf(text) {
  try {
    const { title, changed } = JSON.parse(text);
    return { title: String(title), changed: String(changed) };
  } catch {
    return { title: "?", changed: "" };
  }
}
