// What all pages are made of.

import { h, Fragment, type ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { at, Failed } from "./client";

/** Where the reader is: the parts of the path behind "#/", and the query. */
export interface Route {
  path: string[];
  query: URLSearchParams;
}

function parse(): Route {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  try {
    return { path: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query ?? "") };
  } catch { // a % that begins no byte: there is no such page
    return { path: ["?"], query: new URLSearchParams() };
  }
}

// What a screen does not show, what turns the text around it, and blanks that look like others.
const unseen = /[\p{C}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\u2800\ufffc]|(?! )\p{Zs}/gu;

/** A name or a rule on one line, with marks where the server has them in inputs. */
export function shown(text: string): string {
  return text.replace(unseen, (c) => `⟨U+${c.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** A text in quotes for YAML. What a screen does not show is an escape there, so that nobody copies it unseen. */
export function quoted(text: string): string {
  const code = (c: string) => c.codePointAt(0)!.toString(16).toUpperCase().padStart(8, "0");
  return JSON.stringify(text).replace(unseen, (c) => `\\U${code(c)}`);
}

export function useRoute(): Route {
  const [route, set] = useState(parse);
  useLayoutEffect(() => { // at once: a change between the first picture and an effect would be lost
    const changed = () => set(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** The address of a page. */
export function to(path: string[], query: Record<string, string | number | undefined> = {}): string {
  return "#/" + at(path.map(encodeURIComponent).join("/"), query);
}

/** Changes the query of the page without a step in the history. */
export function requery(path: string[], query: Record<string, string | number | undefined>) {
  history.replaceState(null, "", to(path, query));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export interface Polled<T> {
  data?: T;
  error?: Error;
  reload: () => void;
}

/**
 * Asks again and again while the page is seen: every so many milliseconds, and more rarely where the answer takes long.
 * 0 asks once.
 */
export function usePoll<T>(ask: (signal: AbortSignal) => Promise<T>, everyMS: number, deps: unknown[]): Polled<T> {
  const [state, set] = useState<{ data?: T; error?: Error }>({});
  const [again, bump] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const round = async () => {
      const began = performance.now();
      let pause = everyMS;
      try {
        const data = await ask(stop.signal);
        if (!stop.signal.aborted) set({ data });
      } catch (e) {
        if (stop.signal.aborted) return;
        const error = e as Error;
        set((s) => ({ data: s.data, error }));
        pause = Math.max(everyMS * 2, error instanceof Failed ? error.retryMS : 0);
      }
      if (stop.signal.aborted || !everyMS) return;
      timer = setTimeout(next, Math.max(pause, 4 * (performance.now() - began)));
    };
    const next = () => {
      if (document.hidden) document.addEventListener("visibilitychange", next, { once: true, signal: stop.signal });
      else void round();
    };
    void round();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...deps, everyMS, again]);
  const reload = useCallback(() => bump((n) => n + 1), []);
  return { ...state, reload };
}

/** Calls act for each key that nobody types into a field, and that is no shortcut of the browser. */
export function useKeys(act: (e: KeyboardEvent) => void) {
  useLayoutEffect(() => { // what a key does is what the page shows
    const key = (e: KeyboardEvent) => {
      const typing = (e.target as HTMLElement).matches("input, textarea, select");
      if (!typing && !e.ctrlKey && !e.metaKey && !e.altKey) act(e);
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });
}

export function Problem({ error }: { error?: Error }) {
  return error ? <p class="problem" role="alert">{error.message}</p> : null;
}

const marks: Record<string, string> = {
  completed: "✓", canceled: "⊘", running: "▶", waiting: "?", open: "…", finished: "✓", claimed: "▶", retrying: "↻",
  decided: "▶", pending: "·", unplanned: "·",
};

/** The states of a batch that it stays in. */
export const over = new Set(["completed", "canceled"]);

/** A status in a word, with a mark for who sees no colours. */
export function Status({ status, failed }: { status: string; failed?: boolean }) {
  return <span class={`status ${failed ? "failed" : status}`}>
    <span aria-hidden="true">{failed ? "✗" : marks[status] ?? "·"}</span> {status}
  </span>;
}

/** Milliseconds for people. */
export function ms(n: number | undefined): string {
  if (n === undefined) return "";
  if (n < 10) return `${n.toFixed(2)} ms`;
  if (n < 1000) return `${n.toFixed(0)} ms`;
  if (n < 120_000) return `${(n / 1000).toFixed(1)} s`;
  if (n < 7_200_000) return `${(n / 60_000).toFixed(0)} min`;
  return `${(n / 3_600_000).toFixed(1)} h`;
}

/** A time, with the whole of it on hover. */
export function When({ at }: { at: string }) {
  const d = new Date(at);
  const today = new Date().toDateString() === d.toDateString();
  return <time dateTime={at} title={d.toISOString()}>
    {today ? d.toLocaleTimeString() : d.toLocaleString()}</time>;
}

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i ? n.toFixed(1) : n} ${units[i]}`;
}

/** A button that puts a text into the clipboard. */
export function Copy({ text, what }: { text: string; what: string }) {
  const [done, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // without TLS there is no clipboard, except on this machine
      return;
    }
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return <div class="copy"><code>{text}</code>
    <button type="button" onClick={copy} aria-label={`Copy ${what}`}>{done ? "Copied" : "Copy"}</button></div>;
}

/** How many columns a text may have here. What is still too long is folded, and indented. */
export const columns = () => Math.min(120, Math.max(40, Math.floor(innerWidth / 9) - 8));

/** Lines as the server shows inputs: the first character says what a line is. */
export function Lines({ lines, label }: { lines: string[]; label: string }) {
  const kind: Record<string, string> = { "-": "taken", "+": "put", "|": "same", ">": "goes" };
  let last = "";
  return <pre class="lines" tabIndex={0} role="region" aria-label={label}>{lines.map((line) => {
    const own = line[1] === " " || line.length === 1 ? kind[line[0]] ?? "name" : "name";
    if (own !== "goes") last = own;
    return <div class={own === "goes" ? last : own}>{line || " "}</div>;
  })}</pre>;
}

/** A list of names and values. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return <dl class="facts">{facts.filter(([, v]) => v !== undefined && v !== "" && v !== null).map(([n, v]) =>
    <div key={n}><dt>{n}</dt><dd>{typeof v === "string" ? shown(v) : v}</dd></div>)}</dl>;
}

/** A table that scrolls sideways on a narrow screen. */
export function Table({ label, heads, children }:
  { label: string; heads: string[]; children: ComponentChildren }) {
  return <div class="wide" tabIndex={0} role="region" aria-label={label}>
    <table><caption class="unseen">{label}</caption>
      <thead><tr>{heads.map((t) => <th scope="col" key={t}>{t}</th>)}</tr></thead>
      <tbody>{children}</tbody></table></div>;
}

export interface Windowed<T> {
  items: T[];
  height: number;
  label: string;
  /** The item that is chosen, by its place. */
  chosen?: number;
  choose: (at: number) => void;
  id: (at: number) => string;
  row: (item: T, at: number) => ComponentChildren;
}

/** A long list of which only what is seen is in the page. Arrows, Page Up and Down, Home and End move in it. */
export function List<T>({ items, height, label, chosen, choose, id, row }: Windowed<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [high, setHigh] = useState(600);
  useEffect(() => {
    const el = box.current!;
    const seen = new ResizeObserver(() => setHigh(el.clientHeight));
    seen.observe(el);
    return () => seen.disconnect();
  }, []);
  useEffect(() => {
    const el = box.current!;
    if (chosen === undefined || chosen < 0) return;
    if (chosen * height < el.scrollTop) el.scrollTop = chosen * height;
    if ((chosen + 1) * height > el.scrollTop + el.clientHeight) el.scrollTop = (chosen + 1) * height - el.clientHeight;
  }, [chosen]);
  const from = Math.max(0, Math.floor(top / height) - 8);
  const until = Math.min(items.length, Math.ceil((top + high) / height) + 8);
  const key = (e: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(high / height) - 1);
    const step: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -items.length, End: items.length };
    if (!(e.key in step) || !items.length) return;
    e.preventDefault();
    choose(Math.min(items.length - 1, Math.max(0, (chosen ?? -1) + step[e.key])));
  };
  const seen = chosen !== undefined && chosen >= from && chosen < until;
  return <div class="list" role="listbox" tabIndex={0} aria-label={label} ref={box} onKeyDown={key}
    aria-activedescendant={seen ? id(chosen) : undefined}
    onScroll={(e) => setTop((e.currentTarget as HTMLElement).scrollTop)}>
    <div role="presentation" style={{ height: `${from * height}px` }} />
    {items.slice(from, until).map((item, n) =>
      <div key={id(from + n)} id={id(from + n)} role="option" class="row" aria-selected={from + n === chosen}
        aria-setsize={items.length} aria-posinset={from + n + 1} style={{ height: `${height}px` }}
        onClick={() => choose(from + n)}>{row(item, from + n)}</div>)}
    <div role="presentation" style={{ height: `${(items.length - until) * height}px` }} />
  </div>;
}

export { h, Fragment };
