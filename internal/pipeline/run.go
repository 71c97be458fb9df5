package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/scan"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/tool"
)

// Pipeline runs calls. Set its fields before the first use and do not change them later. It is safe for concurrent use.
// The zero Pipeline can [Pipeline.Preflight], and refuses to run anything.
type Pipeline struct {
	// Tools has the tools' code. Nil: every tool is unknown.
	Tools Tools
	// Hooks run around the tool. Nil: none.
	Hooks Hooks
	// Permission decides. Nil: every call is denied.
	Permission Permission
	// Breakers watch dependencies. Nil: none are watched.
	Breakers Breakers
	// Cache has the outputs that answer later calls. Nil: there is none, and each call is executed.
	Cache *Cache
	// Blobs stores long outputs. Nil: they end as result_too_large with a preview.
	Blobs Blobs
	// Tokens limits results in tokens too. Nil: characters alone count.
	Tokens *Tokens
	// Redact removes secrets from a text. It is applied to each string of an input, to outputs, errors and details.
	// Nil: nothing is removed. If it panics, the text is withheld.
	Redact func(string) string
	// Unfinished returns where the end of a text begins that may be the beginning of a secret, for progress, which is
	// told in pieces. Nil: nobody knows, and only whole lines are told.
	Unfinished func(string) int
	// Classify judges shell commands, for inputs that a hook has changed. Nil: all of those are UNSAFE.
	Classify registry.Classifier
	// Scan are the scanners that look through outputs from outside before a model reads them. Nil: none do.
	Scan []scan.Rule
	// Fence puts outputs from outside between delimiters, also where the batch does not ask for it. Nonce makes the
	// part of the delimiters that nobody can guess; nil: [rand.Text].
	Fence bool
	Nonce func() string
	// Schemas caches compiled schemas. Nil: a new cache.
	Schemas *schema.Cache

	// Isolation is the sandbox that this worker has for commands. Empty and "none": no sandbox, and calls that need one
	// are refused; see [registry.Host]. Results do not state this, but what isolated the commands that ran; see
	// [sandbox.Stamp].
	Isolation string
	// Unsandboxed lets calls run without isolation that should be isolated. Only an operator may set it.
	Unsandboxed bool
	// Worker names this worker in results.
	Worker string
	// Now is the clock for durations. Nil: [time.Now].
	Now func() time.Time

	// Grace is how long hooks, checks and similar functions have to return after their context ended. 0:
	// [DefaultGrace].
	Grace time.Duration
	// StopGrace is how long a tool has to return after its context ended. Until then no other call may act in its
	// workspace. 0: [DefaultStopGrace].
	StopGrace time.Duration
	// CheckTimeout bounds a tool's Check. 0: [DefaultCheckTimeout].
	CheckTimeout time.Duration
	// FinishTimeout bounds the phases after execute. A cancel does not end them, since the tool has run and its result
	// is worth keeping. 0: [DefaultFinishTimeout].
	FinishTimeout time.Duration
	// MaxLeaked is how many abandoned goroutines may exist before no new call is started. 0: [DefaultMaxLeaked].
	MaxLeaked int
	// Leaks counts the abandoned goroutines, together with the other pipelines that have it. Nil: a count of its own.
	Leaks *atomic.Int64

	ownSchemas schema.Cache
	ownLeaks   atomic.Int64
	rows       []row // nil: table; tests set others
}

// call is one run of the pipeline.
type call struct {
	p       *Pipeline
	job     Job
	started time.Time
	at      time.Time // when the last phase ended, and the next one begins
	rows    []row

	// find resolves the tool's name: in the worker's tools, or in a surface.
	find func(name string) (*registry.Entry, *failure)

	entry     *registry.Entry
	code      *tool.Tool // zero at the dispatcher
	value     schema.Value
	givenHash string // of the input as it came, by its canonical form
	patterns  *schema.Allowance
	judgement tool.Judgement
	// observable is the copy of the input for others, and toHooks the one for hooks; seen is the latter, decoded.
	observable, toHooks json.RawMessage
	seen                any
	// hidden says that more than a secret may be missing from observable.
	hidden bool

	// changed says that a hook has changed the input, changedBy which hook.
	changed, again bool
	changedBy      string
	opinion        Behavior
	opinionReason  string
	contexts       []string

	release  func()
	report   func(breaker.Outcome)
	executed bool
	// reuse is set while other calls may get the call's output.
	reuse *reuse
	// refused says that a commit point of the tool was refused, since the right to the call was lost.
	refused atomic.Bool
	out     tool.Output
	// badOutput says that the tool's output cannot be encoded: map_result fails with it.
	badOutput *tool.Error
	// text is the output. kept says that it is part of the result although the call failed.
	text string
	kept bool
	// parts are the output in parts; nil if it is text alone. derived says that text was made from them. structured is
	// the output as data.
	parts      []toolyard.Content
	derived    bool
	structured json.RawMessage
	// uncut is the size of an output of which only the ends are kept; 0 for others.
	uncut int
	// nonce is in the delimiters around what comes from outside; empty: there are none.
	nonce string
	// change is the accepted part of the tool's change of its session; told is what the model reads about the rest.
	change tool.SessionChange
	told   []string
	// remarks are persist_result's remarks on the output.
	remarks []string
	// fitted says that text has been redacted and cut to size.
	fitted   bool
	redacted bool

	fail    *failure
	lost    bool
	waiting *WaitingError
	res     toolyard.Result
}

