// The types of /openapi.json. "go test ./test/http -run TypesOfTheConsole -update" makes this file.

export interface Appended {
  /** How many calls the batch has up to and with these. */
  calls: number;
  /** The index of the first of these calls. */
  first: number;
  id: string;
}

export interface Approval {
  agent: string;
  asked_at: string;
  batch: string;
  call_id: string;
  concurrency_class: string;
  destructive: boolean;
  diff: string;
  expires: string;
  id: string;
  index: number;
  input: unknown;
  input_sha256: string;
  reason: string;
  remember: string;
  session: string;
  source: string;
  tool: string;
  workspace: string;
}

export interface ApprovalLook {
  agent: string;
  asked_at: string;
  batch: string;
  call_id: string;
  concurrency_class: string;
  destructive: boolean;
  diff: string;
  /** What the call would have changed when it was asked about. */
  diff_lines: string[];
  expires: string;
  id: string;
  index: number;
  input: unknown;
  input_sha256: string;
  /** The whole input: every character shows, and an edit is a comparison. */
  lines: string[];
  /** Why the input cannot be shown whole. Such a call cannot be allowed as it is. */
  part?: string;
  reason: string;
  remember: string;
  session: string;
  source: string;
  tool: string;
  workspace: string;
}

export interface Approvals {
  /** The newest first, by when they were asked about; 10,000 at most. */
  approvals: Approval[];
}

export interface AttemptMoment {
  attempt: number;
  /** Why it failed. */
  code?: string;
  worker: string;
}

export interface BatchInfo {
  agent: string;
  calls: number;
  changed: string;
  id: string;
  place: number;
  session: string;
  status: string;
  submitted: string;
  workspace: string;
}

export interface BatchOptions {
  /** Rules for what a person is asked about. */
  ask?: string[];
  /** Caps each call under its tool's own timeout. */
  call_timeout_ms?: number;
  /** Rules for what must not run. */
  deny?: string[];
  /** How many calls are in flight. */
  max_concurrency?: number;
  /** What a call that fails while executing does to its group. */
  on_error?: "cancel_group" | "continue";
  /** How calls become groups. */
  partition?: "consecutive" | "safe_first" | "sequential" | "ordered_halt";
  /** Interactive batches go before bulk ones, which take one turn in five. */
  priority?: "interactive" | "bulk";
  /** Mend inputs that are no valid JSON, where there is one way to read them. */
  repair?: boolean;
  /** End the calls of the session's other batches that wait for a person. */
  supersede?: boolean;
  /** What the workers must have that run the calls: each of these tags. */
  tags?: string[];
  /** Bounds the batch: calls not answered by then end as deadline_exceeded. */
  timeout_ms?: number;
}

export interface BatchView {
  agent: string;
  groups: number[][];
  id: string;
  newer_events?: number;
  notice?: Notice;
  results: Result[];
  session: string;
  status: string;
  surface: string;
  workspace: string;
}

export interface Began {
  /** Whose it is. */
  agent: string;
  /** The batch's id. */
  id: string;
  /** Where the results go on when this connection is lost, with Last-Event-ID. It is there when the first call has begun. */
  results: string;
}

export interface Blob {
  /** The part, of a result that is text. */
  content: string;
  /** The part in base64, of a result that is no text, such as an image. */
  data?: string;
  /** The offset of the next part; left out when this is the last. */
  next?: number;
  /** Where content begins. */
  offset: number;
  ref: string;
  /** How many bytes the whole has. */
  size: number;
}

export interface Call {
  /** What the provider wants to have back with the result, as an object of its own fields. */
  echo?: unknown;
  /** The provider's id, which the result has too. */
  id?: string;
  /** The model's stream was cut inside the call: it does not run, and ends as incomplete_call. */
  incomplete?: boolean;
  /** The tool's input. */
  input?: unknown;
  tool: string;
}

export interface CallLook {
  /** Why a person was asked. */
  asked_reason?: string;
  attempts: AttemptMoment[];
  /** Of a call that was aborted: what aborted it. */
  blame?: string;
  call_id: string;
  /** A worker claims it before it runs. */
  claim?: boolean;
  /** Its concurrency class; empty before it is planned. */
  class: string;
  code?: string;
  /** Who decided. */
  decided_by?: string;
  decision?: string;
  /** The person gave another input. */
  edited?: boolean;
  error?: boolean;
  /** What the phases before the question to a person found; the result has those of the run. */
  facts: Fact[];
  finished_ms?: number;
  /** Its group; -1 before it is planned. */
  group: number;
  index: number;
  /** The input as it was handed in. */
  input: unknown;
  /** The input as a person is asked about it: every character shows. */
  lines: string[];
  /** How it was answered without running. */
  not_run?: string;
  /** Why there are no lines. */
  part?: string;
  pool?: string;
  result?: Result;
  /** When its attempts ran. */
  runs?: Span[];
  status: "unplanned" | "pending" | "claimed" | "retrying" | "waiting" | "decided" | "finished";
  tool: string;
  /** When it waited for a person. */
  waits?: Span[];
  /** What decided its class. */
  why?: string;
  worker?: string;
}

