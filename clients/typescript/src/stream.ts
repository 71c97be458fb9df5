import { chunks, Life, LostError, type Query, timer, ToolyardError, type Transport } from "./http.js";
import { maxKeptBytes, streamSilence } from "./limits.js";
import { events } from "./sse.js";
import type { BatchView, Note, Problem, Replies, Result, StreamOptions, StreamProvider } from "./types.js";

/** A model's stream: bytes as they came, texts, or the events of a provider's SDK. */
export type ModelStream = ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string | object>;

/** What the server says of a stream. */
export type AnswerEvent =
  | { event: "batch"; id: string; agent: string; results: string }
  | { event: "result"; result: Result }
  | { event: "cut"; problem: Problem }
  | { event: "note"; items: Note[] };

/**
 * AnswerStream is what comes back while a model's stream goes in. A connection that is cut is made again under the same
 * batch id: the server runs nothing twice, and each result is yielded once.
 */
export class AnswerStream<P extends StreamProvider> implements AsyncIterable<AnswerEvent> {
  /** The id of the batch. */
  readonly id: string;
  readonly #http: Transport;
  readonly #provider: P;
  readonly #options: StreamOptions;
  readonly #signal: AbortSignal | undefined;
  readonly #source: Kept;
  #reply: Replies[P] | BatchView | undefined;
  #cut: Problem | undefined; // why the model's response is not whole
  #read = false;
  #failed: { error: unknown } | undefined;
  #running: AsyncGenerator<AnswerEvent> | undefined;

  constructor(http: Transport, provider: P, stream: ModelStream, options: StreamOptions, signal?: AbortSignal) {
    this.id = options.id || crypto.randomUUID();
    this.#http = http;
    this.#provider = provider;
    this.#options = { ...options, id: this.id };
    this.#signal = signal;
    this.#source = new Kept(stream);
  }

  [Symbol.asyncIterator](): AsyncGenerator<AnswerEvent> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /** results yields the results alone. */
  async *results(): AsyncGenerator<Result> {
    for await (const e of this) if (e.event === "result") yield e.result;
  }

