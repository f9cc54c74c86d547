// The tools that the user defines, as JSON.

export const EXAMPLE = JSON.stringify(
  [
    {
      name: "get_weather",
      description: "The current weather in a city.",
      parameters: {
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"],
      },
    },
  ],
  null,
  2,
);

/**
 * The tools in `text`, a JSON list of functions, as requests carry them. A function may stand by
 * itself or within {"type": "function", "function": ...}.
 *
 * Throws an Error with a sentence if the text is something else.
 */
export function parseTools(text) {
  if (text.trim() === "") return [];
  const listed = parseJson(text);
  if (!Array.isArray(listed)) throw new Error("Tools must be a JSON list of functions.");
  return listed.map((item, at) => {
    const definition = item?.function ?? item;
    if (typeof definition?.name !== "string" || definition.name === "") {
      throw new Error(`Tool ${at + 1} must have a name.`);
    }
    return { type: "function", function: definition };
  });
}

/** The value that `text` holds. Throws an Error with a sentence if it is not JSON. */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}.`);
  }
}

/** JSON indented for reading; text that is not JSON, as it is. */
export function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
