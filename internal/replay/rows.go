package replay

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// Shape is a batch at one event of its log, for a reader who draws it. Times are milliseconds since the submission.
type Shape struct {
	ID          toolyard.BatchID   `json:"id" doc:"The batch's id."`
	Agent       toolyard.Agent     `json:"agent" doc:"The agent whose batch it is."`
	Session     toolyard.Session   `json:"session" doc:"The session of the batch."`
	Workspace   toolyard.Workspace `json:"workspace" doc:"The workspace where its calls act."`
	Status      toolyard.Status    `json:"status" doc:"The state of the batch."`
	SubmittedAt time.Time          `json:"submitted_at" doc:"When the batch was submitted."`
	SubmittedBy string             `json:"submitted_by" doc:"Which process stored the batch."`
	PlannedMS   *float64           `json:"planned_ms,omitempty" doc:"When the batch was planned; left out before."`
	LastMS      float64            `json:"last_ms" doc:"When the last event was stored."`
	Owner       string             `json:"owner" doc:"The dispatcher that advances the batch; empty before it is planned."`
	Takeovers   int                `json:"takeovers" doc:"How many times another dispatcher took the batch over."`
	Partition   toolyard.Strategy  `json:"partition,omitempty" doc:"How the calls become groups; left out before that is known."`
	Calls       int                `json:"calls" doc:"How many calls were handed in."`
	Finished    int                `json:"finished" doc:"How many calls have results."`
	Failed      int                `json:"failed" doc:"How many of the results are errors."`
	Replied     int                `json:"replied" doc:"How many results were replied."`
	Contradicts string             `json:"contradicts,omitempty" doc:"What contradicts itself in the log."`
	Refused     string             `json:"refused,omitempty" doc:"Why the batch was refused."`
	Groups      []ShapeGroup       `json:"groups" doc:"In the order in which they run."`
	Happened    []Moment           `json:"happened" doc:"What happened to the batch beside the run of its calls: cancels, takeovers, decisions of people."`
}

// ShapeGroup is one group of a [Shape].
type ShapeGroup struct {
	Safe bool `json:"safe" doc:"Its calls may run together."`
	// ReadyMS is when all calls of the groups before it had their results.
	ReadyMS   *float64 `json:"ready_ms,omitempty" doc:"When the groups before it had all their results. From then on it waited for its ticket."`
	StartedMS *float64 `json:"started_ms,omitempty" doc:"When it was started; left out before."`
	Ticket    uint64   `json:"ticket,omitempty" doc:"The number of its ticket for the workspace; left out if it has none."`
	First     int      `json:"first" doc:"Its first call."`
	Count     int      `json:"count" doc:"How many calls it has."`
}

// Row is one call of a [Shape].
type Row struct {
	Index  int            `json:"index" doc:"The call's index in the batch."`
	CallID string         `json:"call_id" doc:"The provider's id of the call."`
	Tool   string         `json:"tool" doc:"The tool's name."`
	Group  int            `json:"group" doc:"Its group; -1 before it is planned."`
	Class  toolyard.Class `json:"concurrency_class,omitempty" doc:"Its concurrency class; left out before it is planned."`
	Status string         `json:"status" enum:"unplanned,pending,claimed,retrying,waiting,decided,finished" doc:"The state of the call."`
	Error  bool           `json:"error,omitempty" doc:"Whether the call failed."`
	Code   toolyard.Code  `json:"code,omitempty" doc:"Why the call failed; left out on success."`
	NotRun string         `json:"not_run,omitempty" doc:"How it was answered without running."`
	Worker string         `json:"worker,omitempty" doc:"The worker that claimed or finished the call last."`
	// Runs are when its attempts ran. The last one may still run.
	Runs       []Span   `json:"runs,omitempty" doc:"When its attempts ran."`
	Waits      []Span   `json:"waits,omitempty" doc:"When it waited for a person."`
	FinishedMS *float64 `json:"finished_ms,omitempty" doc:"When its result was stored; left out before."`
	Blame      string   `json:"blame,omitempty" doc:"Of a call that was aborted: what aborted it."`
}

// Span is a time in a [Row]. One that is not over has no end.
type Span struct {
	FromMS float64       `json:"from_ms" doc:"When it began."`
	ToMS   *float64      `json:"to_ms,omitempty" doc:"When it ended; left out if it has not."`
	Failed toolyard.Code `json:"failed,omitempty" doc:"Why the attempt failed that was repeated."`
}

