// One batch: its calls over time, at any event of its log.

import { h, Fragment, type ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { BatchView, Blob as Stored, Budget, CallLook, Progress, Row, Session, ShapeGroup, Span, Timeline } from "./api";
import { at as where, Failed, get, name, post, stream } from "./client";
import { Compare } from "./compare";
import { bytes, columns, Copy, Facts, Lines, List, ms, over, Problem, requery, shown, Status, Table, to, usePoll, When, type Route }
  from "./parts";

const rowHeight = 28;

/** A timeline whose rows were put together from several answers. */
interface Look extends Timeline {
  rows: Row[];
}

function merge(before: Look | undefined, answer: Timeline): Look {
  if (!before) return answer;
  const rows = before.rows.slice();
  for (const r of answer.rows) rows[r.index] = r;
  return { ...answer, rows };
}

/**
 * Follows a batch until it is over, and then reads all of it once more: two servers may count the events of a batch that
 * runs in another order. At an earlier event it stands still.
 */
function useTimeline(path: string, agent: string, event: number): { look?: Look; error?: Error } {
  const [state, set] = useState<{ look?: Look; error?: Error }>({});
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let seen: Look | undefined;
    const round = async () => {
      const began = performance.now();
      try {
        const answer = await get<Timeline>(where(`${path}/timeline`, { agent, at: event || undefined,
          since: seen && !event && !over.has(seen.batch.status) ? seen.events : undefined }), stop.signal);
        if (stop.signal.aborted) return;
        const still = seen?.events === answer.events;
        seen = merge(seen, answer);
        set({ look: seen });
        if (event || (over.has(answer.batch.status) && still) || answer.batch.refused) return;
      } catch (e) {
        if (stop.signal.aborted) return;
        set({ look: seen, error: e as Error });
        if (e instanceof Failed && e.status >= 400 && e.status < 500 && e.status !== 429) return;
      }
      timer = setTimeout(next, Math.max(document.hidden ? 5000 : 500, 4 * (performance.now() - began)));
    };
    const next = () => void round();
    timer = setTimeout(next, event ? 60 : 0); // who drags the slider asks for where it stops
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, agent, event]);
  return state;
}

/** What running calls report. */
function useProgress(path: string, agent: string, live: boolean): Map<number, Progress> {
  const [reports, set] = useState(new Map<number, Progress>());
  useEffect(() => {
    if (!live) return;
    const stop = new AbortController();
    const kept = new Map<number, Progress>();
    void stream(where(`${path}/results`, { agent, progress: "only" }), stop.signal, (event, data) => {
      if (event !== "progress") return;
      const p = JSON.parse(data) as Progress;
      const before = kept.get(p.index);
      const output = before?.attempt === p.attempt ? (before.output ?? "") + (p.output ?? "") : p.output ?? "";
      kept.set(p.index, { ...p, output: output.slice(-16_384) });
      set(new Map(kept));
    }).catch(() => {}); // progress is a help: the timeline says what became of the calls
    return () => stop.abort();
  }, [path, agent, live]);
  return reports;
}

type Item = { group: number } | { call: Row };

function order(look: Look): Item[] {
  const byGroup = new Map<number, Row[]>();
  for (const r of look.rows) {
    const list = byGroup.get(r.group);
    if (list) list.push(r);
    else byGroup.set(r.group, [r]);
  }
  const items: Item[] = [];
  look.batch.groups.forEach((_, g) => {
    items.push({ group: g });
    for (const call of byGroup.get(g) ?? []) items.push({ call });
  });
  for (const call of byGroup.get(-1) ?? []) items.push({ call });
  return items;
}

function Bar({ from, until, kind, scale, title }:
  { from: number; until: number; kind: string; scale: number; title: string }) {
  const left = Math.min(100, Math.max(0, (100 * from) / scale));
  const width = Math.min(100 - left, Math.max(0, (100 * (until - from)) / scale));
  return <span class={`bar ${kind}`} title={title} style={{ left: `${left}%`, width: `max(2px, ${width}%)` }} />;
}

