// The tools of the next batch, and a form that runs one call.

import { h, Fragment } from "preact";
import { useState } from "preact/hooks";
import type { BatchView, Me, Result } from "./api";
import { at, exact, get, name, post, rounds } from "./client";
import { Facts, ms, Problem, requery, Status, to, usePoll, type Route } from "./parts";

/** What a surface says of a tool, as far as the page shows it: GET /v1/tools?format=native. */
interface Tool {
  name: string;
  description: string;
  input_schema: Schema;
  concurrency_class: { static?: string };
  is_read_only?: boolean;
  is_destructive?: boolean;
  pool: string;
  origin: string;
  timeout_ms?: number;
  tags?: string[];
  aliases?: string[];
}

interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  description?: string;
  enum?: unknown[];
  default?: unknown;
}

const dryName = " dry"; // no field of a tool begins with a blank in its form

const kindOf = (s: Schema) => (Array.isArray(s.type) ? s.type.find((t) => t !== "null") : s.type) ?? "any";

/** The value of a field, as its schema has it. What is left empty is left out. */
function read(s: Schema, text: string): unknown {
  const kind = kindOf(s);
  if (kind === "string") return text;
  if (text.trim() === "") return undefined;
  if (kind === "integer" || kind === "number") {
    if (rounds(text)) throw new Error(`This browser would round ${text.trim()}.`);
    return /^\s*\./.test(text) ? Number(text) : exact(text); // a field of numbers takes ".5" too
  }
  if (kind === "boolean") return text === "true";
  return exact(text);
}

function Field({ field, schema, required }: { field: string; schema: Schema; required: boolean }) {
  const kind = kindOf(schema);
  const id = `field-${field}`;
  const choices = schema.enum ?? (kind === "boolean" ? [true, false] : undefined);
  const shared = { id, name: field, required, "aria-describedby": schema.description ? `${id}-says` : undefined };
  return <div>
    <label for={id}>{field}{required ? "" : " (may be left out)"}</label>
    {choices ? <select {...shared}>{required ? null : <option value="" />}
      {choices.map((c) => <option key={String(c)} value={String(c)}>{String(c)}</option>)}</select> :
      kind === "integer" || kind === "number" ? <input type="number" step={kind === "integer" ? 1 : "any"} {...shared} /> :
        <textarea rows={kind === "string" ? 2 : 4} spellcheck={false} {...shared} />}
    {schema.description ? <p class="hint" id={`${id}-says`}>{schema.description}</p> : null}
  </div>;
}

/** What a dry run says would happen, as far as the page shows it beside the text: the result's structured. */
interface Would {
  would?: "run" | "ask" | "deny";
}

const wouldBe = { run: "would run", ask: "would wait for a person", deny: "would not be permitted" };

/** How a call has ended, or how it would have if it had been run. */
function Ended({ result, dry }: { result: Result; dry: boolean }) {
  const would = dry ? (result.structured as Would | undefined)?.would : undefined;
  if (would) return <span class="status">Dry run: {wouldBe[would]}</span>;
  return <>{dry ? "Dry run: would end as " : ""}
    <Status status={result.is_error ? result.code : "finished"} failed={result.is_error} /></>;
}

