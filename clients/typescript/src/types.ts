// The types of the HTTP API, by shorter names. schema.ts has them all: it is made from the OpenAPI document.
import type { components, operations } from "./schema.js";

export type Schemas = components["schemas"];
export type Submission = Schemas["Submission"];
export type Call = Schemas["Call"];
export type BatchOptions = Schemas["BatchOptions"];
export type BatchView = Schemas["BatchView"];
export type BatchInfo = Schemas["BatchInfo"];
export type Result = Schemas["Result"];
export type Code = Schemas["Code"];
export type Progress = Schemas["Progress"];
export type Waiting = Schemas["Waiting"];
export type Approval = Schemas["Approval"];
export type Decision = Schemas["Decision"];
export type Session = Schemas["Session"];
export type SessionChange = Schemas["SessionChange"];
export type Worker = Schemas["Worker"];
export type DeadLetter = Schemas["DeadLetter"];
export type Report = Schemas["Report"];
export type Interrupted = Schemas["Interrupted"];
export type CloudEvent = Schemas["CloudEvent"];
export type Happening = Schemas["Happening"];
export type Blob = Schemas["Blob"];
export type Note = Schemas["Note"];
export type Problem = Schemas["Problem"];

/** The providers whose event streams the server reads. */
export type StreamProvider = operations["submitStream"]["parameters"]["path"]["provider"];
/** The settings of a batch that begins with a stream. */
export type StreamOptions = NonNullable<operations["submitStream"]["parameters"]["query"]>;
/** The settings of the batches of a conversation: each turn has an id of its own, and its provider's form. */
export type TurnOptions = Omit<StreamOptions, "id" | "format"> & { signal?: AbortSignal };
/** The settings of a list of tools. */
export type ToolOptions = Omit<operations["listTools"]["parameters"]["query"], "format">;
export type ReportFilter = NonNullable<operations["getReport"]["parameters"]["query"]>;
export type BatchFilter = NonNullable<operations["listBatches"]["parameters"]["query"]>;

/** What goes back to each provider, as it is. */
export interface Replies {
  anthropic: Schemas["AnthropicReply"];
  openai: Schemas["OpenAIReply"][];
  "openai-chat": Schemas["OpenAIChatReply"][];
  gemini: Schemas["GeminiReply"];
}
export type Provider = keyof Replies;

/** A JSON Schema, as tools declare it. */
export type JSONSchema = { [keyword: string]: unknown };

/** The array `tools` of a request, in the form of each provider. */
export interface Tools {
  anthropic: { name: string; description?: string; input_schema: JSONSchema; [field: string]: unknown }[];
  openai: { type: string; name?: string; description?: string; parameters?: JSONSchema; [field: string]: unknown }[];
  "openai-chat": { type: "function"; function: { name: string; description?: string; parameters?: JSONSchema } }[];
  gemini: { [field: string]: unknown }[];
  mcp: { name: string; description?: string; inputSchema: JSONSchema; [field: string]: unknown }[];
  native: { [field: string]: unknown };
}
