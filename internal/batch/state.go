// Package batch is one batch as a state machine: events in, effects out.
//
// Authority: the log. [State] is a pure fold over a batch's events, and the same fold serves the dispatcher that runs
// the batch, the one that takes it over, a live watch and a replay. [Machine] adds what only the owner needs to go on
// (what it has queued, which ticket it stands in line with) and all of that can be made again from the state.
//
//	          planned                    all results in
//	submitted ───────▶ group 0 ─▶ group 1 ─▶ … ─▶ completed
//	                     │  ticket granted ─▶ started ─▶ calls queued ─▶ claimed ─▶ finished
//	                     └─ replies, as far as results are there in emission order
//
// Ordering: events of one chain are applied in the order of their sequences; between chains there is no order, and
// none is needed. An event that was applied already changes nothing.
//
// Failure: an event that contradicts the state is an [*InvariantError]. It stops this batch, not the pool.
package batch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/tool"
)

// Chain names a line of events in which each append expects the one before it. A batch has one of each but of item
// chains, of which it has one for each item.
type Chain string

// The chains, each with who appends to it.
const (
	ChainSubmission Chain = "submission" // the agent, once
	ChainBatch      Chain = "batch"      // the owner alone
	ChainControl    Chain = "control"    // whoever may cancel
	ChainInput      Chain = "input"      // the agent, to append calls and to close; the owner, to close
	ChainItem       Chain = "item"       // the workers that run its calls, the owner; people, to decide
	ChainReply      Chain = "reply"      // the owner; any owner would append the same
)

// Takes reports whether an event may stand on the chain. Whoever may append to the two that agents write to may append
// any event there, by mistake or not. Of the other chains the fold says more.
func (c Chain) Takes(b events.Body) bool {
	if events.Fences(b.EventType()) { // it ends a chain, and says nothing
		return true
	}
	switch b.(type) {
	case events.Canceled, events.Interrupted:
		return c != ChainInput
	case events.Appended, events.Closed:
		return c != ChainControl
	}
	return c != ChainControl && c != ChainInput
}

// Record is one stored event.
type Record struct {
	Chain Chain
	// Index is the first call of the item in ChainItem, and that of the first result in ChainReply.
	Index int
	// Pool is the one in a call's subject; empty in a record that was not read. Events of a call under another pool's
	// subject stand in another chain, and mean nothing.
	Pool toolyard.Pool
	// Seq is the stream sequence that the event got.
	Seq  uint64
	Time time.Time
	Body events.Body
	// Latest says that the reader went straight to the last event of the reply chain, past those before it.
	Latest bool
	// Trace is the trace context that a submission came with, as far as it is valid. Other records have none.
	Trace traceparent.Context
}

// CallStatus is where a call stands in the log.
type CallStatus string

// The states of a call, each with who moves it on, and what happens if that one dies.
const (
	// Pending: no event yet. The owner queues it, a worker claims or finishes it. If either dies the next one does.
	Pending CallStatus = "pending"
	// Claimed: a worker may be executing it. That worker finishes it; if it is lost, the owner settles the call.
	Claimed CallStatus = "claimed"
	// Retrying: an attempt failed and another is due after a pause. The owner queues it.
	Retrying CallStatus = "retrying"
	// Waiting: a person has to decide. Nobody holds anything for it; a decision, a cancel or the approval wait moves
	// it on.
	Waiting CallStatus = "waiting"
	// Decided: a person has decided. The owner queues the call, or answers it.
	Decided CallStatus = "decided"
	// Finished: it has its result, for good.
	Finished CallStatus = "finished"
)

