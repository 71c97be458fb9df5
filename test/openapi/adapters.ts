// The adapters take the SDKs' own objects, and the SDKs take what the adapters make. The compiler reads it.
import Anthropic from "@anthropic-ai/sdk";
import { tool } from "@langchain/core/tools";
import { generateText, jsonSchema, type LanguageModel, type ToolSet } from "ai";
import OpenAI from "openai";

import { converse, runnableTools } from "@toolyard/client/anthropic";
import { Toolyard, type Result } from "@toolyard/client";
import { langchainTools } from "@toolyard/client/langchain";
import { converse as converseOpenAI, converseChat } from "@toolyard/client/openai";
import { aiTools } from "@toolyard/client/vercel";

export async function use(yard: Toolyard, model: LanguageModel): Promise<string> {
  const anthropic = new Anthropic();
  const said: Anthropic.MessageParam[] = await converse(
    yard, anthropic, { model: "m", max_tokens: 9, messages: [{ role: "user", content: "" }] as Anthropic.MessageParam[] });
  await anthropic.beta.messages.toolRunner({ model: "m", max_tokens: 9, messages: [], tools: await runnableTools(yard) });

  const openai = new OpenAI();
  await converseOpenAI(yard, openai, { model: "m", input: [{ role: "user", content: "" }] });
  await converseChat(yard, openai, { model: "m", messages: [{ role: "user", content: "" }] });

  const tools: ToolSet = await aiTools(yard, jsonSchema);
  const { text } = await generateText({ model, tools, prompt: "" });
  const [first] = await langchainTools(yard, tool);

  const batch = await yard.submit({ anthropic: said[0] });
  const codes: Result["code"][] = [];
  for await (const r of batch.results()) codes.push(r.code);
  return text + first?.name + codes.join();
}
