import { type Query, segment, type Transport } from "./http.js";
import { answerTimeout, waitSeconds } from "./limits.js";
import type { BatchView, Call, CloudEvent, Progress, Provider, Replies, Result, Waiting } from "./types.js";

/** What ends a wait. */
export interface Wait {
  signal?: AbortSignal;
}

/** Batch is a batch that was handed in. */
export class Batch {
  readonly id: string;
  readonly agent: string | undefined;
  protected readonly http: Transport;
  protected readonly path: string;

  constructor(http: Transport, id: string, agent?: string) {
    this.http = http;
    this.id = id;
    this.agent = agent;
    this.path = `/v1/batches/${segment(id)}`;
  }

  protected get query(): Query {
    return { agent: this.agent };
  }

  /** results yields the results in the order of the calls, each as soon as it is there. A cut connection is resumed. */
  async *results({ signal }: Wait = {}): AsyncGenerator<Result> {
    for await (const e of this.http.follow(`${this.path}/results`, this.query, signal)) {
      if (e.name === "completed") return;
      if (e.name === "result") yield JSON.parse(e.data) as Result;
    }
  }

  /**
   * progress yields what running calls report, and that the batch waits for its turn, until the batch is complete.
   * Reports are not stored: what a cut connection misses is not sent again.
   */
  async *progress({ signal }: Wait = {}): AsyncGenerator<({ event: "progress" } & Progress) | ({ event: "waiting" } & Waiting)> {
    for await (const e of this.http.follow(`${this.path}/results`, { ...this.query, progress: "only" }, signal)) {
      if (e.name === "completed") return;
      if (e.name === "progress") yield { event: e.name, ...(JSON.parse(e.data) as Progress) };
      if (e.name === "waiting") yield { event: e.name, ...(JSON.parse(e.data) as Waiting) };
    }
  }

  /** events yields what is stored about the batch as CloudEvents, from its submission to its end. */
  async *events({ signal }: Wait = {}): AsyncGenerator<CloudEvent> {
    for await (const e of this.http.follow(`${this.path}/events`, { ...this.query, end: true }, signal)) {
      if (e.name === "end") return;
      if (e.name === "cloudevent") yield JSON.parse(e.data) as CloudEvent;
    }
  }

  /** get returns the state of the batch now. */
  get({ signal }: Wait = {}): Promise<BatchView> {
    return this.http.json("GET", this.path, { query: this.query, signal });
  }

  /** done waits until the batch is complete. */
  done(wait: Wait = {}): Promise<BatchView> {
    return this.#await(undefined, wait);
  }

  /** reply waits until the batch is complete, and returns what goes back to the provider. */
  reply<P extends Provider>(provider: P, wait: Wait = {}): Promise<Replies[P]> {
    return this.#await(provider, wait);
  }

  async #await<T>(format: Provider | undefined, { signal }: Wait): Promise<T> {
    for (;;) {
      const { status, body } = await this.http.answer<T>("GET", this.path, {
        query: { ...this.query, format, wait: waitSeconds },
        signal,
        timeout: waitSeconds * 1000 + answerTimeout,
      });
      if (status === 200) return body;
    }
  }

  /** cancel asks for the calls that have no result to end, or for those of these indices. The model reads the reason. */
  cancel(reason = "", calls?: number[]): Promise<BatchView> {
    return this.http.json("POST", `${this.path}/cancel`, { query: this.query, body: { reason, calls } });
  }
}

/** OpenBatch is a batch to which calls can be appended while the model is still talking. */
export class OpenBatch extends Batch {
  /** append adds calls, and returns the index of the first. Each starts as soon as it may. */
  async append(...calls: Call[]): Promise<number> {
    // With its own id each call is recognised when a request whose answer was lost is repeated.
    const named = calls.map((c) => ({ ...c, id: c.id || `call_${crypto.randomUUID()}` }));
    const { first } = await this.http.json<{ first: number }>("POST", `${this.path}/calls`, { query: this.query, body: { calls: named } });
    return first;
  }

  /** close says that no calls follow. */
  close(): Promise<BatchView> {
    return this.http.json("POST", `${this.path}/close`, { query: this.query, body: {} });
  }
}
