// The types of /openapi.json. "go test ./test/http -run TypesOfTheConsole -update" makes this file.

export type AnswerEventData = unknown;

export interface AnthropicReply {
  /** A tool_result for each call. */
  content: Record<string, unknown>[];
  /** The role of the message. */
  role: "user";
}

export interface Appended {
  /** How many calls the batch has up to and with these. */
  calls: number;
  /** The index of the first of these calls. */
  first: number;
  /** The batch's id. */
  id: string;
}

export interface Approval {
  /** The agent whose call it is. */
  agent: string;
  /** When the person was asked. */
  asked_at: string;
  /** The id of the call's batch. */
  batch: string;
  /** The provider's id of the call. */
  call_id: string;
  /** The class that this call was judged to have. */
  concurrency_class: Class;
  /** Whether the call may do what cannot be undone. */
  destructive: boolean;
  /** What the call would change, as a diff. Empty if the tool does not say. */
  diff: string;
  /** When the call ends as approval_expired. */
  expires: string;
  /** What the call's tool asks. The input is then the answer as it is filled in, and the input of a decision is the answer. Left out: the question is whether the call may run. */
  form?: Form;
  /** The approval's id, for decideApproval. */
  id: string;
  /** The call's index in the batch. */
  index: number;
  /** What may be shown of the input. */
  input: unknown;
  /** The hash of the input that runs if the call is allowed. Send it with the decision. */
  input_sha256: string;
  /** Why a person is asked. */
  reason: string;
  /** What is allowed for the rest of the session if the decision has remember: session. Empty if the decision cannot be remembered. */
  remember: string;
  /** The session of the batch. */
  session: string;
  /** What asks: a rule, the mode or a hook. */
  source: string;
  /** The tool's name. */
  tool: string;
  /** The workspace where the call acts. */
  workspace: string;
}

export interface ApprovalLook {
  /** The agent whose call it is. */
  agent: string;
  /** When the person was asked. */
  asked_at: string;
  /** The id of the call's batch. */
  batch: string;
  /** The provider's id of the call. */
  call_id: string;
  /** The class that this call was judged to have. */
  concurrency_class: Class;
  /** Whether the call may do what cannot be undone. */
  destructive: boolean;
  /** What the call would change, as a diff. Empty if the tool does not say. */
  diff: string;
  /** What the call would have changed when it was asked about. */
  diff_lines: string[];
  /** When the call ends as approval_expired. */
  expires: string;
  /** What the call's tool asks. The input is then the answer as it is filled in, and the input of a decision is the answer. Left out: the question is whether the call may run. */
  form?: Form;
  /** The approval's id, for decideApproval. */
  id: string;
  /** The call's index in the batch. */
  index: number;
  /** What may be shown of the input. */
  input: unknown;
  /** The hash of the input that runs if the call is allowed. Send it with the decision. */
  input_sha256: string;
  /** The whole input: every character shows, and an edit is a comparison. */
  lines: string[];
  /** Why the input cannot be shown whole. Such a call cannot be allowed as it is. */
  part?: string;
  /** Why a person is asked. */
  reason: string;
  /** What is allowed for the rest of the session if the decision has remember: session. Empty if the decision cannot be remembered. */
  remember: string;
  /** The session of the batch. */
  session: string;
  /** What asks: a rule, the mode or a hook. */
  source: string;
  /** The tool's name. */
  tool: string;
  /** The workspace where the call acts. */
  workspace: string;
}

export interface Approvals {
  /** The newest first, by when they were asked about; 10,000 at most. */
  approvals: Approval[];
}

export interface AttemptMoment {
  /** The number of the attempt, from 1. */
  attempt: number;
  /** Why it failed. */
  code?: Code;
  /** The worker that made the attempt. */
  worker: string;
}

export type BatchEventData = unknown;

export interface BatchInfo {
  /** The agent whose batch it is. */
  agent: string;
  /** How many calls the batch has. */
  calls: number;
  /** When the status changed last. */
  changed: string;
  /** The batch's id. */
  id: string;
  /** The batch's position in the order of submission. It never changes. */
  place: number;
  /** The session of the batch. */
  session: string;
  /** The state of the batch. */
  status: Status;
  /** When the batch was submitted. */
  submitted: string;
  /** The workspace where its calls act. */
  workspace: string;
}

