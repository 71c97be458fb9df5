// Package events defines what is stored: the types of events, the data of each, and the CloudEvent around it.
//
// An event is something that happened and will not change. A batch's state is made only of events, and programs of
// every later version read them. So a data type here may only gain fields; a change that an older reader would misread
// gets a new type with a higher version. The broker decides under which subject an event is stored and who may write
// it; package batch defines what it means for a batch.
package events

import (
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/version"
	"github.com/toolyard/toolyard/tool"
)

// Type is a CloudEvents type: reverse DNS, and a version at the end.
type Type string

// The event types. Each line says who writes it, and how often.
const (
	BatchSubmitted   Type = "dev.toolyard.batch.submitted.v1"   // an agent, once per batch
	BatchRefused     Type = "dev.toolyard.batch.refused.v1"     // a dispatcher, instead of all others
	BatchPlanned     Type = "dev.toolyard.batch.planned.v1"     // the owner, once per batch
	BatchAdopted     Type = "dev.toolyard.batch.adopted.v1"     // the next owner, once per takeover
	BatchExtended    Type = "dev.toolyard.batch.extended.v1"    // the owner, once per event of the input chain
	BatchCanceled    Type = "dev.toolyard.batch.canceled.v1"    // anyone who may: on the control chain
	BatchInterrupted Type = "dev.toolyard.batch.interrupted.v1" // whoever may: on the control chain
	BatchParked      Type = "dev.toolyard.batch.parked.v1"      // the owner, when only people can continue the batch
	// anyone with news for a parked batch, on the batch stream
	BatchWoken     Type = "dev.toolyard.batch.woken.v1"
	CallsAppended  Type = "dev.toolyard.calls.appended.v1"  // the agent: on the input chain of an open batch
	BatchClosed    Type = "dev.toolyard.batch.closed.v1"    // the agent or the owner: on the input chain
	GroupStarted   Type = "dev.toolyard.group.started.v1"   // the owner, once per group and ticket
	CallsSettled   Type = "dev.toolyard.calls.settled.v1"   // the owner: calls of groups that never started
	CallsRequested Type = "dev.toolyard.calls.requested.v1" // the owner, on the work queue
	CallClaimed    Type = "dev.toolyard.call.claimed.v1"    // a worker, once per attempt
	// a worker: it has not started a call that was delivered to it first
	CallReturned      Type = "dev.toolyard.call.returned.v1"
	CallAttemptFailed Type = "dev.toolyard.call.attempt_failed.v1" // whoever ends an attempt that will be repeated
	CallWaiting       Type = "dev.toolyard.call.waiting.v1"        // a worker: a person has to decide
	CallDecided       Type = "dev.toolyard.call.decided.v1"        // a person, once per waiting call
	CallFinished      Type = "dev.toolyard.call.finished.v1"       // a worker or the owner, once per call
	Results           Type = "dev.toolyard.results.v1"             // the owner, on the reply stream
	// a dispatcher, when it archives a batch that is over: the end of a chain, and the record of the object
	ChainEnded    Type = "dev.toolyard.chain.ended.v1"
	BatchArchived Type = "dev.toolyard.batch.archived.v1"
	// who submits to a system that was given more shards, in place of a submission in a former shard
	BatchMoved Type = "dev.toolyard.batch.moved.v1"
	// nobody stores it: in what is shown of a log it stands for an event that cannot be read
	EventUnreadable Type = "dev.toolyard.event.unreadable.v1"
)

// Body is the data of one event type.
type Body interface{ EventType() Type }

// Submitted is a batch as it was submitted: the native form.
type Submitted struct{ toolyard.Batch }

// Refused says why a submission was refused: a problem document (RFC 9457).
type Refused struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Field is the path of the field that is wrong, if any.
	Field string `json:"field,omitempty"`
}

