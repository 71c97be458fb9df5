// A batch beside another one of the same calls, such as its rerun.

import { h, Fragment } from "preact";
import { useState } from "preact/hooks";
import type { BatchView, Comparison, Rerun } from "./api";
import { at as where, get, post } from "./client";
import { over, Problem, Status, Table, to, usePoll } from "./parts";

function Differences({ path, agent, other }: { path: string; agent: string; other: string }) {
  const [done, setDone] = useState("");
  const asked = usePoll(async (signal) => {
    const c = await get<Comparison>(where(`${path}/compare`, { agent, other }), signal);
    if (over.has(c.status)) setDone(other);
    return c;
  }, done === other ? 0 : 1000, [path, agent, other]);
  const c = asked.data?.other === other ? asked.data : undefined;
  if (!c) return <Problem error={asked.error} />;
  const calls = new Set(c.differences.map((d) => d.index)).size;
  return <>
    <p aria-live="polite">Batch <a href={to(["batch", agent, other])}>{other}</a> <Status status={c.status} />:{" "}
      {calls ? `${calls} of ${c.compared} results are different.` : `of ${c.compared} results none is different.`}
      {c.compared < c.calls ? ` ${c.calls - c.compared} are not there yet.` : ""}</p>
    <Problem error={asked.error} />
    {c.differences.length ? <Table label="Differences" heads={["Call", "What", "In this batch", "In the other"]}>
      {c.differences.map((d) => <tr key={`${d.index} ${d.what}`}>
        <td><a href={to(["batch", agent, other], { call: d.index })}>{d.index}</a></td>
        <td>{d.what}{d.line ? `, line ${d.line}` : ""}</td>
        <td class="words">{JSON.stringify(d.before)}</td><td class="words">{JSON.stringify(d.after)}</td></tr>)}
    </Table> : null}
  </>;
}

export function Compare({ path, agent, ended, other, choose }: { path: string; agent: string; ended: boolean;
  other?: string; choose: (id?: string) => void }) {
  const [writes, setWrites] = useState(false);
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const again = async () => {
    setError(undefined);
    setBusy(true);
    try {
      const how: Rerun = { allow_writes: writes };
      choose((await post<BatchView>(where(`${path}/rerun`, { agent }), how)).id);
    } catch (e) {
      setError(e as Error);
    } finally {
      setBusy(false);
    }
  };
  const compare = (e: SubmitEvent) => {
    e.preventDefault();
    const field = (e.currentTarget as HTMLFormElement).elements.namedItem("other") as HTMLInputElement;
    choose(field.value.trim() || undefined);
  };
  return <details open={other !== undefined}><summary>Run again and compare</summary>
    <p><button type="button" disabled={!ended || busy} onClick={again}>Run its calls again</button>{" "}
      <label><input type="checkbox" checked={writes} onChange={(e) => setWrites(e.currentTarget.checked)} />{" "}
        also such as may change something</label></p>
    <form class="filters" onSubmit={compare} aria-label="Compare">
      <label>Other batch <input name="other" key={other} defaultValue={other} autocomplete="off" spellcheck={false} />
      </label>
      <button>Compare</button>
    </form>
    <Problem error={error} />
    {other ? <Differences path={path} agent={agent} other={other} /> : null}
  </details>;
}
