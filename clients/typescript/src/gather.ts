import type { Toolyard } from "./client.js";
import type { Call, Result, Submission, ToolOptions } from "./types.js";

/** What the batches of an adapter have beside their calls. */
export type BatchSettings = Omit<Submission, "id" | "open" | "calls" | "anthropic" | "openai" | "openai_chat" | "gemini">;

/** toolsOf are the settings of the batches that a list of tools has too. */
export function toolsOf({ agent, session, workspace, options }: BatchSettings): ToolOptions {
  return { agent, session, workspace, deny: options?.deny };
}

interface Waiting {
  call: Call & { id: string };
  signal: AbortSignal | undefined;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

/**
 * Gatherer makes one batch of the calls that an SDK starts at once, one by one, so that the pool sees them together and
 * makes groups of them.
 */
export class Gatherer {
  readonly #yard: Toolyard;
  readonly #settings: BatchSettings;
  #waiting: Waiting[] = [];

  constructor(yard: Toolyard, settings: BatchSettings) {
    this.#yard = yard;
    this.#settings = settings;
  }

  /** call runs a call with those that come in the same turn of the event loop. */
  call(tool: string, input: unknown, id?: string, signal?: AbortSignal): Promise<Result> {
    const call = { id: id ?? `call_${crypto.randomUUID()}`, tool, input };
    if (this.#waiting.some((w) => w.call.id === call.id)) this.#flush(); // ids are of one response
    return new Promise((resolve, reject) => {
      if (this.#waiting.length === 0) setTimeout(() => this.#flush(), 0);
      this.#waiting.push({ call, signal, resolve, reject });
    });
  }

  #flush(): void {
    const gathered = this.#waiting;
    this.#waiting = [];
    if (gathered.length === 0) return;
    this.#run(gathered).catch((e: unknown) => {
      for (const w of gathered) w.reject(e);
    });
  }

  async #run(all: Waiting[]): Promise<void> {
    // What was given up before it was handed in takes no effect.
    for (const w of all) if (w.signal?.aborted) w.reject(w.signal.reason);
    const gathered = all.filter((w) => !w.signal?.aborted);
    if (gathered.length === 0) return;
    const batch = await this.#yard.submit({ ...this.#settings, calls: gathered.map((w) => w.call) });
    const listening = gathered.map((w, i) => {
      const cancel = () => void batch.cancel("the agent gave up", [i]).catch(w.reject);
      if (w.signal?.aborted) cancel();
      w.signal?.addEventListener("abort", cancel, { once: true });
      return () => w.signal?.removeEventListener("abort", cancel);
    });
    try {
      for await (const result of batch.results()) gathered[result.index]?.resolve(result);
    } finally {
      for (const stop of listening) stop();
    }
  }
}

/** text is what a model reads of a result: its output, or on failure its error and what the tool left. */
export function text(result: Result): string {
  if (!result.is_error) return result.output;
  const message = result.error || `the call failed: ${result.code}`;
  const output = result.output.replace(/\n+$/, "");
  if (output === "" || message.startsWith(output) || message.includes("\n" + output)) return message;
  return `${message}\n\n${output}`;
}