  /**
   * reply reads the rest, and returns what goes back to the provider: undefined if the response had no call. It throws
   * what the answer ended with, and what the model's stream failed with if no call had come by then.
   */
  async reply(): Promise<Replies[P] | undefined> {
    for await (const _ of this);
    if (this.#failed) throw this.#failed.error;
    if (!this.#read) throw new Error("the stream was left before its end; what goes back to the provider is not known");
    if (!this.#reply) this.#source.throwIfFailed();
    return this.#reply as Replies[P] | undefined;
  }

  /** whole is reply, and throws if the model's response is not whole: half of one is nothing to send back to it. */
  async whole(): Promise<Replies[P] | undefined> {
    const reply = await this.reply();
    this.#source.throwIfFailed();
    if (this.#cut) throw new ToolyardError(this.#cut);
    return reply;
  }

  async *#run(): AsyncGenerator<AnswerEvent> {
    try {
      yield* this.#exchange();
      this.#read = true;
    } catch (error) {
      this.#failed = { error };
      throw error;
    } finally {
      // Behind the error of this stream, which says more than that of a model's that was left.
      if (!this.#read) setTimeout(() => this.#source.leave(), 0);
    }
  }

  async *#exchange(): AsyncGenerator<AnswerEvent> {
    let next = 0; // the index of the next result that was not yielded
    let begun = false;
    const tries = this.#http.tries(this.#signal);
    for (;;) {
      this.#signal?.throwIfAborted();
      const alive = timer(streamSilence, this.#signal);
      const life = new Life();
      let answered = false;
      try {
        const init: RequestInit & { duplex: "half" } = {
          method: "POST",
          headers: { "Content-Type": "text/event-stream" },
          body: this.#source.body(() => answered || alive.reset()),
          duplex: "half",
          signal: alive.signal,
        };
        alive.pause(); // browsers show no answer before the model has said all: then it has to come
        const response = await this.#http.send(`/v1/stream/${this.#provider}`, this.#options as Query, init);
        answered = true;
        alive.reset();
        life.begin();
        for await (const e of events(chunks(response.body, () => (alive.reset(), life.sign())))) {
          alive.pause();
          switch (e.name) {
            case "batch":
              if (!begun) yield { event: "batch", ...(JSON.parse(e.data) as { id: string; agent: string; results: string }) };
              begun = true;
              break;
            case "result": {
              const result = JSON.parse(e.data) as Result;
              if (result.index < next) break;
              next = result.index + 1;
              tries.progress();
              yield { event: "result", result };
              break;
            }
            case "cut": {
              const problem = JSON.parse(e.data) as Problem;
              if (problem.status !== 409) this.#cut = problem; // that is of a batch that was closed before
              yield { event: "cut", problem };
              break;
            }
            case "note":
              yield { event: "note", items: (JSON.parse(e.data) as { items: Note[] }).items };
              break;
            case "reply":
              this.#reply = JSON.parse(e.data) as Replies[P];
              break;
            case "problem":
              throw new ToolyardError(JSON.parse(e.data) as Problem);
            case "completed":
              return;
          }
          alive.reset();
        }
        throw new LostError("the answer to the stream was cut");
      } catch (e) {
        this.#signal?.throwIfAborted();
        this.#source.throwIfFailed();
        if (!this.#source.whole) throw e;
        if (!alive.signal.aborted) life.sign();
        if (life.long && e instanceof LostError) tries.progress();
        await tries.failed(e);
      } finally {
        alive.end();
      }
    }
  }
}

/** Kept reads a model's stream once, and gives it to each attempt from its beginning. */
class Kept {
  readonly #source: AsyncIterator<Uint8Array | string | object>;
  readonly #kept: Uint8Array[] = [];
  #size = 0;
  #reading: Promise<boolean> | undefined; // true when there is one more chunk
  #ended = false;
  #failure: { error: unknown } | undefined;

  constructor(stream: ModelStream) {
    this.#source = (Symbol.asyncIterator in stream ? stream : chunks(stream))[Symbol.asyncIterator]();
  }

  /** Whether all that was read is still here. */
  get whole(): boolean {
    return this.#size <= maxKeptBytes;
  }

  /** Fails if the model's stream did: that is the caller's to know. */
  throwIfFailed(): void {
    if (this.#failure) throw this.#failure.error;
  }

  /** leave ends the model's stream, as a loop that is left does. */
  leave(): void {
    if (!this.#ended) this.#source.return?.().catch(() => undefined); // nobody reads it any more
  }

  /** body is the stream from its beginning. ended is called when all of it was given. */
  body(ended: () => void): ReadableStream<Uint8Array> {
    let at = 0;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (out) => {
          while (at >= this.#kept.length) {
            if (!(await this.#more())) {
              ended();
              return out.close();
            }
          }
          const chunk = this.#kept[at] as Uint8Array;
          if (!this.whole) this.#kept[at] = new Uint8Array(); // it is too long to be sent again
          at++;
          out.enqueue(chunk);
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** more reads one chunk, for all attempts that wait for it. */
  #more(): Promise<boolean> {
    if (this.#ended) return Promise.resolve(false);
    this.#reading ??= this.#source
      .next()
      .then(
        ({ done, value }) => {
          if (done) this.#ended = true;
          else {
            const chunk = encode(value);
            this.#size += chunk.length;
            this.#kept.push(chunk);
          }
          return !done;
        },
        (error: unknown) => {
          this.#ended = true; // the server is told of a stream that ends too early, and answers for it
          this.#failure = { error };
          return false;
        },
      )
      .finally(() => (this.#reading = undefined));
    return this.#reading;
  }
}

const encoder = new TextEncoder();

/** encode writes an event of an SDK as its provider sends it. */
function encode(chunk: Uint8Array | string | object): Uint8Array {
  if (chunk instanceof Uint8Array) return chunk;
  if (typeof chunk === "string") return encoder.encode(chunk);
  return encoder.encode(`data: ${JSON.stringify(chunk)}\n\n`);
}
