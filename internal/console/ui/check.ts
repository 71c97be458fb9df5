// Checks an input against a JSON Schema while a person types. The server checks it again, and its word counts: what is
// found here is only told earlier. So this knows the common keywords, names those that it does not know, and never
// finds a problem where the server finds none. The words are those of the server (internal/schema).

/** A JSON Schema, as far as this looks at it. */
export type Schema = boolean | { [keyword: string]: unknown };

export interface Checked {
  problems: string[];
  /** What of the schema was not looked at, such as "anyOf of limit". */
  unchecked: string[];
}

type Values = Record<string, unknown>;
type Raw = typeof JSON & { isRawJSON?: (v: unknown) => boolean };

const known = new Set(["type", "enum", "const", "properties", "required", "additionalProperties", "items", "minimum",
  "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
  // These assert nothing, or nothing that the server checks.
  "$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description", "default", "examples",
  "example", "deprecated", "readOnly", "writeOnly", "format"]);

/** A number whose digits JavaScript cannot hold stands in an object of its own. */
const plain = (v: unknown) => ((JSON as Raw).isRawJSON?.(v) ? Number(String((v as { rawJSON: string }).rawJSON)) : v);

function kindOf(v: unknown): string {
  if (v === null) return "null";
  if (Array.isArray(v)) return "array";
  return typeof v;
}

const is = (v: unknown, type: string) => type === kindOf(v) || type === "integer" && typeof v === "number" &&
  (Number.isInteger(v) || !Number.isFinite(v)); // 1e400 is one, and none that JavaScript holds

/** How much of a value a problem shows, in characters. */
const maxShown = 40;

function show(v: unknown): string {
  const text = JSON.stringify(v) ?? "nothing";
  return [...text].length > maxShown ? `${[...text].slice(0, maxShown).join("")}…` : text;
}

const scalar = (v: unknown) => typeof v !== "object" || v === null;

/** Where a field stands, as in edits[0].text. */
const below = (at: string, field: string | number) => typeof field === "number" ? `${at}[${field}]` :
  !/^[\p{L}_$][\p{L}\p{N}_$-]*$/u.test(field) ? `${at}[${JSON.stringify(field)}]` : at ? `${at}.${field}` : field;

/** Whether the server refuses fields that an object's schema does not name. closed: it does so where nothing is said. */
function closes(schema: Values, fields: Values, closed: boolean): boolean {
  if ("additionalProperties" in schema) return schema.additionalProperties === false && !("patternProperties" in schema);
  const required = Array.isArray(schema.required) ? schema.required : [];
  return closed && "properties" in schema && !("const" in schema) && Object.keys(schema).every((k) => known.has(k)) &&
    required.every((name) => Object.hasOwn(fields, String(name)));
}

/** closed: the schema is one of a tool's input, which the server closes against fields that it does not name. */
export function check(schema: unknown, value: unknown, closed: boolean): Checked {
  const problems: string[] = [];
  const unchecked = new Set<string>();
  const say = (at: string, what: string) => problems.push(at ? `${at}: ${what}` : what);

  const bound = (s: Values, at: string, keyword: string, n: number, fits: (n: number, limit: number) => boolean,
    words: (limit: number) => string) => {
    const limit = plain(s[keyword]);
    if (typeof limit === "number" && !fits(n, limit)) say(at, words(limit));
  };

  const object = (s: Values, v: Values, at: string) => {
    const fields = (s.properties ?? {}) as Values;
    for (const name of Array.isArray(s.required) ? s.required : []) {
      if (!Object.hasOwn(v, String(name))) say(below(at, String(name)), "is required and missing");
    }
    for (const [name, each] of Object.entries(v)) {
      if (Object.hasOwn(fields, name)) walk(fields[name], each, below(at, name));
      else if (closes(s, fields, closed)) say(below(at, name), "unknown field");
      else if (typeof s.additionalProperties === "object" && !("patternProperties" in s)) {
        walk(s.additionalProperties, each, below(at, name));
      }
    }
  };

  const walk = (schema: unknown, whole: unknown, at: string): void => {
    if (schema === false) say(at, "is not allowed here");
    if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return;
    const s = schema as Values;
    const v = plain(whole);
    for (const keyword of Object.keys(s)) {
      if (!known.has(keyword) && !keyword.startsWith("x-")) unchecked.add(at ? `${keyword} of ${at}` : keyword);
    }
    if ("$ref" in s) return; // older drafts ignore what stands beside it
    const types = [s.type].flat().filter((t): t is string => typeof t === "string");
    if (types.length && !types.some((t) => is(v, t))) {
      say(at, `expected ${types.join(" or ")}, got ${show(whole)}`);
      return;
    }
    if (Array.isArray(s.enum)) {
      if (s.enum.some((e) => !scalar(plain(e)))) unchecked.add(at ? `enum of ${at}` : "enum");
      else if (!s.enum.some((e) => plain(e) === v)) {
        say(at, `expected ${s.enum.length > 1 ? "one of " : ""}${s.enum.map(show).join(", ")}, got ${show(whole)}`);
      }
    }
    if ("const" in s) {
      if (!scalar(plain(s.const))) unchecked.add(at ? `const of ${at}` : "const");
      else if (plain(s.const) !== v) say(at, `expected ${show(s.const)}, got ${show(whole)}`);
    }
    if (typeof v === "number") {
      const got = `, got ${show(whole)}`;
      bound(s, at, "minimum", v, (n, l) => n >= l, (l) => `expected at least ${l}${got}`);
      bound(s, at, "maximum", v, (n, l) => n <= l, (l) => `expected at most ${l}${got}`);
      bound(s, at, "exclusiveMinimum", v, (n, l) => n > l, (l) => `expected more than ${l}${got}`);
      bound(s, at, "exclusiveMaximum", v, (n, l) => n < l, (l) => `expected less than ${l}${got}`);
    } else if (typeof v === "string") {
      const n = [...v].length;
      bound(s, at, "minLength", n, (n, l) => n >= l, (l) => `expected at least ${l} characters, got ${n}`);
      bound(s, at, "maxLength", n, (n, l) => n <= l, (l) => `expected at most ${l} characters, got ${n}`);
    } else if (Array.isArray(v)) {
      bound(s, at, "minItems", v.length, (n, l) => n >= l, (l) => `expected at least ${l} items, got ${v.length}`);
      bound(s, at, "maxItems", v.length, (n, l) => n <= l, (l) => `expected at most ${l} items, got ${v.length}`);
      if (Array.isArray(s.items)) unchecked.add(at ? `items of ${at}` : "items");
      else if (!("prefixItems" in s)) v.forEach((e, n) => walk(s.items, e, below(at, n)));
    } else if (typeof v === "object" && v !== null) {
      object(s, v as Values, at);
    }
  };
  walk(schema, value, "");
  return { problems, unchecked: [...unchecked] };
}