export interface BatchOptions {
  /** Rules for what a person is asked about. */
  ask?: string[];
  /** A command that may change something and is not over after so many milliseconds goes on as a background call, and its call ends with the handle. */
  background_after_ms?: number;
  /** Caps each call under its tool's own timeout. */
  call_timeout_ms?: number;
  /** Rules for what must not run. */
  deny?: string[];
  /** Answer each call with what would happen, and run none. */
  dry_run?: boolean;
  /** Put outputs that come from outside between delimiters that no output can forge. */
  fence?: boolean;
  /** How many calls are in flight. */
  max_concurrency?: number;
  /** Have calls whose tools declare locks take those names in place of the whole workspace. */
  named_locks?: boolean;
  /** What a call that fails while executing does to its group. Default: cancel_group. */
  on_error?: OnError;
  /** Run the calls on a copy of the workspace, whose changes a person then commits or drops. */
  overlay?: boolean;
  /** The running call of run_code for which the batch was made. Workers set it; any other such batch is refused. */
  parent?: BatchParent;
  /** How calls become groups. Default: consecutive. */
  partition?: Strategy;
  /** Interactive batches go before bulk ones, which take one turn in five. Default: interactive. */
  priority?: Priority;
  /** Bounds a batch with a call that a provider's program made, from its submission on and with waits for people: the provider waits no longer. Default: 240000. */
  program_timeout_ms?: number;
  /** Mend inputs that are no valid JSON, where there is one way to read them, and what a worker's own repair mends. */
  repair?: boolean;
  /** Keep the workspace as it is before each exclusive group, so that the batch can be undone. */
  snapshot?: boolean;
  /** End the calls of the session's other batches that wait for a person. */
  supersede?: boolean;
  /** What the workers must have that run the calls: each of these tags. */
  tags?: string[];
  /** Bounds the batch: calls not answered by then end as deadline_exceeded. */
  timeout_ms?: number;
  /** The batch is one call of undo_workspace or overlay_workspace, which no other batch sees. */
  undo?: boolean;
}

export interface BatchParent {
  /** The attempt of that call. */
  attempt: number;
  /** The batch of that call. */
  batch: string;
  /** The call's index. */
  call: number;
  /** Counts the batches that were made for that attempt. */
  n: number;
}