// Planned pins everything that was decided about a batch before any of it ran.
type Planned struct {
	// SubmissionSeq is the stream sequence of the submission: only a redelivery of that message adopts the batch.
	SubmissionSeq uint64             `json:"submission_seq"`
	Owner         string             `json:"owner"`
	Session       toolyard.Session   `json:"session"`
	Workspace     toolyard.Workspace `json:"workspace"`
	// Surface is the hash of the tools that the batch sees.
	Surface        string            `json:"surface"`
	Partition      toolyard.Strategy `json:"partition"`
	OnError        toolyard.OnError  `json:"on_error"`
	MaxConcurrency int               `json:"max_concurrency"`
	// Deadline is when unanswered calls end as deadline_exceeded.
	Deadline time.Time     `json:"deadline"`
	Calls    []PlannedCall `json:"calls"`
	Groups   []Group       `json:"groups"`
	// Results are those of calls that were answered at plan.
	Results []toolyard.Result `json:"results,omitempty"`
	// Start starts a group that waits for nothing. The plan of any other batch starts none.
	Start *Started `json:"start,omitempty"`
	// Open says that calls may be appended.
	Open bool `json:"open,omitempty"`
	// ApprovalWaitMS is how long a person has to decide about a call, in milliseconds.
	ApprovalWaitMS int64 `json:"approval_wait_ms,omitempty"`
	// End is when the batch's lifetime ends: approvals are not waited for beyond it.
	End time.Time `json:"end,omitzero"`
	// Lane is the lane of the work queues for the batch's calls, whoever owns the batch.
	Lane int `json:"lane,omitempty"`
	// Loaded are the deferred tools that the session had loaded.
	Loaded []string `json:"loaded,omitempty"`
	// Remembered are the rules that people have allowed for the rest of the session, and Context what its tools have
	// set, when the batch was planned.
	Remembered []string          `json:"remembered,omitempty"`
	Context    map[string]string `json:"context,omitempty"`
	// Deny and Ask are the operator's permission rules for the batch's calls on every worker, in addition to the
	// batch's own.
	Deny []string `json:"deny,omitempty"`
	Ask  []string `json:"ask,omitempty"`
	// Unattended says that the session has nobody to ask, whatever the batch says.
	Unattended bool `json:"alone,omitempty"`
}

// The wire versions from which events have what an older reader must not pass over.
const (
	rulesInPlans = 3
	items        = 4
	tags         = 7
	archives     = version.Archives
	slimForms    = 10
	snapshots    = 12
	namedLocks   = 13
	background   = 13
	programs     = 13
	overlays     = 13
	forms        = 14
	outlive      = 15
)

// MinReader is the required wire version of a reader: an older dispatcher would continue without the rules, and would
// not know that a group has started.
func (p Planned) MinReader() int {
	switch {
	case named(p.Groups):
		return namedLocks
	case p.Start != nil:
		return items
	case len(p.Deny)+len(p.Ask) > 0:
		return rulesInPlans
	}
	return 0
}

// named reports whether a group is for names in its workspace.
func named(groups []Group) bool {
	return slices.ContainsFunc(groups, func(g Group) bool { return len(g.Locks) > 0 })
}

// MinReader is as that of [Planned].
func (e Extended) MinReader() int {
	if named(e.Groups) {
		return namedLocks
	}
	return 0
}

// MinReader is the wire version that a reader must have: an older one knows no items.
func (s Started) MinReader() int { return itemReader(len(s.Items) > 0) }

// calls reports whether one of some calls is of a tool.
func calls(all []toolyard.Call, tool string) bool {
	return slices.ContainsFunc(all, func(c toolyard.Call) bool { return c.Tool == tool })
}