// Call is the state of one call.
type Call struct {
	Status CallStatus
	// Item is the first call of the item that the call belongs to.
	Item int
	// Seq is the sequence of the last event about the call, 0 when there is none. It names a claim.
	Seq uint64
	// end is the sequence of the last event on the chain of the item that this call is the first of.
	end    uint64
	Worker string
	// claimedBy is the worker that has claimed it last, and ClaimedAt when. They stay.
	claimedBy string
	ClaimedAt time.Time
	Attempt   int
	// Unstarted counts the attempts whose worker said that it had not started the tool, and questions those that ended
	// with a question of the tool.
	Unstarted, questions int
	// Back says that a worker has given the call back, for its owner to queue it again.
	Back bool
	// NotBefore is when the call may be queued again, while it is retrying or back.
	NotBefore time.Time
	// Asked is what a person was asked, AskedAt when, Waited how long it took; Decision is the answer. They stay.
	Asked    *events.Waiting
	AskedAt  time.Time
	Decision *events.Decided
	Waited   time.Duration
	Result   *toolyard.Result
	// Session is what the call changes in its session.
	Session *tool.SessionChange
}

// Started is how many attempts that are over were started, or may have been.
func (c *Call) Started() int {
	n := c.Attempt - c.Unstarted
	if c.Status == Claimed {
		n--
	}
	return n
}

// The pauses between the attempts of one call: the first, doubled each time up to the longest. A tool may ask for a
// longer one.
const (
	FirstRetryPause   = 200 * time.Millisecond
	LongestRetryPause = 10 * time.Second
)

// retryPause is how long to wait after so many attempts.
func retryPause(attempt int) time.Duration {
	pause := FirstRetryPause
	for range min(attempt, 10) - 1 {
		pause *= 2
	}
	return min(pause, LongestRetryPause)
}

// State is a batch as its events tell it. The zero State is a batch of which nothing is known.
type State struct {
	Key           toolyard.BatchKey
	Submission    *toolyard.Batch
	SubmissionSeq uint64
	SubmittedAt   time.Time
	// Trace is the trace context that the submission came with; the zero value if it had none.
	Trace     traceparent.Context
	Refused   *events.Refused
	Plan      *events.Planned
	Owner     string
	Takeovers int
	// Started has the ticket of each group that was started, by group.
	Started map[int]uint64
	Calls   []Call
	// items are those of more than one call, by their first.
	items map[int]events.Item
	// changing are the calls that change something in their session, in order.
	changing []int
	// Replied counts the results that were replied: those of the calls before that index.
	Replied   int
	Completed bool
	// lost are the results of the last reply that say internal_error, by call.
	lost map[int]toolyard.Result
	// Notice is what hooks had to say when the batch was over.
	Notice  *toolyard.Notice
	Cancels []events.Canceled
	// canceledAt is the sequence of the first cancel of the whole batch, and closedAt that of the end of its input; 0
	// while there is none.
	canceledAt, closedAt uint64
	// Interrupts are those that were asked for.
	Interrupts []events.Interrupted
	// Handle is the stream sequence of the message by which the batch is kept: its submission, or what woke it last.
	Handle uint64
	// Parked says that the batch has no owner until it is woken, and Remaining how much of its time was left then.
	Parked    bool
	Remaining time.Duration
	// Input are the calls of an open batch that were appended after its submission; InputClosed says that none
	// follow, InputEnd why, if that is known, and InputAt when the last event of the input chain was stored.
	Input       []toolyard.Call
	InputClosed bool
	InputEnd    string
	InputAt     time.Time
	// Closed says that the plan has all calls; PlannedInput is the last event of the input chain that it took in.
	Closed       bool
	PlannedInput uint64
	// Newer are the events that were passed over since only a newer version knows what they say. An owner never has
	// any.
	Newer []events.Newer
	// The sequences of the last events applied, by chain: what an append to it must expect.
	BatchSeq, ControlSeq, InputSeq, ReplySeq uint64
}

// InvariantError says that an event contradicts the state: a bug, or a foreign writer on the stream.
type InvariantError struct {
	Key     toolyard.BatchKey
	Record  Record
	Problem string
}

func (e *InvariantError) Error() string {
	where := string(e.Record.Chain)
	if e.Record.Chain == ChainItem {
		where = fmt.Sprintf("item %d", e.Record.Index)
	}
	return fmt.Sprintf("batch %s: event %d on the %s chain: %s", e.Key, e.Record.Seq, where, e.Problem)
}

