// The adapters of the TypeScript client with the real SDKs, against a fake of the providers' servers and a real
// dispatcher: TOOLYARD_URL is where it is, and the client is built and installed beside it.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import http from "node:http";
import test, { after, before } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { tool } from "@langchain/core/tools";
import { generateText, jsonSchema, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import OpenAI from "openai";

import { converse, runnableTools } from "@toolyard/client/anthropic";
import { Toolyard } from "@toolyard/client";
import { langchainTools } from "@toolyard/client/langchain";
import { converse as converseOpenAI, converseChat } from "@toolyard/client/openai";
import { aiTools } from "@toolyard/client/vercel";

const yard = new Toolyard({ url: process.env.TOOLYARD_URL });
const calls = [
  { id: "one", name: "glob", input: { pattern: "*.md" } },
  { id: "two", name: "nothing", input: { a: 1 } },
  { id: "three", name: "glob", input: { pattern: "N*" } },
];

// toolRunner has the server hold the conversation: a turn sends its new messages alone, and the tools once.
function* anthropic(body, runner = false) {
  const said = runner ? calls.filter((c) => c.name === "glob") : calls;
  const reply = body.messages.at(-1);
  yield { type: "message_start", message: { id: "m", type: "message", role: "assistant", model: "m", content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } } };
  if (typeof reply.content === "string") {
    assert.ok(body.tools.some((t) => t.name === "glob"));
    for (const [i, c] of said.entries()) {
      yield { type: "content_block_start", index: i, content_block: { type: "tool_use", id: c.id, name: c.name, input: {} } };
      yield { type: "content_block_delta", index: i, delta: { type: "input_json_delta", partial_json: JSON.stringify(c.input) } };
      yield { type: "content_block_stop", index: i };
    }
    yield { type: "message_delta", delta: { stop_reason: "tool_use", stop_sequence: null }, usage: { output_tokens: 9 } };
  } else {
    if (!runner) assert.deepEqual(body.messages[1].content.map((c) => c.id), said.map((c) => c.id));
    assert.deepEqual(reply.content.map((c) => c.tool_use_id), said.map((c) => c.id));
    yield { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } };
    yield { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Done." } };
    yield { type: "content_block_stop", index: 0 };
    yield { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage: { output_tokens: 9 } };
  }
  yield { type: "message_stop" };
}

// An SDK whose own loop starts the calls answers those of unknown tools itself, so here there is none.
const known = calls.filter((c) => c.name === "glob");

function* responses(body, said = calls) {
  const response = (output, status) => ({ id: "r", object: "response", created_at: 1, model: "m", status, output, tools: [], parallel_tool_calls: true });
  assert.ok(body.tools.some((t) => t.name === "glob"));
  yield { type: "response.created", sequence_number: 0, response: response([], "in_progress") };
  let output = [{ type: "message", id: "msg", role: "assistant", status: "completed", content: [{ type: "output_text", text: "Done.", annotations: [] }] }];
  const answers = body.input.filter((i) => i.type === "function_call_output");
  if (answers.length === 0) {
    output = said.map((c) => ({ type: "function_call", id: `fc_${c.id}`, call_id: c.id, name: c.name, arguments: JSON.stringify(c.input), status: "completed" }));
    for (const [i, item] of output.entries()) {
      yield { type: "response.output_item.added", output_index: i, item: { ...item, arguments: "" } };
      yield { type: "response.function_call_arguments.delta", output_index: i, item_id: item.id, delta: item.arguments };
      yield { type: "response.function_call_arguments.done", output_index: i, item_id: item.id, arguments: item.arguments };
      yield { type: "response.output_item.done", output_index: i, item };
    }
  } else {
    assert.deepEqual(answers.map((i) => i.call_id), said.map((c) => c.id));
    if (said === calls) assert.deepEqual(body.input.slice(4), answers);
  }
  yield { type: "response.completed", response: response(output, "completed") };
}