function CallBars({ call, group, end, scale }: { call: Row; group?: ShapeGroup; end: number; scale: number }) {
  const done = call.finished_ms ?? end;
  const started = group?.started_ms;
  const to = (s: Span) => s.to_ms ?? end;
  return <span class="bars" aria-hidden="true">
    {started !== undefined && !call.not_run ? <Bar kind="queue" from={started} until={done} scale={scale}
      title="waits" /> : null}
    {(call.waits ?? []).map((s, n) => <Bar key={`w${n}`} kind="person" from={s.from_ms} until={to(s)} scale={scale}
      title={`waits for a person: ${ms(to(s) - s.from_ms)}`} />)}
    {(call.runs ?? []).map((s, n) => <Bar key={`r${n}`} kind={s.failed ? "retry" : call.error ? "bad" : "run"}
      from={s.from_ms} until={to(s)} scale={scale}
      title={`${s.failed ? `failed: ${s.failed}` : "runs"}: ${ms(to(s) - s.from_ms)}`} />)}
    {call.not_run && call.finished_ms !== undefined ? <Bar kind="bad" from={call.finished_ms}
      until={call.finished_ms} scale={scale} title={call.not_run} /> : null}
  </span>;
}

function GroupLine({ group, g, end, scale }: { group: ShapeGroup; g: number; end: number; scale: number }) {
  const ready = group.ready_ms, started = group.started_ms;
  const wait = ready !== undefined ? (started ?? end) - ready : 0;
  return <>
    <span class="label">Group {g + 1}: {group.count} {group.count > 1 ? "calls together" : "call alone"}
      {ready === undefined ? "" : started === undefined ? ", waits for its ticket" :
        `, ${group.ticket ? `ticket ${group.ticket}` : "no ticket"} after ${ms(wait)}`}</span>
    <span class="bars" aria-hidden="true">{ready !== undefined ? <Bar kind="ticket" from={ready}
      until={started ?? end} scale={scale} title={`waits for its ticket: ${ms(wait)}`} /> : null}</span>
  </>;
}

function CallLine({ call, report, ...bars }:
  { call: Row; report?: Progress; group?: ShapeGroup; end: number; scale: number }) {
  const word = call.error ? call.code : call.status;
  return <>
    <span class="label">
      <span class="index">{call.index}</span> <span class="tool">{shown(call.tool)}</span>{" "}
      <Status status={word ?? ""} failed={call.error} />
      {call.status === "claimed" && report?.fraction !== undefined && report.fraction >= 0 ?
        <progress value={report.fraction} max={1} aria-label="progress" /> : null}
      {call.blame ? <span class="blame"> {call.blame}</span> : null}
    </span>
    <CallBars call={call} {...bars} />
  </>;
}

function Output({ agent, look }: { agent: string; look: CallLook }) {
  const r = look.result!;
  const [more, set] = useState<{ text: string; next?: number; size: number }>();
  const [error, setError] = useState<Error>();
  useEffect(() => set(undefined), [r.blob]);
  const load = async () => {
    try {
      const b = await get<Stored>(where(`/v1/blobs/${name(r.blob)}`, { agent, offset: more?.next ?? 0,
        limit: 262_144 }));
      set({ text: (more?.text ?? "") + b.content, next: b.next, size: b.size });
    } catch (e) {
      setError(e as Error);
    }
  };
  const text = more?.text ?? r.output;
  return <>
    {text ? <><h3>Output</h3><pre tabIndex={0} role="region" aria-label="Output">{text}</pre></> : null}
    {r.blob && (!more || more.next) ? <p><button type="button" onClick={load}>
      {more ? `Show more of ${bytes(more.size)}` : "Show the whole output"}</button></p> : null}
    <Problem error={error} />
    {r.error ? <><h3>Error</h3><pre class="bad" tabIndex={0} role="region" aria-label="Error">{r.error}</pre></> : null}
    {r.detail ? <details><summary>For the operator</summary>
      <pre tabIndex={0} role="region" aria-label="Detail">{r.detail}</pre></details> : null}
  </>;
}

