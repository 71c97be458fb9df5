"""The limits of the client."""

# How often in a row an attempt may fail without progress before the client gives up.
MAX_RETRIES = 8
# The first and the longest pause between two attempts, in seconds.
FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0
# How long the server may be silent in an answer, in seconds. In a stream it sends something every 15 seconds.
ANSWER_TIMEOUT = 120.0
STREAM_SILENCE = 60.0
# How long one request waits for a batch to complete, in seconds. It is asked again until the batch is complete.
WAIT_SECONDS = 60
# How many bytes are read of an answer that is an error.
MAX_PROBLEM_BYTES = 1024 * 1024
# How many bytes an answer, and one event of a stream, may have.
MAX_ANSWER_BYTES = 256 * 1024 * 1024
MAX_EVENT_BYTES = 32 * 1024 * 1024
# How many bytes of a model's stream are kept to send them again. A longer stream that is cut cannot be resumed.
MAX_KEPT_BYTES = 16 * 1024 * 1024
# How many lists of tools are kept to be compared with the server's.
MAX_TOOL_LISTS = 64
# How many requests and streams of an asynchronous client run at a time; others wait.
MAX_THREADS = 64
# How many chunks of a model's asynchronous stream are read ahead.
MAX_AHEAD = 64
# How long an adapter waits for calls that an SDK starts at once, in seconds.
GATHER_SECONDS = 0.01