export interface Cancellation {
  /** The indices of the calls to stop; left out, all. */
  calls?: number[];
  /** The model reads it. */
  reason?: string;
}

export interface Completed {
  /** How many results the batch has. */
  results: number;
  status: string;
}

export interface Content {
  blob?: string;
  data?: string;
  description?: string;
  mime_type?: string;
  name?: string;
  schema?: unknown;
  sent?: string;
  size?: number;
  text?: string;
  title?: string;
  type: string;
  uri?: string;
}

export interface DeadLetter {
  agent?: string;
  batch?: string;
  by: string;
  bytes: number;
  call?: number;
  cause: string;
  data?: string;
  data_base64?: string;
  kind: string;
  sequence: number;
  subject: string;
  time: string;
}

export interface DeadLetters {
  /** The newest first. */
  dead_letters: DeadLetter[];
}

export interface Decided {
  decision: "allow" | "deny";
  id: string;
}

export interface Decision {
  decision: "allow" | "deny";
  /** Run this instead of the call's own input; it is checked again first. Null or left out: run what was shown. */
  input?: unknown;
  /** The hash of the input that was seen, as the list has it. A call that waits with another one is not allowed. */
  input_sha256?: string;
  /** The model reads it. */
  reason?: string;
  /** Allow the like for the rest of the session. */
  remember?: "session";
}

export interface Digest {
  agent: string;
  calls: number;
  changed: string;
  /** The codes of its errors, each once. */
  codes: string[];
  /** How many of its results are errors. */
  failed: number;
  id: string;
  /** It has too many calls to be looked into, or its log cannot be read: tools and codes are missing. */
  opaque?: boolean;
  place: number;
  session: string;
  status: string;
  submitted: string;
  /** The tools of its calls, each once. */
  tools: string[];
  workspace: string;
}

export interface Fact {
  code?: string;
  detail?: string;
  ms: number;
  outcome: string;
  phase: string;
}

export interface Found {
  /** The newest first. */
  batches: Digest[];
  /** How many batches were looked at for this page. */
  looked: number;
  /** The after of the next page; left out when nothing follows. A page may have fewer batches than limit, or none, and others follow. */
  next?: number;
}

export interface Happening {
  agent?: string;
  batch?: string;
  /** The CloudEvent. */
  event?: unknown;
  /** Events are missing before this one, or may be. Without an event it says nothing else. */
  gap?: string;
  time: string;
  /** What happened, in one line for a person. */
  what?: string;
}

export interface Interrupted {
  batches: number;
}

export interface Me {
  /** Whose token it is; empty for an operator's, and where nobody is asked. */
  agent: string;
  /** In whose names it may act beside. */
  agents: string[];
  /** The server asks for tokens. */
  asks: boolean;
  /** It may say that a person can be asked. */
  interactive: boolean;
  /** What stands in the log where this one decides. */
  name: string;
  /** It may do what any agent may, and see all. */
  operator: boolean;
  /** The kinds of requests that it may make. */
  scopes: string[];
  /** The server's. */
  version: string;
}

export interface Moment {
  ms: number;
  what: string;
}

export interface MoreCalls {
  anthropic?: unknown;
  /** Give each an id: then sending them again, when no answer came, appends nothing. */
  calls?: Call[];
  gemini?: unknown;
  openai?: unknown;
  openai_chat?: unknown;
}

export interface Note {
  /** What an output of it is paired by. */
  call_id?: string;
  /** The item's own id. */
  id?: string;
  /** The response has no output of it: the provider wants one from you, beside the reply. */
  open: boolean;
  /** What the provider calls it. */
  type: string;
}

export interface Noted {
  items: Note[];
}

export interface Notice {
  by?: string;
  context?: string;
  reason?: string;
  stop?: boolean;
}

export interface Page {
  /** The newest first, in the order of submission. The list may be a moment behind. */
  batches: BatchInfo[];
  /** The after of the next page; left out when this is the last. */
  next?: number;
}

export interface Problem {
  /** What is wrong here, and how to mend it. */
  detail: string;
  /** The field, parameter or header that is wrong, when it is one. */
  field?: string;
  /** The HTTP status. */
  status: number;
  /** The status in words. */
  title: string;
  /** What kind of problem it is, for programs (docs/http.md); about:blank when the status says all. */
  type: string;
}

export interface Progress {
  attempt: number;
  call_id: string;
  fraction: number;
  index: number;
  lost_bytes?: number;
  output?: string;
  status?: string;
  tool: string;
  waiting?: Waiting;
  worker: string;
}

export interface Reason {
  /** The model reads it. */
  reason?: string;
}

export interface Remark {
  left_out?: boolean;
  tool: string;
  why: string;
}

export interface Result {
  approval_wait_ms: number;
  attempts: number;
  blob: string;
  call_id: string;
  code: string;
  concurrency_class: string;
  content?: Content[];
  detail?: string;
  duration_ms: number;
  echo?: unknown;
  error: string;
  execute_ms: number;
  index: number;
  is_error: boolean;
  isolation: string;
  output: string;
  phases: Fact[];
  queue_ms: number;
  retry_after_ms: number;
  retryable: boolean;
  structured?: unknown;
  tool: string;
  truncated: boolean;
  was_concurrent: boolean;
  worker: string;
}

