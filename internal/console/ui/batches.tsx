// The batches that are kept, the newest first.

import { h, Fragment } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { BatchInfo, Digest, Found, Page } from "./api";
import { at, get } from "./client";
import { ms, Problem, requery, shown, Status, Table, to, usePoll, When, type Route } from "./parts";

const filters = ["agent", "session", "status", "tool", "code", "text", "since", "until"] as const;
const indexed: readonly string[] = ["agent", "session", "status"];
const onAPage = "50";

/** A batch of the list. What stands in its log comes later. */
type Row = BatchInfo & Partial<Digest>;

export function BatchesPage({ route }: { route: Route }) {
  const query: Record<string, string | undefined> = {};
  for (const f of filters) query[f] = route.query.get(f) ?? undefined;
  const after = route.query.get("after") ?? "";
  const time = (s?: string) => (s && !isNaN(Date.parse(s)) ? new Date(s).toISOString() : undefined);
  const ask = at("/v1/search", { ...query, since: time(query.since), until: time(query.until), after, limit: onAPage });
  const found = usePoll(async (signal) => ({ ask, ...await get<Found>(ask, signal) }), after ? 0 : 2000, [ask]);
  // To read what is no longer in the memory of the servers takes seconds. The index is in memory.
  const fast = filters.every((f) => !query[f] || indexed.includes(f));
  const listed = usePoll(async (signal) => ({ ask, ...(fast ? await get<Page>(at("/v1/batches", { agent: query.agent,
    session: query.session, status: query.status, after, limit: onAPage }), signal) : undefined) }), 0, [ask]);
  const change = (e: Event) => {
    const form = e.currentTarget as HTMLFormElement;
    e.preventDefault();
    const next: Record<string, string> = {};
    for (const f of filters) next[f] = (form.elements.namedItem(f) as HTMLInputElement).value.trim();
    requery(["batches"], next);
  };
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => { // only then: who types is not disturbed
    for (const f of filters) (form.current!.elements.namedItem(f) as HTMLInputElement).value = query[f] ?? "";
  }, [route]);
  const filtered = filters.some((f) => query[f]);
  const page = found.data?.ask !== ask && listed.data?.ask === ask && listed.data.batches ? listed.data : found.data;
  const list: Row[] = page?.batches ?? [];
  return <>
    <h1>Batches</h1>
    <form class="filters" ref={form} onSubmit={change} onChange={change} role="search" aria-label="Batches">
      <label>Search <input name="text" type="search" placeholder="id, agent, session" /></label>
      <label>Agent <input name="agent" /></label>
      <label>Session <input name="session" /></label>
      <label>Status <select name="status">
        <option value="">any</option>
        {["open", "running", "waiting", "completed", "canceled"].map((s) => <option key={s}>{s}</option>)}
      </select></label>
      <label>Tool <input name="tool" /></label>
      <label>Code <input name="code" placeholder="error: any" /></label>
      <label>From <input name="since" type="datetime-local" /></label>
      <label>To <input name="until" type="datetime-local" /></label>
      <button>Search</button>
    </form>
    <Problem error={found.error} />
    <Table label="Batches" heads={["Status", "Batch", "Agent", "Session", "Workspace", "Tools", "Calls", "Errors",
      "Submitted", "Took"]}>
      {list.map((b) => <tr key={`${b.agent}/${b.id}`}>
        <td><Status status={b.status} /></td>
        <td><a href={to(["batch", b.agent, b.id])}>{shown(b.id)}</a></td>
        <td>{shown(b.agent)}</td><td>{shown(b.session)}</td><td>{shown(b.workspace)}</td>
        <td class="words">{b.opaque ? "cannot be read" : b.tools ? shown(b.tools.join(", ")) : "…"}</td>
        <td class="number">{b.calls}</td>
        <td class="words">{b.failed ? <span class="bad">{b.failed}: {b.codes?.join(", ")}</span> : ""}</td>
        <td><When at={b.submitted} /></td>
        <td class="number">{b.status === "completed" || b.status === "canceled" ?
          ms(Date.parse(b.changed) - Date.parse(b.submitted)) : ""}</td>
      </tr>)}
    </Table>
    {page && !list.length ? <p class="none">{filtered ? "No batch here is like that." :
      "There are no batches."}</p> : null}
    <p class="pages" aria-live="polite">
      {after ? <a href={to(["batches"], query)}>Newest</a> : null}
      {page?.next ? <a href={to(["batches"], { ...query, after: page.next })}>Older</a> : null}
      {found.data && filtered ? <span class="hint">{found.data.looked} batches were looked at</span> : null}
    </p>
  </>;
}