// MinReader is the wire version that a reader must have: an older dispatcher would send the calls to any worker, and
// does not know priorities, or would run calls without the snapshots that were asked for, for a call that is over,
// background calls as others, or leave those behind whose starts have failed.
func (s Submitted) MinReader() int {
	if s.Options.BackgroundAfterMS != 0 {
		return outlive
	}
	if is, _ := s.ID.Background(); is {
		return background
	}
	if s.Options.Parent != nil || s.Options.ProgramTimeoutMS != 0 {
		return programs
	}
	if s.Options.Overlay || s.Options.Undo && calls(s.Calls, toolyard.OverlayTool) {
		return overlays
	}
	if s.Options.Snapshot || s.Options.Undo {
		return snapshots
	}
	if len(s.Options.Tags) > 0 || s.Options.Priority != "" {
		return tags
	}
	return 0
}

// MinReader is the wire version that a reader must have: an older worker knows no items, and would run what asks for
// tags that it has not, run calls without the snapshots that were asked for, follow links to files without a lock, or
// run background calls as others.
func (r Requested) MinReader() int {
	if slices.ContainsFunc(r.Calls, RequestedCall.goesOn) {
		return forms
	}
	if is, _ := r.Batch.Background(); is {
		return background
	}
	if len(r.Locks) > 0 {
		return namedLocks
	}
	if r.Overlay != nil {
		return overlays
	}
	if r.Snapshot || slices.ContainsFunc(r.Calls, func(c RequestedCall) bool { return c.Undo != nil }) {
		return snapshots
	}
	if len(r.Tags) > 0 {
		return tags
	}
	return items
}

// MinReader is as that of [Started].
func (c Claimed) MinReader() int { return itemReader(c.Call > 0) }

// MinReader is as that of [Started].
func (r Returned) MinReader() int { return itemReader(r.Call > 0 || len(r.Calls) > 0) }

// MinReader is as that of [Started].
func (f AttemptFailed) MinReader() int { return itemReader(f.Call > 0) }

// MinReader is as that of [Started].
func (f Finished) MinReader() int { return itemReader(len(f.More) > 0) }

func itemReader(names bool) int {
	if names {
		return items
	}
	return 0
}

// PlannedCall is what was decided about one call. Its input stays in the submission; its hash is here.
type PlannedCall struct {
	ID string `json:"id"`
	// Tool is the tool's own name, or the name that the model used if there is no such tool.
	Tool string        `json:"tool"`
	Pool toolyard.Pool `json:"pool"`
	// Declaration is the hash of the tool's declaration; the worker's must be the same.
	Declaration string         `json:"declaration,omitempty"`
	Judgement   tool.Judgement `json:"judgement"`
	// Claim says that a worker must claim the call before executing it: the call is exclusive or not idempotent.
	Claim bool `json:"claim,omitempty"`
	// AbortsSiblings says that the call's failure while executing cancels the rest of its group.
	AbortsSiblings bool   `json:"aborts_siblings,omitempty"`
	InputSHA256    string `json:"input_sha256"`
	// Interruptible says that an interrupt stops the running call; otherwise the call runs to its end.
	Interruptible bool `json:"interruptible,omitempty"`
	// TimeoutMS is the tool's time limit, in milliseconds.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Mended is the input that runs in place of the one that was handed in; nil if that one runs.
	Mended *Mended `json:"mended,omitempty"`
	// Dependency is what the call depends on, where dependencies have rates; empty if that is nothing.
	Dependency string `json:"dependency,omitempty"`
	// Cost is what the tool's declaration says that an execution costs.
	Cost int64 `json:"cost,omitempty"`
	// Cached says that the tool declares a cache: its worker is told the workspace's generation.
	Cached bool `json:"cached,omitempty"`
}

// Mended is the input that a call runs with in place of its own. What says what was mended in one that did not fit its
// tool's schema; it is empty where the plan has made a start of a background call of a command.
type Mended struct {
	Input json.RawMessage `json:"input"`
	What  string          `json:"what"`
}

