// For LangChain (@langchain/core/tools). Nothing of it is imported: tool is the caller's.
import type { Toolyard } from "./client.js";
import { Gatherer, text, toolsOf, type BatchSettings } from "./gather.js";
import type { JSONSchema } from "./types.js";

interface Run {
  toolCall?: { id?: string };
  signal?: AbortSignal;
}

/** What langchainTools needs of `tool` of @langchain/core/tools. */
export type MakeTool<T> = (
  run: (input: never, config: never) => Promise<string>,
  fields: { name: string; description: string; schema: never },
) => T;

/**
 * langchainTools are the pool's tools for LangChain and LangGraph; tool is LangChain's. Calls that a ToolNode starts at
 * once are one batch. What they lose is what aiTools loses.
 */
export async function langchainTools<T>(yard: Toolyard, tool: MakeTool<T>, settings: BatchSettings = {}): Promise<T[]> {
  const gatherer = new Gatherer(yard, settings);
  const tools = await yard.tools("openai-chat", toolsOf(settings));
  return tools.map(({ function: f }) => {
    const schema: JSONSchema = f.parameters ?? { type: "object" };
    const run = async (input: unknown, config: Run = {}) => {
      const result = await gatherer.call(f.name, input, config.toolCall?.id, config.signal);
      if (result.is_error) throw new Error(text(result));
      return result.output;
    };
    return tool(run as never, { name: f.name, description: f.description ?? "", schema: schema as never });
  });
}