// Run takes a call through all phases and returns its terminal result. If there is no result, the error is or wraps
// [ErrLost], or is a [*WaitingError]; there are no other errors. Cancel ctx with one of the causes in this package; see
// [ErrCanceled].
func (p *Pipeline) Run(ctx context.Context, job Job) (toolyard.Result, error) {
	c := p.begin(&job)
	c.find = c.findInTools
	err := rescue(func() error { c.run(ctx); return nil })
	c.releaseAll()
	if err != nil { // a bug in the loop itself
		c.broken(err)
	}
	c.share()
	// A tool that returned before the right to its call was lost has a result; the log says whether it counts.
	if c.lost || !c.executed && errors.Is(context.Cause(ctx), ErrLost) {
		return toolyard.Result{}, ErrLost
	}
	if c.waiting != nil {
		return toolyard.Result{}, c.waiting
	}
	if change, ok := c.sessionChange(); ok {
		job.SessionChange(change)
	}
	return c.res, nil
}

// What a call has before its tool is found.
var (
	noEntry = &registry.Entry{}
	noCode  = &tool.Tool{}
)

func (p *Pipeline) begin(job *Job) *call {
	c := &call{}
	p.reset(c, job)
	return c
}

// reset begins a call in place of one that nobody uses any more. It sets the fields one by one: a literal would stand
// on the stack first, and a new goroutine's stack would grow for it.
func (p *Pipeline) reset(c *call, from *Job) {
	phases := c.res.Phases[:0]
	*c = call{}
	c.p, c.job, c.rows, c.entry, c.code = p, *from, p.rows, noEntry, noCode
	job := &c.job
	job.Attempt = max(job.Attempt, 1)
	if !job.Judgement.Class.Known() {
		job.Judgement = tool.Strictest("nothing was judged")
	}
	c.judgement = job.Judgement
	if c.rows == nil {
		c.rows = table
	}
	c.started = p.now()
	c.at = c.started
	r := &c.res
	if a := job.Approved; a != nil {
		c.contexts, r.ApprovalWaitMS = slices.Clone(a.Context), ms(a.Waited)
	}
	r.Index, r.CallID, r.Tool, r.Echo = job.Index, job.Call.ID, submission.ShownName(job.Call.Tool), job.Call.Echo
	r.Class, r.QueueMS, r.Worker, r.Attempts = job.Judgement.Class, job.QueueMS, p.Worker, job.Earlier
	r.Phases = slices.Grow(phases, len(c.rows))
}

func (c *call) run(ctx context.Context) {
	finishing := ctx
	for i := range c.rows {
		r := &c.rows[i]
		if c.lost || c.waiting != nil || !c.due(r) {
			continue
		}
		if c.executed && r.phase != toolyard.PhaseExecute && finishing == ctx {
			var cancel context.CancelFunc
			finishing, cancel = context.WithTimeoutCause(context.WithoutCancel(ctx),
				orDefault(c.p.FinishTimeout, DefaultFinishTimeout),
				errors.New("the phases after execute took too long"))
			defer cancel()
		}
		c.step(finishing, r)
		if r.phase == toolyard.PhasePreHooks && c.changed {
			c.repeat(ctx)
		}
	}
}

func (c *call) due(r *row) bool {
	switch r.when {
	case always:
		return true
	case whenExecuted:
		return c.executed
	}
	return c.fail == nil
}

