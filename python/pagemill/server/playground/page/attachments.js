// Images that go with the next message: chosen, pasted or dropped. They are made smaller first, so
// that chats with images fit into what the browser keeps, and the server need not do it.

import { button, byId, element } from "./elements.js";

const MOST = 8;
const LONGER_SIDE = 1024; // pixels
const QUALITY = 0.85; // of JPEG

/** The images in front of the message field. `onProblem` gets a sentence. */
export class Attachments {
  constructor(onProblem) {
    this.urls = []; // data: URLs
    this.onProblem = onProblem;
    this.list = byId("attachments");
    this.attachButton = byId("attach");
    const file = byId("attach-file");
    this.attachButton.addEventListener("click", () => file.click());
    file.addEventListener("change", async () => {
      await this.#add(file.files);
      file.value = "";
    });
    const composer = byId("composer");
    composer.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    composer.addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
    composer.addEventListener("dragover", (event) => this.allowed && event.preventDefault());
  }

  get allowed() {
    return !this.attachButton.hidden;
  }

  /** Whether the chosen model takes images; what was attached is dropped if it does not. */
  set allowed(allowed) {
    this.attachButton.hidden = !allowed;
    if (!allowed) this.clear();
  }

  clear() {
    this.urls = [];
    this.#show();
  }

  /** Takes the images of what is pasted or dropped; text goes where it goes without this. */
  #take(event, data) {
    if (!this.allowed || data.files.length === 0) return;
    event.preventDefault();
    this.#add(data.files);
  }

  async #add(files) {
    for (const file of files) {
      if (this.urls.length >= MOST) {
        this.onProblem(`A message has at most ${MOST} images.`);
        break;
      }
      try {
        this.urls.push(await smaller(file));
      } catch {
        this.onProblem(`${file.name} is not an image that this browser can read.`);
      }
    }
    this.#show();
  }

  #show() {
    this.list.replaceChildren(
      ...this.urls.map((url, at) =>
        element(
          "li",
          {},
          element("img", { src: url, alt: `Image ${at + 1}` }),
          button("×", () => this.#remove(at), { "aria-label": `Remove image ${at + 1}` }),
        ),
      ),
    );
    this.list.hidden = this.urls.length === 0;
  }

  #remove(at) {
    this.urls.splice(at, 1);
    this.#show();
    this.attachButton.focus();
  }
}

/** The image of `file` as a data: URL of a JPEG, on white where it is transparent. */
async function smaller(file) {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, LONGER_SIDE / Math.max(image.width, image.height));
  const size = (pixels) => Math.max(1, Math.round(pixels * scale));
  const canvas = element("canvas", { width: size(image.width), height: size(image.height) });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  image.close();
  return canvas.toDataURL("image/jpeg", QUALITY);
}
