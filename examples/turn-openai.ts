// An agent with OpenAI's SDK, on the Responses API, whose tools run on a Toolyard pool.
//
//	npm install openai @toolyard/client
//	dispatcher serve --with-worker --workspace default=.
//	node turn-openai.ts "What is in this directory?"
//
// TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.

import OpenAI from "openai";
import { Toolyard } from "@toolyard/client";
import { converse } from "@toolyard/client/openai";

const yard = new Toolyard({ url: process.env.TOOLYARD_URL, token: process.env.TOOLYARD_TOKEN });
const input = [{ role: "user", content: process.argv[2] ?? "What is in this directory?" }];
const model = process.env.OPENAI_MODEL ?? "gpt-5.2";
const said = await converse(yard, new OpenAI(), { model, input }, { session: "s-1" });
console.log(JSON.stringify(said.at(-1)));
