package toolyard

import (
	"encoding/json"
	"strings"
)

// Result is the frozen outcome of one call: exactly one per call, output or error.
type Result struct {
	Index   int    `json:"index"`
	CallID  string `json:"call_id"`
	Tool    string `json:"tool"`
	IsError bool   `json:"is_error"`
	Code    Code   `json:"code"`
	// Output is what the model reads on success, or a preview of it when Truncated. A failure has here what its tool
	// left; see [Result.Text].
	Output string `json:"output"`
	// Content is the whole output by its parts, where it is more than text: Output is then what a reader of text gets.
	// Nil for an output that is text alone.
	Content []Content `json:"content,omitempty"`
	// Structured is the output as data, where the tool gives it so. It fits the tool's output schema.
	Structured json.RawMessage `json:"structured,omitempty"`
	// Echo is the call's.
	Echo Echo `json:"echo,omitempty"`
	// Error is what the model reads on failure: what happened and what to do next.
	Error string `json:"error"`
	// Detail is what the operator reads: causes, stack traces. It never goes to a model.
	Detail string `json:"detail,omitempty"`
	// Retryable says that the same call, unchanged, may succeed; RetryAfterMS how long to wait first.
	Retryable    bool  `json:"retryable"`
	RetryAfterMS int64 `json:"retry_after_ms"`

	Class Class `json:"concurrency_class"`
	// WasConcurrent says that the tool was started while other calls of the batch were in flight.
	WasConcurrent bool `json:"was_concurrent"`

	// DurationMS is the time in the pipeline on the worker that finished the call; ExecuteMS the tool's own part of
	// it; QueueMS from being queued to being taken; ApprovalWaitMS how long a person took.
	DurationMS     float64 `json:"duration_ms"`
	ExecuteMS      float64 `json:"execute_ms"`
	QueueMS        float64 `json:"queue_ms"`
	ApprovalWaitMS float64 `json:"approval_wait_ms"`

	// Attempts counts the executions that were started, or may have been; 0 when none was.
	Attempts int    `json:"attempts"`
	Worker   string `json:"worker"`

	// Cache says how the tool's cache was used; empty if the tool has none, or the call may not use it.
	Cache CacheUse `json:"cache,omitempty"`

	// Truncated says that Output is a preview and Blob the reference of the whole, for read_result.
	Truncated bool   `json:"truncated"`
	Blob      string `json:"blob"`
	// Isolation is what stood around the tool: none, native, bwrap, wasm, ... Empty when nothing ran.
	Isolation string `json:"isolation"`
	// Origin says that the output, or what the error says of it, comes from outside. Nil: it does not.
	Origin *Origin `json:"origin,omitempty"`
	// Overlay says what the calls of the batch have changed in its overlay so far. Nil: the batch has none, or the call
	// can have changed nothing.
	Overlay *Overlay `json:"overlay,omitempty"`

	Phases []Fact `json:"phases"`
}

// CacheUse is how a call used the cache that its tool declares.
type CacheUse string

// The uses of a cache.
const (
	CacheHit    CacheUse = "hit"    // the output is that of an earlier call
	CacheShared CacheUse = "shared" // the output is that of an equal call that ran at the same time
	CacheMiss   CacheUse = "miss"   // the tool ran
)

// CacheUses are all of them.
var CacheUses = []CacheUse{CacheHit, CacheShared, CacheMiss}

// Text is what a model reads of the result: the output of a success; of a failure its error, and behind it the output
// that the tool left, where that is too long to stand in the error. A failure that says nothing says its code.
func (r *Result) Text() string {
	if !r.IsError {
		return r.Output
	}
	message := r.Error
	if message == "" {
		message = "the call failed"
		if r.Code != OK {
			message += ": " + string(r.Code)
		}
	}
	output := strings.TrimRight(r.Output, "\n")
	if output == "" || strings.HasPrefix(message, output) || strings.Contains(message, "\n"+output) {
		return message
	}
	return message + "\n\n" + output
}

// Status is where a batch stands.
type Status string

// The states of a batch, each with who moves it on.
const (
	// StatusOpen: more calls may be appended. The agent closes it, or the idle limit does.
	StatusOpen Status = "open"
	// StatusRunning: accepted, not all calls have results. Its owner moves it on; when the owner dies, the next owner.
	StatusRunning Status = "running"
	// StatusWaiting: parked for a person's decision. It holds no ticket, no slot and no owner.
	StatusWaiting Status = "waiting"
	// StatusCompleted: every call has its result and all of them were replied.
	StatusCompleted Status = "completed"
	// StatusCanceled: completed, after a cancel of the whole batch.
	StatusCanceled Status = "canceled"
)

// Statuses are all of them.
var Statuses = []Status{StatusOpen, StatusRunning, StatusWaiting, StatusCompleted, StatusCanceled}

// BatchView is what may be seen of a batch: the fold of its events, without inputs.
type BatchView struct {
	ID        BatchID   `json:"id"`
	Agent     Agent     `json:"agent"`
	Session   Session   `json:"session"`
	Workspace Workspace `json:"workspace"`
	Status    Status    `json:"status"`
	// Surface is the hash of the tools that the batch sees; empty before it is planned.
	Surface string `json:"surface"`
	// Groups are the indices of the calls in each group, in the order in which the groups run.
	Groups [][]int `json:"groups"`
	// Results are those that are there, by index.
	Results []Result `json:"results"`
	// Notice is what hooks had to say when the batch was over; nil when nothing.
	Notice *Notice `json:"notice,omitempty"`
	// NewerEvents is how many of the batch's events were written by a newer version and mean nothing to the one that
	// was asked: what they say is missing here.
	NewerEvents int `json:"newer_events,omitempty"`
}

// Notice is what hooks have to say of a batch as a whole.
type Notice struct {
	// Context is for the model, beside the results.
	Context string `json:"context,omitempty"`
	// Stop asks the agent to stop, and Reason says why.
	Stop   bool   `json:"stop,omitempty"`
	Reason string `json:"reason,omitempty"`
	// By names the hooks, for the operator.
	By string `json:"by,omitempty"`
}
