// The calls that wait for a person, and the person's decision.

import { h, Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Approval, ApprovalLook, Approvals, Decided, Decision, Me } from "./api";
import { check } from "./check";
import { at, exact, getText, get, name, post, rounds } from "./client";
import { columns, Facts, Lines, Problem, requery, shown, to, useKeys, usePoll, When, type Route } from "./parts";

/** The input as a person edits it. It must stay JSON; everything else a worker checks. */
function parsed(text: string): { input?: unknown; wrong?: string } {
  try {
    const input = exact<unknown>(text);
    if (typeof input === "object" && input !== null && !Array.isArray(input)) return { input };
    return { wrong: "An input is an object." };
  } catch (e) {
    return { wrong: (e as Error).message };
  }
}

/** How many problems of an edited input are listed. */
const maxProblems = 10;

/** What is wrong with an edited input. The schema only warns: the batch may see another version of the tool. */
function Warnings({ look, edited }: { look: ApprovalLook; edited: { input?: unknown; wrong?: string } }) {
  const tool = usePoll(async (signal) => {
    if (look.form) return { schema: look.form.schema };
    const path = at("/v1/tools", { format: "native", agent: look.agent, workspace: look.workspace });
    const all = (await get<{ tools: { name: string; aliases?: string[]; input_schema: unknown }[] }>(path, signal)).tools;
    return { schema: (all.find((t) => t.name === look.tool) ?? all.find((t) => t.aliases?.includes(look.tool)))
      ?.input_schema };
  }, 0, [look.id]);
  if (edited.wrong) return <p class="problem">{edited.wrong}</p>;
  if (!tool.data?.schema) {
    return tool.data || tool.error ? <p class="hint">The tool's schema is not known here: the input is checked when you
      allow it.</p> : null;
  }
  const { problems, unchecked } = check(tool.data.schema, edited.input, !look.form);
  return <>
    {problems.length ? <ul class="warnings">{problems.slice(0, maxProblems).map((p) => <li key={p}>{shown(p)}</li>)}
      {problems.length > maxProblems ? <li>and {problems.length - maxProblems} more</li> : null}</ul> : null}
    {unchecked.length ? <p class="hint">Not checked here: {shown(unchecked.join(", "))}. It is checked when you allow the
      input.</p> : null}
    {!problems.length && !unchecked.length ? <p class="hint">It fits the schema.</p> : null}
  </>;
}

