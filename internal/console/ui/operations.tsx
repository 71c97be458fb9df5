// Who is there and what they hold: workers, breakers, workspaces, dead letters.

import { h, Fragment } from "preact";
import type { DeadLetters, Workers, WorkspaceQueue, Workspaces, WorkspaceTicket } from "./api";
import { get } from "./client";
import { bytes, Problem, shown, Table, to, usePoll, When } from "./parts";

export function WorkersPage() {
  const asked = usePoll((signal) => get<Workers>("/v1/workers", signal), 3000, []);
  const all = asked.data?.workers ?? [];
  const open = all.flatMap((w) => Object.entries(w.breakers).map(([what, until]) => ({ worker: w.id, what, until })));
  const remarks = all.flatMap((w) => [
    ...(w.remarks ?? []).map((r) => ({ worker: w.id, tool: r.tool, why: r.left_out ? `left out: ${r.why}` : r.why })),
    ...w.conflicts.map((c) => ({ worker: w.id, tool: "", why: c }))]);
  return <>
    <h1>Workers</h1>
    <Problem error={asked.error} />
    <Table label="Workers" heads={["Worker", "Pool", "Host", "Busy", "Slots", "Classes", "Workspaces", "Tags", "Isolation",
      "Tools", "Version", "Since"]}>
      {all.map((w) => <tr key={w.id}><td>{w.id}</td><td>{w.pool}</td><td>{w.host}</td>
        <td class="number">{w.busy}</td><td class="number">{w.slots}</td>
        <td class="words">{w.classes.join(", ")}</td><td class="words">{w.workspaces.join(", ")}</td>
        <td class="words">{w.tags?.join(", ")}</td>
        <td>{w.isolation === "none" ? <span class="bad">none</span> : w.isolation}
          {w.unsandboxed ? <span class="bad">, runs commands anyway</span> : null}</td>
        <td class="number">{w.tools}</td><td>{w.version}</td><td><When at={w.started} /></td></tr>)}
    </Table>
    {asked.data && !all.length ? <p class="none">No worker is there: calls wait, and end as dependency_unavailable.</p> :
      null}
    {all.some((w) => w.no_isolation) ? <><h2>Missing isolation</h2>
      <Table label="Missing isolation" heads={["Worker", "Host", "What is missing"]}>
        {all.filter((w) => w.no_isolation).map((w) => <tr key={w.id}><td>{w.id}</td><td>{w.host}</td>
          <td class="words">{shown(w.no_isolation!)}</td></tr>)}</Table></> : null}
    {all.length ? <p class="hint">A sandbox that works may lack a layer that the kernel does not have:{" "}
      <code>worker check</code> on the worker's machine names it.</p> : null}
    <h2>Open breakers</h2>
    {open.length ? <Table label="Open breakers" heads={["Dependency", "Worker", "Not tried until"]}>
      {open.map((b) => <tr key={b.worker + b.what}><td>{b.what}</td><td>{b.worker}</td><td><When at={b.until} /></td></tr>)}
    </Table> : <p class="none">None is open.</p>}
    {remarks.length ? <><h2>Remarks about tools</h2><Table label="Remarks about tools" heads={["Worker", "Tool", "Why"]}>
      {remarks.map((r, n) => <tr key={n}><td>{r.worker}</td><td>{r.tool}</td><td class="words">{r.why}</td></tr>)}
    </Table></> : null}
  </>;
}

/** The tickets in their order: those that hold the workspace stand together, and so do shared ones that wait. */
function runs(tickets: WorkspaceTicket[]): WorkspaceTicket[][] {
  const out: WorkspaceTicket[][] = [];
  for (const t of tickets) {
    const run = out.at(-1);
    const last = run?.at(-1);
    const together = last && last.granted === t.granted && (t.granted || t.mode === "shared" && last.mode === "shared");
    if (run && together) run.push(t);
    else out.push([t]);
  }
  return out;
}

function Queue({ of }: { of: WorkspaceQueue }) {
  return <ol class="queued" aria-label={`Queue of ${of.workspace}, in order`}>{runs(of.tickets).map((run) =>
    <li key={run[0].number} class={run[0].granted ? "holds" : "waits"}>
      <span>{run[0].granted ? "▶ holds" : "… waits"}, {[...new Set(run.map((t) => t.mode))].join(" and ")}</span>
      {run.map((t) => <Fragment key={t.number}>{" "}
        <a href={to(["batch", t.agent, t.batch])}>{shown(`${t.agent}/${t.batch}`)}</a></Fragment>)}
    </li>)}</ol>;
}

export function WorkspacesPage() {
  const asked = usePoll((signal) => get<Workspaces>("/v1/workspaces", signal), 2000, []);
  const all = asked.data?.workspaces ?? [];
  return <>
    <h1>Workspaces</h1>
    <Problem error={asked.error} />
    {asked.data && !all.length ? <p class="none">No batch holds or waits for a workspace.</p> : null}
    {all.map((w) => <section key={w.workspace}><h2>{w.workspace}</h2>
      <Queue of={w} />
      <Table label={`Tickets of ${w.workspace}`} heads={["Ticket", "State", "Mode", "Agent", "Batch", "Group"]}>
        {w.tickets.map((t) => <tr key={t.number}><td class="number">{t.number}</td>
          <td>{t.granted ? <strong>holds</strong> : "waits"}</td><td>{t.mode}</td><td>{t.agent}</td>
          <td><a href={to(["batch", t.agent, t.batch])}>{t.batch}</a></td><td class="number">{t.group + 1}</td></tr>)}
      </Table>
      {w.length > w.tickets.length ? <p class="hint">and {w.length - w.tickets.length} more</p> : null}
    </section>)}
  </>;
}

export function DeadPage() {
  const asked = usePoll((signal) => get<DeadLetters>("/v1/dead", signal), 5000, []);
  const all = asked.data?.dead_letters ?? [];
  return <>
    <h1>Dead letters</h1>
    <p class="hint">Messages that could not be read, and batches that were given up. The newest 100.</p>
    <Problem error={asked.error} />
    {asked.data && !all.length ? <p class="none">There are none.</p> : null}
    {all.length ? <Table label="Dead letters" heads={["Time", "What", "Agent", "Batch", "Cause", "By", "Subject", "Bytes"]}>
      {all.map((d) => <tr key={`${d.subject} ${d.sequence}`}><td><When at={d.time} /></td>
        <td>{d.kind}{d.call === undefined ? "" : ` ${d.call}`}</td><td>{d.agent}</td>
        <td>{d.agent && d.batch ? <a href={to(["batch", d.agent, d.batch])}>{d.batch}</a> : d.batch}</td>
        <td class="words">{d.cause}</td><td>{d.by}</td><td class="words">{d.subject} {d.sequence}</td>
        <td class="number">{bytes(d.bytes)}</td></tr>)}
    </Table> : null}
  </>;
}