function CallPanel({ path, agent, index, event, changed, report, refresh }: { path: string; agent: string;
  index: number; event: number; changed: string; report?: Progress; refresh: () => void }) {
  const asked = usePoll((signal) => get<CallLook>(where(`${path}/calls/${index}`, { agent, at: event || undefined,
    columns: Math.min(80, columns()) }), signal), 0, [path, agent, index, event, changed]);
  const [error, setError] = useState<Error>();
  const look = asked.data?.index === index ? asked.data : undefined;
  const cancel = async () => {
    try {
      await post<BatchView>(where(`${path}/calls/${index}/cancel`, { agent }), {});
      refresh();
    } catch (e) {
      setError(e as Error);
    }
  };
  if (!look) return <section class="panel" aria-label="Call"><Problem error={asked.error} /></section>;
  const r = look.result;
  const facts = r?.phases?.length ? r.phases : look.facts;
  return <section class="panel" aria-label="Call">
    <h2>Call {index}: {shown(look.tool)}</h2>
    <Facts facts={[
      ["Status", <Status status={look.error ? look.code ?? "" : look.status} failed={look.error} />],
      ["Call id", look.call_id],
      ["Class", look.concurrency_class ? `${look.concurrency_class}${look.why ? `: ${look.why}` : ""}` : ""],
      ["Not run", look.not_run], ["Aborted by", look.blame], ["Pool", look.pool], ["Worker", look.worker],
      ["Attempts", look.attempts.length ? look.attempts.map((a) => `${a.attempt}${a.code ? ` (${a.code})` : ""}`)
        .join(", ") : r ? String(r.attempts) : ""],
      ["Isolation", r?.isolation], ["Queued", r ? ms(r.queue_ms) : ""], ["Took", r ? ms(r.duration_ms) : ""],
      ["Executed", r ? ms(r.execute_ms) : ""], ["Waited for a person", r?.approval_wait_ms ? ms(r.approval_wait_ms) : ""],
      ["Asked because", look.asked_reason],
      ["Decided", look.decided_by ? `${look.decision} by ${look.decided_by}${look.edited ? ", with another input" : ""}` :
        ""],
    ]} />
    {!r && !event ? <p><button type="button" onClick={cancel}>Cancel this call</button></p> : null}
    <Problem error={error} />
    {!r && report ? <><h3>Progress</h3><p>{report.status}{report.fraction >= 0 ?
      ` ${Math.round(100 * report.fraction)} %` : ""}</p>
      {report.output ? <pre tabIndex={0} role="region" aria-label="Output so far">{report.output}</pre> : null}</> : null}
    <h3>Input</h3>
    {look.part ? <><p class="hint">{look.part}</p><pre tabIndex={0} role="region" aria-label="Input">
      {JSON.stringify(look.input, null, 2)}</pre></> : <Lines lines={look.lines} label="Input" />}
    {r ? <Output agent={agent} look={look} /> : null}
    {facts.length ? <details><summary>Phases</summary>
      <Table label="Phases" heads={["Phase", "Outcome", "Took", "Found"]}>{facts.map((f, n) => <tr key={n}>
        <td>{f.phase}</td><td>{f.outcome}{f.code ? ` (${f.code})` : ""}</td><td class="number">{ms(f.ms)}</td>
        <td class="words">{f.detail}</td></tr>)}</Table></details> : null}
  </section>;
}

// useBudgets has the budgets that a session shares, as they were when a call ended last.
function useBudgets(agent: string, session: string | undefined, finished: number | undefined): Budget[] {
  const [budgets, setBudgets] = useState<Budget[]>([]);
  useEffect(() => {
    if (session === undefined) return;
    const stop = new AbortController();
    get<Session>(where(`/v1/sessions/${name(session)}`, { agent }), stop.signal).then(
      (s) => setBudgets(s.budgets ?? []), () => undefined); // the page is about the batch, and goes without
    return () => stop.abort();
  }, [agent, session, finished]);
  return budgets;
}

