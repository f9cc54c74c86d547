// Reads server-sent events from the body of a response.

const LINE_BREAK = /\r\n|\n|\r(?!$)/; // a carriage return at the end may be half of a pair

/** Yields the data of each event of `body`, a stream of bytes. */
export async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(LINE_BREAK);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection may be gone already
  }
}
