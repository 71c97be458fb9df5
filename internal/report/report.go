// Package report adds up what a system has run: which tools are called and how they end, how long phases and waits
// take, what is denied and asked, and which tools nobody calls.
//
// Authority: none; it says what the logs say. The fold is that of package batch.
//
// Ordering: batches may come in any order, the events of one batch as they are stored.
//
// Failure: a log that cannot be followed to its end counts as unreadable, and with what was read of it.
package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

const (
	// MaxNames is how many names a list counts apart: tools, rules, surfaces, tools that nobody calls. What comes later
	// counts under [Others].
	MaxNames = 1_000
	// MaxMadeUp is how many names of tools that do not exist are counted apart: a model may make up any, and leaves the
	// room for those that do exist.
	MaxMadeUp = 100
	// MaxCodes is how many error codes are counted apart: a worker may make up any.
	MaxCodes = 200
	// Others is the name of what has no room in a list.
	Others = "(others)"
	// bytesPerToken is what one token of a definition is taken to be: an estimate, since each model counts in its own
	// way.
	bytesPerToken = 4
)

// Report is the sum of many batches. Its lists begin with what counts most.
type Report struct {
	Since       time.Time `json:"since,omitzero" doc:"The batches were submitted at this time or later. Left out: at any time."`
	Until       time.Time `json:"until,omitzero" doc:"The batches were submitted before this time. Left out: until now."`
	Cut         bool      `json:"cut" doc:"Older batches of the period are left out: there are too many."`
	Oldest      time.Time `json:"oldest,omitzero" doc:"When the oldest batch was submitted that is added up. Left out: there is none."`
	Batches     Batches   `json:"batches" doc:"How many batches there are, and how they stand."`
	Calls       Calls     `json:"calls" doc:"How many calls they have, and how these ended."`
	Tools       []Tool    `json:"tools" doc:"How the calls of each tool went."`
	Codes       []Code    `json:"codes" doc:"How often calls ended with each error code."`
	Phases      []Phase   `json:"phases" doc:"How long each phase took, in the order of the phases."`
	Waits       Waits     `json:"waits" doc:"How long calls and groups waited."`
	Aborts      []Abort   `json:"aborts" doc:"The tools whose failures ended siblings."`
	Denied      []Count   `json:"denied" doc:"What denied permission, and how often: rules, modes, hooks, people."`
	Questions   Questions `json:"questions" doc:"What people were asked."`
	NeverCalled []Unused  `json:"never_called" doc:"Tools that batches were offered and no call named."`
}

// Batches counts batches.
type Batches struct {
	Total      int `json:"total" doc:"All of them."`
	Completed  int `json:"completed" doc:"Those that are completed."`
	Canceled   int `json:"canceled" doc:"Those that were canceled."`
	Refused    int `json:"refused" doc:"Those that were refused: none of their calls ran."`
	UnderWay   int `json:"under_way" doc:"Those that are not over."`
	Unreadable int `json:"unreadable" doc:"Those whose log cannot be followed to its end."`
	TakenOver  int `json:"taken_over" doc:"Those that a dispatcher took over from another one."`
}

// Calls counts calls.
type Calls struct {
	Total         int `json:"total" doc:"All of them."`
	Failed        int `json:"failed" doc:"Those whose result is an error."`
	UnderWay      int `json:"under_way" doc:"Those without a result."`
	Retried       int `json:"retried" doc:"Those that were tried more than once."`
	RetriesHelped int `json:"retries_helped" doc:"Those of retried that succeeded."`
}

// Times says how long something took.
type Times struct {
	Count int64   `json:"count" doc:"How often."`
	P50MS float64 `json:"p50_ms" doc:"The median, in milliseconds, to two digits."`
	P99MS float64 `json:"p99_ms" doc:"What 99 of 100 did not exceed, in milliseconds."`
	MaxMS float64 `json:"max_ms" doc:"The longest, in milliseconds."`
}

// Tool is how the calls of one tool went. Times is from a call's start on a worker to its end; calls that no worker
// took, or finished, have none.
type Tool struct {
	Tool          string `json:"tool" doc:"The tool's name."`
	Calls         int    `json:"calls" doc:"How many calls it had."`
	Failed        int    `json:"failed" doc:"How many of them failed."`
	Retried       int    `json:"retried" doc:"How many of them were tried more than once."`
	RetriesHelped int    `json:"retries_helped" doc:"How many of those succeeded."`
	Times         Times  `json:"times" doc:"How long they took on a worker."`
}