function Look({ id, me, done }: { id: string; me: Me; done: (what: string) => void }) {
  const asked = usePoll(async (signal) => {
    const text = await getText(`/v1/approvals/${name(id)}?columns=${columns()}`, signal);
    return { ...exact<ApprovalLook>(text), rounds: rounds(text) };
  }, 0, [id]);
  const [seen, setSeen] = useState(false);
  const [edit, setEdit] = useState<string>();
  const [reason, setReason] = useState("");
  const [remember, setRemember] = useState(false);
  const [error, setError] = useState<Error>();
  const [busy, setBusy] = useState(false);
  const end = useRef<HTMLDivElement>(null);
  const look = asked.data?.id === id ? asked.data : undefined;
  useEffect(() => {
    if (!end.current || !look) return;
    const watch = new IntersectionObserver((all) => all.some((e) => e.isIntersecting) && setSeen(true));
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [look]);
  const editing = edit !== undefined ? parsed(edit) : undefined;
  const mayEdit = look !== undefined && !look.rounds;
  const mayAllow = me.operator && me.scopes.includes("decide");
  const mayDeny = me.scopes.includes("decide");
  const allowable = mayAllow && !busy && (editing ? !editing.wrong : seen && look !== undefined && !look.part);
  const decide = async (d: Decision) => {
    if (busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await post<Decided>(`/v1/approvals/${name(id)}`, d);
      done(`${look?.tool ?? "The call"}: ${d.decision === "allow" ? "allowed" : "denied"}`);
    } catch (e) {
      setError(e as Error);
      setBusy(false);
    }
  };
  const allow = () => {
    if (!allowable || !look) return;
    void decide({ decision: "allow", reason: reason || undefined, remember: remember ? "session" : undefined,
      ...(editing ? { input: editing.input } : { input_sha256: look.input_sha256 }) });
  };
  const deny = () => mayDeny &&
    void decide({ decision: "deny", reason: reason || undefined, input_sha256: look?.input_sha256 });
  const startEdit = () => mayEdit && setEdit(edit === undefined ? JSON.stringify(look?.input, null, 2) : undefined);
  useKeys((e) => {
    const act: Record<string, () => unknown> = { a: allow, d: deny, e: startEdit };
    if (!(e.key in act) || e.repeat || !look) return; // a key that is held down is not meant for the next call
    e.preventDefault();
    act[e.key]();
  });
  if (!look) return <section class="panel" aria-label="Approval"><Problem error={asked.error} /></section>;
  return <section class="panel" aria-label="Approval">
    <h2>{shown(look.tool)}{look.destructive ? <span class="bad"> may do what cannot be undone</span> : null}</h2>
    <Facts facts={[
      ["Why", look.reason], ["Asked by", look.source], ["Class", look.concurrency_class],
      ["Batch", <a href={to(["batch", look.agent, look.batch], { call: look.index })}>{shown(look.batch)}, call {look.index}</a>],
      ["Agent", look.agent], ["Session", look.session], ["Workspace", look.workspace],
      ["Asked", <When at={look.asked_at} />], ["Expires", <When at={look.expires} />],
      ["Input SHA-256", <code>{look.input_sha256}</code>],
    ]} />
    <h3>Input</h3>
    {look.part ? <p class="problem">{look.part}. It cannot be allowed as it is.</p> :
      <Lines lines={look.lines} label="Input" />}
    <p class="hint">␣ is a blank, ⇥ a tab, ⟨…⟩ what a screen does not show; a line behind &gt; goes on from the one
      above.</p>
    {look.diff_lines.length ? <><h3>What it would change</h3><Lines lines={look.diff_lines}
      label="What it would change" /></> : null}
    <div ref={end} class="end" />
    {edit !== undefined ? <><label class="stack">{look.form ? "Your answer, as JSON" : "Run this input instead"}
      <textarea rows={10} spellcheck={false} value={edit} aria-invalid={!!editing?.wrong} aria-describedby="edit-says"
        onInput={(e) => setEdit(e.currentTarget.value)} /></label>
      <div id="edit-says" aria-live="polite">{editing ? <Warnings look={look} edited={editing} /> :
        null}</div></> : null}
    <label class="stack">Reason, which the model reads
      <input value={reason} maxLength={1000} onInput={(e) => setReason(e.currentTarget.value)} /></label>
    {look.remember ? <label><input type="checkbox" checked={remember}
      onChange={(e) => setRemember(e.currentTarget.checked)} /> For the session: allow <code>{shown(look.remember)}</code>
    </label> : null}
    <div class="actions">
      <button type="button" class="primary" disabled={!allowable} onClick={allow} aria-keyshortcuts="a">
        {!editing ? "Allow" : look.form ? "Answer" : "Allow with this input"} <kbd>a</kbd></button>
      <button type="button" class="danger" disabled={!mayDeny || busy} onClick={deny} aria-keyshortcuts="d">
        Deny <kbd>d</kbd></button>
      <button type="button" disabled={!mayAllow || !mayEdit} onClick={startEdit} aria-keyshortcuts="e">
        {editing ? "Leave it as it is" : look.form ? "Fill in" : "Edit"} <kbd>e</kbd></button>
    </div>
    {!mayAllow ? <p class="hint">An operator's token allows calls; an agent does not allow its own.</p> : null}
    {look.rounds ? <p class="hint">This browser would round a number of the input: edit it with dispatcher approve.</p> :
      null}
    {mayAllow && !seen && !editing ? <p class="hint">Read to the end to allow it.</p> : null}
    <Problem error={error} />
  </section>;
}

/** A call that asks once more has the same id. */
const key = (a: Approval) => `${a.id} ${a.asked_at}`;

export function ApprovalsPage({ route, me }: { route: Route; me: Me }) {
  const list = usePoll((signal) => get<Approvals>("/v1/approvals", signal), 2000, []);
  const [said, say] = useState("");
  const decided = useRef(new Set<string>());
  const all = (list.data?.approvals ?? []).filter((a) => !decided.current.has(key(a)));
  const wanted = route.query.get("id");
  const at = all.findIndex((a) => a.id === wanted);
  const chosen: Approval | undefined = all[at];
  // Which call is shown is in the address: one that comes later, or goes, does not put another in its place.
  const first = all[0]?.id;
  useEffect(() => {
    if (list.data && (wanted === null) === (first !== undefined)) requery(["approvals"], { id: first });
  }, [list.data, wanted, first]);
  const choose = (n: number) => all[n] && requery(["approvals"], { id: all[n].id });
  useKeys((e) => {
    if (e.key === "j") choose(Math.min(all.length - 1, at + 1));
    if (e.key === "k") choose(Math.max(0, at - 1));
  });
  return <>
    <h1>Approvals</h1>
    <p class="said" aria-live="polite">{said}</p>
    <Problem error={list.error} />
    {list.data && !all.length ? <p class="none">No call waits for a person.</p> : null}
    {all.length ? <div class="columns side">
      <nav aria-label="Calls that wait"><ul class="asks">{all.slice(0, 500).map((a, n) => <li key={a.id}>
        <a href={to(["approvals"], { id: a.id })} aria-current={n === at ? "true" : undefined}>
          <strong>{shown(a.tool)}</strong> {shown(`${a.agent}, ${a.batch}`)}, call {a.index}<br /><When at={a.asked_at} /></a></li>)}</ul>
        <p class="hint"><kbd>j</kbd> next, <kbd>k</kbd> the one before</p>
        {all.length > 500 ? <p class="hint">and {all.length - 500} more</p> : null}</nav>
      {chosen ? <Look key={key(chosen)} id={chosen.id} me={me} done={(what) => {
        say(what);
        decided.current.add(key(chosen));
        requery(["approvals"], { id: (all[at + 1] ?? all[at - 1])?.id });
        list.reload();
      }} /> : wanted ? <p class="none panel" role="status">That call no longer waits. Choose another one.</p> : null}
    </div> : null}
  </>;
}
