// Builds elements. Text only ever becomes a text node, so output of a model cannot become markup.

/**
 * An element with properties (or attributes, for names that are not a property) and children.
 * Children are elements or strings.
 */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** A button that does `action`. */
export function button(label, action, properties = {}) {
  return element("button", { type: "button", onclick: action, ...properties }, label);
}

/** True for the key that sends: Enter without Shift, unless it ends a composed character. */
export function sends(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

/** The element of the page with this id, which must exist. */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`The page has no element ${id}.`);
  return found;
}
