// The numbers of /metrics of this dispatcher, for who has no Prometheus at hand.

import { h, Fragment, type ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { judge, limitOf, quantile, type Judged, type Samples } from "./alerts";
import type { DeadLetters } from "./api";
import { get, getText } from "./client";
import { ms, Problem, shown, Table, to, usePoll } from "./parts";

/** Reads Prometheus's text format, as far as the server writes it. */
export function parse(text: string): Samples {
  const out: Samples = new Map();
  for (const line of text.split("\n")) {
    const m = /^([a-zA-Z_:]\w*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!m) continue;
    const labels: Record<string, string> = {};
    for (const [, k, v] of (m[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[k] = v;
    const value = m[3] === "+Inf" ? Infinity : Number(m[3]);
    out.set(m[1], [...(out.get(m[1]) ?? []), { labels, value }]);
  }
  return out;
}

const sum = (s: Samples, name: string, keep: (l: Record<string, string>) => boolean = () => true) =>
  (s.get(name) ?? []).filter((x) => keep(x.labels)).reduce((n, x) => n + x.value, 0);

/** How many dead letters are counted at most: as many as one answer of the server has. */
const maxDead = 100;

const inMS = (seconds: number | undefined) => seconds === undefined ? undefined : 1000 * seconds;

/** The conditions of the alert rules that hold. */
function Alerts({ held, elsewhere, unread, count }: Judged) {
  const critical = (severity: string) => severity === "critical";
  return <section aria-label="Alerts">
    <h2>Alerts</h2>
    {held.length ? <Table label="Conditions that hold" heads={["Alert", "Severity", "Says", "Seen for", "Sent after", "What to do"]}>
      {held.map((a, n) => <tr key={n}>
        <td class={critical(a.rule.severity) ? "bad" : ""}>{a.rule.alert}</td><td>{a.rule.severity}</td>
        <td class="words">{shown(a.summary)}</td><td class="number">{ms(1000 * a.seconds)}</td>
        <td class="number">{a.rule.forSeconds ? ms(1000 * a.rule.forSeconds) : "at once"}</td>
        <td>docs/runbook.md, {a.rule.alert}</td></tr>)}</Table> :
      <p class="none">None of the {count} conditions that are looked at here holds.</p>}
    <p class="hint">By the numbers of this dispatcher, now: Prometheus sends an alert when its condition has held for the
      time of its rule. Growth is that since this page was opened or the dispatcher started.
      {elsewhere.length ? ` Workers' own numbers have ${elsewhere.map((r) => r.alert).join(", ")}.` : ""}
      {unread.length ? ` Not read here: ${unread.map((r) => r.alert).join(", ")}.` : ""}</p>
  </section>;
}

const pause = 2000;

export function SystemPage() {
  const before = useRef<{ at: number; samples: Samples }>(undefined);
  const asked = usePoll(async (signal) => {
    const samples = parse(await getText("/metrics", signal));
    const now = { at: performance.now(), samples };
    const last = before.current;
    before.current = now;
    return { samples, last, alerts: judge(samples, Date.now() / 1000), seconds: last ? (now.at - last.at) / 1000 : 0 };
  }, pause, []);
  const dead = usePoll((signal) => get<DeadLetters>("/v1/dead", signal), 10_000, []).data?.dead_letters.length;
  if (!asked.data) return <><h1>System</h1><Problem error={asked.error} /></>;
  const { samples: s, last, seconds, alerts } = asked.data;
  const rate = (name: string) => last && seconds > 0 ?
    `${Math.max(0, (sum(s, name) - sum(last.samples, name)) / seconds).toFixed(1)} /s` : "…";
  const fills = s.get("toolyard_stream_fill_ratio") ?? [];
  const percent = (n: number) => `${(100 * n).toFixed(1)} %`;
  const codes = (s.get("toolyard_calls_total") ?? []).reduce((all, x) =>
    all.set(x.labels.code, (all.get(x.labels.code) ?? 0) + x.value), new Map<string, number>());
  const unknown = codes.get("outcome_unknown") ?? 0;
  const cards: [string, ComponentChildren, boolean?][] = [
    ["Batches completed", rate("toolyard_batches_completed_total")], ["Calls", rate("toolyard_calls_total")],
    ["Batches running", String(sum(s, "toolyard_batches_running"))],
    ["Batches waiting", String(sum(s, "toolyard_batches_waiting"))],
    ["Slots busy", `${sum(s, "toolyard_slots_busy")} of ${sum(s, "toolyard_slots")}`],
    ["Workers", String(sum(s, "toolyard_workers"))],
    ["Calls in queues", String(sum(s, "toolyard_queue_calls"))],
    ["Outcome unknown", String(unknown), unknown > 0],
    ["Breakers open", String(sum(s, "toolyard_breakers_open")), sum(s, "toolyard_breakers_open") > 0],
    ["Batches refused", String(sum(s, "toolyard_batches_refused_total"))],
    ["Dead letters", dead === undefined ? "…" : <a href={to(["dead"])}>{dead < maxDead ? dead : `${maxDead} or more`}</a>,
      !!dead],
    ["Connected to NATS", sum(s, "toolyard_nats_connected") ? "yes" : "no", !sum(s, "toolyard_nats_connected")],
  ];
  const times: [string, string][] = [["Calls", "toolyard_call_seconds"], ["Calls, in the tool",
    "toolyard_call_execute_seconds"], ["Calls, in the queue", "toolyard_call_queue_seconds"]];
  return <>
    <h1>System</h1>
    <p class="hint">What this dispatcher counts, since it started. <code>/metrics</code> has the same for Prometheus.</p>
    <Problem error={asked.error} />
    <div class="cards">{cards.map(([what, n, bad]) => <div class="card" key={what}>{what}
      <strong class={bad ? "bad" : ""}>{n}</strong></div>)}</div>
    <Alerts {...alerts} />
    <h2>Latency</h2>
    <Table label="Latency" heads={["Time of", "p50", "p90", "p99", "Count"]}>
      {times.map(([what, name]) => <tr key={name}><td>{what}</td>
        {[0.5, 0.9, 0.99].map((q) => <td class="number" key={q}>{ms(inMS(quantile(q, s.get(`${name}_bucket`) ?? [])))}</td>)}
        <td class="number">{sum(s, `${name}_count`)}</td></tr>)}</Table>
    <p class="hint">Quantiles are read from histograms, so they are rough.</p>
    <h2>Streams</h2>
    <Table label="Streams" heads={["Stream", "Full", "Of its limit"]}>
      {fills.map((f) => <tr key={f.labels.stream}><td>{f.labels.stream}</td><td class="number">{percent(f.value)}</td>
        <td><meter min={0} max={1} low={limitOf("ToolyardStoreFilling")}
          high={limitOf("ToolyardStreamFull")} optimum={0} value={f.value} aria-label={f.labels.stream} /></td>
      </tr>)}</Table>
    <h2>Results by code</h2>
    <Table label="Results by code" heads={["Code", "Calls"]}>
      {[...codes].sort(([, a], [, b]) => b - a).map(([code, n]) => <tr key={code}>
        <td>{code === "outcome_unknown" ? <span class="bad">{code}</span> : code}</td><td class="number">{n}</td></tr>)}
    </Table>
  </>;
}