export interface Row {
  /** Of a call that was aborted: what aborted it. */
  blame?: string;
  call_id: string;
  /** Its concurrency class; empty before it is planned. */
  class: string;
  code?: string;
  error?: boolean;
  finished_ms?: number;
  /** Its group; -1 before it is planned. */
  group: number;
  index: number;
  /** How it was answered without running. */
  not_run?: string;
  /** When its attempts ran. */
  runs?: Span[];
  status: "unplanned" | "pending" | "claimed" | "retrying" | "waiting" | "decided" | "finished";
  tool: string;
  /** When it waited for a person. */
  waits?: Span[];
  worker?: string;
}

export interface Session {
  alone: boolean;
  changed: string;
  context: Record<string, string>;
  loaded: string[];
  remembered: string[];
}

export interface SessionChange {
  /** Whether nobody is there to ask. Only an operator's token says that somebody is. */
  alone?: boolean;
  /** Ask again for all that people have allowed in the session. */
  forget?: boolean;
}

export interface Shape {
  agent: string;
  /** How many calls were handed in. */
  calls: number;
  /** What contradicts itself in the log. */
  contradicts?: string;
  /** How many of the results are errors. */
  failed: number;
  /** How many calls have results. */
  finished: number;
  /** In the order in which they run. */
  groups: ShapeGroup[];
  /** What happened to the batch beside the run of its calls: cancels, takeovers, decisions of people. */
  happened: Moment[];
  id: string;
  /** When the last event was stored. */
  last_ms: number;
  /** The dispatcher that advances the batch; empty before it is planned. */
  owner: string;
  partition: string;
  planned_ms?: number;
  /** Why the batch was refused. */
  refused?: string;
  /** How many results were replied. */
  replied: number;
  session: string;
  status: string;
  submitted_at: string;
  submitted_by: string;
  takeovers: number;
  workspace: string;
}

export interface ShapeGroup {
  /** How many calls it has. */
  count: number;
  /** Its first call. */
  first: number;
  /** When the groups before it had all their results. From then on it waited for its ticket. */
  ready_ms?: number;
  /** Its calls may run together. */
  safe: boolean;
  started_ms?: number;
  ticket?: number;
}

export interface SignIn {
  /** A token of this server, or a JWT of its issuer. */
  token: string;
}

export interface SignedIn {
  /** What later requests send in the header Toolyard-Session, beside the cookie. */
  key: string;
}

export interface Span {
  /** Why the attempt failed that was repeated. */
  failed?: string;
  from_ms: number;
  to_ms?: number;
}

export interface Step {
  /** Its place in the log, from 1. */
  event: number;
  ms: number;
  what: string;
}

export interface Submission {
  /** Whose batch it is, when no token says so. */
  agent?: string;
  /** The calls in an Anthropic assistant message, or a whole Messages response. */
  anthropic?: unknown;
  /** The calls in the native form. */
  calls?: Call[];
  /** The calls in a Gemini content, or a whole response. */
  gemini?: unknown;
  /** The same id is the same batch: submitting it again runs nothing. One is made when it is left out. */
  id?: string;
  /** A person can be asked: calls that need one wait. */
  interactive?: boolean;
  /** Calls may be appended until the batch is closed. */
  open?: boolean;
  /** The calls in an OpenAI Responses output, or a whole response. */
  openai?: unknown;
  /** The calls in an OpenAI Chat Completions assistant message, or a whole completion. */
  openai_chat?: unknown;
  options?: BatchOptions;
  /** The conversation. */
  session?: string;
  /** Where the calls act. */
  workspace?: string;
}

export interface Timeline {
  /** The last events that this shows, in words. */
  around: Step[];
  /** How many of them this shows. */
  at: number;
  batch: Shape;
  /** How many events the log has now. */
  events: number;
  /** The calls that changed after since, or all. */
  rows: Row[];
}

export interface Waiting {
  running: number;
  waiting: number;
}

export interface Worker {
  breakers: Record<string, string>;
  busy: number;
  classes: string[];
  conflicts: string[];
  host?: string;
  id: string;
  isolation: string;
  pool: string;
  remarks?: Remark[];
  slots: number;
  started: string;
  tags?: string[];
  tools: number;
  version: string;
  wire_version: number;
  workspaces: string[];
}

export interface Workers {
  workers: Worker[];
}

export interface WorkspaceQueue {
  /** How many tickets the queue has. */
  length: number;
  /** The first ones, in order; 100 at most. */
  tickets: WorkspaceTicket[];
  workspace: string;
}

export interface WorkspaceTicket {
  agent: string;
  batch: string;
  /** It holds the workspace. The others wait. */
  granted: boolean;
  group: number;
  mode: "shared" | "exclusive";
  /** Its number, the fencing token of its group. */
  number: number;
}

export interface Workspaces {
  /** By name; 1,000 at most. */
  workspaces: WorkspaceQueue[];
}
