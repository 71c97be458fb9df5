// The client against a real dispatcher with a worker: TOOLYARD_URL is where it is, TOOLYARD_CLIENT the built client.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import http from "node:http";
import net from "node:net";
import test from "node:test";

const { LostError, Toolyard, ToolyardError } = await import(process.env.TOOLYARD_CLIENT + "/index.js");
const { events } = await import(process.env.TOOLYARD_CLIENT + "/sse.js");
const { runnableTools, converse: converseAnthropic } = await import(process.env.TOOLYARD_CLIENT + "/anthropic.js");
const { converse, converseChat } = await import(process.env.TOOLYARD_CLIENT + "/openai.js");
const { aiTools } = await import(process.env.TOOLYARD_CLIENT + "/vercel.js");
const { langchainTools } = await import(process.env.TOOLYARD_CLIENT + "/langchain.js");
const url = process.env.TOOLYARD_URL;
const yard = new Toolyard({ url });
/** How long a test waits for what should be there at once, in milliseconds. */
const patience = 60_000;

const glob = (id) => ({ id, tool: "glob", input: { pattern: "*.md" } });
const sleeps = (id, seconds) => ({ id, tool: "bash", input: { command: `sleep ${seconds}; echo ${id}` } });

/** A server that gives one answer after the other, and keeps the requests. */
async function answers(t, ...list) {
  const seen = [];
  const server = http.createServer((request, response) => {
    const { status = 200, headers = {}, body } = list[seen.push(request) - 1] ?? { status: 500, body: "{}" };
    if (body === undefined) return request.socket.destroy();
    response.writeHead(status, headers).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const at = `http://127.0.0.1:${server.address().port}`;
  return { seen, at, yard: new Toolyard({ url: at, token: "t" }) };
}
const problem = (status, more) => ({
  status, headers: { "Content-Type": "application/problem+json", ...more },
  body: JSON.stringify({ type: "urn:toolyard:problem:full", title: "", status, detail: "no room" }),
});
const sse = (body) => ({ headers: { "Content-Type": "text/event-stream" }, body });
const result = (index) => `id: ${index}\nevent: result\ndata: {"index": ${index}}\n\n`;

test("what passes is repeated, and what does not is an error", async (t) => {
  const { seen, yard } = await answers(t, {}, problem(429, { "Retry-After": "0" }), problem(503), { status: 202, body: "{}" });
  const batch = await yard.submit({ calls: [glob("a")] });
  assert.equal(seen.length, 4);
  assert.ok(seen.every((r) => r.headers.authorization === "Bearer t"));
  assert.match(batch.id, /^[0-9a-f-]{36}$/);
  const refused = await answers(t, problem(403));
  await assert.rejects(refused.yard.workers(), (e) => e.status === 403 && e.message === "no room");
  for (const [what, does] of Object.entries({
    "a decision": (y) => y.decide("x", { decision: "deny" }), "an interrupt": (y) => y.interrupt("s"),
    "a resolve": (y) => y.resolve("s"),
  })) {
    const once = await answers(t, {}, { status: 202, body: '{"batches": 0, "calls": 0}' });
    await assert.rejects(does(once.yard), LostError);
    assert.equal(once.seen.length, 1, `${what} is not repeated`);
  }
});

test("half an error is no answer, and is asked for again", async (t) => {
  const { body } = problem(404);
  let asked = 0;
  const server = http.createServer((request, response) => {
    response.writeHead(404, { "Content-Type": "application/problem+json", "Content-Length": body.length });
    if (asked++ % 2) response.end(body);
    else response.write(body.slice(0, 20), () => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const yard = new Toolyard({ url: `http://127.0.0.1:${server.address().port}` });
  const full = (e) => e.status === 404 && e.type === "urn:toolyard:problem:full";
  await assert.rejects(yard.workers(), full);
  await assert.rejects(yard.stream("anthropic", (async function* () { yield "x"; })()).reply(), full);
});

test("what was not sent is repeated, also what is not repeated once it was sent", async () => {
  const server = http.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  let asked = 0;
  const counts = (...args) => (asked++, fetch(...args));
  await assert.rejects(new Toolyard({ url: `http://127.0.0.1:${port}`, fetch: counts, maxRetries: 1 }).interrupt("s"), LostError);
  assert.equal(asked, 2);
});

test("a server that falls silent is no longer waited for, before its answer or in it", async (t) => {
  const open = () => new ReadableStream({ start: (out) => out.enqueue(new TextEncoder().encode("retry: 1\n\n")) });
  for (const [when, answer] of Object.entries({
    "before its answer": undefined,
    "before the first byte": () => new ReadableStream(),
    "behind the first byte": open,
  })) {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    let silent;
    const heard = new Promise((resolve) => (silent = resolve));
    const asked = async (_, init) => {
      for await (const _ of init.body);
      const lost = new Promise((_, reject) => init.signal.addEventListener("abort", () => reject(init.signal.reason)));
      lost.catch(() => undefined);
      setImmediate(silent);
      if (!answer) return lost;
      const body = answer();
      const reader = body.getReader();
      const read = () => Promise.race([reader.read(), lost]);
      return { ok: true, status: 200, body: { getReader: () => ({ read, cancel: () => reader.cancel() }) } };
    };
    const yard = new Toolyard({ url: "http://127.0.0.1:1", fetch: asked, maxRetries: 0 });
    let failed;
    yard.stream("anthropic", (async function* () { yield "event: ping\n\n"; })()).reply().catch((e) => (failed = e));
    await heard;
    for (const began = performance.now(); !failed && performance.now() - began < 20_000; ) {
      await new Promise(setImmediate);
      t.mock.timers.tick(60_000);
    }
    t.mock.timers.reset();
    assert.ok(failed instanceof LostError, `${when}: ${failed ?? "it still waits"}`);
  }
});

test("a decision names the input that was shown, a no as well as a yes", async (t) => {
  const sent = [];
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    sent.push(JSON.parse(body).input_sha256);
    response.end("{}");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const yard = new Toolyard({ url: `http://127.0.0.1:${server.address().port}` });
  const shown = { id: "x", input_sha256: "aa" };
  await yard.decide(shown, { decision: "allow" });
  await yard.decide(shown, { decision: "deny" });
  await yard.decide(shown, { decision: "allow", input_sha256: undefined });
  await yard.decide(shown, { decision: "deny", input_sha256: "bb" });
  await yard.decide("x", { decision: "deny" });
  assert.deepEqual(sent, ["aa", "aa", "aa", "bb", undefined]);
});

test("an id that is empty is as if it were not there", async (t) => {
  const done = sse("event: completed\ndata: {}\n\n");
  const { seen, yard } = await answers(t, { status: 202, body: "{}" }, sse(""), done);
  const batch = await yard.open({ id: "" });
  assert.equal(batch.id.length, 36);
  const answer = yard.stream("anthropic", (async function* () {})(), { id: "" });
  await answer.reply();
  assert.deepEqual(seen.slice(1).map((r) => new URL(r.url, url).searchParams.get("id")), [answer.id, answer.id]);
});

test("a stream goes on behind its last event, whatever ended it", async (t) => {
  const { seen, yard } = await answers(
    t, sse(result(0) + "event: behind\ndata: {}\n\n"), sse(": hello\n\n"), problem(503),
    sse(result(1) + 'event: problem\ndata: {"status": 503, "detail": ""}\n\n'), {}, sse(result(2) + "id: 3\nevent: completed\ndata: {}\n\n"),
  );
  assert.deepEqual((await collect(yard.batch("b").results())).map((r) => r.index), [0, 1, 2]);
  assert.deepEqual(seen.map((r) => r.headers["last-event-id"]), [undefined, "0", "0", "0", "1", "1"]);
  const gone = await answers(t, sse('event: problem\ndata: {"status": 500, "detail": "it is damaged"}\n\n'));
  await assert.rejects(collect(gone.yard.batch("b").results()), /it is damaged/);
});

test("a stream is tried as often as the options say", async () => {
  let tried = 0;
  const away = () => {
    tried++;
    throw new TypeError("nobody is there");
  };
  const yard = new Toolyard({ maxRetries: 1, fetch: away });
  await assert.rejects(yard.stream("anthropic", new ReadableStream()).reply(), LostError);
  assert.equal(tried, 2);
  await assert.rejects(collect(yard.batch("b").results()), LostError);
  assert.equal(tried, 4);
});

test("an address or an answer that is none of a server is named", async (t) => {
  for (const url of ["localhost:8080", "127.0.0.1:8080", "ftp://127.0.0.1", "http://127.0.0.1/?a=b"]) {
    assert.throws(() => new Toolyard({ url }), (e) => e.message.includes(url) && e.message.includes("http://HOST:PORT"));
  }
  const { yard } = await answers(t, { headers: { "Content-Type": "text/html" }, body: "<!doctype html>" });
  await assert.rejects(yard.workers(), (e) => e instanceof ToolyardError && /no JSON.*Toolyard server/.test(e.message));
});

/** A client that asks nobody, and what it was to ask. */
function asks(...list) {
  const asked = [];
  const fetch = async (at, { body }) => {
    asked.push({ agent: at.searchParams.get("agent"), deny: at.searchParams.get("deny"), body: typeof body === "string" ? JSON.parse(body) : body });
    return new Response(JSON.stringify(list[asked.length - 1] ?? []));
  };
  return { asked, yard: new Toolyard({ agent: "me", fetch }) };
}

test("a client's agent is that of its tools and batches", async () => {
  const gone = () => assert.fail("the model is asked");
  const { asked, yard } = asks();
  const model = { messages: { stream: gone }, responses: { create: gone }, chat: { completions: { stream: gone } } };
  await assert.rejects(converseAnthropic(yard, model, { messages: [] }), /the model is asked/);
  await assert.rejects(converse(yard, model, { input: [] }), /the model is asked/);
  await assert.rejects(converseChat(yard, model, { messages: [] }), /the model is asked/);
  const batch = await yard.submit({ agent: undefined, calls: [] });
  assert.equal(batch.agent, "me");
  assert.deepEqual(asked.map((a) => a.agent ?? a.body?.agent), ["me", "me", "me", "me"]);
  const other = { agent: "other", session: "s", options: { deny: ["bash"] } };
  await runnableTools(yard, other);
  await aiTools(yard, (s) => s, other);
  await langchainTools(yard, () => 0, other);
  assert.deepEqual(asked.slice(4).map((a) => [a.agent, a.deny]), Array(3).fill(["other", "bash"]));
});

test("what is aborted before it begins does not begin", async () => {
  const aborted = AbortSignal.abort();
  const { asked, yard } = asks([{ name: "glob", input_schema: { type: "object" } }]);
  await assert.rejects(yard.stream("anthropic", new ReadableStream(), { signal: aborted }).reply(), { name: "AbortError" });
  assert.equal(asked.length, 0, "the stream is not sent");
  const [tool] = await runnableTools(yard);
  await assert.rejects(tool.run({}, { signal: aborted }), { name: "AbortError" });
  assert.equal(asked.length, 1, "the call is not handed in");
});

test("a wait ends with its signal", async (t) => {
  const { yard } = await answers(t, ...Array.from({ length: 20 }, () => problem(503, { "Retry-After": "60" })));
  await assert.rejects(yard.batch("b").done({ signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
});

/** A proxy that cuts its first connections after so many bytes of the answer. */
async function proxy(t, cuts) {
  const to = new URL(url);
  let made = 0;
  const open = new Set();
  const server = net.createServer((down) => {
    let left = cuts[made++] ?? Infinity;
    const up = net.connect(Number(to.port), to.hostname);
    open.add(down);
    const end = () => {
      open.delete(down);
      down.destroy();
      up.destroy();
    };
    down.on("error", end).on("close", end).pipe(up);
    up.on("error", end).on("close", end);
    up.on("data", (data) => {
      const part = data.subarray(0, left);
      left -= part.length;
      down.write(part, () => left <= 0 && end());
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const down of open) down.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${server.address().port}`, made: () => made };
}

async function collect(iterable) {
  const out = [];
  for await (const v of iterable) out.push(v);
  return out;
}

test("a batch is submitted, and answered in order", async () => {
  const batch = await yard.submit({ session: "ts", calls: [glob("a"), { id: "b", tool: "nothing" }, glob("c")] });
  const results = await collect(batch.results());
  assert.deepEqual(results.map((r) => [r.index, r.call_id, r.code]), [[0, "a", ""], [1, "b", "unknown_tool"], [2, "c", ""]]);
  assert.match(results[0].output, /README\.md/);
  const view = await batch.done();
  assert.equal(view.status, "completed");
  assert.equal((await batch.get()).results.length, 3);
  const reply = await batch.reply("anthropic");
  assert.equal(reply.role, "user");
  assert.deepEqual(reply.content.map((c) => c.tool_use_id), ["a", "b", "c"]);
  const types = (await collect(batch.events())).map((e) => e.type);
  assert.equal(types[0], "dev.toolyard.batch.submitted.v1");
  for (let listed = []; !listed.includes(batch.id); ) { // the list may lag behind for a moment
    listed = (await collect(yard.batches({ session: "ts", limit: 1 }))).map((b) => b.id);
  }
});

test("a mistake is a ToolyardError with its field", async () => {
  await assert.rejects(yard.submit({ calls: [{ id: "x", tool: "glob" }, { id: "x", tool: "glob" }] }), (e) => {
    assert.ok(e instanceof ToolyardError);
    assert.deepEqual([e.status, e.type, e.field], [400, "urn:toolyard:problem:input", "calls[1].id"]);
    return true;
  });
  await assert.rejects(collect(yard.batch("none").results()), (e) => e.status === 404);
});

test("a name that no URL can have is an error, and not another's", async () => {
  for (const id of [".", ".."]) {
    await assert.rejects(yard.submit({ id, calls: [glob("a")] }), /stands in no URL/);
    assert.throws(() => yard.batch(id), /stands in no URL/);
    assert.throws(() => yard.session(id), /stands in no URL/);
    await assert.rejects(yard.interrupt(id), /stands in no URL/);
  }
});

test("results resume after cut connections, each once", async (t) => {
  const p = await proxy(t, [40, 5000, 60, 9000, 120]);
  const cut = new Toolyard({ url: p.url });
  // Results come one by one: what has come before a cut was read by then, where fetch would throw a burst away.
  const calls = Array.from({ length: 12 }, (_, i) => sleeps(`g${i}`, 0.1));
  const batch = await cut.submit({ calls });
  const results = await collect(batch.results());
  assert.deepEqual(results.map((r) => r.call_id), calls.map((c) => c.id));
  assert.ok(p.made() > 5, `${p.made()} connections`);
  assert.equal((await yard.batch(batch.id).done()).results.length, 12);
});

test("a quiet stream may be cut as often as it takes", async (t) => {
  const quiet = sse(": still here\n\n"), done = sse("event: completed\ndata: {}\n\n");
  const reads = { results: (y) => y.batch("b").results(), stream: (y) => y.stream("anthropic", (async function* () {})()) };
  for (const [what, read] of Object.entries(reads)) {
    const via = ({ at }) => read(new Toolyard({ url: at, maxRetries: 2 }));
    const gone = await answers(t, quiet, quiet, quiet, done); // each at once
    await assert.rejects(collect(via(gone)), LostError, what);
    assert.equal(gone.seen.length, 3, what);
    let now = 0; // each connection is there for a while
    const clock = t.mock.method(performance, "now", () => (now += 6_000));
    const cut = await answers(t, quiet, quiet, quiet, quiet, quiet, done);
    assert.deepEqual(await collect(via(cut)), [], what);
    assert.equal(cut.seen.length, 6, what);
    clock.mock.restore();
  }
});

test("an open batch takes calls while others run", async () => {
  const batch = await yard.open({ session: "ts" });
  assert.equal(await batch.append(glob("first")), 0);
  const results = batch.results();
  assert.equal((await results.next()).value.call_id, "first");
  assert.equal(await batch.append(glob("second"), { tool: "glob", input: { pattern: "*.none" } }), 1);
  await batch.close();
  assert.equal((await collect(results)).length, 2);
  await assert.rejects(batch.append(glob("late")), (e) => e.type === "urn:toolyard:problem:closed");
});

test("progress tells what a running call writes", async () => {
  const batch = await yard.open();
  const reports = [];
  const told = (async () => {
    for await (const p of batch.progress()) reports.push(p);
  })();
  await batch.append({ id: "p", tool: "bash", input: { command: "for i in 1 2 3; do echo line $i; sleep 0.3; done" } });
  await batch.close();
  await told;
  assert.ok(reports.some((p) => p.event === "progress" && p.call_id === "p"), JSON.stringify(reports));
});

test("cancel ends what runs", async () => {
  const batch = await yard.submit({ calls: [sleeps("long", 60)] });
  const view = await batch.cancel("not needed");
  assert.equal(view.id, batch.id);
  const [result] = await collect(batch.results());
  assert.equal(result.code, "canceled");
  assert.match(result.error, /not needed/);
});

test("an approval is listed and decided", async () => {
  const batch = await yard.submit({ session: `s-${randomUUID()}`, interactive: true, calls: [glob("ask")], options: { ask: ["glob"] } });
  let waits;
  while (!(waits = (await yard.approvals()).find((a) => a.batch === batch.id)));
  await yard.decide(waits, { decision: "allow", reason: "go on" });
  const [result] = await collect(batch.results());
  assert.equal(result.code, "");
  await assert.rejects(yard.decide(waits, { decision: "allow" }), (e) => e.status === 410 || e.status === 409 || e.status === 404);
});

test("sessions, tools, workers", async () => {
  const session = await yard.updateSession("ts-alone", { alone: true });
  assert.equal(session.alone, true);
  assert.equal((await yard.session("ts-alone")).alone, true);
  assert.equal(await yard.interrupt("ts-alone", "stop"), 0);
  assert.deepEqual(await yard.resolve("ts-alone", "stop"), { batches: 0, calls: 0 });
  for (const format of ["anthropic", "openai", "openai-chat", "mcp"]) {
    const tools = await yard.tools(format);
    assert.ok(tools.length > 5, format);
    assert.deepEqual(await yard.tools(format), tools, "nothing has changed, so it is the same list");
  }
  assert.equal((await yard.workers()).length, 1);
});

test("a list of tools is the caller's", async (t) => {
  const same = { status: 304, headers: { ETag: '"1"' }, body: "" };
  const { seen, yard } = await answers(t, { headers: { ETag: '"1"' }, body: '[{"name": "glob"}]' }, same, same);
  for (let i = 0; i < 3; i++) {
    const tools = await yard.tools("anthropic");
    assert.deepEqual(tools, [{ name: "glob" }], "what a caller adds or marks changes nothing of the next list");
    tools[0].cache_control = { type: "ephemeral" };
    tools.push({ name: "own" });
  }
  assert.deepEqual(seen.map((r) => r.headers["if-none-match"]), [undefined, '"1"', '"1"']);
});

test("a report", async () => {
  await (await yard.submit({ calls: [{ id: "r", tool: "no_such_tool", input: {} }] })).done();
  const report = await yard.report({ since: "1h" });
  assert.ok(report.codes.some((c) => c.code === "unknown_tool"), JSON.stringify(report.codes));
  assert.equal((await yard.report({ since: "2001-01-01T00:00:00Z", until: "1h" })).calls.total, 0);
});

test("a long result is read whole", async () => {
  const batch = await yard.submit({ calls: [{ id: "long", tool: "bash", input: { command: "seq 1 100000" } }] });
  const { results } = await batch.done();
  assert.ok(results[0].truncated);
  const text = (await collect(yard.blob(results[0].blob))).join("");
  assert.ok(text.includes("99999\n100000"), `${text.length}`);
});

const part = (data) => `data: ${JSON.stringify(data)}\n\n`;
const use = (i, id, input) => [
  { type: "content_block_start", index: i, content_block: { type: "tool_use", id, name: "glob", input: {} } },
  { type: "content_block_delta", index: i, delta: { type: "input_json_delta", partial_json: JSON.stringify(input) } },
  { type: "content_block_stop", index: i },
];

test("calls of a stream run while it is written", async () => {
  let seen;
  const first = new Promise((resolve) => (seen = resolve));
  async function* model() {
    for (const e of use(0, "one", { pattern: "*.md" })) yield e;
    await first; // the model goes on when the first result is there
    for (const e of use(1, "two", { pattern: "*.none" })) yield part(e);
    yield new TextEncoder().encode(part({ type: "message_stop" }));
  }
  const answer = yard.stream("anthropic", model(), { session: "ts" });
  const results = [];
  for await (const e of answer) {
    if (e.event !== "result") continue;
    results.push(e.result.call_id);
    seen();
  }
  assert.deepEqual(results, ["one", "two"]);
  const reply = await answer.reply();
  assert.deepEqual(reply.content.map((c) => c.tool_use_id), ["one", "two"]);
});

test("a stream that is cut goes on under the same id", async (t) => {
  const p = await proxy(t, [2500, 4500]);
  async function* model() {
    for (let i = 0; i < 6; i++) for (const e of use(i, `c${i}`, { pattern: "*.md" })) yield e;
    yield { type: "message_stop" };
  }
  const answer = new Toolyard({ url: p.url }).stream("anthropic", model());
  const ids = [];
  for await (const r of answer.results()) ids.push(r.call_id);
  const reply = await answer.reply();
  assert.equal(reply.content.length, 6, "each call of the response has one answer");
  assert.deepEqual(ids, [...new Set(ids)]);
  assert.equal(p.made(), 3);
  const view = await yard.batch(answer.id).done();
  assert.deepEqual(view.results.map((r) => r.call_id), ids);
});

test("a stream that is left ends the model's, and its reply is not known", async () => {
  let ended = false;
  async function* model() {
    try {
      for (const e of use(0, "one", { pattern: "*.md" })) yield e;
      for (const e of use(1, "two", { pattern: "*.none" })) yield e;
      await new Promise((resolve) => setImmediate(resolve));
      yield { type: "message_stop" };
    } finally {
      ended = true;
    }
  }
  const answer = yard.stream("anthropic", model());
  for await (const _ of answer) break;
  await assert.rejects(answer.reply(), /left before its end/);
  while (!ended) await new Promise((resolve) => setImmediate(resolve));
  const refused = yard.stream("anthropic", model(), { partition: "none" });
  await assert.rejects(collect(refused), ToolyardError);
  await assert.rejects(refused.reply(), ToolyardError);
});

/** A model's stream that goes on until it is left. */
function goesOn(each = () => undefined) {
  let fails;
  const failed = new Promise((_, reject) => (fails = reject));
  failed.catch(() => undefined);
  const state = { left: false };
  const iterator = {
    next: () => new Promise((resolve) => setImmediate(() => resolve({ value: { type: "ping" }, done: state.left }))).finally(each),
    return: async () => {
      state.left = true;
      fails(new Error("the stream was left")); // as the SDKs' messages do
    },
  };
  const ends = async () => {
    while (!state.left) await new Promise((resolve) => setImmediate(resolve));
  };
  return { [Symbol.asyncIterator]: () => iterator, finalMessage: () => failed, ends };
}

test("a stream that fails or is aborted ends the model's", { timeout: patience }, async (t) => {
  const refuses = await answers(t, problem(403));
  const away = new Toolyard({ fetch: () => Promise.reject(new TypeError("nobody is there")), maxRetries: 0 });
  const aborts = new AbortController();
  for (const [yard, model, signal, error] of [
    [refuses.yard, goesOn(), undefined, ToolyardError],
    [away, goesOn(), undefined, LostError],
    [new Toolyard({ url }), goesOn(() => aborts.abort()), aborts.signal, { name: "AbortError" }],
  ]) {
    await assert.rejects(yard.stream("anthropic", model, { signal }).reply(), error);
    await model.ends();
  }
});

test("a chat message that says nothing has a content that the API takes back", { timeout: patience }, async () => {
  const silent = (message) => ({
    chat: { completions: { stream: () => ({
      async *[Symbol.asyncIterator]() {
        yield { choices: [{ index: 0, delta: { role: "assistant", content: null }, finish_reason: "length" }] };
      },
      finalMessage: async () => message,
    }) } },
  });
  const said = [{ role: "user", content: "Look around." }];
  const ends = async (message) => (await converseChat(new Toolyard({ url }), silent(message), { messages: said })).at(-1);
  assert.deepEqual(await ends({ role: "assistant", content: null, refusal: null }), { role: "assistant", content: "", refusal: null });
  const refused = { role: "assistant", content: null, refusal: "no" };
  assert.deepEqual(await ends(refused), refused);
});

test("converse ends the model's stream where the server refuses it, and says so", { timeout: patience }, async (t) => {
  const tools = { body: "[]" };
  const { yard } = await answers(t, tools, problem(403), tools, problem(403), tools, problem(403));
  for (const [name, ask] of Object.entries({
    anthropic: (s) => converseAnthropic(yard, { messages: { stream: () => s } }, { messages: [] }),
    chat: (s) => converseChat(yard, { chat: { completions: { stream: () => s } } }, { messages: [] }),
    responses: (s) => converse(yard, { responses: { create: async () => s } }, { input: [] }),
  })) {
    const model = goesOn();
    await assert.rejects(ask(model), (e) => e instanceof ToolyardError && e.status === 403, name);
    await model.ends();
  }
});

test("half a response is an error", async () => {
  const said = [{ role: "user", content: "Look around." }];
  const item = { type: "function_call", id: "fc_1", call_id: "one", name: "glob", arguments: '{"pattern": "*.md"}' };
  const events = [
    { type: "response.created", response: { id: "r", output: [] } },
    { type: "response.output_item.added", output_index: 0, item: { ...item, arguments: "" } },
    { type: "response.output_item.done", output_index: 0, item },
  ];
  const text = [{ type: "response.created", response: { id: "r", output: [] } }];
  const failed = [{ type: "response.failed", response: { id: "r", output: [], error: { message: "overloaded" } } }];
  for (const [list, breaks] of [[events, true], [events, false], [text, true], [text, false], [failed, false]]) {
    let asked = 0;
    async function* stream() {
      yield* list;
      if (breaks) throw new TypeError("the model is gone");
    }
    const create = async () => (asked++ === 0 ? stream() : assert.fail("half a response is sent back"));
    await assert.rejects(converse(yard, { responses: { create } }, { input: said }), breaks ? TypeError : ToolyardError);
  }
  async function* breaks() {
    throw new TypeError("the model is gone");
  }
  await assert.rejects(yard.stream("anthropic", breaks()).reply(), TypeError, "that it has no call is not known");
});

test("a response of text alone has no reply", async () => {
  async function* model() {
    yield { type: "message_start", message: { role: "assistant", content: [] } };
    yield { type: "message_stop" };
  }
  assert.equal(await yard.stream("anthropic", model()).reply(), undefined);
});

test("watch tells what happens to all batches", async () => {
  const stop = new AbortController();
  const happenings = yard.watch({ signal: stop.signal });
  const next = happenings.next(); // the stream begins
  const batches = [];
  const submitting = (async () => {
    while (!stop.signal.aborted) batches.push((await (await yard.submit({ calls: [glob("w")] })).done()).id);
  })();
  const seen = await next;
  stop.abort();
  await submitting;
  assert.ok(seen.value.event?.type.startsWith("dev.toolyard."), JSON.stringify(seen.value));
});

test("events are read from bytes in any pieces", async () => {
  const bytes = new TextEncoder().encode(": hello\r\nid: 1\r\nevent: a\r\ndata: ü\r\ndata:2\r\n\r\nevent: b\ndata: 3\n\ndata: 4\r\rid: 9\n");
  for (let size = 1; size < bytes.length; size++) {
    async function* pieces() {
      for (let i = 0; i < bytes.length; i += size) yield bytes.subarray(i, i + size);
    }
    assert.deepEqual(await collect(events(pieces())), [
      { id: "1", name: "a", data: "ü\n2" }, { name: "b", data: "3" }, { name: "message", data: "4" },
    ], `pieces of ${size}`);
  }
});

test("what Anthropic gives and does not take back is left out", async () => {
  const said = [{ role: "user", content: "Look around." }];
  const use = (id, input) => ({ type: "tool_use", id, name: "glob", input });
  const turns = [
    [{ type: "text", text: "" }, use("one", ["*.md"]), use("two", null), use("three", { pattern: "N*" })],
    [{ type: "text", text: " \n" }],
  ];
  const stream = () => {
    const content = turns.shift();
    async function* events() {
      for (const [index, { input, ...block }] of content.entries()) {
        yield { type: "content_block_start", index, content_block: { ...block, ...(block.type === "tool_use" && { input: {} }) } };
        if (input !== undefined) {
          yield { type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json: JSON.stringify(input) } };
        }
        yield { type: "content_block_stop", index };
      }
      yield { type: "message_stop" };
    }
    const all = events();
    return { [Symbol.asyncIterator]: () => all, finalMessage: async () => ({ role: "assistant", content }) };
  };
  const messages = await converseAnthropic(yard, { messages: { stream } }, { messages: said });
  assert.deepEqual(messages.slice(0, 2), [
    ...said,
    { role: "assistant", content: [use("one", {}), use("two", {}), use("three", { pattern: "N*" })] },
  ]);
  assert.deepEqual(messages[2].content.map((r) => r.tool_use_id), ["one", "two", "three"]);
  assert.equal(messages.length, 3, "a message without content is none");
});
