// An agent with Anthropic's SDK whose tools run on a Toolyard pool.
//
//	npm install @anthropic-ai/sdk @toolyard/client
//	dispatcher serve --with-worker --workspace default=.
//	node turn.ts "What is in this directory?"
//
// TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.

import Anthropic from "@anthropic-ai/sdk";
import { Toolyard } from "@toolyard/client";
import { converse } from "@toolyard/client/anthropic";

const yard = new Toolyard({ url: process.env.TOOLYARD_URL, token: process.env.TOOLYARD_TOKEN });
const messages: Anthropic.MessageParam[] = [{ role: "user", content: process.argv[2] ?? "What is in this directory?" }];
const model = process.env.ANTHROPIC_MODEL ?? "claude-sonnet-5-5";
const said = await converse(yard, new Anthropic(), { model, max_tokens: 4096, messages }, { session: "s-1" });
console.log(said.at(-1)?.content);
