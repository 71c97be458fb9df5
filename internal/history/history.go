// Package history makes rows of tables from logs: one row for each batch and one for each call, with times, codes and
// sizes, and without what the calls were given and what they returned.
//
// Authority: the log, through the fold of package batch. Ordering: events are added in the order of a tail, in which a
// reply comes after the results in it. Failure: a log that cannot be followed gives the rows of its events before that,
// and the batch's row says what is wrong.
package history

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// Batch is a row of the table of batches. What is not known, or not yet, is nil.
type Batch struct {
	Agent     toolyard.Agent     `json:"agent"`
	ID        toolyard.BatchID   `json:"batch"`
	Session   toolyard.Session   `json:"session"`
	Workspace toolyard.Workspace `json:"workspace"`
	// Place is the sequence of the submission: batches have their order by it.
	Place int64 `json:"place"`
	// Status is that of the batch, or [Refused] or [Unreadable].
	Status toolyard.Status `json:"status"`
	// Submitted is when the submission was stored, Planned the plan, and Ended the last reply or the refusal.
	Submitted time.Time  `json:"submitted"`
	Planned   *time.Time `json:"planned"`
	Ended     *time.Time `json:"ended"`
	Calls     int32      `json:"calls"`
	// Failed is how many of the calls ended with an error.
	Failed int32 `json:"failed"`
	Groups int32 `json:"groups"`
	// InputBytes and OutputBytes are the sums of those of the calls.
	InputBytes     int64             `json:"input_bytes"`
	OutputBytes    int64             `json:"output_bytes"`
	Partition      toolyard.Strategy `json:"partition"`
	MaxConcurrency *int32            `json:"max_concurrency"`
	Interactive    bool              `json:"interactive"`
	// Surface is the hash of the tools that the batch saw, Owner the last dispatcher that ran it, and Takeovers how
	// many had it before.
	Surface   *string `json:"surface"`
	Owner     *string `json:"owner"`
	Takeovers int32   `json:"takeovers"`
	// Events is how many events the log has, the submission and the replies included.
	Events int32 `json:"events"`
	// Problem says why the log could not be followed to its end.
	Problem *string `json:"problem"`
}

// Call is a row of the table of calls. What is not known, or not yet, is nil.
type Call struct {
	Agent     toolyard.Agent     `json:"agent"`
	Batch     toolyard.BatchID   `json:"batch"`
	Session   toolyard.Session   `json:"session"`
	Workspace toolyard.Workspace `json:"workspace"`
	Index     int32              `json:"index"`
	Group     *int32             `json:"group_index"`
	ID        string             `json:"id"`
	Tool      string             `json:"tool"`
	Class     *toolyard.Class    `json:"class"`
	Pool      *toolyard.Pool     `json:"pool"`
	// Submitted is when the call was handed in, and Ended when its result was stored. Started is when a worker claimed
	// it for the last time. For a call without a claim it is Ended less the duration: nothing is stored when it starts.
	Submitted time.Time  `json:"submitted"`
	Started   *time.Time `json:"started"`
	Ended     *time.Time `json:"ended"`
	// OK and Code are those of the result; the code of a success is empty.
	OK       *bool          `json:"ok"`
	Code     *toolyard.Code `json:"code"`
	Attempts *int32         `json:"attempts"`
	Worker   *string        `json:"worker"`
	// The durations in the result, in microseconds.
	QueueUS        *int64 `json:"queue_us"`
	DurationUS     *int64 `json:"duration_us"`
	ExecuteUS      *int64 `json:"execute_us"`
	ApprovalWaitUS *int64 `json:"approval_wait_us"`
	// InputBytes is the size of the input as it was handed in. OutputBytes is the size of what the result has: its
	// output or the preview of it, its parts, its data and its error.
	InputBytes  int64  `json:"input_bytes"`
	OutputBytes *int64 `json:"output_bytes"`
	// Truncated says that the output is stored apart, and that its size is not in OutputBytes.
	Truncated *bool `json:"truncated"`
}

// The statuses of batches that a running system does not list.
const (
	Refused    toolyard.Status = "refused"
	Unreadable toolyard.Status = "unreadable" // its submission cannot be read
)

// maxProblemBytes bounds what a row says is wrong.
const maxProblemBytes = 500

// Log collects what the rows of one batch have. It keeps no inputs and no outputs.
type Log struct {
	state          batch.State
	key            toolyard.BatchKey
	place          uint64
	submitted      time.Time
	planned, ended *time.Time
	events         int
	problem        string
	handed         []handed
	calls          map[int]*told
	givenUp        map[int]*toolyard.Result
}

// handed is a call as it was handed in.
type handed struct {
	id, tool string
	bytes    int
	at       time.Time
}

// told is what the events say of a call beside its result.
type told struct {
	claimed, ended time.Time
	outputBytes    int
}

