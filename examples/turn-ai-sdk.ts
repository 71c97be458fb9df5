// An agent with the AI SDK, whose loop starts the calls. The tools run on a Toolyard pool.
//
//	npm install ai @ai-sdk/openai @toolyard/client
//	dispatcher serve --with-worker --workspace default=.
//	node turn-ai-sdk.ts "What is in this directory?"
//
// TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.

import { openai } from "@ai-sdk/openai";
import { generateText, jsonSchema, stepCountIs } from "ai";
import { Toolyard } from "@toolyard/client";
import { aiTools } from "@toolyard/client/vercel";

const yard = new Toolyard({ url: process.env.TOOLYARD_URL, token: process.env.TOOLYARD_TOKEN });
const prompt = process.argv[2] ?? "What is in this directory?";
const model = openai(process.env.OPENAI_MODEL ?? "gpt-5.2");
const tools = await aiTools(yard, jsonSchema, { session: "s-1" });
const { text } = await generateText({ model, prompt, tools, stopWhen: stepCountIs(20) });
console.log(text);
