// What the batches of a period add up to.

import { h, Fragment, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Me, Report, ReportQuestions, ReportTimes } from "./api";
import { at, get } from "./client";
import { Copy, Facts, ms, Problem, quoted, requery, shown, Table, to, usePoll, When, type Route } from "./parts";

/** The periods that can be chosen by their length; others are between two times. */
const periods: [string, string][] = [["1h", "the last hour"], ["24h", "24 hours"], ["168h", "7 days"],
  ["720h", "30 days"]];
const between = "between";
const usual = "24h";

/** Whether a text is a time; otherwise it is how long ago something was. */
const isTime = (s: string) => /^\d{4}-/.test(s);

/** How many rows of a list the page has. /v1/report has all. */
const most = 100;

const waits = { queue: "a worker", ticket: "the workspace's ticket", approval: "a person" } as const;

/** The median, what 99 of 100 do not exceed, and the longest. */
function Times({ of }: { of: ReportTimes }) {
  return <>{[of.p50_ms, of.p99_ms, of.max_ms].map((n, i) =>
    <td class="number" key={i}>{of.count ? ms(n) : ""}</td>)}</>;
}

/** A heading, and a table of the first rows of a list, or what is said when it is empty. */
function Part<T>({ title, heads, rows, none, row, says }: { title: string; heads: string[]; rows: T[]; none: string;
  row: (r: T) => ComponentChildren; says?: string }) {
  return <section>
    <h2>{title}</h2>
    {rows.length ? <><Table label={title} heads={heads}>{rows.slice(0, most).map((r, n) =>
      <tr key={n}>{row(r)}</tr>)}</Table>
      {rows.length > most ? <p class="hint">and {rows.length - most} more, which <code>/v1/report</code> has</p> : null}
      {says ? <p class="hint">{says}</p> : null}</> : <p class="none">{none}</p>}
  </section>;
}

function Questions({ of }: { of: ReportQuestions }) {
  const rules = of.rules.slice(0, most);
  const yaml = ["allow:", ...rules.map((r) =>
    `  - ${quoted(r.name)} # ${r.count} ${r.count === 1 ? "question" : "questions"}`)].join("\n");
  return <section>
    <h2>Questions to people</h2>
    {of.asked ? <Facts facts={[["Asked about", `${of.asked} ${of.asked === 1 ? "call" : "calls"}`],
      ["Allowed", String(of.allowed)], ["Denied", String(of.denied)], ["Superseded", String(of.superseded)],
      ["Not answered", String(of.unanswered)], ["Open", String(of.open)]]} /> : <p class="none">Nobody was asked.</p>}
    {rules.length ? <>
      <p>These rules would have spared what was allowed. It is a file for <code>--rules</code>, if you want that:</p>
      <Copy text={yaml} what="the rules" /></> : null}
  </section>;
}