// New begins the log of the batch whose submission is stored at a place.
func New(k toolyard.BatchKey, place uint64, submitted time.Time) *Log {
	return &Log{state: batch.State{Key: k}, key: k, place: place, submitted: submitted, calls: map[int]*told{},
		givenUp: map[int]*toolyard.Result{}}
}

// Stop says that the log cannot be read any further, and why.
func (l *Log) Stop(problem string) {
	if l.problem == "" {
		l.problem = problem
	}
	if len(l.problem) > maxProblemBytes {
		l.problem = strings.ToValidUTF8(l.problem[:maxProblemBytes], "") + "…"
	}
}

// Add adds the next event. Nothing that is added after a problem changes the rows.
func (l *Log) Add(r batch.Record) {
	if l.problem != "" {
		return
	}
	l.events++
	results := l.strip(&r)
	if err := l.state.Apply(r); err != nil {
		l.Stop(err.Error())
		return
	}
	switch b := r.Body.(type) {
	case events.Planned:
		l.planned = at(r.Time)
	case events.Claimed:
		for _, i := range r.Calls() {
			if l.has(i) && l.state.Calls[i].Seq == r.Seq { // not that of another pool, which means nothing
				l.call(i).claimed = r.Time
			}
		}
	case events.AttemptFailed:
		for _, i := range r.Calls() {
			if l.has(i) && l.state.Calls[i].Seq == r.Seq {
				l.call(i).claimed = time.Time{} // that was the attempt before
			}
		}
	case events.Refused:
		if l.ended == nil {
			l.ended = at(r.Time)
		}
	case events.Reply:
		if b.Completed {
			l.ended = at(r.Time)
		}
		for i := range b.Results {
			l.giveUp(&b.Results[i], results[b.Results[i].Index], r.Time)
		}
		return
	}
	for i, size := range results {
		if !l.has(i) || l.state.Calls[i].Result == nil ||
			r.Chain == batch.ChainItem && l.state.Calls[i].Seq != r.Seq {
			continue
		}
		t := l.call(i)
		t.ended, t.outputBytes = r.Time, size
	}
}

// giveUp notes a result that stands in a reply alone: its owner could not go on with the batch.
func (l *Log) giveUp(r *toolyard.Result, size int, when time.Time) {
	i := r.Index
	if i < 0 || i >= len(l.handed) || i < len(l.state.Calls) && !l.state.Open(i) {
		return
	}
	t := l.call(i)
	l.givenUp[i], t.ended, t.outputBytes = r, when, size
}

// has reports whether there is a call: an event of another pool, which means nothing, may name any.
func (l *Log) has(i int) bool { return i >= 0 && i < len(l.state.Calls) }

func (l *Log) call(i int) *told {
	if l.calls[i] == nil {
		l.calls[i] = &told{}
	}
	return l.calls[i]
}

// strip takes inputs and outputs out of an event. It notes the sizes of inputs, and returns those of outputs by call.
func (l *Log) strip(r *batch.Record) map[int]int {
	sizes := map[int]int{}
	some := func(results []toolyard.Result) []toolyard.Result {
		out := make([]toolyard.Result, len(results))
		for i := range results {
			sizes[results[i].Index] = outputBytes(&results[i])
			out[i] = slim(&results[i])
		}
		return out
	}
	switch b := r.Body.(type) {
	case events.Submitted:
		b.Calls = l.hand(b.Calls, r.Time)
		r.Body = b
	case events.Appended:
		if !l.state.InputClosed { // what comes later is in no batch
			b.Calls = l.hand(b.Calls, r.Time)
		}
		r.Body = b
	case events.Planned:
		b.Results = some(b.Results)
		r.Body = b
	case events.Extended:
		b.Results = some(b.Results)
		r.Body = b
	case events.Settled:
		b.Results = some(b.Results)
		r.Body = b
	case events.Reply:
		b.Results = some(b.Results)
		r.Body = b
	case events.Finished:
		var ends []events.End
		for e := range b.Ends() {
			sizes[e.Result.Index] = outputBytes(&e.Result)
			ends = append(ends, events.End{Result: slim(&e.Result)})
		}
		r.Body = events.Finish(ends...)
	}
	return sizes
}

// hand notes calls that were handed in, and returns them without inputs.
func (l *Log) hand(calls []toolyard.Call, when time.Time) []toolyard.Call {
	out := make([]toolyard.Call, len(calls))
	copy(out, calls)
	toolyard.NormalizeCalls(out, len(l.handed))
	for i := range out {
		l.handed = append(l.handed, handed{out[i].ID, out[i].Tool, len(out[i].Input), when})
		out[i].Input, out[i].Echo = nil, nil
	}
	return out
}