// Apply folds one event into the state. It reports an [*InvariantError] and leaves the state as it was when the event
// cannot follow what was applied before.
func (s *State) Apply(r Record) error {
	bad := func(format string, args ...any) error {
		return &InvariantError{Key: s.Key, Record: r, Problem: fmt.Sprintf(format, args...)}
	}
	if n, ok := r.Body.(events.Newer); ok {
		s.passOver(r, n)
		return nil
	}
	switch r.Body.(type) {
	case events.Ended, events.Archived, events.Moved: // nothing may be appended behind them, so they move no end
		return nil
	}
	switch r.Chain {
	case ChainSubmission:
		b, ok := r.Body.(events.Submitted)
		if !ok {
			return bad("%T is no submission", r.Body)
		}
		s.Key, s.Submission, s.SubmissionSeq, s.SubmittedAt = b.Key(), &b.Batch, r.Seq, r.Time
		s.Trace = r.Trace
		return nil
	case ChainBatch:
		if r.Seq <= s.BatchSeq {
			return nil
		}
		if err := s.applyBatch(r, bad); err != nil {
			return err
		}
		s.BatchSeq = r.Seq
		return nil
	case ChainControl:
		if r.Seq <= s.ControlSeq {
			return nil
		}
		switch b := r.Body.(type) {
		case events.Canceled:
			b.By, b.Reason = brief(b.By), brief(b.Reason)
			s.Cancels = append(s.Cancels, b)
			if len(b.Calls) == 0 && s.canceledAt == 0 {
				s.canceledAt = r.Seq
			}
		case events.Interrupted:
			b.By, b.Reason = brief(b.By), brief(b.Reason)
			s.Interrupts = append(s.Interrupts, b)
		case events.Unreadable: // anybody may write here: what means nothing changes nothing
		default:
			return bad("%T is no control event", r.Body)
		}
		s.ControlSeq = r.Seq
		return nil
	case ChainInput:
		if r.Seq <= s.InputSeq {
			return nil
		}
		switch b := r.Body.(type) {
		case events.Appended:
			if !s.InputClosed {
				calls, from := slices.Clone(b.Calls), len(s.Input)
				if s.Submission != nil {
					from += len(s.Submission.Calls)
				}
				toolyard.NormalizeCalls(calls, from) // whoever appends past our clients may leave things out
				s.Input = append(s.Input, calls...)
			}
		case events.Closed, events.Unreadable: // a stream that is broken off is over
			if !s.InputClosed {
				s.InputClosed, s.InputEnd, s.closedAt = true, inputEnd(b), r.Seq
			}
		default:
			return bad("%T is no input event", r.Body)
		}
		s.InputSeq, s.InputAt = r.Seq, r.Time
		return nil
	case ChainReply:
		if r.Seq <= s.ReplySeq {
			return nil
		}
		if err := s.applyReply(r, bad); err != nil {
			return err
		}
		s.ReplySeq = r.Seq
		return nil
	case ChainItem:
		return s.applyItem(r, bad)
	}
	return bad("there is no chain %q", r.Chain)
}

// passOver notes an event that a newer version wrote, and changes nothing else. It is for readers: an owner must
// know all events of its batch.
func (s *State) passOver(r Record, n events.Newer) {
	seq := map[Chain]*uint64{
		ChainBatch: &s.BatchSeq, ChainControl: &s.ControlSeq, ChainInput: &s.InputSeq, ChainReply: &s.ReplySeq,
	}[r.Chain]
	if r.Chain == ChainItem && r.Index >= 0 && r.Index < len(s.Calls) {
		if r.Pool != "" && r.Pool != s.Plan.Calls[r.Index].Pool {
			return
		}
		seq = &s.Calls[r.Index].end
	}
	if seq != nil {
		if r.Seq <= *seq {
			return
		}
		*seq = r.Seq
	}
	s.Newer = append(s.Newer, n)
}

type badFunc func(format string, args ...any) error

