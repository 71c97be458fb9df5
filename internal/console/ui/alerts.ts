// The alert rules of deploy/observe, judged by the numbers of one dispatcher. The rules are bundled from their file, so
// no threshold stands here. This knows as much of PromQL as they use, and TestAlertsThatHold fails for a rule that it
// cannot read.

import text from "../../../deploy/observe/alerts.yaml";

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

export type Samples = Map<string, Sample[]>;

export interface Rule {
  alert: string;
  expr: string;
  /** How long it must hold before Prometheus sends it, in seconds. */
  forSeconds: number;
  severity: string;
  summary: string;
}

const units: Record<string, number> = { s: 1, m: 60, h: 3600 };

function seconds(text: string): number {
  const m = /^(\d+)([smh])$/.exec(text);
  if (!m) throw new Error(`no duration: ${text}`);
  return Number(m[1]) * units[m[2]];
}

/** Reads the file, whose fields stand on a line each. */
function readRules(text: string): Rule[] {
  return text.split(/^ *- alert: /m).slice(1).map((part) => {
    const field = (name: string) => {
      const value = new RegExp(`^ *(?:labels: \\{)?${name}: *(.*?) *$`, "m").exec(part)?.[1] ?? "";
      return value.startsWith('"') ? JSON.parse(value) as string : value;
    };
    const wait = field("for");
    return { alert: part.split("\n", 1)[0].trim(), expr: field("expr"), forSeconds: wait ? seconds(wait) : 0,
      severity: field("severity").replace(/}$/, ""), summary: field("summary") };
  });
}

/** What was counted at a time. */
interface Shot {
  at: number;
  samples: Samples;
}

/** What an expression is judged by: the numbers of now, and some of before. Times are in seconds. */
interface World {
  now: Shot;
  /** The oldest first. */
  before: Shot[];
  /** When the process began, and its counters with 0. */
  began: number;
}

type Node = (w: World) => Sample[];

const same = (a: Record<string, string>, b: Record<string, string>) =>
  JSON.stringify(Object.entries(a).sort()) === JSON.stringify(Object.entries(b).sort());

const pick = (labels: Record<string, string>, names: string[]) =>
  Object.fromEntries(names.filter((n) => n in labels).map((n) => [n, labels[n]]));

function groups(all: Sample[], by: string[]): { labels: Record<string, string>; values: number[] }[] {
  const out: { labels: Record<string, string>; values: number[] }[] = [];
  for (const s of all) {
    const labels = pick(s.labels, by);
    const group = out.find((g) => same(g.labels, labels));
    if (group) group.values.push(s.value);
    else out.push({ labels, values: [s.value] });
  }
  return out;
}

const folds: Record<string, (values: number[]) => number> = {
  sum: (values) => values.reduce((a, b) => a + b, 0), max: (values) => Math.max(...values),
};

const compares: Record<string, (a: number, b: number) => boolean> = {
  "==": (a, b) => a === b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b,
};

/** A quantile of the buckets of a histogram, as histogram_quantile computes it; undefined without observations. */
export function quantile(q: number, all: Sample[]): number | undefined {
  const each = new Map<number, number>();
  for (const b of all) {
    const le = b.labels.le === "+Inf" ? Infinity : Number(b.labels.le);
    each.set(le, (each.get(le) ?? 0) + b.value);
  }
  const buckets = [...each].sort(([a], [b]) => a - b);
  const count = buckets.at(-1)?.[1] ?? 0;
  if (!count) return undefined;
  let from = 0, below = 0;
  for (const [le, n] of buckets) {
    if (n >= q * count) return le === Infinity ? from : from + ((le - from) * (q * count - below)) / (n - below);
    [from, below] = [le, n];
  }
  return undefined;
}

/** How much counters have grown in the last so many seconds, or for as long as they were looked at. */
function grown(w: World, name: string, matches: (s: Sample) => boolean, span: number): Sample[] {
  const from = w.now.at - span;
  const first = w.before.find((s) => s.at >= from) ?? w.now;
  return (w.now.samples.get(name) ?? []).filter(matches).map(({ labels, value }) => {
    const old = w.began >= from ? 0 :
      first.samples.get(name)?.find((s) => same(s.labels, labels))?.value ?? 0; // it was not counted then
    return { labels, value: value < old ? value : value - old };
  });
}

