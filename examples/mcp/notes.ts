// A tool in TypeScript for a Toolyard worker: an MCP server on stdin and stdout, with nothing but Node's own modules.
//
//	worker serve --tools examples/mcp/tools.yaml --workspace default=.
//
// NOTES_FILE says where the notes are kept. Node runs TypeScript as it is from 22.18 on. The official SDK
// (@modelcontextprotocol/sdk) has the same parts.

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const file = process.env.NOTES_FILE ?? "notes.jsonl";

// The annotations say the class of a call, and whether it may run twice: the worker believes a server that is "trusted".
const tools = [
  {
    name: "list_notes",
    description: "Lists the notes, the oldest first.",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    annotations: { readOnlyHint: true }, // READ_ONLY: beside any other read
  },
  {
    name: "add_note",
    description: "Adds a note and waits until it has been looked over in so many steps.",
    inputSchema: {
      type: "object",
      properties: { text: { type: "string" }, steps: { type: "integer", minimum: 0, maximum: 1000 } },
      required: ["text"],
      additionalProperties: false,
    },
    // WRITE_EXCLUSIVE, and idempotent: a call whose worker was lost is run again.
    annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true },
  },
];

type Id = string | number;
type Meta = { progressToken?: Id; "dev.toolyard/idempotency-key"?: string };
type Params = { name: string; arguments?: { text?: string; steps?: number }; _meta?: Meta };
type Note = { key: string; text: string };

const running = new Map<Id, AbortController>(); // the calls under way, by the id of their request

const send = (message: object) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");

const notes = (): Note[] =>
  existsSync(file) ? readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line) as Note) : [];

// addNote adds a note once for each key, and says whether it is new. The key is the same when a call runs again.
function addNote(text: string, key: string): boolean {
  if (notes().some((n) => n.key === key)) return false;
  appendFileSync(file, JSON.stringify({ key, text } satisfies Note) + "\n", { flush: true });
  return true;
}

async function call({ name, arguments: input = {}, _meta: meta = {} }: Params, signal: AbortSignal): Promise<string> {
  if (name === "list_notes") return notes().map((n) => n.text).join("\n") || "There are no notes.";
  if (name !== "add_note") throw new Error(`there is no tool ${name}`);
  const isNew = addNote(input.text ?? "", meta["dev.toolyard/idempotency-key"] ?? "");
  const steps = isNew ? (input.steps ?? 0) : 0;
  for (let step = 1; step <= steps; step++) {
    await pause(100, undefined, { signal }); // stands for work
    if (meta.progressToken === undefined) continue;
    const message = `step ${step} of ${steps}`;
    send({ method: "notifications/progress", params: { progressToken: meta.progressToken, progress: step, total: steps, message } });
  }
  return `Noted: ${input.text}`;
}

async function run(id: Id, params: Params): Promise<void> {
  const canceler = new AbortController();
  running.set(id, canceler);
  try {
    const text = await call(params, canceler.signal);
    send({ id, result: { content: [{ type: "text", text }], isError: false } });
  } catch (e) {
    if (canceler.signal.aborted) return; // a request that was canceled has no answer
    send({ id, result: { content: [{ type: "text", text: String(e) }], isError: true } });
  } finally {
    running.delete(id);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    const serverInfo = { name: "notes", version: "1" };
    send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo } });
  } else if (method === "tools/list") send({ id, result: { tools } });
  else if (method === "tools/call") void run(id, params);
  else if (method === "notifications/cancelled") running.get(params.requestId)?.abort();
  else if (method === "ping") send({ id, result: {} });
  else if (id !== undefined) send({ id, error: { code: -32601, message: `there is no method ${method}` } });
}
process.exit(0); // the worker is gone