function Sums({ r, agent }: { r: Report; agent: string }) {
  const { batches: b, calls: c } = r;
  return <>
    <Facts facts={[["From", r.since ? <When at={r.since} /> : "the beginning"],
      ["To", r.until ? <When at={r.until} /> : "now"]]} />
    {r.cut ? <p class="problem">There are more batches in this period. Only the newest {b.total} are added up
      {r.oldest ? <>, back to <When at={r.oldest} /></> : null}.</p> : null}
    <div class="cards">{([["Batches", b.total], ["Completed", b.completed], ["Canceled", b.canceled],
      ["Refused", b.refused, true], ["Under way", b.under_way], ["Unreadable", b.unreadable, true],
      ["Taken over", b.taken_over], ["Calls", c.total], ["Calls that failed", c.failed],
      ["Calls under way", c.under_way], ["Calls tried again", c.retried],
      ["Of these with success", c.retries_helped]] as [string, number, boolean?][]).map(([what, n, bad]) =>
      <div class="card" key={what}>{what}<strong class={bad && n ? "bad" : ""}>{n}</strong></div>)}</div>
    <Part title="Tools" heads={["Tool", "Calls", "Failed", "Tried again", "p50", "p99", "Longest"]} rows={r.tools}
      none="No tool was called." row={(t) => <><td class="words">{shown(t.tool)}</td><td class="number">{t.calls}</td>
        <td class="number">{t.failed}</td><td class="number">{t.retried}</td><Times of={t.times} /></>} />
    <Part title="Errors" heads={["Code", "Calls", "Tools"]} rows={r.codes} none="No call failed."
      row={(e) => <><td><a href={to(["batches"], { code: e.code, agent })}>{e.code}</a></td>
        <td class="number">{e.calls}</td>
        <td class="words">{e.tools.slice(0, 5).map((t) => `${shown(t.name)} ${t.count}`).join(", ")}</td></>} />
    <Part title="Phases" heads={["Phase", "Ended calls", "p50", "p99", "Longest"]} rows={r.phases}
      none="No phase has run." row={(p) => <><td>{p.phase}</td><td class="number">{p.failed}</td>
        <Times of={p.times} /></>} />
    <Part title="Waits" heads={["For", "How often", "p50", "p99", "Longest"]}
      rows={Object.entries(waits) as [keyof typeof waits, string][]} none=""
      row={([name, words]) => <><td>{words}</td><td class="number">{r.waits[name].count}</td>
        <Times of={r.waits[name]} /></>} />
    <Part title="Aborts" heads={["Failures of", "Aborted calls", "In groups"]} rows={r.aborts}
      none="No failure has ended other calls." row={(a) => <><td class="words">{shown(a.tool)}</td>
        <td class="number">{a.calls}</td><td class="number">{a.groups}</td></>} />
    <Part title="Denied" heads={["What denied", "Calls"]} rows={r.denied} none="No call was denied."
      row={(d) => <><td class="words">{shown(d.name)}</td><td class="number">{d.count}</td></>} />
    <Questions of={r.questions} />
    <Part title="Never called" heads={["Tool", "Offered in batches", "Tokens, about"]} rows={r.never_called}
      none="All tools that were offered were called." row={(u) => <><td class="words">{shown(u.tool)}</td>
        <td class="number">{u.batches}</td><td class="number">{u.tokens_estimated}</td></>}
      says="The tokens of a definition are in each request to the model. They are a quarter of its bytes." />
  </>;
}

export function ReportPage({ route, me }: { route: Route; me: Me }) {
  const since = route.query.get("since") || usual;
  const until = route.query.get("until") ?? "";
  const agent = route.query.get("agent") ?? "";
  const chosen = until || isTime(since) ? between : since;
  const lengths = periods.some(([p]) => p === chosen) || chosen === between ? periods : [...periods, [since, since]];
  const [period, choose] = useState(chosen);
  const [again, repeat] = useState(0);
  const form = useRef<HTMLFormElement>(null);
  const field = (name: string) => form.current?.elements.namedItem(name) as HTMLInputElement | null | undefined;
  useEffect(() => choose(chosen), [route]);
  useLayoutEffect(() => { // before a field can be seen, and only then: who types is not disturbed
    for (const [name, value] of Object.entries({ agent, since, until })) {
      const f = field(name);
      if (f) f.value = value;
    }
  }, [route, period]);

  const time = (s: string) => !isTime(s) || isNaN(Date.parse(s)) ? s : new Date(s).toISOString();
  const path = at("/v1/report", { agent, since: time(since), until: time(until) });
  const key = `${again} ${path}`;
  const asked = usePoll(async (signal): Promise<{ key: string; report?: Report; error?: Error }> => {
    try {
      return { key, report: await get<Report>(path, signal) };
    } catch (error) {
      return { key, error: error as Error };
    }
  }, 0, [key]);
  const done = asked.data?.key === key;
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const times = period !== between ? { since: period } :
      { since: field("since")?.value, until: field("until")?.value };
    requery(["report"], { agent: field("agent")?.value.trim(), ...times });
    repeat((n) => n + 1);
  };
  return <>
    <h1>Report</h1>
    <form class="filters" ref={form} onSubmit={submit} role="search" aria-label="Report">
      <label>Period <select name="period" value={period} onChange={(e) => choose(e.currentTarget.value)}>
        {lengths.map(([p, words]) => <option key={p} value={p}>{words}</option>)}
        <option value={between}>between two times</option>
      </select></label>
      {period === between ? <>
        <label>From <input name="since" type="datetime-local" /></label>
        <label>To <input name="until" type="datetime-local" /></label></> : null}
      {me.operator || me.agents.length ? <label>Agent{" "}
        <input name="agent" placeholder={me.operator ? "all" : me.agent} /></label> : null}
      <button>Add up</button>
    </form>
    <div aria-live="polite">{done ? null : <p class="hint">The batches of the period are being added up.</p>}</div>
    <Problem error={done ? asked.data?.error : undefined} />
    {done && asked.data?.report ? <Sums r={asked.data.report} agent={agent} /> : null}
  </>;
}