export interface BatchView {
  /** The agent whose batch it is. */
  agent: string;
  /** The indices of the calls of each group, in the order in which the groups run. */
  groups: number[][];
  /** The batch's id. */
  id: string;
  /** How many of the batch's events a newer version wrote that this server does not know. */
  newer_events?: number;
  /** What hooks said about the batch as a whole. Absent if nothing. */
  notice?: Notice;
  /** The results that are there, by index. */
  results: Result[];
  /** The session of the batch. */
  session: string;
  /** The state of the batch. */
  status: Status;
  /** The hash of the tools that the batch sees. Empty before it is planned. */
  surface: string;
  /** The workspace where its calls act. */
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

export interface Behind {
  /** What to do. */
  detail: string;
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
  /** The reference that was asked for. */
  ref: string;
  /** How many bytes the whole has. */
  size: number;
}

export interface Budget {
  /** What is used, in words. */
  left: string;
  /** What there is of each resource; 0 where that is not bounded. */
  limit: BudgetAmount;
  /** Whose it is, as in agent ci-1, team web-* or session s-1 of ci-1. */
  of: string;
  /** When all is there again. Left out for a budget that does not renew. */
  renews?: string;
  /** What calls may use that are in flight. */
  reserved: BudgetAmount;
  /** What calls have used that are over. */
  used: BudgetAmount;
}

export interface BudgetAmount {
  /** Bytes of results. */
  bytes: number;
  /** Executions that were started, or may have been. */
  calls: number;
  /** Units of cost that the tools declare. */
  cost: number;
  /** How long the tools ran. */
  seconds: number;
}

export type CacheUse = "hit" | "shared" | "miss";

export interface Call {
  /** What the provider wants to have back with the result, as an object of its own fields. */
  echo?: unknown;
  /** The provider's id, which the result has too. */
  id?: string;
  /** The model's stream was cut inside the call: it does not run, and ends as incomplete_call. */
  incomplete?: boolean;
  /** The tool's input, an object. Default: an empty object. */
  input?: unknown;
  /** The tool's name as the model wrote it. */
  tool: string;
}

export interface CallLook {
  /** Why a person was asked. */
  asked_reason?: string;
  /** Its attempts that were claimed or have failed, in order. */
  attempts: AttemptMoment[];
  /** Of a call that was aborted: what aborted it. */
  blame?: string;
  /** The provider's id of the call. */
  call_id: string;
  /** A worker claims it before it runs. */
  claim?: boolean;
  /** Why the call failed; left out on success. */
  code?: Code;
  /** Its concurrency class; left out before it is planned. */
  concurrency_class?: Class;
  /** Who decided. */
  decided_by?: string;
  /** What was decided. superseded: the session went on without a decision. */
  decision?: "allow" | "deny" | "superseded";
  /** The person gave another input. */
  edited?: boolean;
  /** Whether the call failed. */
  error?: boolean;
  /** What the phases before the question to a person found; the result has those of the run. */
  facts: Fact[];
  /** When its result was stored; left out before. */
  finished_ms?: number;
  /** Its group; -1 before it is planned. */
  group: number;
  /** The call's index in the batch. */
  index: number;
  /** The input as it was handed in. */
  input: unknown;
  /** The input as a person is asked about it: every character shows. */
  lines: string[];
  /** How it was answered without running. */
  not_run?: string;
  /** Why there are no lines. */
  part?: string;
  /** The pool of the workers that may take it. */
  pool?: string;
  /** The result; left out before it is there. */
  result?: Result;
  /** When its attempts ran. */
  runs?: Span[];
  /** The state of the call. */
  status: "unplanned" | "pending" | "claimed" | "retrying" | "waiting" | "decided" | "finished";
  /** The tool's name. */
  tool: string;
  /** When it waited for a person. */
  waits?: Span[];
  /** What decided its class. */
  why?: string;
  /** The worker that claimed or finished the call last. */
  worker?: string;
}

export interface Cancellation {
  /** The indices of the calls to stop; left out, all. */
  calls?: number[];
  /** The model reads it. */
  reason?: string;
}

export type Class = "READ_ONLY" | "WRITE_EXCLUSIVE" | "UNSAFE";

export interface CloudEvent {
  /** The event's own fields. */
  data?: unknown;
  /** The media type of data. */
  datacontenttype?: string;
  /** The event's id. */
  id: string;
  /** Which process wrote the event. */
  source: string;
  /** The version of CloudEvents. */
  specversion: "1.0";
  /** The batch that it is about, as agent/batch. */
  subject?: string;
  /** When it was written. */
  time?: string;
  /** What happened. */
  type: string;
}

export type Code = "" | "unknown_tool" | "blocked_tool" | "schema_not_loaded" | "schema_validation_failed" | "invalid_arguments" | "setup_required" | "sandbox_violation" | "input_mutation_failed" | "hook_blocked" | "hook_failed" | "permission_denied" | "approval_rejected" | "approval_expired" | "policy_blocked" | "canceled" | "sibling_canceled" | "skipped" | "rate_limited" | "budget_exceeded" | "execution_failed" | "timeout" | "deadline_exceeded" | "dependency_unavailable" | "outcome_unknown" | "result_mapping_failed" | "post_hook_failed" | "result_too_large" | "result_redacted" | "incomplete_call" | "internal_error";

export interface Comparison {
  /** How many calls the batch has. */
  calls: number;
  /** How many calls were compared. */
  compared: number;
  /** What is different, in the order of the calls. */
  differences: Difference[];
  /** The other batch's id. */
  other: string;
  /** How the other batch stands. Until it is over only calls are compared that have results there. */
  status: Status;
}

export interface Completed {
  /** How many results the batch has. */
  results: number;
  /** How the batch ended. */
  status: Status;
}

export interface Content {
  /** The reference of the whole part, if it is too long to be here. */
  blob?: string;
  /** The bytes of an image, an audio or a resource, in base64. */
  data?: string;
  /** What a link leads to, or what a tool does. */
  description?: string;
  /** The media type of an image, an audio or a resource. */
  mime_type?: string;
  /** The name of a link or a tool. */
  name?: string;
  /** The input schema of a tool. */
  schema?: unknown;
  /** The name of a tool for providers that do not accept name. */
  sent?: string;
  /** How many bytes the whole part has, if it has a blob. */
  size?: number;
  /** The text of a text or a resource. */
  text?: string;
  /** The title of a link, for people. */
  title?: string;
  /** What the part is. It says which other fields are there. */
  type: ContentType;
  /** The address of a resource or a link. */
  uri?: string;
}

export type ContentType = "text" | "image" | "audio" | "resource" | "resource_link" | "tool";

export interface DeadLetter {
  /** The agent whose message it was, if that is known. */
  agent?: string;
  /** The id of the batch, if that is known. */
  batch?: string;
  /** Which process gave it up. */
  by: string;
  /** How many bytes the message had. */
  bytes: number;
  /** The index of the call, if it was about one. */
  call?: number;
  /** Why it could not be used. */
  cause: string;
  /** The beginning of the message, if it is text. */
  data?: string;
  /** The beginning of the message, if it is not text. */
  data_base64?: string;
  /** What was given up. */
  kind: "submission" | "call" | "batch";
  /** The sequence of the message in its stream. */
  sequence: number;
  /** The NATS subject of the message. */
  subject: string;
  /** When it was given up. */
  time: string;
}

export interface DeadLetters {
  /** The newest first. */
  dead_letters: DeadLetter[];
}

export interface Decided {
  /** What was decided. */
  decision: Verdict;
  /** The approval's id. */
  id: string;
}

export interface Decision {
  /** Whether the call may run. */
  decision: Verdict;
  /** Run this instead of the call's own input; it is checked again first. Null or left out: run what was shown. */
  input?: unknown;
  /** The hash of the input that was seen, as the list has it. A call that waits with another one is not allowed. */
  input_sha256?: string;
  /** The model reads it. */
  reason?: string;
  /** Allow the like for the rest of the session. */
  remember?: "session";
}

export interface Difference {
  /** What the new result has. */
  after: string;
  /** What was recorded: of an output or error that line, cut if it is long. */
  before: string;
  /** The provider's id of the call. */
  call_id: string;
  /** The call's index in the batch. */
  index: number;
  /** The first line that differs, from 1, of an output or error. */
  line?: number;
  /** What differs. */
  what: "result" | "tool" | "code" | "output" | "error" | "truncated";
}

export interface Digest {
  /** The agent whose batch it is. */
  agent: string;
  /** How many calls the batch has. */
  calls: number;
  /** When the status changed last. */
  changed: string;
  /** The codes of its errors, each once. */
  codes: Code[];
  /** How many of its results are errors. */
  failed: number;
  /** The batch's id. */
  id: string;
  /** Its log cannot be read: tools and codes are missing. */
  opaque?: boolean;
  /** The batch's position in the order of submission. It never changes. */
  place: number;
  /** The session of the batch. */
  session: string;
  /** The state of the batch. */
  status: Status;
  /** When the batch was submitted. */
  submitted: string;
  /** The tools of its calls, each once. */
  tools: string[];
  /** The workspace where its calls act. */
  workspace: string;
}

export type End = Record<string, unknown>;

export interface Fact {
  /** Why the phase failed, or what it remarked on a good result. */
  code?: Code;
  /** What was decided and by what, for the operator. */
  detail?: string;
  /** How long the phase took, in milliseconds. */
  ms: number;
  /** What the phase found. */
  outcome: Outcome;
  /** The phase. */
  phase: Phase;
}

export interface Finding {
  /** What was done about it. */
  action: ScanAction;
  /** How often. */
  count: number;
  /** What was found, such as tag or zero width. Empty: the scanner broke. */
  kind: string;
  /** The scanner: invisible or secrets. */
  scanner: string;
}

export interface Form {
  /** What it asks, in the server's words. */
  message: string;
  /** The JSON Schema of the answer, an object. */
  schema: unknown;
  /** The MCP server that asks. */
  server: string;
}

export interface Found {
  /** The newest first. */
  batches: Digest[];
  /** How many batches were looked at for this page. */
  looked: number;
  /** The after of the next page; left out when nothing follows. A page may have fewer batches than limit, or none, and others follow. */
  next?: number;
}

export interface GeminiReply {
  /** A functionResponse for each call. */
  parts: Record<string, unknown>[];
  /** The role of the content. */
  role: string;
}

export interface Happening {
  /** The agent whose batch it is about. */
  agent?: string;
  /** The id of the batch it is about. */
  batch?: string;
  /** The CloudEvent. */
  event?: unknown;
  /** Events are missing before this one, or may be. Without an event it says nothing else. */
  gap?: string;
  /** When it happened. */
  time: string;
  /** What happened, in one line for a person. */
  what?: string;
}

export interface Interrupted {
  /** How many batches were asked to stop; with resolve, how many had calls that were ended. */
  batches: number;
  /** With resolve, how many calls were ended. */
  calls: number;
}

export interface Interruption {
  /** The model reads it. */
  reason?: string;
  /** Stop nothing, and only end the calls that wait for a person, as the option supersede of a new batch does. */
  resolve?: boolean;
}

export interface Login {
  /** The address at the issuer that a person is sent to. */
  authorize?: string;
  /** What the issuer calls this server. */
  client?: string;
  /** The issuer; absent where nobody signs in at one, like all else. */
  issuer?: string;
  /** Where the issuer sends the person back to. */
  redirect?: string;
  /** What the token is asked for. */
  scope?: string;
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
  /** When it happened, in milliseconds since the submission. */
  ms: number;
  /** What happened. */
  what: string;
}

export interface MoreCalls {
  /** The calls in an Anthropic assistant message, or a whole Messages response. */
  anthropic?: unknown;
  /** Give each an id: then sending them again, when no answer came, appends nothing. */
  calls?: Call[];
  /** The calls in a Gemini content, or a whole response. */
  gemini?: unknown;
  /** The calls in an OpenAI Responses output, or a whole response. */
  openai?: unknown;
  /** The calls in an OpenAI Chat Completions assistant message, or a whole completion. */
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
  /** The items, in the order of the response. */
  items: Note[];
}

export interface Notice {
  /** The names of the hooks. */
  by?: string;
  /** What the model should read beside the results. */
  context?: string;
  /** Why the agent should stop. */
  reason?: string;
  /** Whether a hook asks the agent to stop. */
  stop?: boolean;
}

export type OnError = "cancel_group" | "continue";

export interface OpenAIChatReply {
  /** What the model reads. */
  content: string;
  /** The role of the message. */
  role: "tool";
  /** The id of the call. */
  tool_call_id: string;
}

export interface OpenAIReply {
  /** The id of the call. */
  call_id: string;
  /** The type of the item. */
  type: "function_call_output" | "custom_tool_call_output" | "tool_search_output";
}

export interface Origin {
  /** The nonce in the delimiters around the text. Left out: there are none. */
  fence?: string;
  /** What scanners found in it. */
  found?: Finding[];
  /** A host and port, an MCP server, what else the tool depends on, or the tool's name. */
  source: string;
}

export type Outcome = "ok" | "failed" | "noted";

export interface Overlay {
  /** How many names are new. */
  added: number;
  /** How many names have another content, kind, mode or owner. */
  changed: number;
  /** The first 50 of these names. */
  paths?: OverlayPath[];
  /** Why the changes are not known. Left out: they are. */
  problem?: string;
  /** How many names are gone. */
  removed: number;
}

export type OverlayChange = "added" | "changed" | "removed";

export interface OverlayPath {
  /** What becomes of it: added, changed or removed. */
  change: OverlayChange;
  /** The path in the workspace. */
  path: string;
}

export interface OverlayUse {
  /** Say what it changes, make its changes in the workspace, or remove it. */
  action: "diff" | "commit" | "drop";
  /** Keep no snapshot of what the workspace is now. Without it, a commit can be undone. */
  final?: boolean;
  /** Commit although others have changed the same names since: that is lost. */
  force?: boolean;
  /** A person can be asked whether that may be done. */
  interactive?: boolean;
}

export interface Page {
  /** The newest first, in the order of submission. The list may be a moment behind. */
  batches: BatchInfo[];
  /** The after of the next page; left out when this is the last. */
  next?: number;
}

export type Phase = "resolve_tool" | "parse_schema" | "validate_values" | "prepare_observable_input" | "pre_hooks" | "permission" | "schedule" | "execute" | "map_result" | "post_hooks" | "persist_result" | "emit_terminal";

export type Priority = "interactive" | "bulk";

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
  type: "about:blank" | "urn:toolyard:problem:input" | "urn:toolyard:problem:refused" | "urn:toolyard:problem:other-content" | "urn:toolyard:problem:full" | "urn:toolyard:problem:unchecked" | "urn:toolyard:problem:no-answer" | "urn:toolyard:problem:damaged" | "urn:toolyard:problem:no-batch" | "urn:toolyard:problem:no-call" | "urn:toolyard:problem:no-approval" | "urn:toolyard:problem:completed" | "urn:toolyard:problem:closed" | "urn:toolyard:problem:not-opened";
}

