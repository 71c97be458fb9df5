import { maxEventLength } from "./limits.js";

/** A server-sent event. */
export interface ServerEvent {
  id?: string;
  name: string;
  data: string;
}

/** events reads server-sent events from chunks of bytes, as the HTML standard defines them. */
export async function* events(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent> {
  const decoder = new TextDecoder();
  let unfinished: string[] = [], held = 0; // the pieces of a line without an end, and how long they are
  let afterReturn = false;
  let event: ServerEvent = { name: "", data: "" };
  for await (const chunk of chunks) {
    let text = decoder.decode(chunk, { stream: true });
    if (text === "") continue; // a part of a character
    if (afterReturn && text.startsWith("\n")) text = text.slice(1); // the second half of \r\n
    afterReturn = text.endsWith("\r");
    const lines = text.split(/\r\n|\n|\r/);
    const last = lines.pop() ?? "";
    if (lines.length > 0) {
      lines[0] = [...unfinished, lines[0]].join("");
      [unfinished, held] = [[], 0];
    }
    unfinished.push(last);
    held += last.length;
    if (held + event.data.length > maxEventLength) {
      throw new Error(`an event of the stream has more than ${maxEventLength} characters`);
    }
    for (const line of lines) {
      if (line === "") {
        if (event.data !== "") yield { ...event, name: event.name || "message", data: event.data.slice(0, -1) };
        event = { name: "", data: "" };
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "id") event.id = value;
      else if (field === "event") event.name = value;
      else if (field === "data") event.data += value + "\n";
    }
  }
}
