package sim

import (
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// Time is how long a history has run. Nothing in a history reads another clock.
type Time = time.Duration

// epoch is what the parties' calendars say when a history begins.
var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Options says how a history is played. The zero Options are all fences and all faults.
type Options struct {
	// Trace keeps one line for each step, Chatter also those in which nothing comes of what parties do all the time.
	Trace, Chatter bool
	// Without takes fences away.
	Without []Fence
	// Calm plays the scenario without faults.
	Calm bool
	// Focus makes something happen more often that is rare otherwise. Zero draws it by the seed.
	Focus Focus
}

// Report is how a history ended.
type Report struct {
	Seed  uint64
	Steps int
	End   Time
	// Calls counts those accepted, Executions what workers began.
	Batches, Calls, Executions int
	// Faults counts crashes, pauses and the like, Parked how often a batch was parked, Takeovers how often one got
	// another owner without that; Codes the results by their code, "ok" for success.
	Faults, Parked, Takeovers int
	Codes                     map[string]int
	// Failure is the first invariant that did not hold; nil when all did.
	Failure *Failure
	Trace   []string
}

// Failure says which invariant a history breaks, and how.
type Failure struct {
	Invariant string
	At        Time
	What      string
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s does not hold at %s: %s", f.Invariant, stamp(f.At), f.What)
}

// String is the report of a failed seed.
func (r *Report) String() string {
	var b strings.Builder
	for _, l := range r.Trace {
		fmt.Fprintln(&b, l)
	}
	fmt.Fprintf(&b, "seed %d: %d batches, %d calls, %d executions, %d faults, %d steps, ended at %s\n", r.Seed,
		r.Batches, r.Calls, r.Executions, r.Faults, r.Steps, stamp(r.End))
	if r.Failure != nil {
		fmt.Fprintf(&b, "seed %d: %v\nrepeat with: go test ./internal/sim -run TestSeed -seed %d\n", r.Seed, r.Failure,
			r.Seed)
	}
	return b.String()
}

// maxSteps and maxTime are when a history that does not come to rest is given up.
const (
	maxSteps = 400_000
	patience = 120 * time.Second // after the faults have stopped
)

// Sim is one history being played.
type Sim struct {
	opt     Options
	removed [fenceCount]bool
	rand    *rand.Rand
	aside   *rand.Rand // of draws that leave the others as they are
	now     Time
	queue   agenda
	n       uint64
	steps   int
	failure *Failure
	trace   []string

	focus   Focus
	f       faults
	quietAt Time // when the faults stop
	faulted int

	sc       *scenario
	nats     *server
	machines []*machine
	ledger   []*execution
	// everyWorker is all that ever ran, by name; tokens is who committed last in each workspace.
	everyWorker map[string]*worker
	tokens      map[toolyard.Workspace]*execution
}

// Run plays the history of a seed.
func Run(seed uint64, opt Options) *Report {
	draws := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	s := &Sim{opt: opt, rand: draws(0x70017a2d), aside: draws(0xf02907), everyWorker: map[string]*worker{}}
	for _, f := range opt.Without {
		s.removed[f] = true
	}
	s.run()
	r := &Report{Seed: seed, Steps: s.steps, End: s.now, Executions: len(s.ledger), Faults: s.faulted,
		Failure: s.failure, Trace: s.trace}
	r.Codes = map[string]int{}
	for _, b := range s.sc.batches {
		truth := &s.nats.logs[b.key].truth
		r.Batches++
		r.Calls += len(truth.Calls)
		parked := false
		for _, m := range s.nats.logs[b.key].batch {
			switch m.Body.EventType() {
			case events.BatchParked:
				r.Parked++
			case events.BatchAdopted:
				if !parked {
					r.Takeovers++
				}
			}
			parked = m.Body.EventType() == events.BatchParked
		}
		for _, c := range truth.Calls {
			if c.Result != nil {
				code := string(c.Result.Code)
				if code == "" {
					code = "ok"
				}
				r.Codes[code]++
			}
		}
	}
	return r
}

func (s *Sim) run() {
	defer func() {
		if p := recover(); p != nil {
			s.fail("panic", "%v in %s", p, where())
		}
	}()
	s.setUp()
	s.play()
	if s.failure == nil {
		s.judge()
	}
}

// where is the function that has panicked, and those that called it.
func where() string {
	pcs := make([]uintptr, 12)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var names []string
	for more := true; more && len(names) < 5; {
		var f runtime.Frame
		f, more = frames.Next()
		if name := path.Base(f.Function); !strings.HasPrefix(name, "runtime.") {
			names = append(names, fmt.Sprintf("%s:%d", name, f.Line))
		}
	}
	return strings.Join(names, " < ")
}

// play takes one event after the other, until everything is at rest.
func (s *Sim) play() {
	for s.failure == nil && !s.atRest() {
		e, ok := s.queue.pop()
		if !ok {
			s.fail("liveness", "nothing is going to happen any more: %s", s.open())
			return
		}
		s.now = e.at
		if e.th != nil {
			if e.th.dead() {
				continue
			}
			if p := e.th.p; p.pausedUntil > s.now { // it happens to it when it wakes up
				p.held = append(p.held, e)
				continue
			}
		}
		if s.steps++; s.steps > maxSteps || s.now > s.quietAt+patience {
			s.fail("liveness", "no rest %s after the last fault: %s", stamp(s.now-s.quietAt), s.open())
			return
		}
		e.do()
	}
}

// fail records the first broken invariant.
func (s *Sim) fail(invariant, format string, args ...any) {
	if s.failure == nil {
		s.failure = &Failure{Invariant: invariant, At: s.now, What: fmt.Sprintf(format, args...)}
		s.log("!!", "%s", s.failure)
	}
}

// log keeps a line of the trace.
func (s *Sim) log(who, format string, args ...any) {
	if s.opt.Trace {
		s.trace = append(s.trace, fmt.Sprintf("%10s %-6s %s", stamp(s.now), who, fmt.Sprintf(format, args...)))
	}
}

func stamp(t Time) string { return fmt.Sprintf("%.4fs", t.Seconds()) }

// at plans what happens to a thread, or to the server when th is nil.
func (s *Sim) at(th *thread, t Time, do func()) {
	s.n++
	s.queue.push(event{at: max(t, s.now), n: s.n, th: th, do: do})
}

func (s *Sim) after(th *thread, d Time, do func()) { s.at(th, s.now+d, do) }

// clock is what a party reads on its calendar.
func (s *Sim) clock() time.Time { return epoch.Add(s.now) }

// chance is true in p of all cases, while there are faults.
func (s *Sim) chance(p float64) bool {
	return p > 0 && s.now < s.quietAt && s.rand.Float64() < p
}

// between draws a time.
func (s *Sim) between(a, b Time) Time { return a + Time(s.rand.Int64N(int64(b-a)+1)) }

// delay draws how long a message travels.
func (s *Sim) delay() Time {
	if s.f.slow > 0 && s.rand.Float64() < s.f.slow {
		return s.between(3*time.Millisecond, 120*time.Millisecond)
	}
	return s.between(50*time.Microsecond, 2*time.Millisecond)
}

// event is something that is going to happen.
type event struct {
	at Time
	n  uint64 // the order of events at one time
	th *thread
	do func()
}

// agenda is a heap, the earliest first.
type agenda []event

func (q agenda) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}

func (q *agenda) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *agenda) pop() (event, bool) {
	h := *q
	if len(h) == 0 {
		return event{}, false
	}
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		small := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < last && h.less(c, small) {
				small = c
			}
		}
		if small == i {
			break
		}
		h[i], h[small] = h[small], h[i]
		i = small
	}
	return top, true
}