export interface Progress {
  /** The number of this execution, from 1. A greater one begins again. */
  attempt: number;
  /** The provider's id of the call. */
  call_id: string;
  /** How much is done: 0 at the start, 1 at the end, negative if that is unknown. */
  fraction: number;
  /** The call's index in the batch. */
  index: number;
  /** How many bytes of output before this one were left out. */
  lost_bytes?: number;
  /** What the tool has written since the last report. */
  output?: string;
  /** What the tool is doing, in words. */
  status?: string;
  /** The tool's name. */
  tool: string;
  /** The worker that runs the call. */
  worker: string;
}

export type ProviderReply = unknown;

export interface Reason {
  /** The model reads it. */
  reason?: string;
}

export interface Remark {
  /** Whether the tool is left out. */
  left_out?: boolean;
  /** The tool's name. */
  tool: string;
  /** The reason. */
  why: string;
}

export type Reply = unknown;

export interface Report {
  /** The tools whose failures ended siblings. */
  aborts: ReportAbort[];
  /** How many batches there are, and how they stand. */
  batches: ReportBatches;
  /** How many calls they have, and how these ended. */
  calls: ReportCalls;
  /** How often calls ended with each error code. */
  codes: ReportCode[];
  /** Older batches of the period are left out: there are too many. */
  cut: boolean;
  /** What denied permission, and how often: rules, modes, hooks, people. */
  denied: ReportCount[];
  /** Tools that batches were offered and no call named. */
  never_called: ReportUnused[];
  /** When the oldest batch was submitted that is added up. Left out: there is none. */
  oldest?: string;
  /** How long each phase took, in the order of the phases. */
  phases: ReportPhase[];
  /** What people were asked. */
  questions: ReportQuestions;
  /** The batches were submitted at this time or later. Left out: at any time. */
  since?: string;
  /** How the calls of each tool went. */
  tools: ReportTool[];
  /** The batches were submitted before this time. Left out: until now. */
  until?: string;
  /** How long calls and groups waited. */
  waits: ReportWaits;
}