// Group is a set of calls that may run together: a safe group, or one exclusive call.
type Group struct {
	Safe  bool  `json:"safe"`
	Calls []int `json:"calls"`
	// Ticket says that the group needs its workspace's ticket, because a call of it uses the workspace.
	Ticket bool `json:"ticket,omitempty"`
	// Locks are the names in the workspace that the ticket is for. Empty: it is for the whole workspace.
	Locks []tool.Lock `json:"locks,omitempty"`
}

// Adopted says that another dispatcher owns the batch from here on.
type Adopted struct {
	Owner string `json:"owner"`
	// Takeover counts the owners before this one.
	Takeover int `json:"takeover"`
	// Handle is the stream sequence of the message that keeps the batch alive from now on: that of a wake, if one woke
	// it. 0: unchanged.
	Handle uint64 `json:"handle,omitempty"`
	// Deadline is the new deadline of a batch that was parked, because its clock had stopped.
	Deadline time.Time `json:"deadline,omitzero"`
}

// Parked says that no call of the batch runs, that it holds no ticket, and that it has no owner until a person decides.
type Parked struct {
	// RemainingMS is the remaining time of the batch, in milliseconds.
	RemainingMS int64 `json:"remaining_ms"`
}

// Woken asks a dispatcher to continue a parked batch. It is a message, not a part of the batch's log.
type Woken struct {
	// Parked is the sequence of the Parked event: a wake for an earlier one changes nothing.
	Parked uint64 `json:"parked"`
}

// Interrupted asks that calls which have not started end as canceled, and running calls whose tool permits it.
type Interrupted struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// Appended adds calls to an open batch, while the model still writes its response.
type Appended struct {
	Calls []toolyard.Call `json:"calls"`
}

// Closed says that no more calls follow.
type Closed struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// Extended is the plan of appended calls, as Planned is for the first ones.
type Extended struct {
	// InputSeq is the sequence of the last event of the input chain that this includes.
	InputSeq uint64 `json:"input_seq"`
	// Closed says that it was the last one.
	Closed bool `json:"closed,omitempty"`
	// Calls follow those that were planned before.
	Calls []PlannedCall `json:"calls,omitempty"`
	// Groups replace those from FirstGroup on.
	FirstGroup int               `json:"first_group"`
	Groups     []Group           `json:"groups,omitempty"`
	Results    []toolyard.Result `json:"results,omitempty"`
}

// Unreadable represents an event that could not be read. It is never stored, and nobody takes one that is.
type Unreadable struct {
	Problem string `json:"problem"`
	// Chain is where it stands, for who reads a log that was shown.
	Chain string `json:"chain"`
}