func (s *State) applyBatch(r Record, bad badFunc) error {
	if b, ok := r.Body.(events.Planned); ok {
		return s.applyPlanned(b, bad)
	}
	if b, ok := r.Body.(events.Refused); ok && s.Plan == nil { // in the place of the plan; the reply says the same
		s.Refused = &b
		return nil
	}
	if s.Plan == nil {
		return bad("%s before planned", r.Body.EventType())
	}
	switch b := r.Body.(type) {
	case events.Adopted:
		s.Owner, s.Takeovers, s.Parked = b.Owner, b.Takeover, false
		if b.Handle != 0 {
			s.Handle = b.Handle
		}
		if !b.Deadline.IsZero() {
			plan := *s.Plan
			plan.Deadline, s.Plan = b.Deadline, &plan
		}
	case events.Parked:
		if s.Parked {
			return bad("parked twice")
		}
		s.Parked, s.Remaining = true, time.Duration(b.RemainingMS)*time.Millisecond
	case events.Started:
		if err := s.start(b, bad); err != nil {
			return err
		}
	case events.Settled:
		if err := s.finishAll(b.Results, bad); err != nil {
			return err
		}
		for _, res := range b.Results {
			s.Calls[res.Index].Seq = r.Seq
		}
	case events.Extended:
		return s.applyExtended(b, bad)
	default:
		if s.applyNext(b) {
			return nil
		}
		return bad("%T is no batch event", r.Body)
	}
	return nil
}

func (s *State) applyPlanned(b events.Planned, bad badFunc) error {
	if s.Plan != nil {
		return bad("planned twice")
	}
	if s.Refused != nil {
		return bad("planned after it was refused")
	}
	if err := checkGroups(b.Groups, len(b.Calls), bad); err != nil {
		return err
	}
	next := *s
	next.Plan, next.Owner, next.Closed, next.Handle = &b, b.Owner, !b.Open, b.SubmissionSeq
	next.Started = map[int]uint64{}
	next.Calls = make([]Call, len(b.Calls))
	for i := range next.Calls {
		next.Calls[i].Status, next.Calls[i].Item = Pending, i
	}
	if err := next.finishAll(b.Results, bad); err != nil {
		return err
	}
	if b.Start != nil {
		if err := next.start(*b.Start, bad); err != nil {
			return err
		}
	}
	*s = next
	return nil
}

func (s *State) start(b events.Started, bad badFunc) error {
	if b.Group < 0 || b.Group >= len(s.Plan.Groups) {
		return bad("there is no group %d", b.Group)
	}
	if err := s.cut(b.Items, bad); err != nil {
		return err
	}
	s.Started[b.Group] = b.Ticket
	return nil
}

// checkGroups checks that each of n calls is in exactly one group.
func checkGroups(groups []events.Group, n int, bad badFunc) error {
	seen := make([]bool, n)
	for g, group := range groups {
		for _, i := range group.Calls {
			if i < 0 || i >= n || seen[i] {
				return bad("group %d has call %d, which is in no or in another group", g, i)
			}
			seen[i] = true
		}
	}
	for i, ok := range seen {
		if !ok {
			return bad("call %d is in no group", i)
		}
	}
	return nil
}

func (s *State) applyExtended(b events.Extended, bad badFunc) error {
	if s.Closed {
		return bad("extended after it was closed")
	}
	if b.FirstGroup < 0 || b.FirstGroup > len(s.Plan.Groups) {
		return bad("there is no group %d", b.FirstGroup)
	}
	plan := *s.Plan
	plan.Calls = append(plan.Calls, b.Calls...)
	plan.Groups = append(slices.Clone(plan.Groups[:b.FirstGroup]), b.Groups...)
	if err := checkGroups(plan.Groups, len(plan.Calls), bad); err != nil {
		return err
	}
	next := *s
	next.Plan, next.PlannedInput, next.Closed = &plan, b.InputSeq, b.Closed
	for range b.Calls {
		next.Calls = append(next.Calls, Call{Status: Pending, Item: len(next.Calls)})
	}
	if err := next.finishAll(b.Results, bad); err != nil {
		return err
	}
	*s = next
	return nil
}

