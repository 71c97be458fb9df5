// For Anthropic's SDK (@anthropic-ai/sdk). Nothing of it is imported: its objects are the caller's.
import type { Toolyard } from "./client.js";
import { Gatherer, text, toolsOf, type BatchSettings } from "./gather.js";
import type { JSONSchema, TurnOptions } from "./types.js";

/** What converse needs of the SDK's client. */
export interface AnthropicClient {
  messages: { stream(params: never): AsyncIterable<object> & { finalMessage(): Promise<Role> } };
}

type Role = { role: "user" | "assistant"; content: unknown };

/**
 * converse asks the model again and again until it makes no more calls, and returns the whole conversation. Calls start
 * while the model still writes, and each response is one batch: groups are kept, and unknown tools are answered.
 */
export async function converse<P extends { messages: unknown[]; tools?: unknown[] }>(
  yard: Toolyard,
  client: AnthropicClient,
  params: P,
  options: TurnOptions = {},
): Promise<P["messages"]> {
  const messages: Role[] = [...(params.messages as Role[])];
  const { agent, session, workspace, deny } = options;
  for (;;) {
    const tools = await yard.tools("anthropic", { agent, session, workspace, deny });
    const stream = client.messages.stream({ ...params, messages, tools: [...(params.tools ?? []), ...tools] } as never);
    const answer = yard.stream("anthropic", stream, options);
    const [reply, message] = await Promise.all([answer.whole(), stream.finalMessage()]);
    const content = taken(message.content);
    if (!Array.isArray(content) || content.length > 0) messages.push({ role: message.role, content });
    if (!reply) return messages as P["messages"];
    messages.push(reply);
  }
}

interface Block {
  type: string;
  text?: string;
  input?: unknown;
}

/**
 * taken is what a message says, as the API takes it back: without texts of white space alone, and with an object for an
 * input that is none. The call's result says what is wrong with that.
 */
function taken(content: unknown): unknown {
  if (!Array.isArray(content)) return content;
  return (content as Block[])
    .filter((b) => b.type !== "text" || (b.text ?? "").trim() !== "")
    .map((b) => ("input" in b && !isObject(b.input) ? { ...b, input: {} } : b));
}

const isObject = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);

/** A tool as the SDK's toolRunner takes it. */
export interface RunnableTool {
  name: string;
  description?: string;
  input_schema: { type: "object"; [keyword: string]: unknown };
  run(input: unknown, context?: { toolUse?: { id: string }; signal?: AbortSignal | null }): Promise<string>;
  parse(input: unknown): unknown;
}

/**
 * runnableTools are the pool's tools for toolRunner. What they lose against converse: calls start when the response is
 * complete, a tool that is not in the list is answered by the SDK, images become a line of text, and the list is that
 * of the beginning.
 */
export async function runnableTools(yard: Toolyard, settings: BatchSettings = {}): Promise<RunnableTool[]> {
  const gatherer = new Gatherer(yard, settings);
  const tools = await yard.tools("anthropic", toolsOf(settings));
  return tools.map((t) => ({
    name: t.name,
    description: t.description ?? "",
    input_schema: t.input_schema as JSONSchema & { type: "object" },
    parse: (input) => input,
    async run(input, context) {
      const result = await gatherer.call(t.name, input, context?.toolUse?.id, context?.signal ?? undefined);
      if (result.is_error) throw new Error(text(result));
      return result.output;
    },
  }));
}