export interface ReportAbort {
  /** How many calls ended for it. */
  calls: number;
  /** In how many groups. */
  groups: number;
  /** The tool that failed. Empty: it is not known. */
  tool: string;
}

export interface ReportBatches {
  /** Those that were canceled. */
  canceled: number;
  /** Those that are completed. */
  completed: number;
  /** Those that were refused: none of their calls ran. */
  refused: number;
  /** Those that a dispatcher took over from another one. */
  taken_over: number;
  /** All of them. */
  total: number;
  /** Those that are not over. */
  under_way: number;
  /** Those whose log cannot be followed to its end. */
  unreadable: number;
}

export interface ReportCalls {
  /** Those whose result is an error. */
  failed: number;
  /** Those that were tried more than once. */
  retried: number;
  /** Those of retried that succeeded. */
  retries_helped: number;
  /** All of them. */
  total: number;
  /** Those without a result. */
  under_way: number;
}

export interface ReportCode {
  /** How many calls ended with it. */
  calls: number;
  /** The code. */
  code: Code;
  /** Whose calls these are, by tool. */
  tools: ReportCount[];
}

export interface ReportCount {
  /** How often it was. */
  count: number;
  /** What it is. */
  name: string;
}

export interface ReportPhase {
  /** How many calls it ended. */
  failed: number;
  /** The phase. */
  phase: Phase;
  /** How long it took where it ran. */
  times: ReportTimes;
}

