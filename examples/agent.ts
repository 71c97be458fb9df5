// An agent without any library: it hands a batch to Toolyard over HTTP and reads the results as they come.
//
//	dispatcher serve --with-worker --workspace default=.
//	node examples/agent.ts
//
// TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.
// Node runs TypeScript as it is from 22.18 on; Deno and Bun do too.

declare const process: { env: Record<string, string | undefined>; exit(status: number): never };

const url = process.env.TOOLYARD_URL ?? "http://127.0.0.1:8080";
const token = process.env.TOOLYARD_TOKEN ?? "";

type Result = { index: number; call_id: string; tool: string; is_error: boolean; code: string; output: string; error: string };
type Problem = { status: number; detail: string; field?: string };
type Event = { id?: string; event?: string; data?: string };

// What a model said: the tool calls of an OpenAI Chat Completions message, as they came.
const message = {
  role: "assistant",
  tool_calls: [
    { id: "call_a", type: "function", function: { name: "glob", arguments: '{"pattern": "*.md"}' } },
    { id: "call_b", type: "function", function: { name: "read_file", arguments: '{"file_path": "go.mod", "limit": 3}' } },
  ],
};

const pause = (seconds: number) => new Promise((done) => setTimeout(done, seconds * 1000));

const headers = (more: Record<string, string> = {}) => (token ? { Authorization: `Bearer ${token}`, ...more } : more);

// submit hands a batch in. It has an id, so handing it in again after a lost answer is safe.
async function submit(batch: object, tries = 10): Promise<{ id: string; status: string }> {
  for (let left = tries; ; left--) {
    let answer: Response;
    try {
      answer = await fetch(`${url}/v1/batches`, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(batch) });
    } catch (e) {
      if (left === 1) throw e;
      await pause(1);
      continue;
    }
    if (answer.ok) return await answer.json();
    const problem: Problem = await answer.json();
    if (![429, 503].includes(answer.status) || left === 1) throw new Error(`${problem.status} ${problem.field ?? ""}: ${problem.detail}`);
    await pause(Number(answer.headers.get("Retry-After") ?? 1));
  }
}

// events splits a body into server-sent events.
async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<Event> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event: Record<string, string> = {};
      for (const line of block.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      if (event.event) yield event;
    }
  }
}

// results yields the results in the order of the calls. A stream that breaks goes on behind the last one that was seen.
async function* results(id: string): AsyncGenerator<Result> {
  let last: string | undefined;
  for (;;) {
    try {
      const more: Record<string, string> = last === undefined ? {} : { "Last-Event-ID": last };
      const answer = await fetch(`${url}/v1/batches/${encodeURIComponent(id)}/results`, { headers: headers(more) });
      if (!answer.ok && ![429, 503].includes(answer.status)) {
        console.error(((await answer.json()) as Problem).detail);
        process.exit(1);
      }
      if (answer.ok && answer.body) {
        for await (const event of events(answer.body)) {
          last = event.id ?? last;
          if (event.event === "completed") return;
          if (event.event === "problem") {
            console.error((JSON.parse(event.data ?? "{}") as Problem).detail);
            process.exit(1);
          }
          // Others say that the batch waits, or that this was too slow.
          if (event.event === "result") yield JSON.parse(event.data ?? "{}") as Result;
        }
      }
    } catch (e) {
      console.error("the stream broke:", e);
    }
    await pause(1);
  }
}

const batch = await submit({ id: crypto.randomUUID(), session: "example", openai_chat: message });
console.log("batch", batch.id, batch.status);
for await (const r of results(batch.id)) {
  const text = r.is_error ? r.error : r.output;
  console.log(`[${r.index}] ${r.tool} ${r.code || "ok"}: ${text.split("\n")[0]}`);
}
const back = await fetch(`${url}/v1/batches/${encodeURIComponent(batch.id)}?format=openai-chat`, { headers: headers() });
const messages = (await back.json()) as object[]; // the next messages of the conversation
console.log(messages.length, "messages with role tool");
export {};
