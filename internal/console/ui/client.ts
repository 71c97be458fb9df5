// Requests to the HTTP API, and what of the session a page keeps.

import type { Login, Me, Problem, SignedIn, SignIn as SignInBody } from "./api";

const keyName = "toolyard.session";
const signInPath = "/v1/console/session";

/** A request that failed, with what the server says about it. */
export class Failed extends Error {
  constructor(readonly status: number, detail: string, readonly retryMS = 0) {
    super(detail);
  }
}

/** What is called when the server no longer knows who asks. */
export let onSignedOut = () => {};
export function whenSignedOut(f: () => void) {
  onSignedOut = f;
}

function headers(extra?: Record<string, string>): Record<string, string> {
  const key = localStorage.getItem(keyName);
  return { ...(key ? { "Toolyard-Session": key } : {}), ...extra };
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal,
  extra?: Record<string, string>): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method, signal, credentials: "same-origin", cache: "no-store",
      headers: headers({ ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...extra }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Failed(0, "The server does not answer.");
  }
  if (answer.ok) return answer;
  const problem = (await answer.json().catch(() => ({}))) as Partial<Problem>;
  const failed = new Failed(answer.status, problem.detail ?? answer.statusText,
    1000 * Number(answer.headers.get("Retry-After") ?? 0));
  if (answer.status === 401 && path !== signInPath) onSignedOut();
  throw failed;
}

/** Reads JSON. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send("GET", path, undefined, signal)).json()) as T;
}

/** Where a reviver finds the text of a value, and what writes it again: not all browsers have them, nor TypeScript. */
type Exact = typeof JSON & { rawJSON?: (text: string) => unknown };
type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

/** Whether this browser would round a number of a JSON text, and cannot keep its digits. */
export function rounds(text: string): boolean {
  return !(JSON as Exact).rawJSON && /\d{16}|\d\.\d{15}/.test(text.replace(/"(?:[^"\\]|\\.)*"/g, ""));
}

/** Reads JSON. Numbers that JavaScript would write in another way keep their text. */
export function exact<T>(text: string): T {
  const raw = (JSON as Exact).rawJSON;
  const keep: Reviver = (_, v, context) => typeof v === "number" && context?.source !== undefined &&
    String(v) !== context.source && raw ? raw(context.source) : v;
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown) as T;
}

/** Reads text. */
export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await send("GET", path, undefined, signal)).text();
}

/** Sends JSON, and reads the answer. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await (await send("POST", path, body)).json()) as T;
}

/** Has a token put into a cookie that no script can read, and keeps the key to it. */
async function begin(body: SignInBody): Promise<void> {
  localStorage.setItem(keyName, (await post<SignedIn>(signInPath, body)).key);
}

export const signIn = (token: string) => begin({ token });

const loginName = "toolyard.login";

/** What a tab keeps while its user is at the issuer. */
interface Away {
  state: string;
  verifier: string;
  /** The page that was asked for. */
  hash: string;
}

const base64url = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

const secret = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** Where a person signs in; without an issuer nowhere. */
export const whereToSignIn = (signal: AbortSignal) => get<Login>("/v1/console/login", signal);

/** Sends the user to the issuer (authorization code with PKCE). */
export async function leaveToSignIn(login: Login): Promise<void> {
  if (!crypto.subtle) throw new Failed(0, "This browser signs in at an issuer over https only, or on localhost.");
  const away: Away = { state: secret(), verifier: secret(), hash: location.hash };
  const challenge = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(away.verifier));
  sessionStorage.setItem(loginName, JSON.stringify(away));
  const to = new URL(login.authorize ?? "");
  for (const [name, value] of Object.entries({
    response_type: "code", client_id: login.client, redirect_uri: login.redirect, scope: login.scope,
    state: away.state, code_challenge: base64url(new Uint8Array(challenge)), code_challenge_method: "S256",
  })) to.searchParams.set(name, value ?? "");
  location.assign(to);
}

/** Signs in a user whom the issuer has sent back. */
export async function comeBack(): Promise<void> {
  const said = new URLSearchParams(location.search);
  if (!said.has("code") && !said.has("error")) return;
  const away = JSON.parse(sessionStorage.getItem(loginName) ?? "{}") as Partial<Away>;
  sessionStorage.removeItem(loginName);
  history.replaceState(null, "", location.pathname + (away.hash ?? ""));
  if (!away.state || away.state !== said.get("state")) {
    throw new Failed(0, "This is no answer to a sign-in of this tab. Sign in again.");
  }
  if (said.has("error")) {
    throw new Failed(0, `The issuer says: ${said.get("error_description") ?? said.get("error")}`);
  }
  await begin({ code: said.get("code") ?? "", verifier: away.verifier });
}

export async function signOut(): Promise<void> {
  localStorage.removeItem(keyName);
  await send("DELETE", signInPath);
}

export const whoAmI = () => get<Me>("/v1/me");

/** A path with a query, without what is empty. */
export function at(path: string, query: Record<string, string | number | undefined>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") q.set(name, String(value));
  }
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

export const name = encodeURIComponent;

/** Reads server-sent events until the stream ends or the signal is given. */
export async function stream(path: string, signal: AbortSignal, each: (event: string, data: string) => void) {
  const answer = await send("GET", path, undefined, signal, { Accept: "text/event-stream" });
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let pieces: string[] = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pieces.push(value);
    if (!value.includes("\n")) continue; // in the middle of a line, which may be long
    const parts = pieces.join("").split("\n\n");
    pieces = [parts.pop() ?? ""];
    for (const part of parts) {
      let event = "message";
      const data: string[] = [];
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) event = line.slice(7);
        if (line.startsWith("data: ")) data.push(line.slice(6));
      }
      if (data.length) each(event, data.join("\n"));
    }
  }
}