export interface ReportQuestions {
  /** How many of them they allowed. */
  allowed: number;
  /** About how many calls people were asked. */
  asked: number;
  /** How many they denied. */
  denied: number;
  /** How many are still waited for. */
  open: number;
  /** The rules that would have spared what was allowed, with how many questions each. */
  rules: ReportCount[];
  /** How many were superseded by a later batch. */
  superseded: number;
  /** How many ended without an answer. */
  unanswered: number;
}

export interface ReportTimes {
  /** How often. */
  count: number;
  /** The longest, in milliseconds. */
  max_ms: number;
  /** The median, in milliseconds, to two digits. */
  p50_ms: number;
  /** What 99 of 100 did not exceed, in milliseconds. */
  p99_ms: number;
}

export interface ReportTool {
  /** How many calls it had. */
  calls: number;
  /** How many of them failed. */
  failed: number;
  /** How many of them were tried more than once. */
  retried: number;
  /** How many of those succeeded. */
  retries_helped: number;
  /** How long they took on a worker. */
  times: ReportTimes;
  /** The tool's name. */
  tool: string;
}

export interface ReportUnused {
  /** In how many batches it was offered. */
  batches: number;
  /** About how many tokens its definition takes in each request to the model. */
  tokens_estimated: number;
  /** The tool's name. */
  tool: string;
}

export interface ReportWaits {
  /** How long calls waited for a person. */
  approval: ReportTimes;
  /** How long calls waited in the queue. */
  queue: ReportTimes;
  /** How long groups waited for the ticket of their workspace. */
  ticket: ReportTimes;
}

export interface Rerun {
  /** Whether calls run again too that were not READ_ONLY, and may act again. */
  allow_writes?: boolean;
  /** The id of the new batch. The same one again is the same batch. Default: one that the server makes. */
  id?: string;
}

