// What generated clients let a program write, and what they refuse. The compiler reads it; nothing runs it.
import type { components, operations } from "./schema";
import { getBatch, streamResults, submitBatch, type Code, type Result } from "./sdk";

type Schemas = components["schemas"];

// What may be left out may be left out, also where it has a default.
export const least: Schemas["Submission"] = { calls: [{ tool: "glob" }] };
export const options: Schemas["BatchOptions"] = { partition: "safe_first" };
export const params: operations["listTools"]["parameters"]["query"] = { format: "anthropic" };
// @ts-expect-error a format is required
export const noFormat: operations["listTools"]["parameters"]["query"] = {};
// @ts-expect-error a closed set is closed
export const other: Schemas["BatchOptions"] = { partition: "at_random" };

// Arrays are arrays, and codes can be told apart.
export const lengths = (b: Schemas["BatchView"]) => b.groups.length + b.results.length;
export const denied = (r: Result) => r.code === "permission_denied";
// @ts-expect-error there is no such code
export const mistyped: Code = "permision_denied";

// An operation answers with its type, and a stream with the data of its events.
export async function run(): Promise<string> {
  const { data, error } = await submitBatch({ body: least, query: { wait: 60 } });
  if (error !== undefined) return error.detail;
  const id: string = data !== undefined && "id" in data ? data.id : "";
  const { data: view } = await getBatch({ path: { id } });
  const { stream } = await streamResults({ path: { id } });
  let output = view !== undefined && "status" in view ? view.status : "";
  for await (const e of stream) if (e && "output" in e && "code" in e) output += e.output;
  return output;
}
