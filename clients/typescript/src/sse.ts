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
  let rest = "";
  let event: ServerEvent = { name: "", data: "" };
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split(/\r\n|\n|\r(?!$)/); // a \r at the end may be the first half of \r\n
    rest = lines.pop() ?? "";
    if (rest.length + event.data.length > maxEventLength) {
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
