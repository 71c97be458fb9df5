package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/cache"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/tool"
)

// CallContext says whose call it is and where it runs, for the job, the hooks and the permission.
type CallContext struct {
	Key     toolyard.BatchKey
	Index   int
	Session toolyard.Session
	// Workspace is the batch's, and WorkspaceDir its directory on this worker; empty if it has none.
	Workspace    toolyard.Workspace
	WorkspaceDir string
	// Root is that directory, held open; nil if there is none.
	Root *place.Root
	// CopyOf is the directory of the workspace, if WorkspaceDir is a copy of it. Rules are written about the workspace.
	CopyOf string
	// Interactive says that a person can be asked: a call that needs a person then ends the run with [WaitingError].
	Interactive bool
}

// RulesDir is the directory of the workspace, as rules with absolute paths name it.
func (c *CallContext) RulesDir() string { return cmp.Or(c.CopyOf, c.WorkspaceDir) }

// Job is one execution of one call: what was pinned at plan, and where it runs.
type Job struct {
	CallContext
	// Call is the call. Its Tool may be an alias, or the name that the plan has resolved.
	Call toolyard.Call
	// As is the name that the model used, if the plan has resolved it. Empty: the name in Call.
	As string
	// Mended says what the plan has mended in the input; empty: it is as the model wrote it.
	Mended string
	// Approved is a person's approval, if the call has waited for one. Nil: nobody was asked.
	Approved *Approved
	// Answer is a person's answer to what the tool asked when it ran before. Nil: it has asked nothing.
	Answer *elicit.Answer
	// Remembered is what people have allowed for the rest of the session. Context is what its tools have set.
	Remembered []string
	Context    map[string]string

	// Declaration is the hash of the declaration that was pinned at plan. A worker with another hash hands the call
	// back before it gets here; a call that comes through with another hash ends as internal_error. Empty: not pinned.
	Declaration string
	// Judgement is pinned at plan. The zero judgement means the strictest class.
	Judgement tool.Judgement
	// WasConcurrent says that other calls of the batch are in flight beside this one.
	WasConcurrent bool
	// Attempt is the number of this attempt, from 1. Earlier is how many executions were started in those before it, or
	// may have been.
	Attempt, Earlier int
	// FencingToken is the number of the ticket that the call's group holds; 0 for none.
	FencingToken uint64
	// Locks are the names in the workspace that the call's group has in place of the whole. Empty: it has the whole.
	Locks []tool.Lock
	// Turn is under what the call runs, if its tool declares a cache. Nil: its output is neither kept nor shared.
	Turn *cache.Turn
	// Waited says for which rate the call has waited before it was queued, and how long; empty if it has not.
	Waited string
	// QueueMS is the time from being queued to being taken, in milliseconds.
	QueueMS float64
	// CallTimeout caps the execution under the tool's own timeout. 0: no further cap.
	CallTimeout time.Duration
	// Background says that the call is a background call: CallTimeout stands for the tool's own time limits.
	Background bool
	// Fence puts the output between delimiters if it comes from outside.
	Fence bool
	// Rules are the batch's own. Nil: none.
	Rules Rules

	// Start checks abort and cancel, and appends the claim if the call needs one. The pipeline calls release once, when
	// the tool has returned; for an abandoned tool this may be long after the call has its result. Errors: [ErrLost],
	// [ErrCanceled], [ErrSiblingCanceled], [ErrDeadline], each wrapped or not. Any other error means that the call
	// could not be started, and ends it as dependency_unavailable. Start returns soon after its context ended. Nil: the
	// call does not start, and ends as internal_error.
	Start func(ctx context.Context) (release func(), err error)
	// Prepare is called when the call has started, before its tool. An error ends the call: a [tool.Error] of code
	// setup_required, sandbox_violation or dependency_unavailable with its words, any other as dependency_unavailable.
	// What it returns is noted for the operator. Nil: nothing is to be prepared.
	Prepare func(ctx context.Context) (did string, err error)
	// Progress gets what the tool reports while it runs, after a 0 when it starts and before a 1 when it has ended in
	// any way. It must not block. Nil: reports are dropped.
	Progress func(tool.Progress)
	// CommitPoint says whether this worker may still act for the call; see [tool.Env]. Nil: while the context lasts.
	CommitPoint func() error
	// Blobs reads offloaded results of the same agent, for the tool. Nil: none are available.
	Blobs tool.Blobs
	// Tools are those that the batch sees, for the tool. Nil: unknown.
	Tools func(ctx context.Context) ([]tool.Offered, error)
	// CallTool calls another tool for the tool; see [tool.Env]. Nil: it cannot.
	CallTool func(ctx context.Context, name string, input json.RawMessage) (toolyard.Result, error)
	// SessionChange gets the tool's change of its session after the call has succeeded. Nil: the change is dropped.
	SessionChange func(tool.SessionChange)
	// Observe gets the observable copy of the input and the hash of what will run, again after a hook has changed it.
	// It must not block. Nil: not called.
	Observe func(observable json.RawMessage, inputHash string)
}

// Approved is a person's approval of one call.
type Approved struct {
	By string
	// InputHash names the input that was approved; no other may run. Edited says that the person has changed it.
	InputHash string
	Edited    bool
	// Waited is how long the decision took. Context is what hooks added before the person was asked.
	Waited  time.Duration
	Context []string
}

// WaitingError ends a run that needs a person's decision: there is no result yet, and nothing was started. The call
// resumes with a new run that has [Job.Approved]; that run does not repeat the hooks before the tool.
//
// With a Question the tool was started, and has ended with it. The new run has [Job.Answer] too.
type WaitingError struct {
	// Question is what the tool asks; nil: a person is asked whether the call may run.
	Question *elicit.Question
	// Reason is for the person. Source says what requires the decision.
	Reason, Source string
	Judgement      tool.Judgement
	// Observable is what may be shown of the input that would run, and InputHash its hash. Changed is that input if a
	// hook has changed it; nil if it is the call's own. With a Question, Observable is the answer as it is filled in,
	// InputHash the hash of the question as it is shown, and CallHash that of the input that has run.
	Observable json.RawMessage
	InputHash  string
	CallHash   string
	Changed    json.RawMessage
	// Diff says what the call would change at this time, as far as the tool knows.
	Diff string
	// Remember is what an approval for the session would allow; empty if it cannot be remembered.
	Remember string
	Facts    []toolyard.Fact
	Context  []string
}

func (e *WaitingError) Error() string { return "a person has to decide: " + e.Reason }