// Step is one event of a log in words.
type Step struct {
	Event int     `json:"event" doc:"Its place in the log, from 1."`
	MS    float64 `json:"ms" doc:"When it was stored, in milliseconds since the submission."`
	What  string  `json:"what" doc:"What happened, in words."`
}

// Shape describes the batch as the events so far leave it. It returns the rows of the calls that changed after event
// since, or all with 0. It does not change the replay.
func (p *Replay) Shape(since int) (Shape, []Row) {
	s, t := &p.state, &p.times
	out := Shape{ID: s.Key.ID, Agent: s.Key.Agent, SubmittedAt: t.submitted, SubmittedBy: t.by, Owner: s.Owner,
		Takeovers: s.Takeovers, Replied: s.Replied, Groups: []ShapeGroup{}, Happened: t.moments(t.happened)}
	if p.wrong != nil {
		out.Contradicts = p.wrong.Error()
	}
	if s.Submission == nil {
		return out, []Row{}
	}
	out.Status, out.LastMS = s.Status(), t.since(t.last)
	out.Session, out.Workspace = s.Submission.Session, s.Submission.Workspace
	out.Partition, out.Calls = s.Submission.Options.Partition, len(s.Submission.Calls)+len(s.Input)
	if s.Refused != nil {
		out.Refused = s.Refused.Detail
	}
	for i := range s.Calls {
		if r := s.Calls[i].Result; r != nil {
			out.Finished++
			if r.IsError {
				out.Failed++
			}
		}
	}
	group := map[int]int{}
	if s.Plan != nil {
		out.Partition, out.PlannedMS = s.Plan.Partition, t.passed(t.planned)
		ready := t.planned
		for g, planned := range s.Plan.Groups {
			now := ShapeGroup{Safe: planned.Safe, StartedMS: t.passed(t.groups[g]), Ticket: s.Started[g],
				First: planned.Calls[0], Count: len(planned.Calls), ReadyMS: t.passed(ready)}
			for _, i := range planned.Calls {
				group[i] = g
				if c := t.calls[i]; c != nil && s.Calls[i].Result != nil {
					ready = later(ready, c.finished)
				} else {
					ready = time.Time{}
				}
			}
			out.Groups = append(out.Groups, now)
		}
	}
	rows := []Row{}
	for i := range out.Calls {
		if c := t.calls[i]; since == 0 || t.shaped > since || c != nil && c.changed > since {
			rows = append(rows, p.row(i, group))
		}
	}
	return out, rows
}

// later is the later of two times; zero, which is never, is the latest.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.After(b) {
		return a
	}
	return b
}

// passed is a time since the submission; nil if it did not come.
func (t *times) passed(at time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	ms := t.since(at)
	return &ms
}

// row describes one call.
func (p *Replay) row(i int, group map[int]int) Row {
	s, t := &p.state, &p.times
	in := p.input(i)
	r := Row{Index: i, CallID: in.ID, Tool: in.Tool, Group: -1, Status: "unplanned"}
	if i >= len(s.Calls) {
		return r
	}
	g, ok := group[i]
	if ok {
		r.Group = g
	}
	c := &s.Calls[i]
	r.Tool, r.Class = s.Plan.Calls[i].Tool, s.Plan.Calls[i].Judgement.Class
	r.Status, r.Worker = string(c.Status), c.Worker
	ct := t.calls[i]
	if ct == nil {
		ct = &callTimes{}
	}
	r.NotRun, r.FinishedMS = ct.notRun, t.passed(ct.finished)
	for _, w := range ct.waits {
		r.Waits = append(r.Waits, Span{FromMS: t.since(w.asked), ToMS: t.passed(w.over)})
	}
	if res := c.Result; res != nil {
		r.Error, r.Code, r.Worker = res.IsError, res.Code, res.Worker
		if aborted[res.Code] {
			r.Blame = res.Error
		}
	}
	r.Runs = p.runs(i, ct, t.groups[r.Group])
	return r
}

// aborted are the codes of calls that something else ended.
var aborted = map[toolyard.Code]bool{toolyard.SiblingCanceled: true, toolyard.Canceled: true, toolyard.Skipped: true,
	toolyard.DeadlineExceeded: true, toolyard.ApprovalExpired: true}

