// Buttons that copy text.

import { button } from "./elements.js";

const SHOWN_MS = 1500;

/**
 * A button that copies what `text()` returns, in a list; an empty list if the browser lets pages of
 * this address copy nothing (it does so for HTTPS and for localhost).
 */
export function copyButton(label, text) {
  if (!navigator.clipboard) return [];
  const made = button(label, async () => {
    await navigator.clipboard.writeText(text());
    made.textContent = "Copied";
    setTimeout(() => (made.textContent = label), SHOWN_MS);
  });
  return [made];
}