function Run({ tool, agent, me }: { tool: Tool; agent: string; me: Me }) {
  const [error, setError] = useState<Error>();
  const [answer, setAnswer] = useState<BatchView>();
  const [busy, setBusy] = useState<"run" | "dry">();
  const [dry, setDry] = useState(false);
  const fields = Object.entries(tool.input_schema.properties ?? {});
  const required = new Set(tool.input_schema.required ?? []);
  const run = async (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    setError(undefined);
    setAnswer(undefined);
    // The key Enter submits with the first button, which is that of the real run.
    const asDry = (e.submitter as HTMLButtonElement | null)?.name === dryName;
    setBusy(asDry ? "dry" : "run");
    setDry(asDry);
    try {
      const input: Record<string, unknown> = {};
      for (const [field, schema] of fields) {
        const { value } = form.elements.namedItem(field) as HTMLInputElement;
        if (value === "" && !required.has(field)) continue;
        const v = read(schema, value);
        if (v !== undefined) input[field] = v;
      }
      const batch = { agent: agent || undefined, session: "console", interactive: me.interactive,
        calls: [{ id: "call-1", tool: tool.name, input }], options: asDry ? { dry_run: true } : undefined };
      const workspace = (form.elements.namedItem(" workspace") as HTMLInputElement).value;
      setAnswer(await post<BatchView>("/v1/batches?wait=10", workspace ? { ...batch, workspace } : batch));
    } catch (e) {
      setError(e as Error);
    } finally {
      setBusy(undefined);
    }
  };
  const result = answer?.results[0];
  return <form class="fields" onSubmit={run}>
    <h3>Run one call</h3>
    {fields.map(([field, schema]) => <Field key={field} field={field} schema={schema} required={required.has(field)} />)}
    <div><label for="run-workspace">Workspace</label> <input id="run-workspace" name=" workspace"
      placeholder="default" /></div>
    <div class="actions"><button class="primary" disabled={!!busy}>{busy === "run" ? "Runs" : "Run"}</button>
      <button name={dryName} disabled={!!busy} aria-describedby="dry-says">{busy === "dry" ? "Asks" : "Dry run"}</button>
    </div>
    <p class="hint" id="dry-says">A dry run says what would happen, and runs neither the tool nor a hook.</p>
    <Problem error={error} />
    {answer ? <div aria-live="polite">
      <p>{result ? <Ended result={result} dry={dry} /> : <Status status={answer.status} />}{" "}
        <a href={to(["batch", answer.agent, answer.id], { call: 0 })}>Batch {answer.id}</a>
        {result ? dry ? "" : `, ${ms(result.duration_ms)}` : ": it goes on there; it may wait for a person"}</p>
      {result ? <pre tabIndex={0} role="region" aria-label={dry ? "What would happen" : "Result"}
        class={result.is_error ? "bad" : ""}>{result.is_error ? result.error : result.output}</pre> : null}</div> : null}
  </form>;
}

export function ToolsPage({ route, me }: { route: Route; me: Me }) {
  const agent = route.query.get("agent") ?? "";
  const workspace = route.query.get("workspace") ?? "";
  const surface = usePoll((signal) => get<{ tools: Tool[] }>(at("/v1/tools", { format: "native", agent, workspace }),
    signal), 10_000, [agent, workspace]);
  const all = surface.data?.tools ?? [];
  const classes = new Map<string, Tool[]>();
  for (const t of all) {
    const c = t.concurrency_class.static ?? "by the input";
    classes.set(c, [...(classes.get(c) ?? []), t]);
  }
  const chosen = all.find((t) => t.name === route.query.get("tool"));
  const filter = (e: Event) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    requery(["tools"], Object.fromEntries(["agent", "workspace"].map((f) =>
      [f, (form.elements.namedItem(f) as HTMLInputElement).value.trim()])));
  };
  return <>
    <h1>Tools</h1>
    <form class="filters" onSubmit={filter} role="search" aria-label="Tools">
      <label>Agent <input name="agent" placeholder="default" /></label>
      <label>Workspace <input name="workspace" placeholder="default" /></label>
      <button>Show</button>
    </form>
    <Problem error={surface.error} />
    {surface.data && !all.length ? <p class="none">There are no tools.</p> : null}
    <div class="columns side">
      <nav aria-label="Tools">{[...classes].sort().map(([c, tools]) => <section key={c}><h2>{c}</h2>
        <ul class="asks">{tools.map((t) => <li key={t.name}>
          <a href={to(["tools"], { agent, workspace, tool: t.name })} aria-current={t === chosen ? "true" : undefined}>
            {t.name}</a></li>)}</ul></section>)}</nav>
      {chosen ? <section class="panel" aria-label="Tool">
        <h2>{chosen.name}</h2>
        <p>{chosen.description}</p>
        <Facts facts={[["Pool", chosen.pool], ["From", chosen.origin],
          ["Reads only", chosen.is_read_only ? "yes" : ""], ["Other names", chosen.aliases?.join(", ")],
          ["Needs tags", chosen.tags?.join(", ")], ["Time limit", chosen.timeout_ms ? ms(chosen.timeout_ms) : ""]]} />
        <Run key={name(chosen.name)} tool={chosen} agent={agent} me={me} />
        <details><summary>Schema</summary><pre tabIndex={0} role="region" aria-label="Schema">
          {JSON.stringify(chosen.input_schema, null, 2)}</pre></details>
      </section> : <p class="hint panel">Choose a tool to see its schema and to run it.</p>}
    </div>
  </>;
}