// repeat runs the phases again that examined an input which a hook has replaced: the approved input must be the one
// that runs.
func (c *call) repeat(ctx context.Context) {
	c.again = true
	for i := range c.rows {
		switch r := &c.rows[i]; r.phase {
		case toolyard.PhaseParseSchema, toolyard.PhaseValidateValues, toolyard.PhaseObservableInput:
			if c.fail == nil && !c.lost {
				c.step(ctx, r)
			}
		}
	}
	c.again = false
}

// step runs one phase and records its fact.
func (c *call) step(ctx context.Context, r *row) {
	began := c.at
	var f finding
	if stop := c.ended(ctx); stop != nil && r.waits {
		f = finding{fail: stop}
	} else if err := rescue(func() error { f = r.run(c, ctx); return nil }); err != nil {
		f = c.bug(r.phase, err)
	}
	if f.fail != nil && f.fail.lost {
		c.lost = true
		return
	}
	if f.wait != nil {
		f.noted = true
	}
	code := f.remark
	if f.fail != nil {
		code = f.fail.code
	}
	if (code != toolyard.OK && !r.allows(code)) || (f.fail != nil && !code.IsError()) {
		f = c.bug(r.phase, fmt.Errorf("the phase ended with the code %q, which is not one of its own", code))
		code = toolyard.InternalError
	}
	fact := toolyard.Fact{Phase: r.phase, Outcome: toolyard.OutcomeOK, Code: code, Detail: f.detail}
	if c.again {
		f.noted = true
		fact.Detail = join("again: the input was changed by "+c.changedBy, fact.Detail)
	}
	switch {
	case f.fail != nil && c.fail == nil:
		c.fail = f.fail
		fact.Outcome, fact.Detail = toolyard.OutcomeFailed, join(fact.Detail, f.fail.detail)
	case f.fail != nil: // the call has failed already: its first failure stands
		fact.Outcome, fact.Detail = toolyard.OutcomeNoted, join(fact.Detail, f.fail.detail)
	case f.noted:
		fact.Outcome = toolyard.OutcomeNoted
	}
	fact.Detail = clip.Bytes(c.withhold(fact.Detail), MaxFactDetailBytes)
	now := c.p.now()
	c.at = now
	fact.MS = ms(now.Sub(began))
	c.res.Phases = append(c.res.Phases, fact)
	if f.wait != nil {
		f.wait.Facts, c.waiting = c.res.Phases, f.wait
	}
	if r.phase == toolyard.PhaseEmitTerminal {
		if f.fail != nil { // emit_terminal itself failed: what it has written cannot be trusted
			c.plain()
		}
		c.res.DurationMS = ms(now.Sub(c.started))
	}
}

// bug is the finding for an internal error.
func (c *call) bug(phase toolyard.Phase, err error) finding {
	detail := err.Error()
	if p, ok := errors.AsType[*panicError](err); ok {
		detail += "\n" + string(p.stack)
	}
	return failed(toolyard.InternalError, fmt.Sprintf("Internal error in %s.", phase), detail)
}

// broken makes the result of a call whose run could not be finished.
func (c *call) broken(err error) {
	f := c.bug(toolyard.PhaseEmitTerminal, err)
	c.fail = f.fail
	c.res.Phases = append(c.res.Phases, toolyard.Fact{Phase: toolyard.PhaseEmitTerminal,
		Outcome: toolyard.OutcomeFailed,
		Code:    toolyard.InternalError, Detail: clip.Bytes(c.withhold(f.fail.detail), MaxFactDetailBytes)})
	c.plain()
	c.res.DurationMS = ms(c.p.now().Sub(c.started))
}

// releaseAll releases what the call still holds.
func (c *call) releaseAll() {
	if c.report != nil {
		c.report(breaker.Unrelated)
		c.report = nil
	}
	if c.release != nil {
		c.release()
		c.release = nil
	}
}

// panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// rescue is the only place that recovers panics.
func rescue(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return fn()
}

func (p *Pipeline) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

func (p *Pipeline) schemas() *schema.Cache {
	if p.Schemas != nil {
		return p.Schemas
	}
	return &p.ownSchemas
}

// leaks counts the abandoned goroutines.
func (p *Pipeline) leaks() *atomic.Int64 {
	if p.Leaks != nil {
		return p.Leaks
	}
	return &p.ownLeaks
}

// ms is a duration in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Microsecond)) / 1000 }

func orDefault(d, or time.Duration) time.Duration {
	if d <= 0 {
		return or
	}
	return d
}