export interface Result {
  /** How long a person took, in milliseconds. */
  approval_wait_ms: number;
  /** How many executions were started, or may have been. */
  attempts: number;
  /** The reference of the whole output, for getBlob. Empty if output is the whole. */
  blob: string;
  /** How the call used its tool's cache. Left out if it did not. */
  cache?: CacheUse;
  /** The provider's id of the call. */
  call_id: string;
  /** Why the call failed. Empty on success. */
  code: Code;
  /** The class that this call was judged to have. */
  concurrency_class: Class;
  /** The whole output in parts, if it is more than text. */
  content?: Content[];
  /** Causes, for the operator. Do not show it to a model. */
  detail?: string;
  /** The time in the pipeline of the worker that finished the call, in milliseconds. */
  duration_ms: number;
  /** The call's echo, as it was sent. */
  echo?: unknown;
  /** What the model reads on failure: what happened and what to do next. */
  error: string;
  /** The tool's own part of duration_ms. */
  execute_ms: number;
  /** The call's index in the batch. */
  index: number;
  /** Whether the call failed. */
  is_error: boolean;
  /** What isolated the tool: none, native, bwrap and so on. Empty if nothing ran. */
  isolation: string;
  /** Says that the output comes from outside. Left out: it does not. */
  origin?: Origin;
  /** What the model reads on success, or a preview of it if truncated. */
  output: string;
  /** What the batch has changed in its overlay so far. Left out: it has none, or the call changed nothing. */
  overlay?: Overlay;
  /** What each phase found, in their order. */
  phases: Fact[];
  /** The time from being queued to being taken, in milliseconds. */
  queue_ms: number;
  /** How long to wait before a retry, in milliseconds. */
  retry_after_ms: number;
  /** Whether the same call, unchanged, may succeed later. */
  retryable: boolean;
  /** The output as data, if the tool gives it so. */
  structured?: unknown;
  /** The tool's name as the model wrote it. */
  tool: string;
  /** Whether output is a preview. */
  truncated: boolean;
  /** Whether other calls of the batch ran when the tool was started. */
  was_concurrent: boolean;
  /** The worker that finished the call. */
  worker: string;
}

export type ResultEventData = unknown;

export interface Row {
  /** Of a call that was aborted: what aborted it. */
  blame?: string;
  /** The provider's id of the call. */
  call_id: string;
  /** Why the call failed; left out on success. */
  code?: Code;
  /** Its concurrency class; left out before it is planned. */
  concurrency_class?: Class;
  /** Whether the call failed. */
  error?: boolean;
  /** When its result was stored; left out before. */
  finished_ms?: number;
  /** Its group; -1 before it is planned. */
  group: number;
  /** The call's index in the batch. */
  index: number;
  /** How it was answered without running. */
  not_run?: string;
  /** When its attempts ran. */
  runs?: Span[];
  /** The state of the call. */
  status: "unplanned" | "pending" | "claimed" | "retrying" | "waiting" | "decided" | "finished";
  /** The tool's name. */
  tool: string;
  /** When it waited for a person. */
  waits?: Span[];
  /** The worker that claimed or finished the call last. */
  worker?: string;
}

export type ScanAction = "mark" | "strip" | "withhold";

export interface Session {
  /** Whether nobody is there to ask. */
  alone: boolean;
  /** The budgets of which the session, its agent and the agent's teams have used something. */
  budgets?: Budget[];
  /** When the session changed last. */
  changed: string;
  /** What tools have set for later calls. */
  context: Record<string, string>;
  /** The deferred tools that the model has loaded. */
  loaded: string[];
  /** What people have allowed for the rest of the session. */
  remembered: string[];
}

export interface SessionChange {
  /** Whether nobody is there to ask. Only an operator's token says that somebody is. */
  alone?: boolean;
  /** Ask again for all that people have allowed in the session. */
  forget?: boolean;
  /** Deferred tools that the model has seen the schemas of. */
  load?: string[];
}

export interface Shape {
  /** The agent whose batch it is. */
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
  /** The batch's id. */
  id: string;
  /** When the last event was stored. */
  last_ms: number;
  /** The dispatcher that advances the batch; empty before it is planned. */
  owner: string;
  /** How the calls become groups; left out before that is known. */
  partition?: Strategy;
  /** When the batch was planned; left out before. */
  planned_ms?: number;
  /** Why the batch was refused. */
  refused?: string;
  /** How many results were replied. */
  replied: number;
  /** The session of the batch. */
  session: string;
  /** The state of the batch. */
  status: Status;
  /** When the batch was submitted. */
  submitted_at: string;
  /** Which process stored the batch. */
  submitted_by: string;
  /** How many times another dispatcher took the batch over. */
  takeovers: number;
  /** The workspace where its calls act. */
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
  /** When it was started; left out before. */
  started_ms?: number;
  /** The number of its ticket for the workspace; left out if it has none. */
  ticket?: number;
}

