import { answerTimeout, firstRetry, longestRetry, maxRetries, streamSilence } from "./limits.js";
import { events, type ServerEvent } from "./sse.js";
import type { Problem } from "./types.js";

export interface TransportOptions {
  /** Where the server is. Default: http://127.0.0.1:8080. */
  url?: string;
  /** The token that names the agent, if the server asks for one. */
  token?: string;
  /** What makes requests. Default: the global fetch. */
  fetch?: typeof fetch;
  /** How often in a row an attempt may fail without progress. Default: 8. */
  maxRetries?: number;
}

/** An answer of the server that is not a good one, or a problem that a stream tells. */
export class ToolyardError extends Error {
  readonly status: number;
  /** What kind of problem it is: `about:blank`, or `urn:toolyard:problem:` and a word. */
  readonly type: string;
  /** The field, parameter or header that is wrong, if it is one. */
  readonly field: string | undefined;
  /** After how many seconds to ask again, if the server says so. */
  readonly retryAfter: number;

  constructor(problem: Partial<Problem> & { status: number }, retryAfter = 0) {
    const about = problem.field ? `${problem.field}: ` : "";
    super(about + (problem.detail || problem.title || `the server answers with status ${problem.status}`));
    this.name = "ToolyardError";
    this.status = problem.status;
    this.type = problem.type ?? "about:blank";
    this.field = problem.field;
    this.retryAfter = retryAfter;
  }
}

/** No answer came, or half of one: what became of the request is not known, unless it was not sent. */
export class LostError extends Error {
  /** Whether there was no connection to send it on. */
  unsent = false;

  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "LostError";
  }
}

export type Query = Record<string, string | number | boolean | string[] | undefined>;

export interface RequestOptions {
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  /** Ends the request. */
  signal?: AbortSignal | undefined;
  /** Whether the request is not repeated when it may have been sent, because doing it twice is not doing it once. */
  once?: boolean;
  /** How long an attempt may take, in milliseconds. */
  timeout?: number;
}

const again = [429, 502, 503, 504];

/** segment is a name as one segment of a path. A URL drops the segments "." and "..", however they are written. */
export function segment(name: string): string {
  if (name === "." || name === "..") throw new TypeError(`${JSON.stringify(name)} stands in no URL; use another name`);
  return encodeURIComponent(name);
}

/** Transport makes requests, and repeats those that were not answered. */
export class Transport {
  readonly url: string;
  readonly #token: string | undefined;
  readonly #fetch: typeof fetch;
  readonly #retries: number;

  constructor(options: TransportOptions = {}) {
    const url = options.url ?? "http://127.0.0.1:8080";
    const at = URL.canParse(url) ? new URL(url) : undefined;
    if (!at || !/^https?:$/.test(at.protocol) || at.search || at.hash) {
      throw new TypeError(`${JSON.stringify(url)} is not the URL of a server; use http://HOST:PORT`);
    }
    this.url = url.replace(/\/+$/, "");
    this.#token = options.token;
    this.#fetch = options.fetch ?? fetch;
    this.#retries = options.maxRetries ?? maxRetries;
  }

