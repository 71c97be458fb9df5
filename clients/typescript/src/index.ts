export { Batch, OpenBatch, type Wait } from "./batch.js";
export { Toolyard, type ToolyardOptions } from "./client.js";
export { LostError, ToolyardError } from "./http.js";
export { AnswerStream, type AnswerEvent, type ModelStream } from "./stream.js";
export type * from "./types.js";