// Canceled asks that calls end as canceled.
type Canceled struct {
	// Calls are the indices; empty means the whole batch.
	Calls  []int  `json:"calls,omitempty"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// Started says that a group's calls may be queued: everything before it has its result, and its ticket is granted.
type Started struct {
	Group int `json:"group"`
	// Ticket is the ticket's number, the fencing token of the group's calls; 0 if the group needs none.
	Ticket uint64 `json:"ticket,omitempty"`
	// Items are the items of more than one call that begin with this start. Calls that no item has are items of their
	// own.
	Items []Item `json:"items,omitempty"`
}

// StartOf returns the start of a group that an event says; nil if it says none.
func StartOf(b Body) *Started {
	switch b := b.(type) {
	case Started:
		return &b
	case Planned:
		return b.Start
	}
	return nil
}

// Item is calls of one group that share one chain of events, in ascending order. Its name is the index of its first
// call.
type Item []int

// Settled gives calls of groups that never started their results. Such a call was never queued, so only the owner can
// write about it, and one event can have many results.
type Settled struct {
	Results []toolyard.Result `json:"results"`
}

// Requested is work for a pool: calls of one group.
type Requested struct {
	Agent       toolyard.Agent     `json:"agent"`
	Batch       toolyard.BatchID   `json:"batch"`
	Session     toolyard.Session   `json:"session"`
	Workspace   toolyard.Workspace `json:"workspace"`
	Interactive bool               `json:"interactive,omitempty"`
	Group       int                `json:"group"`
	Ticket      uint64             `json:"ticket,omitempty"`
	// Generation is that of the workspace under the ticket, where a call's tool declares a cache: nothing exclusive ran
	// between two calls that have the same. 0: unknown, or not needed.
	Generation uint64 `json:"generation,omitempty"`
	// WasConcurrent says that other calls of the batch were in flight when these were queued.
	WasConcurrent bool `json:"was_concurrent,omitempty"`
	// Item is the item that the calls belong to, and Expected the sequence of the last event on its chain, 0 when there
	// is none: what the worker's first append must expect.
	Item     int             `json:"item"`
	Expected uint64          `json:"expected,omitempty"`
	Calls    []RequestedCall `json:"calls"`
	// Width is how many of the calls may run at a time.
	Width int `json:"width"`
	// Deny and Ask are the permission rules of the batch and of its plan.
	Deny []string `json:"deny,omitempty"`
	Ask  []string `json:"ask,omitempty"`
	// Tags are what the batch asks of a worker, beside what the calls' tools ask for.
	Tags []toolyard.Tag `json:"tags,omitempty"`
	// Snapshot says that no exclusive call may run before the workspace is kept as it is.
	Snapshot bool `json:"snapshot,omitempty"`
	// Locks are the names in the workspace that the calls' group has. Empty: it has the whole workspace, or no ticket.
	Locks []tool.Lock `json:"locks,omitempty"`
	// Overlay says that the calls run on the batch's overlay of the workspace. Nil: they run in the workspace.
	Overlay *Overlay `json:"overlay,omitempty"`
	// CallTimeoutMS caps each call below its tool's own timeout, in milliseconds; 0 sets no further cap.
	CallTimeoutMS int64 `json:"call_timeout_ms,omitempty"`
	// Fence has outputs that come from outside put between delimiters.
	Fence bool `json:"fence,omitempty"`
	// MaxAttempts is how often a call may be started in all.
	MaxAttempts int `json:"max_attempts"`
	// RemainingMS is the remaining time of the batch when this is queued, in milliseconds. A worker counts it from the
	// time when it receives the message, on its own clock.
	RemainingMS int64     `json:"remaining_ms"`
	QueuedAt    time.Time `json:"queued_at"`
	// Remembered are the rules that people have allowed for the rest of the session; Context is what its tools have set
	// so far.
	Remembered []string          `json:"remembered,omitempty"`
	Context    map[string]string `json:"context,omitempty"`
	// Surface is the hash of the tools that the batch sees.
	Surface string `json:"surface,omitempty"`
}

// Key returns the batch's key.
func (r *Requested) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: r.Agent, ID: r.Batch} }

// Overlay is what a worker must know of the overlay that calls run on.
type Overlay struct {
	// Ran are the exclusive groups that may have changed it before. A worker that does not see the overlay on which all
	// of them ran must not run the calls.
	Ran []int `json:"ran,omitempty"`
	// By are the workers that have claimed the calls of these groups last, in the same order.
	By []string `json:"by,omitempty"`
}

// RequestedCall is one call to run.
type RequestedCall struct {
	Index       int             `json:"index"`
	ID          string          `json:"id"`
	Tool        string          `json:"tool"`
	Input       json.RawMessage `json:"input"`
	Declaration string          `json:"declaration"`
	Judgement   tool.Judgement  `json:"judgement"`
	Claim       bool            `json:"claim,omitempty"`
	// Attempt is the number of this attempt, from 1. Unstarted counts those before it that did not start the tool.
	Attempt   int `json:"attempt"`
	Unstarted int `json:"unstarted,omitempty"`
	// Again says that the call may have been queued before, or that its owner may have lost the batch: the worker must
	// claim it.
	Again bool `json:"again,omitempty"`
	// Approved says that a person has allowed the call; nil if nobody was asked.
	Approved *Approved `json:"approved,omitempty"`
	// Echo is copied into the call's result.
	Echo toolyard.Echo `json:"echo,omitempty"`
	// As is the name that the model used, if it is not the tool's own.
	As string `json:"as,omitempty"`
	// Mended says what was mended in the input; empty if it is as the model wrote it.
	Mended string `json:"mended,omitempty"`
	// Waited says for which rate the call has waited, and how long; empty if it has not.
	Waited string `json:"waited,omitempty"`
	// Undo is what is known of the batch that the call undoes; nil if it undoes none.
	Undo *Undo `json:"undo,omitempty"`
}

// Earlier is how many executions were started in earlier attempts, or may have been.
func (c *RequestedCall) Earlier() int { return max(0, c.Attempt-1-c.Unstarted) }

// Undo is what the log says of a batch that is to be undone, read while the workspace is held for that.
type Undo struct {
	Batch toolyard.BatchID `json:"batch"`
	// Problem says why it cannot be undone; empty if it can.
	Problem string `json:"problem,omitempty"`
	// Group is the group that the workspace is set back to before. Groups are the exclusive groups of the batch that
	// have run.
	Group  int   `json:"group"`
	Groups []int `json:"groups"`
	// Overlay says what has run on the overlay that is used, of a call that uses one.
	Overlay *Overlay `json:"overlay,omitempty"`
	// Later names batches that ran exclusive groups in the workspace since, as far as the index has them.
	Later []string `json:"later,omitempty"`
}

// Events on the chain of an item name the call that they are about, unless it is the item's first.

// Claimed is one worker's right to execute one call.
type Claimed struct {
	Call    int    `json:"call,omitempty"`
	Worker  string `json:"worker"`
	Attempt int    `json:"attempt"`
	Ticket  uint64 `json:"ticket,omitempty"`
	// Renewed says that the worker had claimed this attempt before. It proves that nobody has settled the call since.
	Renewed bool `json:"renewed,omitempty"`
}

// Returned says that a worker gave back calls that it could have started without a claim, but did not start. A worker
// that gets a second delivery, and finds neither this event nor a claim, counts the first delivery as an attempt.
type Returned struct {
	// Call is the call when there are no Calls: one that had its message to itself, which is delivered again.
	Call   int    `json:"call,omitempty"`
	Worker string `json:"worker"`
	// Calls are those that their owner has to queue again. Attempt is how many executions of each may have begun.
	Calls   []int `json:"calls,omitempty"`
	Attempt int   `json:"attempt,omitempty"`
}

// AttemptFailed says that an attempt ended without a result, and that the call will run again.
type AttemptFailed struct {
	Call    int           `json:"call,omitempty"`
	Worker  string        `json:"worker,omitempty"`
	Attempt int           `json:"attempt"`
	Code    toolyard.Code `json:"code"`
	Reason  string        `json:"reason"`
	// NotStarted says that the tool was not started in this attempt.
	NotStarted bool `json:"not_started,omitempty"`
	// RetryAfterMS is the minimum pause before the next attempt, in milliseconds.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// Finished gives calls of an item their results.
type Finished struct {
	End
	// More are the ends of other calls of the item.
	More []End `json:"more,omitempty"`
}

// End is the end of one call.
type End struct {
	Result toolyard.Result `json:"result"`
	// Session is the call's change of its session; nil if there is none.
	Session *tool.SessionChange `json:"session,omitempty"`
}

// Finish makes the event of one end or more.
func Finish(ends ...End) Finished { return Finished{End: ends[0], More: ends[1:]} }

// Ends are those of all calls that the event is about. They are large: none is copied.
func (f *Finished) Ends() iter.Seq[*End] {
	return func(yield func(*End) bool) {
		if !yield(&f.End) {
			return
		}
		for n := range f.More {
			if !yield(&f.More[n]) {
				return
			}
		}
	}
}

// Results are those of all calls that the event is about.
func (f *Finished) Results() []toolyard.Result {
	out := make([]toolyard.Result, 0, 1+len(f.More))
	for e := range f.Ends() {
		out = append(out, e.Result)
	}
	return out
}

// ResultsIn are the results that an event gives to calls. A [Reply] gives none: it repeats them.
func ResultsIn(b Body) []toolyard.Result {
	switch b := b.(type) {
	case Planned:
		return b.Results
	case Extended:
		return b.Results
	case Settled:
		return b.Results
	case Finished:
		return b.Results()
	}
	return nil
}

// Reply carries all results that were ready, in emission order. The sequence extension of its CloudEvent is the index
// of the first.
type Reply struct {
	Results   []toolyard.Result `json:"results"`
	Completed bool              `json:"completed"`
	// Notice is what hooks say about the batch as a whole, in its last reply.
	Notice *toolyard.Notice `json:"notice,omitempty"`
}

// Ended is the fence of a chain of a batch that is over: no append that expects what was there before succeeds behind
// it. It says nothing, and readers pass over it.
type Ended struct{}

// Archived is the record of a batch in the archive, and a fence as [Ended]. It stands on the batch chain, where it
// decides, and then behind the submission.
type Archived struct {
	// Object names the object with the batch's log, and Sum is the SHA-256 sum of the log in it.
	Object string `json:"object"`
	Sum    string `json:"sum"`
	// Before is the sequence of the first fence among the batch's events: all before it are in the object.
	Before uint64 `json:"before"`
	// Content is the SHA-256 sum of the batch as it was submitted, in its canonical form. Place is the sequence of the
	// submission, and Submitted when it was stored.
	Content   string    `json:"content"`
	Place     uint64    `json:"place"`
	Submitted time.Time `json:"submitted"`
}

// Moved is a fence in place of a submission: its id is used in another shard. It stands in the stream of submissions of
// a shard that the id was in before the system was given more of them.
type Moved struct{}

// MinReader is the wire version that a reader must have: an older one would take it for a submission.
func (Moved) MinReader() int { return version.Raises }

// MinReader is the wire version that a reader must have: an older one would take the chain for one without its events.
func (Ended) MinReader() int { return archives }

// MinReader is as that of [Ended].
func (Archived) MinReader() int { return archives }

// Fences reports whether an event of a type is a fence: it belongs to no log.
func Fences(t Type) bool { return t == ChainEnded || t == BatchArchived || t == BatchMoved }

// EventType implements [Body].
func (Submitted) EventType() Type     { return BatchSubmitted }
func (Refused) EventType() Type       { return BatchRefused }
func (Planned) EventType() Type       { return BatchPlanned }
func (Adopted) EventType() Type       { return BatchAdopted }
func (Parked) EventType() Type        { return BatchParked }
func (Woken) EventType() Type         { return BatchWoken }
func (Interrupted) EventType() Type   { return BatchInterrupted }
func (Waiting) EventType() Type       { return CallWaiting }
func (Decided) EventType() Type       { return CallDecided }
func (Extended) EventType() Type      { return BatchExtended }
func (Canceled) EventType() Type      { return BatchCanceled }
func (Appended) EventType() Type      { return CallsAppended }
func (Closed) EventType() Type        { return BatchClosed }
func (Unreadable) EventType() Type    { return EventUnreadable }
func (Started) EventType() Type       { return GroupStarted }
func (Settled) EventType() Type       { return CallsSettled }
func (Requested) EventType() Type     { return CallsRequested }
func (Claimed) EventType() Type       { return CallClaimed }
func (Returned) EventType() Type      { return CallReturned }
func (AttemptFailed) EventType() Type { return CallAttemptFailed }
func (Finished) EventType() Type      { return CallFinished }
func (Reply) EventType() Type         { return Results }
func (Ended) EventType() Type         { return ChainEnded }
func (Archived) EventType() Type      { return BatchArchived }
func (Moved) EventType() Type         { return BatchMoved }
