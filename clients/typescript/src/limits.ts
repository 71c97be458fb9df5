// The limits of the client.

/** How often in a row an attempt may fail without progress before the client gives up. */
export const maxRetries = 8;
/** The first and the longest pause between two attempts, in milliseconds. */
export const firstRetry = 100;
export const longestRetry = 5_000;
/** How long one attempt of a request may take, in milliseconds, but for streams and waits. */
export const answerTimeout = 120_000;
/** How long a stream may be silent, in milliseconds. The server sends something every 15 seconds. */
export const streamSilence = 60_000;
/** How long one request waits for a batch to complete, in seconds. It is asked again until the batch is complete. */
export const waitSeconds = 60;
/** How many characters one event of a stream may have. */
export const maxEventLength = 32 * 1024 * 1024;
/** How many bytes of a model's stream are kept to send them again. A longer stream that is cut cannot be resumed. */
export const maxKeptBytes = 16 * 1024 * 1024;
/** How many lists of tools are kept to be compared with the server's. */
export const maxToolLists = 64;