const token = // a name, a number, a duration, a text, an operator
  /\s*(?:([a-zA-Z_]\w*)|(\d+(?:\.\d+)?(?![\d.smh]))|(\d+[smh])|"([^"]*)"|(==|>=|<=|!=|=~|!~|[(){}[\],=<>/]))/y;

/** A rule that is ready to be judged. */
interface Compiled {
  holds: Node;
  /** The metrics that it asks for, and those of them whose growth counts. */
  metrics: Set<string>;
  counters: Set<string>;
  /** What the value is compared with at the end. */
  limit?: number;
}

function compile(expr: string): Compiled {
  const words: string[] = [];
  token.lastIndex = 0;
  while (token.lastIndex < expr.trimEnd().length) {
    const at = token.lastIndex;
    const m = token.exec(expr);
    if (!m) throw new Error(`cannot read ${expr.slice(at)}`);
    words.push(m[4] !== undefined ? `"${m[4]}` : m[0].trim());
  }
  let n = 0;
  const metrics = new Set<string>(), counters = new Set<string>();
  let limit: number | undefined;
  const next = () => {
    if (n >= words.length) throw new Error(`${expr} ends too early`);
    return words[n++];
  };
  const want = (word: string) => {
    const got = next();
    if (got !== word) throw new Error(`${expr}: expected ${word}, got ${got}`);
  };
  const names = (): string[] => {
    const out: string[] = [];
    for (want("("); words[n] !== ")"; words[n] === "," && n++) out.push(next());
    want(")");
    return out;
  };
  const number = () => {
    const got = next();
    if (!/^\d/.test(got)) throw new Error(`${expr}: expected a number, got ${got}`);
    return Number(got);
  };

  const selector = (name: string): Node => {
    if (!/^[a-z]\w*_\w+$/.test(name)) throw new Error(`${expr}: ${name} is no metric`);
    metrics.add(name);
    const matchers: ((s: Sample) => boolean)[] = [];
    if (words[n] === "{") {
      for (next(); words[n] !== "}"; words[n] === "," && n++) {
        const label = next(), op = next(), value = next().slice(1);
        const like = new RegExp(`^(?:${value})$`);
        const test: Record<string, (v: string) => boolean> = {
          "=": (v) => v === value, "!=": (v) => v !== value, "=~": (v) => like.test(v), "!~": (v) => !like.test(v) };
        if (!test[op]) throw new Error(`${expr}: ${op} compares no labels`);
        matchers.push((s) => test[op](s.labels[label] ?? ""));
      }
      want("}");
    }
    const matches = (s: Sample) => matchers.every((m) => m(s));
    if (words[n] !== "[") return (w) => (w.now.samples.get(name) ?? []).filter(matches);
    next();
    const span = seconds(next());
    want("]");
    counters.add(name);
    return (w) => grown(w, name, matches, span);
  };

  const value = (): Node => {
    const word = next();
    if (word in folds) {
      const before = words[n] === "by" ? (next(), names()) : undefined;
      want("(");
      const of = both();
      want(")");
      const by = before ?? (words[n] === "by" ? (next(), names()) : []);
      return (w) => groups(of(w), by).map((g) => ({ labels: g.labels, value: folds[word](g.values) }));
    }
    if (words[n] !== "(") return selector(word);
    want("(");
    const q = word === "histogram_quantile" ? number() : 0;
    if (word === "histogram_quantile") want(",");
    const of = both();
    want(")");
    switch (word) {
      case "increase":
      case "rate": // the rules ask only whether one is there, or for quantiles: the time does not matter
        return of;
      case "absent":
        return (w) => of(w).length ? [] : [{ labels: {}, value: 1 }];
      case "histogram_quantile":
        return (w) => {
          const all = of(w);
          const apart = (l: Record<string, string>) => pick(l, Object.keys(l).filter((k) => k !== "le"));
          return groups(all, [...new Set(all.flatMap((s) => Object.keys(apart(s.labels))))]).flatMap(({ labels }) => {
            const v = quantile(q, all.filter((s) => same(apart(s.labels), labels)));
            return v === undefined ? [] : [{ labels, value: v }];
          });
        };
    }
    throw new Error(`${expr}: ${word} is no function that is known here`);
  };

  const ratio = (): Node => {
    const left = value();
    if (words[n] !== "/") return left;
    next();
    const right = value();
    return (w) => {
      const below = right(w);
      return left(w).flatMap((s) => below.filter((b) => same(b.labels, s.labels)).map((b) =>
        ({ labels: s.labels, value: s.value / b.value })));
    };
  };

  const compared = (): Node => {
    const of = ratio();
    if (!(words[n] in compares)) return of;
    const fits = compares[next()];
    const bound = limit = number();
    return (w) => of(w).filter((s) => fits(s.value, bound));
  };

  const both = (): Node => {
    const left = compared();
    if (words[n] !== "and") return left;
    next();
    want("on");
    const on = names();
    const right = compared();
    return (w) => {
      const others = right(w);
      return left(w).filter((s) => others.some((o) => same(pick(o.labels, on), pick(s.labels, on))));
    };
  };

  const holds = both();
  if (n < words.length) throw new Error(`${expr}: what is ${words[n]}?`);
  return { holds, metrics, counters, limit };
}