// finishAll takes in results from one event of the owner: all of them or none.
func (s *State) finishAll(results []toolyard.Result, bad badFunc) error {
	seen := make(map[int]bool, len(results))
	for _, res := range results {
		switch {
		case res.Index < 0 || res.Index >= len(s.Calls):
			return bad("there is no call %d", res.Index)
		case s.Calls[res.Index].Status != Pending:
			return bad("call %d is %s and cannot be answered by the owner alone", res.Index, s.Calls[res.Index].Status)
		case seen[res.Index]:
			return bad("call %d has two results", res.Index)
		}
		seen[res.Index] = true
	}
	for _, res := range results {
		s.Calls[res.Index].Status, s.Calls[res.Index].Result = Finished, &res
	}
	return nil
}

func (s *State) applyReply(r Record, bad badFunc) error {
	switch b := r.Body.(type) {
	case events.Refused:
		s.Refused = &b
	case events.Reply:
		if s.Completed {
			return bad("a reply after the last one")
		}
		if r.Latest && r.Index > s.Replied {
			s.Replied = r.Index
		}
		for n, res := range b.Results {
			if res.Index != s.Replied+n {
				return bad("it has the result of call %d where that of call %d is next", res.Index, s.Replied+n)
			}
		}
		s.Replied += len(b.Results)
		s.Completed, s.Notice = b.Completed, b.Notice
		s.keepLost(b)
	default:
		return bad("%T is no reply", r.Body)
	}
	return nil
}

// Context returns what the session's tools have set so far: the context at the plan, and then what exclusive calls
// have set, in the order of the calls. It is nil when nothing was set. The caller must not change it.
func (s *State) Context() map[string]string {
	set := s.sets()
	if len(set) == 0 {
		return s.Plan.Context
	}
	return tool.MergeContext(s.Plan.Context, set)
}

// sets returns what the batch's exclusive calls have set or, with an empty value, removed. It is nil when they did
// neither.
func (s *State) sets() map[string]string {
	var out map[string]string
	for _, i := range s.changing {
		change := s.Calls[i].Session
		if s.Plan.Calls[i].Judgement.Class.Safe() || len(change.Context) == 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		maps.Copy(out, change.Context)
	}
	return out
}