// Code is how often calls ended with an error code, and for which tools most.
type Code struct {
	Code  toolyard.Code `json:"code" doc:"The code."`
	Calls int           `json:"calls" doc:"How many calls ended with it."`
	Tools []Count       `json:"tools" doc:"Whose calls these are, by tool."`
}

// Phase is how long a phase took where it ran, and how many calls it ended.
type Phase struct {
	Phase  toolyard.Phase `json:"phase" doc:"The phase."`
	Failed int            `json:"failed" doc:"How many calls it ended."`
	Times  Times          `json:"times" doc:"How long it took where it ran."`
}

// Waits says how long calls waited in the queue and for people, and groups for the ticket of their workspace.
type Waits struct {
	Queue    Times `json:"queue" doc:"How long calls waited in the queue."`
	Ticket   Times `json:"ticket" doc:"How long groups waited for the ticket of their workspace."`
	Approval Times `json:"approval" doc:"How long calls waited for a person."`
}

// Count is how often something was.
type Count struct {
	Name  string `json:"name" doc:"What it is."`
	Count int    `json:"count" doc:"How often it was."`
}

// Abort is a tool whose failures ended siblings.
type Abort struct {
	Tool   string `json:"tool" doc:"The tool that failed. Empty: it is not known."`
	Groups int    `json:"groups" doc:"In how many groups."`
	Calls  int    `json:"calls" doc:"How many calls ended for it."`
}

// Questions counts the calls about which people were asked. Rules are those that would have spared the questions that
// people answered with yes.
type Questions struct {
	Asked      int     `json:"asked" doc:"About how many calls people were asked."`
	Allowed    int     `json:"allowed" doc:"How many of them they allowed."`
	Denied     int     `json:"denied" doc:"How many they denied."`
	Superseded int     `json:"superseded" doc:"How many were superseded by a later batch."`
	Open       int     `json:"open" doc:"How many are still waited for."`
	Unanswered int     `json:"unanswered" doc:"How many ended without an answer."`
	Rules      []Count `json:"rules" doc:"The rules that would have spared what was allowed, with how many questions each."`
}

// Unused is a tool that was offered in so many batches and never called.
type Unused struct {
	Tool    string `json:"tool" doc:"The tool's name."`
	Batches int    `json:"batches" doc:"In how many batches it was offered."`
	Tokens  int    `json:"tokens_estimated" doc:"About how many tokens its definition takes in each request to the model."`
}

// Builder adds up batches. It is not safe for concurrent use.
type Builder struct {
	r         Report
	tools     map[string]*toolSum
	called    map[string]bool // tools that exist, also those that count under [Others]
	apart     map[bool]int    // how many tools are counted apart: those that exist, and those that do not
	codes     map[toolyard.Code]counts
	phases    map[toolyard.Phase]*phaseSum
	queue     *spread
	ticket    *spread
	approval  *spread
	aborts    map[string]*Abort
	denied    counts
	rules     counts
	surfaces  counts
	unusedFor map[string]Unused
}

type toolSum struct {
	Tool
	times *spread
}

type phaseSum struct {
	failed int
	times  *spread
}

// New makes a report of nothing.
func New() *Builder {
	return &Builder{tools: map[string]*toolSum{}, called: map[string]bool{}, apart: map[bool]int{},
		codes: map[toolyard.Code]counts{}, phases: map[toolyard.Phase]*phaseSum{},
		queue: newSpread(), ticket: newSpread(), approval: newSpread(), aborts: map[string]*Abort{},
		denied: counts{}, rules: counts{}, surfaces: counts{}, unusedFor: map[string]Unused{}}
}