function* chat(body, said = calls) {
  const chunk = (delta, finish_reason = null) => ({ id: `c${body.messages.length}`, object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason }] });
  assert.ok(body.tools.some((t) => t.function.name === "glob"));
  yield chunk({ role: "assistant", content: "" });
  if (body.messages.length === 1) {
    for (const [index, c] of said.entries()) {
      yield chunk({ tool_calls: [{ index, id: c.id, type: "function", function: { name: c.name, arguments: "" } }] });
      yield chunk({ tool_calls: [{ index, function: { arguments: JSON.stringify(c.input) } }] });
    }
    yield chunk({}, "tool_calls");
  } else {
    assert.deepEqual(body.messages.slice(2).map((m) => [m.role, m.tool_call_id]), said.map((c) => ["tool", c.id]));
    yield chunk({ content: "Done." });
    yield chunk({}, "stop");
  }
}

const turns = {
  "/v1/messages": anthropic,
  "/runner/v1/messages": (body) => anthropic(body, true),
  "/v1/responses": (body) => responses(body),
  "/v1/chat/completions": (body) => chat(body),
  "/loop/v1/responses": (body) => responses(body, known),
  "/loop/v1/chat/completions": (body) => chat(body, known),
};

// whole is what a stream's events add up to, for a request that wants no stream.
function whole(events) {
  if (events[0].type === "response.created") return events.at(-1).response;
  if (events[0].object === "chat.completion.chunk") {
    const message = { role: "assistant", content: null };
    for (const { delta } of events.map((e) => e.choices[0])) {
      if (delta.content) message.content = (message.content ?? "") + delta.content;
      for (const { index, ...call } of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        message.tool_calls[index] ??= call;
        message.tool_calls[index].function.arguments ||= call.function.arguments;
      }
    }
    const finish_reason = events.at(-1).choices[0].finish_reason;
    return { ...events[0], object: "chat.completion", choices: [{ index: 0, message, finish_reason }] };
  }
  const message = events[0].message;
  for (const e of events) {
    if (e.type === "content_block_start") message.content[e.index] = e.content_block;
    if (e.delta?.partial_json) message.content[e.index].input = JSON.parse(e.delta.partial_json);
    if (e.delta?.text) message.content[e.index].text = e.delta.text;
    if (e.delta?.stop_reason) message.stop_reason = e.delta.stop_reason;
  }
  return message;
}
let base;
const server = http.createServer(async (request, response) => {
  let text = "";
  for await (const part of request) text += part;
  const path = request.url.replace(/\?.*/, "");
  try {
    const body = JSON.parse(text);
    const events = [...turns[path](body)];
    if (!body.stream) {
      response.writeHead(200, { "Content-Type": "application/json" });
      return response.end(JSON.stringify(whole(events)));
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    for (const e of events) response.write(`${e.type ? `event: ${e.type}\n` : ""}data: ${JSON.stringify(e)}\n\n`);
    response.end(path.endsWith("completions") ? "data: [DONE]\n\n" : "");
  } catch (e) {
    response.writeHead(400, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ error: { message: String(e) } }));
  }
});
before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${server.address().port}`;
});
after(() => server.close());

// sizes are those of a session's batches, once so many calls are listed: the list may lag behind for a moment.
async function sizes(session, calls) {
  for (;;) {
    const out = [];
    for await (const b of yard.batches({ session })) out.push(b.calls);
    if (out.reduce((a, b) => a + b, 0) >= calls) return out;
  }
}
const question = { role: "user", content: "Look around." };

test("Anthropic's SDK, a whole turn", async () => {
  const client = new Anthropic({ apiKey: "k", baseURL: base, maxRetries: 0 });
  const params = { model: "m", max_tokens: 100, messages: [question] };
  const messages = await converse(yard, client, params, { session: "ts-anthropic" });
  assert.equal(messages.length, 4);
  assert.equal(messages.at(-1).content[0].text, "Done.");
  assert.deepEqual(messages[2].content.map((c) => c.is_error ?? false), [false, true, false]);
  assert.deepEqual(await sizes("ts-anthropic", 3), [3]);
});

for (const [example, env] of Object.entries({
  "turn": { ANTHROPIC_API_KEY: "k", ANTHROPIC_BASE_URL: "" },
  "turn-openai": { OPENAI_API_KEY: "k", OPENAI_BASE_URL: "/v1" },
  "turn-ai-sdk": { OPENAI_API_KEY: "k", OPENAI_BASE_URL: "/loop/v1" },
  "turn-langchain": { OPENAI_API_KEY: "k", OPENAI_BASE_URL: "/loop/v1" },
})) {
  test(`the example ${example}`, async () => {
    const [at] = Object.keys(env).filter((name) => name.endsWith("_URL"));
    const set = { ...process.env, ...env, [at]: base + env[at] };
    const out = await new Promise((resolve, reject) =>
      execFile(process.execPath, [new URL(`${example}.js`, import.meta.url).pathname], { env: set }, (e, out) => (e ? reject(e) : resolve(out))),
    );
    assert.match(out, /Done\./);
  });
}

test("Anthropic's toolRunner", async () => {
  const client = new Anthropic({ apiKey: "k", baseURL: base + "/runner", maxRetries: 0 });
  const message = await client.beta.messages.toolRunner({
    model: "m", max_tokens: 100, messages: [question], tools: await runnableTools(yard, { session: "ts-runner" }),
  });
  assert.equal(message.content[0].text, "Done.");
  assert.deepEqual(await sizes("ts-runner", 2), [2]);
});

test("OpenAI's SDK on Responses", async () => {
  const client = new OpenAI({ apiKey: "k", baseURL: base + "/v1", maxRetries: 0 });
  const input = await converseOpenAI(yard, client, { model: "m", input: [question] }, { session: "ts-openai" });
  assert.equal(input.length, 8);
  assert.equal(input.at(-1).content[0].text, "Done.");
  assert.deepEqual(await sizes("ts-openai", 3), [3]);
});

test("OpenAI's SDK on Chat Completions", async () => {
  const client = new OpenAI({ apiKey: "k", baseURL: base + "/v1", maxRetries: 0 });
  const messages = await converseChat(yard, client, { model: "m", messages: [question] }, { session: "ts-chat" });
  assert.equal(messages.length, 6);
  assert.equal(messages.at(-1).content, "Done.");
  assert.deepEqual(await sizes("ts-chat", 3), [3]);
});

test("the AI SDK's tools", async () => {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  let results;
  const model = new MockLanguageModelV3({
    doGenerate: async ({ prompt, tools }) => {
      assert.ok(tools.some((t) => t.name === "glob" && t.inputSchema.properties.pattern));
      results = prompt.at(-1).role === "tool" ? prompt.at(-1).content : undefined;
      if (results) return { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop" }, usage, warnings: [] };
      const content = calls.filter((c) => c.name === "glob").map((c) => ({ type: "tool-call", toolCallId: c.id, toolName: c.name, input: JSON.stringify(c.input) }));
      return { content, finishReason: { unified: "tool-calls" }, usage, warnings: [] };
    },
  });
  const tools = await aiTools(yard, jsonSchema, { session: "ts-vercel" });
  const { text } = await generateText({ model, tools, prompt: "Look around.", stopWhen: stepCountIs(3) });
  assert.equal(text, "Done.");
  assert.match(results[1].output.value, /NOTES\.md/);
  assert.deepEqual(await sizes("ts-vercel", 2), [2], "calls that are started at once are one batch");
});

test("LangChain's tools", async () => {
  const tools = await langchainTools(yard, tool, { session: "ts-langchain" });
  const glob = tools.find((t) => t.name === "glob");
  const outputs = await Promise.all(
    ["*.md", "N*"].map((pattern, i) => glob.invoke({ type: "tool_call", id: `c${i}`, name: "glob", args: { pattern } })),
  );
  assert.match(outputs[1].content, /NOTES\.md/);
  assert.equal(outputs[1].tool_call_id, "c1");
  assert.deepEqual(await sizes("ts-langchain", 2), [2]);
  await assert.rejects(glob.invoke({ pattern: 7 }));
});
