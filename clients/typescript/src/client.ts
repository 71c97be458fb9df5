import { Batch, OpenBatch, type Wait } from "./batch.js";
import { segment, Transport, type TransportOptions } from "./http.js";
import { maxToolLists } from "./limits.js";
import { AnswerStream, type ModelStream } from "./stream.js";
import type {
  Approval,
  BatchFilter,
  BatchInfo,
  BatchView,
  Blob,
  DeadLetter,
  Decision,
  Happening,
  Interrupted,
  Report,
  ReportFilter,
  Session,
  SessionChange,
  StreamOptions,
  StreamProvider,
  Submission,
  ToolOptions,
  Tools,
  Worker,
} from "./types.js";

export interface ToolyardOptions extends TransportOptions {
  /** Whose batches these are, where no token says so. */
  agent?: string;
}

/** Toolyard hands batches of tool calls to a pool and gets their results. */
export class Toolyard {
  readonly #http: Transport;
  readonly #agent: string | undefined;
  readonly #tools = new Map<string, { etag: string; tools: unknown }>();

  constructor(options: ToolyardOptions = {}) {
    this.#http = new Transport(options);
    this.#agent = options.agent;
  }

  /** submit hands in a batch. It gets an id if it has none, so that a request whose answer was lost can be repeated. */
  async submit(batch: Submission, { signal }: Wait = {}): Promise<Batch> {
    const id = batch.id || crypto.randomUUID();
    const agent = batch.agent ?? this.#agent;
    const handed = new Batch(this.#http, id, agent); // fails for an id that no path can have
    await this.#http.json<BatchView>("POST", "/v1/batches", { body: { ...batch, agent, id }, signal });
    return handed;
  }

  /** open hands in a batch to which calls can be appended until it is closed. */
  async open(batch: Submission = {}, { signal }: Wait = {}): Promise<OpenBatch> {
    const { id, agent } = await this.submit({ calls: [], ...batch, open: true }, { signal });
    return new OpenBatch(this.#http, id, agent);
  }

  /** batch is a batch that was handed in before. */
  batch(id: string, agent: string | undefined = this.#agent): Batch {
    return new Batch(this.#http, id, agent);
  }

  /** stream hands in a model's response while the model still writes it. Each call starts when its input is complete. */
  stream<P extends StreamProvider>(provider: P, stream: ModelStream, options: StreamOptions & Wait = {}): AnswerStream<P> {
    const { signal, ...rest } = options;
    return new AnswerStream(this.#http, provider, stream, { ...rest, agent: rest.agent ?? this.#agent }, signal);
  }

  /** tools returns the tools of the next batch, in a provider's form. Ask before each request to the model. */
  async tools<F extends keyof Tools>(format: F, options: ToolOptions = {}): Promise<Tools[F]> {
    const query = { ...options, agent: options.agent ?? this.#agent, format };
    const key = JSON.stringify(query);
    const known = this.#tools.get(key);
    const headers: Record<string, string> = known ? { "If-None-Match": known.etag } : {};
    const answer = await this.#http.answer<Tools[F]>("GET", "/v1/tools", { query, headers });
    if (answer.status === 304 && known) return structuredClone(known.tools) as Tools[F];
    const etag = answer.headers.get("ETag");
    if (this.#tools.size >= maxToolLists) this.#tools.clear();
    if (etag) this.#tools.set(key, { etag, tools: structuredClone(answer.body) }); // the caller may change its own
    return answer.body;
  }

  /** batches yields batches, the newest first, page by page. */
  async *batches(filter: Omit<BatchFilter, "after"> = {}): AsyncGenerator<BatchInfo> {
    for (let after = 0; ; ) {
      const page = await this.#http.json<{ batches: BatchInfo[]; next?: number }>("GET", "/v1/batches", {
        query: { ...filter, agent: filter.agent ?? this.#agent, after },
      });
      yield* page.batches;
      if (!page.next) return;
      after = page.next;
    }
  }

  /** approvals returns the calls that wait for a person, the newest first. */
  async approvals(): Promise<Approval[]> {
    const list = await this.#http.json<{ approvals: Approval[] }>("GET", "/v1/approvals", { query: { agent: this.#agent } });
    return list.approvals;
  }

  /**
   * decide stores a person's decision about a call that waits. It is not repeated if its answer is lost. With an
   * approval of the list it is about what that shows: it fails if the call waits with another input.
   */
  async decide(approval: string | Approval, decision: Decision): Promise<void> {
    const id = typeof approval === "string" ? approval : approval.id;
    // A late no must not end a question that the person has not seen.
    const shown = typeof approval === "string" ? undefined : approval.input_sha256;
    const body = { ...decision, input_sha256: decision.input_sha256 || shown };
    await this.#http.json("POST", `/v1/approvals/${segment(id)}`, { body, once: true });
  }

  session(id: string): Promise<Session> {
    return this.#http.json("GET", `/v1/sessions/${segment(id)}`, { query: { agent: this.#agent } });
  }

  updateSession(id: string, change: SessionChange): Promise<Session> {
    return this.#http.json("POST", `/v1/sessions/${segment(id)}`, { query: { agent: this.#agent }, body: change });
  }

  /**
   * interrupt stops a session's batches where they may be stopped, and returns how many were asked. It is not repeated
   * if its answer is lost: that would stop what has begun since.
   */
  async interrupt(session: string, reason = ""): Promise<number> {
    const path = `/v1/sessions/${segment(session)}/interrupt`;
    const options = { query: { agent: this.#agent }, body: { reason }, once: true };
    return (await this.#http.json<{ batches: number }>("POST", path, options)).batches;
  }

  /**
   * resolve ends a session's calls that wait for a person, stops nothing else, and says how many calls it has ended. It
   * is not repeated if its answer is lost.
   */
  async resolve(session: string, reason = ""): Promise<Interrupted> {
    const path = `/v1/sessions/${segment(session)}/interrupt`;
    return this.#http.json("POST", path, { query: { agent: this.#agent }, body: { reason, resolve: true }, once: true });
  }

  /** blob yields an offloaded result part by part: texts, or bytes if it is not text. */
  async *blob(ref: string): AsyncGenerator<string | Uint8Array> {
    for (let offset = 0; ; ) {
      const part: Blob = await this.#http.json("GET", `/v1/blobs/${segment(ref)}`, { query: { agent: this.#agent, offset } });
      yield part.data === undefined ? part.content : Uint8Array.from(atob(part.data), (c) => c.charCodeAt(0));
      if (!part.next) return;
      offset = part.next;
    }
  }

  async workers(): Promise<Worker[]> {
    return (await this.#http.json<{ workers: Worker[] }>("GET", "/v1/workers")).workers;
  }

  async deadLetters(limit = 100): Promise<DeadLetter[]> {
    return (await this.#http.json<{ dead_letters: DeadLetter[] }>("GET", "/v1/dead", { query: { limit } })).dead_letters;
  }

  /** report returns what the batches of a period add up to: the newest, where there are too many. */
  report(filter: ReportFilter = {}): Promise<Report> {
    return this.#http.json("GET", "/v1/report", { query: { ...filter, agent: filter.agent ?? this.#agent } });
  }

  /** watch yields what happens to all batches from now on. A gap says that events are missing before it. */
  async *watch({ signal }: Wait = {}): AsyncGenerator<Happening> {
    const cut = () => ({
      name: "cloudevent",
      data: JSON.stringify({ time: new Date().toISOString(), gap: "the connection was lost" } satisfies Happening),
    });
    for await (const e of this.#http.follow("/v1/events", { agent: this.#agent }, signal, cut)) {
      if (e.name === "cloudevent") yield JSON.parse(e.data) as Happening;
    }
  }
}