  /** json makes a request until it is answered, and reads the answer. */
  async json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    return (await this.answer<T>(method, path, options)).body;
  }

  /** answer is json, with the status and the headers of the answer. A 304 has no body. */
  async answer<T>(method: string, path: string, options: RequestOptions = {}): Promise<{ status: number; headers: Headers; body: T }> {
    const headers: Record<string, string> = { ...options.headers };
    const init: RequestInit = { method, headers };
    if (options.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(options.body);
    }
    return this.retry(options.signal, options.once ?? false, async () => {
      const deadline = timer(options.timeout ?? answerTimeout, options.signal);
      try {
        const response = await this.send(path, options.query ?? {}, { ...init, signal: deadline.signal });
        if (response.status === 304) return { status: 304, headers: response.headers, body: undefined as T };
        const text = await response.text().catch((e: unknown) => {
          throw new LostError("the answer was cut", e);
        });
        try {
          return { status: response.status, headers: response.headers, body: JSON.parse(text) as T };
        } catch {
          const detail = `${this.url} answers ${method} ${path} with no JSON; is it the address of a Toolyard server?`;
          throw new ToolyardError({ status: response.status, detail });
        }
      } finally {
        deadline.end();
      }
    });
  }

  /** send makes one attempt, and returns the answer if it is a good one or a 304. */
  async send(path: string, query: Query, init: RequestInit): Promise<Response> {
    const at = new URL(this.url + path);
    for (const [name, value] of Object.entries(query)) {
      if (Array.isArray(value)) for (const v of value) at.searchParams.append(name, v);
      else if (value !== undefined) at.searchParams.set(name, String(value));
    }
    const headers = new Headers(init.headers);
    if (this.#token) headers.set("Authorization", `Bearer ${this.#token}`);
    let response: Response;
    try {
      response = await this.#fetch(at, { ...init, headers, redirect: "manual" });
    } catch (e) {
      const lost = new LostError(`no answer from ${this.url}`, e);
      lost.unsent = unsent(e);
      throw lost;
    }
    if (response.ok || response.status === 304) return response;
    const text = await response.text().catch((e: unknown) => {
      throw new LostError(`an answer with status ${response.status} was cut`, e);
    });
    let problem: Partial<Problem> = {};
    if (response.headers.get("Content-Type")?.startsWith("application/problem+json")) {
      try {
        problem = JSON.parse(text) as Problem;
      } catch {
        problem = {}; // the status says enough
      }
    }
    throw new ToolyardError({ ...problem, status: response.status }, Number(response.headers.get("Retry-After") ?? 0) || 0);
  }

  /** tries counts failures in a row: as many may come as the options say. */
  tries(signal: AbortSignal | undefined): Tries {
    return new Tries(this.#retries, signal);
  }

  /** retry tries something until it succeeds, fails for good, or has failed too often. */
  async retry<T>(signal: AbortSignal | undefined, once: boolean, attempt: () => Promise<T>): Promise<T> {
    const tries = this.tries(signal);
    for (;;) {
      try {
        signal?.throwIfAborted();
        return await attempt();
      } catch (e) {
        signal?.throwIfAborted();
        if (once && !(e instanceof LostError && e.unsent)) throw e;
        await tries.failed(e);
      }
    }
  }

  /**
   * follow yields the events of a stream, over as many connections as it takes: a stream that is cut goes on behind the
   * last event that has an id. It ends when the caller leaves it, or when the server says that there is no more. cut is
   * called when a connection was lost. A connection that was there for a while before it was cut counts as progress:
   * the stream of a batch that waits has nothing but heartbeats, and proxies cut it.
   */
  async *follow(path: string, query: Query, signal?: AbortSignal, cut?: () => ServerEvent | undefined): AsyncGenerator<ServerEvent> {
    let last: string | undefined;
    const tries = this.tries(signal);
    for (;;) {
      signal?.throwIfAborted();
      const life = new Life();
      try {
        const headers: Record<string, string> = { Accept: "text/event-stream" };
        if (last !== undefined) headers["Last-Event-ID"] = last;
        const alive = timer(streamSilence, signal);
        try {
          const response = await this.send(path, query, { headers, signal: alive.signal });
          if (response.status === 204) return;
          life.begin();
          for await (const e of events(chunks(response.body, () => (alive.reset(), life.sign())))) {
            alive.pause(); // whoever takes it may take long
            if (e.name === "problem") throw new ToolyardError(JSON.parse(e.data) as Problem);
            if (e.name === "behind") break;
            yield e;
            alive.reset();
            tries.progress();
            last = e.id ?? last;
          }
        } finally {
          if (!alive.signal.aborted) life.sign();
          alive.end();
        }
        throw new LostError(`the stream of ${path} was cut`);
      } catch (e) {
        if (life.long && e instanceof LostError) tries.progress();
        await tries.failed(e);
      }
      const missing = cut?.();
      if (missing) yield missing;
    }
  }
}

/** Life is how long a connection gave signs of life. */
export class Life {
  #began: number | undefined;
  /** Whether that is worth a new connection, so that the server is not asked more often than otherwise. */
  long = false;

  /** begin says that the answer has begun. */
  begin(): void {
    this.#began = performance.now();
  }

  /** sign says that something came: a part of the answer, or its end. */
  sign(): void {
    this.long = this.#began !== undefined && performance.now() - this.#began >= longestRetry;
  }
}

/** Tries counts how often in a row something failed, and pauses. */
export class Tries {
  readonly #most: number;
  readonly #signal: AbortSignal | undefined;
  #failed = 0;
  #pause = firstRetry;

  constructor(most: number, signal: AbortSignal | undefined) {
    this.#most = most;
    this.#signal = signal;
  }

  progress(): void {
    this.#failed = 0;
    this.#pause = firstRetry;
  }

  /** failed pauses before the next attempt, or throws the error if there is to be none. */
  async failed(e: unknown): Promise<void> {
    this.#signal?.throwIfAborted();
    this.#failed++;
    if (this.#failed > this.#most || !passes(e)) throw e;
    const least = e instanceof ToolyardError ? e.retryAfter * 1000 : 0;
    await sleep(Math.min(Math.max(this.#pause, least), longestRetry), this.#signal);
    this.#pause = Math.min(2 * this.#pause, longestRetry);
  }
}

/** unsent reports whether fetch failed before there was a connection. Browsers do not say so. */
function unsent(e: unknown): boolean {
  const cause = e instanceof Error ? (e.cause as { code?: unknown } | undefined) : undefined;
  return ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"].includes(String(cause?.code));
}

/** passes reports whether what failed so may succeed when it is repeated. */
function passes(e: unknown): boolean {
  return e instanceof LostError || (e instanceof ToolyardError && again.includes(e.status));
}

/** chunks yields the bytes of a body. A connection that is cut is a LostError. */
export async function* chunks(body: ReadableStream<Uint8Array> | null, each?: () => void): AsyncGenerator<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((e: unknown) => {
        throw new LostError("the connection was cut", e);
      });
      if (done) return;
      each?.();
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it may be cut already
  }
}

/** timer aborts a request that takes too long, or whose signal does. */
export function timer(ms: number, outer?: AbortSignal) {
  const controller = new AbortController();
  const abort = () => controller.abort(outer?.reason);
  if (outer?.aborted) abort(); // no event comes any more
  outer?.addEventListener("abort", abort, { once: true });
  const late = () => controller.abort(new LostError(`nothing came for ${ms} ms`));
  let running = setTimeout(late, ms);
  return {
    signal: controller.signal,
    pause: () => clearTimeout(running),
    reset: () => {
      clearTimeout(running);
      running = setTimeout(late, ms);
    },
    end: () => {
      clearTimeout(running);
      outer?.removeEventListener("abort", abort);
      controller.abort();
    },
  };
}

/** sleep waits, or fails when the signal aborts. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(running);
      reject(signal?.reason as Error);
    };
    const running = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
