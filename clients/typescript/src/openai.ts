// For OpenAI's SDK (openai). Nothing of it is imported: its objects are the caller's.
import type { Toolyard } from "./client.js";
import type { TurnOptions } from "./types.js";

/** What converse needs of the SDK's client. */
export interface ResponsesClient {
  responses: { create(params: never): PromiseLike<unknown> };
}

/**
 * converse asks the model on the Responses API again and again until it makes no more calls, and returns the whole input
 * with the last output. Calls start while the model still writes, and each response is one batch.
 */
export async function converse<P extends { input: unknown[]; tools?: unknown[] }>(
  yard: Toolyard,
  client: ResponsesClient,
  params: P,
  options: TurnOptions = {},
): Promise<P["input"]> {
  const input: unknown[] = [...params.input];
  const { agent, session, workspace, deny } = options;
  for (;;) {
    const tools = await yard.tools("openai", { agent, session, workspace, deny });
    const request = { ...params, input, tools: [...(params.tools ?? []), ...tools], stream: true };
    const stream = (await client.responses.create(request as never)) as AsyncIterable<ResponseEvent>;
    let said: unknown[] = [];
    const reply = await yard
      .stream("openai", watch(stream, (e) => {
        if (e.response?.output && e.type !== "response.created") said = e.response.output;
      }), options)
      .whole();
    input.push(...said);
    if (!reply) return input;
    input.push(...reply);
  }
}

interface ResponseEvent {
  type: string;
  response?: { output?: unknown[] };
}

/** What converseChat needs of the SDK's client. */
export interface ChatClient {
  chat: { completions: { stream(params: never): AsyncIterable<object> & { finalMessage(): Promise<unknown> } } };
}

/** converseChat is converse on Chat Completions, which many other servers implement too. */
export async function converseChat<P extends { messages: unknown[]; tools?: unknown[] }>(
  yard: Toolyard,
  client: ChatClient,
  params: P,
  options: TurnOptions = {},
): Promise<P["messages"]> {
  const messages: unknown[] = [...params.messages];
  const { agent, session, workspace, deny } = options;
  for (;;) {
    const tools = await yard.tools("openai-chat", { agent, session, workspace, deny });
    const stream = client.chat.completions.stream({ ...params, messages, tools: [...(params.tools ?? []), ...tools] } as never);
    const [reply, message] = await Promise.all([yard.stream("openai-chat", stream, options).whole(), stream.finalMessage()]);
    messages.push(taken(message as ChatMessage));
    if (!reply) return messages;
    messages.push(...reply);
  }
}

interface ChatMessage {
  content?: unknown;
  refusal?: unknown;
  tool_calls?: unknown[];
}

/** taken is a message as the API takes it back: with a content, if it has neither calls nor a refusal. */
function taken(message: ChatMessage): ChatMessage {
  const silent = (message.content ?? message.refusal ?? null) === null && !message.tool_calls?.length;
  return silent ? { ...message, content: "" } : message;
}

/** watch passes events on, and shows each to see. */
async function* watch<E>(stream: AsyncIterable<E>, see: (event: E) => void): AsyncGenerator<E> {
  for await (const e of stream) {
    see(e);
    yield e;
  }
}