// Add adds a batch.
func (b *Builder) Add(l *Log) {
	s := &l.state
	n := &b.r.Batches
	n.Total++
	if l.takenOver {
		n.TakenOver++
	}
	switch status := s.Status(); {
	case l.problem != "" || s.Submission == nil:
		n.Unreadable++
	case s.Refused != nil:
		n.Refused++
		return
	case status == toolyard.StatusCompleted:
		n.Completed++
	case status == toolyard.StatusCanceled:
		n.Canceled++
	default:
		n.UnderWay++
	}
	for i := range s.Calls {
		planned := &s.Plan.Calls[i]
		b.question(l, i)
		b.call(planned.Tool, planned.Declaration != "", l.result(i))
	}
	for _, rule := range l.spared {
		b.rules.add(rule, 1)
	}
	for i, c := range l.unplanned() { // whether there is such a tool is not known
		b.call(c.Tool, false, l.result(len(s.Calls)+i))
	}
	if s.Plan == nil {
		return
	}
	if s.Plan.Surface != "" {
		b.surfaces.add(s.Plan.Surface, 1)
	}
	for g := range s.Plan.Groups {
		if wait, ok := l.ticketWait(g); ok {
			b.ticket.add(wait)
		}
		if culprit, aborted := l.aborted(g); aborted > 0 {
			b.abort(culprit, aborted)
		}
	}
}

func (b *Builder) abort(tool string, calls int) {
	if tool = counted(b.aborts, tool, MaxNames); b.aborts[tool] == nil {
		b.aborts[tool] = &Abort{Tool: tool}
	}
	b.aborts[tool].Groups++
	b.aborts[tool].Calls += calls
}

// tool returns the sums of a tool, or of [Others] if there are too many names. exists says that there is such a tool.
func (b *Builder) tool(name string, exists bool) *toolSum {
	if exists {
		b.called[name] = true
	}
	room := MaxNames
	if !exists {
		room = MaxMadeUp
	}
	if b.tools[name] == nil {
		if b.apart[exists] < room {
			b.apart[exists]++
		} else {
			name = Others
		}
	}
	if b.tools[name] == nil {
		b.tools[name] = &toolSum{Tool: Tool{Tool: name}, times: newSpread()}
	}
	return b.tools[name]
}

// call adds a call of a tool, which exists or not. It has no result while it is under way.
func (b *Builder) call(name string, exists bool, res *toolyard.Result) {
	t := b.tool(name, exists)
	b.r.Calls.Total++
	t.Calls++
	if res == nil {
		b.r.Calls.UnderWay++
		return
	}
	if res.IsError {
		b.r.Calls.Failed++
		t.Failed++
		code := counted(b.codes, res.Code, MaxCodes)
		if b.codes[code] == nil {
			b.codes[code] = counts{}
		}
		b.codes[code].add(t.Tool.Tool, 1)
	}
	if res.Attempts > 1 {
		b.r.Calls.Retried++
		t.Retried++
		if !res.IsError {
			b.r.Calls.RetriesHelped++
			t.RetriesHelped++
		}
	}
	if res.Worker != "" {
		b.queue.add(millis(res.QueueMS))
		if res.DurationMS > 0 { // otherwise no worker finished it: it was canceled while it ran, say
			t.times.add(millis(res.DurationMS))
		}
	}
	for _, f := range res.Phases {
		p := b.phases[f.Phase]
		if p == nil {
			if !slices.Contains(toolyard.Phases, f.Phase) {
				continue // that of a later version
			}
			p = &phaseSum{times: newSpread()}
			b.phases[f.Phase] = p
		}
		p.times.add(millis(f.MS))
		if f.Outcome != toolyard.OutcomeFailed {
			continue
		}
		p.failed++
		if f.Phase == toolyard.PhasePermission {
			b.denied.add(cmp.Or(f.Detail, string(f.Code)), 1)
		}
	}
}

// question adds what a person was asked about a call. The last question counts.
func (b *Builder) question(l *Log, i int) {
	c := &l.state.Calls[i]
	if c.Asked == nil {
		return
	}
	q := &b.r.Questions
	q.Asked++
	if c.Decision != nil {
		b.approval.add(c.Waited)
	}
	unanswered := l.asked[i] || c.Decision == nil
	switch {
	case unanswered && l.result(i) != nil:
		q.Unanswered++
	case unanswered:
		q.Open++
	case c.Decision.Decision == events.Approve:
		q.Allowed++
	case c.Decision.Decision == events.Supersede:
		q.Superseded++
	default:
		q.Denied++
	}
}

// Batches and Calls are how many were added so far.
func (b *Builder) Batches() int { return b.r.Batches.Total }

// Calls: see [Builder.Batches].
func (b *Builder) Calls() int { return b.r.Calls.Total }

// Surfaces are the hashes of the surfaces that batches saw.
func (b *Builder) Surfaces() []string {
	var out []string
	for hash := range b.surfaces {
		if hash != Others {
			out = append(out, hash)
		}
	}
	slices.Sort(out)
	return out
}