const unread: Rule[] = [];
const rules = readRules(text).flatMap((rule) => {
  try {
    return [{ ...rule, ...compile(rule.expr) }];
  } catch { // the other rules and pages are worth as much without it
    unread.push(rule);
    return [];
  }
});

/** What an alert's value is compared with. */
export const limitOf = (alert: string) => rules.find((r) => r.alert === alert)?.limit;

/** How much is kept to see whether counters grow, and how far apart, in seconds. */
const keptFor = 900, apart = 10;
const counted = new Set(rules.flatMap((r) => [...r.counters]));

let before: Shot[] = [];
let processBegan = 0;
const since = new Map<string, number>();

/** A condition that holds, for one series. */
export interface Held {
  rule: Rule;
  summary: string;
  /** For how long this page has seen it. */
  seconds: number;
}

function say(summary: string, s: Sample): string {
  const forms: Record<string, (v: number) => string> = {
    humanizePercentage: (v) => `${(100 * v).toFixed(1)} %`, humanizeDuration: (v) => `${v.toFixed(0)} s` };
  const hole = /\{\{\s*\$(?:labels\.(\w+)|value)\s*(?:\|\s*(\w+)\s*)?\}\}/g;
  const text = summary.replace(hole, (_, label?: string, form?: string) =>
    label ? s.labels[label] ?? (label === "instance" ? "this process" : label) :
      forms[form ?? ""]?.(s.value) ?? String(s.value));
  return text[0].toUpperCase() + text.slice(1);
}

export interface Judged {
  held: Held[];
  /** How many rules were judged. */
  count: number;
  /** The rules about numbers that workers have and this process has not. */
  elsewhere: Rule[];
  /** The rules that cannot be read here. */
  unread: Rule[];
}

/** Which conditions hold now. */
export function judge(samples: Samples, at: number): Judged {
  const began = samples.get("process_start_time_seconds")?.[0]?.value ?? 0;
  if (began !== processBegan) { // it was started again, or another one answers
    before = [];
    since.clear();
    processBegan = began;
  }
  const now = { at, samples };
  const w = { now, before, began };
  const held: Held[] = [], elsewhere: Rule[] = [];
  for (const rule of rules) {
    if ([...rule.metrics].some((m) => m.startsWith("toolyard_worker_") && !samples.has(m))) {
      elsewhere.push(rule);
      continue;
    }
    const found = rule.holds(w).map((s) =>
      ({ summary: say(rule.summary, s), key: rule.alert + JSON.stringify(s.labels) }));
    for (const key of [...since.keys()]) {
      if (key.startsWith(`${rule.alert}{`) && !found.some((f) => f.key === key)) since.delete(key);
    }
    for (const { summary, key } of found) {
      if (!since.has(key)) since.set(key, at);
      held.push({ rule, summary, seconds: at - since.get(key)! });
    }
  }
  if (!before.length || at - before.at(-1)!.at >= apart) {
    before = [...before.filter((s) => s.at >= at - keptFor), { at, samples: new Map([...samples].filter(([k]) =>
      counted.has(k))) }];
  }
  return { held, elsewhere, unread, count: rules.length - elsewhere.length };
}