// Loads returns the deferred tools that the batch's calls have loaded, each once, in the order of the calls.
func (s *State) Loads() []string {
	var out []string
	for _, i := range s.changing {
		for _, name := range s.Calls[i].Session.Loads {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// Changes returns what the batch's calls have changed in their session, and nothing that was there before: another
// batch may have changed that since.
func (s *State) Changes() (tool.SessionChange, bool) {
	change := tool.SessionChange{Loads: s.Loads(), Context: s.sets()}
	return change, len(change.Loads)+len(change.Context) > 0
}

// approved returns a person's approval of a call, as its worker needs it; nil when there is none.
func (s *State) approved(index int) *events.Approved {
	c := s.Calls[index]
	if c.Decision == nil || c.Decision.Decision != events.Approve {
		return nil
	}
	a := events.Approved{By: c.Decision.By, InputSHA256: c.Decision.InputSHA256, Input: c.Decision.Edited,
		WaitedMS: c.Waited.Milliseconds()}
	if c.Asked != nil {
		a.Context = c.Asked.Context
		if f := c.Asked.Form; f != nil { // what runs is what ran when its tool asked
			a.InputSHA256, a.Input = f.CallSHA256, ""
			a.Answer = &events.Answered{Ref: c.Decision.Edited, Key: f.Key, State: f.State}
		}
		if a.Input == "" {
			a.Input = c.Asked.Changed
		}
	}
	return &a
}

// Request makes the request by which a worker is asked whether it could run a call with what a person says of it.
// It has no turn and no attempt: nothing may be run by it.
func (s *State) Request(index int, approved *events.Approved) events.Requested {
	r := RequestOf(s.Submission, s.Plan)
	r.Calls = []events.RequestedCall{s.requested(index, approved)}
	r.Overlay = s.overlay(len(s.Plan.Groups) - 1)
	for _, g := range s.Plan.Groups {
		if len(g.Locks) > 0 && slices.Contains(g.Calls, index) {
			r.Locks = g.Locks
		}
	}
	return r
}

// RequestOf is what a worker is told of a batch with each call, without the calls.
func RequestOf(sub *toolyard.Batch, plan *events.Planned) events.Requested {
	return events.Requested{
		Agent: sub.Agent, Batch: sub.ID, Session: plan.Session, Workspace: plan.Workspace,
		Interactive: sub.Interactive && !plan.Unattended, Tags: sub.Options.Tags, Snapshot: sub.Options.Snapshot,
		Deny: slices.Concat(sub.Options.Deny, plan.Deny), Ask: slices.Concat(sub.Options.Ask, plan.Ask),
		Remembered: plan.Remembered, Context: plan.Context, Surface: plan.Surface,
	}
}

func (s *State) requested(index int, approved *events.Approved) events.RequestedCall {
	c := s.Plan.Calls[index]
	return events.RequestedCall{Index: index, ID: c.ID, Tool: c.Tool, Declaration: c.Declaration,
		Judgement: c.Judgement, Approved: approved}
}

// MayHaveChanged reports whether an exclusive group may have changed its workspace: its call was started, or a worker
// has it. That call has no result here where its batch was given up.
func (s *State) MayHaveChanged(group int) bool {
	g := &s.Plan.Groups[group]
	if g.Safe || !g.Ticket {
		return false
	}
	return slices.ContainsFunc(g.Calls, func(i int) bool {
		c := &s.Calls[i]
		if r := c.Result; r != nil {
			return r.Attempts > 0 || r.Code == toolyard.OutcomeUnknown
		}
		return c.Attempt > c.Unstarted
	})
}

// overlay is what a worker is told of the batch's overlay for calls of a group; nil if it has none.
func (s *State) overlay(group int) *events.Overlay {
	if !s.Submission.Options.Overlay {
		return nil
	}
	return s.ranOnOverlay(group)
}

// RanOnOverlay are the groups that may have changed the batch's overlay.
func (s *State) RanOnOverlay() *events.Overlay { return s.ranOnOverlay(len(s.Plan.Groups) - 1) }

func (s *State) ranOnOverlay(last int) *events.Overlay {
	o := &events.Overlay{}
	for g := range last + 1 {
		if !s.MayHaveChanged(g) {
			continue
		}
		by := ""
		for _, i := range s.Plan.Groups[g].Calls {
			if w := s.Calls[i].ranBy(); w != "" {
				by = w
			}
		}
		o.Ran, o.By = append(o.Ran, g), append(o.By, by)
	}
	return o
}

// ranBy is the worker that has claimed the call last; empty: nobody knows. Of a call whose result came in a reply, it
// is the one that the result names, unless that may be one that did not run the call: it had no overlay to run it on.
func (c *Call) ranBy() string {
	r := c.Result
	if c.claimedBy != "" || r == nil || r.Code == toolyard.SetupRequired || r.Code == toolyard.DependencyUnavailable {
		return c.claimedBy
	}
	return r.Worker
}

// Open reports whether the call of that index has no result yet.
func (s *State) Open(index int) bool { return s.Calls[index].Result == nil }

// Done reports whether every call of the group has its result.
func (s *State) Done(group int) bool {
	for _, i := range s.Plan.Groups[group].Calls {
		if s.Open(i) {
			return false
		}
	}
	return true
}

// call returns the call of that index as the agent gave it: in the submission, or appended.
func (s *State) call(index int) toolyard.Call {
	if n := len(s.Submission.Calls); index >= n {
		return s.Input[index-n]
	}
	return s.Submission.Calls[index]
}

// Inputs returns the inputs of the planned calls, by index, as the agent gave them.
func (s *State) Inputs() []json.RawMessage {
	out := make([]json.RawMessage, len(s.Calls))
	for i := range out {
		out[i] = s.call(i).Input
	}
	return out
}

// Unplanned returns the calls that were appended and are not in the plan yet.
func (s *State) Unplanned() []toolyard.Call {
	return s.Input[len(s.Plan.Calls)-len(s.Submission.Calls):]
}