// Offered adds what a surface offers: the bytes of each tool's definition, by name. Tools that a model must load first
// are not offered. All batches must be added before.
func (b *Builder) Offered(hash string, definitions map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		bytes := definitions[name]
		if b.called[name] {
			continue // it needs no room
		}
		name = counted(b.unusedFor, name, MaxNames)
		u := b.unusedFor[name]
		u.Tool, u.Batches = name, u.Batches+b.surfaces[hash]
		u.Tokens = max(u.Tokens, (bytes+bytesPerToken-1)/bytesPerToken)
		b.unusedFor[name] = u
	}
}

// Report returns the sum so far.
func (b *Builder) Report() Report {
	r := b.r
	r.Tools, r.Codes, r.Phases, r.Aborts = []Tool{}, []Code{}, []Phase{}, []Abort{}
	for _, t := range b.tools {
		t.Times = t.times.times()
		r.Tools = append(r.Tools, t.Tool)
	}
	most(r.Tools, func(t *Tool) (int, string) { return t.Calls, t.Tool })
	for code, tools := range b.codes {
		c := Code{Code: code, Tools: tools.sorted()}
		for _, t := range c.Tools {
			c.Calls += t.Count
		}
		r.Codes = append(r.Codes, c)
	}
	most(r.Codes, func(c *Code) (int, string) { return c.Calls, string(c.Code) })
	for _, name := range toolyard.Phases {
		if p := b.phases[name]; p != nil {
			r.Phases = append(r.Phases, Phase{name, p.failed, p.times.times()})
		}
	}
	for _, a := range b.aborts {
		r.Aborts = append(r.Aborts, *a)
	}
	most(r.Aborts, func(a *Abort) (int, string) { return a.Calls, a.Tool })
	r.Waits = Waits{b.queue.times(), b.ticket.times(), b.approval.times()}
	r.Denied, r.Questions.Rules = b.denied.sorted(), b.rules.sorted()
	r.NeverCalled = []Unused{}
	for name, u := range b.unusedFor {
		if !b.called[name] && b.tools[name] == nil {
			r.NeverCalled = append(r.NeverCalled, u)
		}
	}
	most(r.NeverCalled, func(u *Unused) (int, string) { return u.Tokens * u.Batches, u.Tool })
	return r
}

// most sorts a list: what counts most first, and what counts the same by its name.
func most[T any](list []T, by func(*T) (int, string)) {
	slices.SortFunc(list, func(a, b T) int {
		n, name := by(&a)
		m, other := by(&b)
		return cmp.Or(cmp.Compare(m, n), cmp.Compare(name, other))
	})
}

// counts counts names.
type counts map[string]int

// add counts a name, or [Others] if there are too many names.
func (c counts) add(name string, n int) {
	c[counted(c, name, MaxNames)] += n
}

// counted is the name under which something is counted: its own, or [Others] if so many others are there already.
func counted[K ~string, V any](sums map[K]V, name K, most int) K {
	if _, ok := sums[name]; !ok && len(sums) >= most {
		return Others
	}
	return name
}

func (c counts) sorted() []Count {
	out := make([]Count, 0, len(c))
	for name, n := range c {
		out = append(out, Count{name, n})
	}
	most(out, func(c *Count) (int, string) { return c.Count, c.Name })
	return out
}

// The times that a spread tells apart: from a microsecond to a week, to two digits.
const (
	longest = 7 * 24 * time.Hour
	digits  = 2
)

// spread is how a duration is distributed.
type spread struct{ h *hdrhistogram.Histogram }

func newSpread() *spread { return &spread{hdrhistogram.New(1, longest.Microseconds(), digits)} }

func (s *spread) add(d time.Duration) {
	// It is within the limits, so it is recorded.
	_ = s.h.RecordValue(min(max(d.Microseconds(), 0), longest.Microseconds()))
}

func (s *spread) times() Times {
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	return Times{s.h.TotalCount(), ms(s.h.ValueAtQuantile(50)), ms(s.h.ValueAtQuantile(99)), ms(s.h.Max())}
}

// millis is a time in milliseconds as a duration.
func millis(ms float64) time.Duration {
	if math.IsNaN(ms) || ms < 0 {
		return 0
	}
	return time.Duration(min(ms, float64(longest.Milliseconds())) * float64(time.Millisecond))
}