// slim is a result without what it returned.
func slim(r *toolyard.Result) toolyard.Result {
	return toolyard.Result{Index: r.Index, CallID: r.CallID, Tool: r.Tool, IsError: r.IsError, Code: r.Code,
		Class: r.Class, DurationMS: r.DurationMS, ExecuteMS: r.ExecuteMS, QueueMS: r.QueueMS,
		ApprovalWaitMS: r.ApprovalWaitMS, Attempts: r.Attempts, Worker: r.Worker, Truncated: r.Truncated}
}

func outputBytes(r *toolyard.Result) int {
	n := len(r.Output) + len(r.Error) + len(r.Structured)
	for i := range r.Content {
		n += len(r.Content[i].Data)
		if len(r.Content[i].Data) == 0 { // the text of other parts stands in the output
			n += len(r.Content[i].URI)
		}
	}
	return n
}

// Rows are the rows of the batch, as far as its events were added.
func (l *Log) Rows() (Batch, []Call) {
	s := &l.state
	b := Batch{Agent: l.key.Agent, ID: l.key.ID, Place: int64(l.place), Status: l.status(),
		Submitted: inMicros(l.submitted),
		Planned:   l.planned, Ended: l.ended, Calls: int32(len(l.handed)), Takeovers: int32(s.Takeovers),
		Events: int32(l.events), Owner: known(s.Owner), Problem: known(l.problem)}
	if n := len(s.Newer); n > 0 && b.Problem == nil {
		b.Problem = new(fmt.Sprintf("a newer version wrote %d of the events, and what they say is missing here", n))
	}
	if sub := s.Submission; sub != nil {
		b.Session, b.Workspace, b.Partition = sub.Session, sub.Workspace, sub.Options.Partition
		b.Interactive = sub.Interactive
	}
	groups := map[int]int32{}
	if p := s.Plan; p != nil {
		b.Session, b.Workspace, b.Partition = p.Session, p.Workspace, p.Partition
		b.MaxConcurrency, b.Surface, b.Groups = new(int32(p.MaxConcurrency)), known(p.Surface), int32(len(p.Groups))
		for g, group := range p.Groups {
			for _, i := range group.Calls {
				groups[i] = int32(g)
			}
		}
	}
	calls := make([]Call, len(l.handed))
	for i := range calls {
		c := &calls[i]
		*c = l.row(i, &b)
		if g, ok := groups[i]; ok {
			c.Group = &g
		}
		b.InputBytes += c.InputBytes
		if c.OutputBytes != nil {
			b.OutputBytes += *c.OutputBytes
		}
		if c.OK != nil && !*c.OK {
			b.Failed++
		}
	}
	return b, calls
}

// row is the row of one call.
func (l *Log) row(i int, b *Batch) Call {
	h := &l.handed[i]
	c := Call{Agent: b.Agent, Batch: b.ID, Session: b.Session, Workspace: b.Workspace, Index: int32(i), ID: h.id,
		Tool: h.tool, Submitted: inMicros(h.at), InputBytes: int64(h.bytes)}
	result := l.givenUp[i]
	if p := l.state.Plan; p != nil && i < len(p.Calls) {
		c.Tool, c.Pool, c.Class = p.Calls[i].Tool, known(p.Calls[i].Pool), known(p.Calls[i].Judgement.Class)
		if r := l.state.Calls[i].Result; r != nil {
			result = r
		}
	}
	t := l.calls[i]
	if t != nil {
		c.Started = at(t.claimed)
	}
	if result == nil || t == nil {
		return c
	}
	c.Ended, c.OutputBytes = at(t.ended), new(int64(t.outputBytes))
	if c.Started == nil && result.Worker != "" && result.DurationMS > 0 {
		c.Started = at(t.ended.Add(-time.Duration(result.DurationMS * float64(time.Millisecond))))
	}
	c.OK, c.Code, c.Truncated = new(!result.IsError), &result.Code, new(result.Truncated)
	c.Attempts, c.Worker = new(int32(result.Attempts)), known(result.Worker)
	c.QueueUS, c.DurationUS = micros(result.QueueMS), micros(result.DurationMS)
	c.ExecuteUS, c.ApprovalWaitUS = micros(result.ExecuteMS), micros(result.ApprovalWaitMS)
	if result.Class != "" {
		c.Class = known(result.Class)
	}
	return c
}

func (l *Log) status() toolyard.Status {
	switch {
	case l.state.Submission == nil:
		return Unreadable
	case l.state.Refused != nil:
		return Refused
	}
	return l.state.Status()
}

// known is nil for what is empty.
func known[T ~string](v T) *T {
	if v == "" {
		return nil
	}
	return &v
}

// at is a time of a row; nil for the zero time.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = inMicros(t)
	return &t
}

func inMicros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func micros(ms float64) *int64 { return new(int64(math.Round(ms * 1000))) }
