// An agent of LangChain, which starts the calls. The tools run on a Toolyard pool.
//
//	npm install langchain @langchain/core @langchain/openai @toolyard/client
//	dispatcher serve --with-worker --workspace default=.
//	node turn-langchain.ts "What is in this directory?"
//
// TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.

import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent } from "langchain";
import { Toolyard } from "@toolyard/client";
import { langchainTools } from "@toolyard/client/langchain";

const yard = new Toolyard({ url: process.env.TOOLYARD_URL, token: process.env.TOOLYARD_TOKEN });
const content = process.argv[2] ?? "What is in this directory?";
const model = new ChatOpenAI({ model: process.env.OPENAI_MODEL ?? "gpt-5.2" });
const agent = createAgent({ model, tools: await langchainTools(yard, tool, { session: "s-1" }) });
const { messages } = await agent.invoke({ messages: [{ role: "user", content }] });
console.log(messages.at(-1)?.text);