// runs are the times of a call's attempts. No event marks the start of an attempt without a claim: its result has its
// duration.
func (p *Replay) runs(i int, ct *callTimes, started time.Time) (out []Span) {
	t := &p.times
	for n, a := range ct.attempts {
		from := a.claimed
		if from.IsZero() {
			from = a.failed
		}
		end := a.failed
		if n == len(ct.attempts)-1 && end.IsZero() {
			end = ct.finished
			if n := len(ct.waits); end.IsZero() && n > 0 && ct.waits[n-1].asked.After(from) {
				end = ct.waits[n-1].asked
			}
		}
		out = append(out, Span{FromMS: t.since(from), ToMS: t.passed(end), Failed: a.code})
	}
	res := p.state.Calls[i].Result
	if n := len(ct.attempts); res == nil || res.DurationMS <= 0 || ct.notRun != "" ||
		n > 0 && ct.attempts[n-1].failed.IsZero() {
		return out
	}
	end := t.since(ct.finished)
	from := end - res.DurationMS
	if !started.IsZero() {
		from = math.Max(from, t.since(started))
	}
	return append(out, Span{FromMS: from, ToMS: &end})
}

// input is a call as it was handed in.
func (p *Replay) input(i int) toolyard.Call {
	s := &p.state
	if n := len(s.Submission.Calls); i >= n {
		return s.Input[i-n]
	}
	return s.Submission.Calls[i]
}

// CallDetail is all that the log says about one call.
type CallDetail struct {
	Row
	Input json.RawMessage `json:"input" doc:"The input as it was handed in."`
	Pool  toolyard.Pool   `json:"pool,omitempty" doc:"The pool of the workers that may take it."`
	Why   string          `json:"why,omitempty" doc:"What decided its class."`
	Claim bool            `json:"claim,omitempty" doc:"A worker claims it before it runs."`
	// Asked is the question to a person, if there was one.
	AskedReason string           `json:"asked_reason,omitempty" doc:"Why a person was asked."`
	DecidedBy   string           `json:"decided_by,omitempty" doc:"Who decided."`
	Decision    events.Decision  `json:"decision,omitempty" enum:"allow,deny,superseded" doc:"What was decided. superseded: the session went on without a decision."`
	Edited      bool             `json:"edited,omitempty" doc:"The person gave another input."`
	Facts       []toolyard.Fact  `json:"facts" doc:"What the phases before the question to a person found; the result has those of the run."`
	Result      *toolyard.Result `json:"result,omitempty" doc:"The result; left out before it is there."`
	Attempts    []AttemptMoment  `json:"attempts" doc:"Its attempts that were claimed or have failed, in order."`
}

// AttemptMoment is one attempt of a call.
type AttemptMoment struct {
	Attempt int           `json:"attempt" doc:"The number of the attempt, from 1."`
	Worker  string        `json:"worker" doc:"The worker that made the attempt."`
	Code    toolyard.Code `json:"code,omitempty" doc:"Why it failed."`
}

// Call returns what the events so far say about a call; ok is false if there is no such call.
func (p *Replay) Call(i int) (d CallDetail, ok bool) {
	s := &p.state
	if s.Submission == nil || i < 0 || i >= len(s.Submission.Calls)+len(s.Input) {
		return d, false
	}
	group := map[int]int{}
	if s.Plan != nil {
		g := slices.IndexFunc(s.Plan.Groups, func(g events.Group) bool { return slices.Contains(g.Calls, i) })
		group[i] = g
	}
	d = CallDetail{Row: p.row(i, group), Input: p.input(i).Input, Facts: []toolyard.Fact{}, Attempts: []AttemptMoment{}}
	if i >= len(s.Calls) {
		return d, true
	}
	planned, c := &s.Plan.Calls[i], &s.Calls[i]
	d.Pool, d.Why, d.Claim, d.Result = planned.Pool, planned.Judgement.Why, planned.Claim, c.Result
	if c.Asked != nil {
		d.AskedReason, d.Facts = c.Asked.Reason, append(d.Facts, c.Asked.Facts...)
	}
	if c.Decision != nil {
		d.DecidedBy, d.Decision, d.Edited = c.Decision.By, c.Decision.Decision, c.Decision.Edited != ""
	}
	if ct := p.times.calls[i]; ct != nil {
		for _, a := range ct.attempts {
			d.Attempts = append(d.Attempts, AttemptMoment{a.n, a.worker, a.code})
		}
	}
	return d, true
}

// Words describes an event that was added last.
func (p *Replay) Words(e Event) Step {
	return Step{Event: p.read, MS: p.times.since(e.Time), What: Words(e.Record, &p.state)}
}