export interface SignIn {
  /** In place of a token: the code with which the issuer has sent a person back. */
  code?: string;
  /** A token of this server, or a JWT of its issuer. */
  token?: string;
  /** With a code: what its challenge was made from (PKCE, S256). */
  verifier?: string;
}

export interface SignedIn {
  /** What later requests send in the header Toolyard-Session, beside the cookie. */
  key: string;
}

export interface Span {
  /** Why the attempt failed that was repeated. */
  failed?: Code;
  /** When it began. */
  from_ms: number;
  /** When it ended; left out if it has not. */
  to_ms?: number;
}

export type Status = "open" | "running" | "waiting" | "completed" | "canceled";

export interface Step {
  /** Its place in the log, from 1. */
  event: number;
  /** When it was stored, in milliseconds since the submission. */
  ms: number;
  /** What happened, in words. */
  what: string;
}

export type Strategy = "consecutive" | "safe_first" | "sequential" | "ordered_halt";

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
  /** The batch's own settings. */
  options?: BatchOptions;
  /** The conversation. Default: default. */
  session?: string;
  /** Where the calls act. Default: default. */
  workspace?: string;
}

export interface Timeline {
  /** The last events that this shows, in words. */
  around: Step[];
  /** How many of them this shows. */
  at: number;
  /** The batch at that event. */
  batch: Shape;
  /** How many events the log has now. */
  events: number;
  /** The calls that changed after since, or all. */
  rows: Row[];
}

export type Tools = unknown;

export interface Undoing {
  /** Keep no snapshot of what the workspace is now. Without it, the undoing can be undone. */
  final?: boolean;
  /** Set it back although others have changed it since: that is lost. */
  force?: boolean;
  /** The group before which the workspace is set back: its index in groups. Default: the first that could change it. */
  group?: number;
  /** A person can be asked whether it may be set back. */
  interactive?: boolean;
}

export type Verdict = "allow" | "deny";

export interface Waiting {
  /** How many batches that dispatcher runs. */
  running: number;
  /** How many batches wait there, this one included. */
  waiting: number;
}

export interface WaitingCalls {
  /** How many calls listApprovals would return. */
  calls: number;
}

export type WatchEventData = unknown;

export interface Worker {
  /** Until when each dependency that was found to be down is not tried. */
  breakers: Record<string, string>;
  /** How many of the slots had a call at the last heartbeat. */
  busy: number;
  /** The classes of calls that it takes. */
  classes: Class[];
  /** Which names of its tools other pools or origins offer too. Only operators see it. */
  conflicts: string[];
  /** The name of its machine. Only operators see it. */
  host?: string;
  /** The worker's id. */
  id: string;
  /** How it isolates commands; none: not at all. */
  isolation: string;
  /** Why it isolates nothing, and what its operator can do. Only operators see it. */
  no_isolation?: string;
  /** The pool that it belongs to. */
  pool: string;
  /** Which tools the worker leaves out or has altered. Only operators see it. */
  remarks?: Remark[];
  /** The shards whose calls it takes, if these are not all. */
  shards?: number[];
  /** How many calls it runs at a time. */
  slots: number;
  /** When it started. */
  started: string;
  /** What batches and tools may ask of it. */
  tags?: string[];
  /** How many tools it offers. */
  tools: number;
  /** It runs commands without isolation, because its operator has said so. */
  unsandboxed?: boolean;
  /** The version of its program. */
  version: string;
  /** The version of what it writes for other processes. */
  wire_version: number;
  /** The workspaces that it serves. */
  workspaces: string[];
}

export interface Workers {
  /** The workers, by id. */
  workers: Worker[];
}

export interface WorkspaceQueue {
  /** How many tickets the queue has. */
  length: number;
  /** The first ones, in order; 100 at most. */
  tickets: WorkspaceTicket[];
  /** The workspace's name. */
  workspace: string;
}

export interface WorkspaceTicket {
  /** The agent whose batch it is. */
  agent: string;
  /** The batch's id. */
  batch: string;
  /** It holds the workspace. The others wait. */
  granted: boolean;
  /** The index of the group in the batch. */
  group: number;
  /** Whether the group holds the workspace together with others or alone, or only what it names. */
  mode: "shared" | "exclusive" | "named";
  /** Its number, the fencing token of its group. */
  number: number;
}

export interface Workspaces {
  /** By name; 1,000 at most. */
  workspaces: WorkspaceQueue[];
}