export function BatchPage({ route }: { route: Route }) {
  const [, agent, id] = route.path;
  const path = `/v1/batches/${name(id)}`;
  const event = Number(route.query.get("at") ?? 0);
  const index = route.query.has("call") ? Number(route.query.get("call")) : undefined;
  const { look, error } = useTimeline(path, agent, event);
  const live = !event && look !== undefined && !over.has(look.batch.status);
  const reports = useProgress(path, agent, live);
  const budgets = useBudgets(agent, look?.batch.session, look?.batch.finished);
  const [failed, setFailed] = useState<Error>();
  const items = useMemo(() => (look ? order(look) : []), [look]);
  const other = route.query.get("with") ?? undefined;
  const go = (query: { at?: number; call?: number; with?: string }) => requery(route.path, { at: event || undefined,
    call: index, with: other, ...query });
  const slider = useRef<HTMLInputElement>(null);
  if (!look) return <><h1>Batch {shown(id)}</h1><Problem error={error} /></>;
  const b = look.batch;
  const end = live && b.status === "running" ? Math.max(b.last_ms, Date.now() - Date.parse(b.submitted_at)) : b.last_ms;
  const scale = Math.max(end, 0.001);
  const chosen = index === undefined ? undefined : items.findIndex((i) => "call" in i && i.call.index === index);
  const cancel = async () => {
    try {
      await post<BatchView>(where(`${path}/cancel`, { agent }), {});
    } catch (e) {
      setFailed(e as Error);
    }
  };
  const row = index === undefined ? undefined : look.rows[index];
  const shell = (s: string) => (/^[\w@%+=:,./-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);
  const words = (s: string) => (s.startsWith("-") ? `-- ${shell(s)}` : shell(s)); // an id is no flag
  const origin = location.origin;
  return <>
    <h1>Batch {shown(id)}</h1>
    <Facts facts={[
      ["Status", <Status status={b.status} />], ["Agent", agent],
      ["Session", <a href={to(["batches"], { agent, session: b.session })}>{shown(b.session)}</a>],
      ["Workspace", b.workspace], ["Submitted", <When at={b.submitted_at} />], [over.has(b.status) ? "Took" : "Last event after", ms(b.last_ms)],
      ["Calls", `${b.finished} of ${b.calls} finished${b.failed ? `, ${b.failed} errors` : ""}`],
      ["Owner", b.owner], ["Takeovers", b.takeovers || ""], ["Partition", b.partition],
      ...budgets.map((one): [string, ComponentChildren] => [`Budget of ${one.of}`,
        <>{one.left} used{one.renews ? <>, all of it again <When at={one.renews} /></> : null}</>]),
    ]} />
    {b.refused ? <p class="problem">Refused: {b.refused}</p> : null}
    {b.contradicts ? <p class="problem">The log contradicts itself: {b.contradicts}</p> : null}
    <Problem error={error ?? failed} />
    <div class="travel">
      <label>Event <input type="range" min={1} max={look.events} value={look.at} ref={slider}
        onInput={(e) => {
          const n = Number(e.currentTarget.value);
          go({ at: n >= look.events && over.has(b.status) ? undefined : n });
        }} /></label>
      <output>{look.at} of {look.events}</output>
      <button type="button" disabled={look.at <= 1} onClick={() => go({ at: look.at - 1 })}>Back</button>
      <button type="button" disabled={look.at >= look.events} onClick={() => go({ at: look.at + 1 })}>Forward</button>
      <button type="button" disabled={!event} onClick={() => go({ at: undefined })}>Now</button>
      {live ? <button type="button" class="danger" onClick={cancel}>Cancel the batch</button> : null}
    </div>
    <p class="event" aria-live="polite">{look.around.at(-1)?.what}</p>
    <div class="columns">
      <div>
        <h2>Calls over {ms(end)}</h2>
        <p class="legend" aria-hidden="true"><span class="key ticket" /> ticket <span class="key queue" /> queue{" "}
          <span class="key run" /> runs <span class="key person" /> person <span class="key retry" /> repeated{" "}
          <span class="key bad" /> error</p>
        <List items={items} height={rowHeight} label="Calls" chosen={chosen} id={(n) => `row-${n}`}
          choose={(n) => {
            const item = items[n];
            if ("call" in item) go({ call: item.call.index });
            else if (items[n + 1] && "call" in items[n + 1]) {
              const up = chosen !== undefined && n < chosen && n > 0 ? items[n - 1] : items[n + 1];
              if ("call" in up) go({ call: up.call.index });
            }
          }}
          row={(item) => "call" in item ?
            <CallLine call={item.call} report={reports.get(item.call.index)} group={b.groups[item.call.group]}
              end={end} scale={scale} /> :
            <GroupLine group={b.groups[item.group]} g={item.group} end={end} scale={scale} />} />
        <details open={b.happened.length > 0 && b.happened.length < 20}><summary>What happened beside</summary>
          <ol class="moments">{b.happened.slice(-200).map((m, n) => <li key={n}><span>{ms(m.ms)}</span> {m.what}</li>)}
          </ol></details>
        <details><summary>Last events</summary>
          <ol class="moments">{look.around.map((m) => <li key={m.event}><span>{m.event}</span> {m.what}</li>)}</ol>
        </details>
        <Compare path={path} agent={agent} ended={over.has(b.status)} other={other}
          choose={(id) => go({ with: id })} />
        <details><summary>As commands</summary>
          <Copy what="replay" text={`dispatcher replay --server ${origin} --agent ${shell(agent)} ${words(id)}`} />
          <Copy what="watch" text={`dispatcher watch --server ${origin} --agent ${shell(agent)} ${words(id)}`} />
          <Copy what="curl" text={`curl -H "Authorization: Bearer $TOOLYARD_TOKEN" ${shell(origin +
            where(path, { agent }))}`} />
        </details>
      </div>
      {index === undefined ? <p class="hint panel">Choose a call to see its input and output.</p> :
        <CallPanel key={index} path={path} agent={agent} index={index} event={event} report={reports.get(index)}
          changed={JSON.stringify([row?.status, row?.waits?.length, row?.runs?.length])}
          refresh={() => go({})} />}
    </div>
  </>;
}
