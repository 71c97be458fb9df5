// For the AI SDK (ai). Nothing of it is imported: jsonSchema is the caller's.
import type { Toolyard } from "./client.js";
import { Gatherer, text, toolsOf, type BatchSettings } from "./gather.js";
import type { JSONSchema } from "./types.js";

/** A tool as the AI SDK takes it. Schema is what jsonSchema returns. */
export interface AITool<Schema> {
  description: string;
  inputSchema: Schema;
  execute(input: unknown, options: { toolCallId: string; abortSignal?: AbortSignal }): Promise<string>;
}

/**
 * aiTools are the pool's tools for generateText and streamText; jsonSchema is the AI SDK's. Calls that the SDK starts at
 * once are one batch. What they lose: a tool that is not in the list is answered by the SDK, images become a line of
 * text, streamText starts each call alone, and the list is that of the beginning.
 */
export async function aiTools<Schema>(
  yard: Toolyard,
  jsonSchema: (schema: never) => Schema,
  settings: BatchSettings = {},
): Promise<Record<string, AITool<Schema>>> {
  const gatherer = new Gatherer(yard, settings);
  const tools = await yard.tools("openai-chat", toolsOf(settings));
  return Object.fromEntries(
    tools.map(({ function: f }) => {
      const schema: JSONSchema = f.parameters ?? { type: "object" };
      const tool: AITool<Schema> = {
        description: f.description ?? "",
        inputSchema: jsonSchema(schema as never),
        async execute(input, options) {
          const result = await gatherer.call(f.name, input, options.toolCallId, options.abortSignal);
          if (result.is_error) throw new Error(text(result));
          return result.output;
        },
      };
      return [f.name, tool];
    }),
  );
}
