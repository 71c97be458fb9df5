package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// options say how a history is played.
type options struct {
	// trace keeps a line for each step, and logs what the parties say.
	trace io.Writer
	// calm plays it without faults.
	calm bool
	// about is the history's focus; empty: it is drawn.
	about focus
	// scenario is played instead of the one that is drawn; script breaks something, when the agents have begun.
	scenario *scenario
	script   func(*world)
	// refused are the messages that the server stores though it should refuse them; nil: none.
	refused func(subject string, header func(name string) string) bool
	// attack is what the history is made of; empty: it is drawn.
	attack attack
}

// report is how a history ended.
type report struct {
	seed     uint64
	problems []string
	took     time.Duration
	lines    int // of the ledger
	hash     string
	steps    int
	plays    map[string]bool // what it has played; see plays
}

// String says what is wrong.
func (r *report) String() string {
	return fmt.Sprintf("seed %d: %s\nrepeat with: make sim SEED=%d", r.seed, strings.Join(r.problems, "\n"), r.seed)
}

// trace is what happened, in order.
type trace struct {
	mu    sync.Mutex
	out   io.Writer
	sum   *summer
	names names
}

// note notes a step of a party.
func (w *world) note(who, format string, args ...any) {
	w.trace.mu.Lock()
	defer w.trace.mu.Unlock()
	line := fmt.Sprintf("%12s %-6s %s\n", stamp(w.now()), who, w.trace.names.replace(fmt.Sprintf(format, args...)))
	w.trace.sum.add(line)
	if w.trace.out != nil {
		_, _ = io.WriteString(w.trace.out, line) // for people
	}
}

func stamp(d time.Duration) string { return fmt.Sprintf("%.6fs", d.Seconds()) }

// patience is how long after the last fault everything is over.
const patience = 100 * time.Second

// newWorld draws a history.
func newWorld(seed uint64, b bus, opt options) *world {
	w := &world{seed: seed, bus: b, book: newBook(), shelf: newShelf(), began: time.Now(),
		seen: map[toolyard.BatchKey]*seen{}, settled: func(toolyard.BatchKey) time.Time { return time.Time{} },
		log: slog.New(slog.DiscardHandler), broken: make(chan struct{}), over: make(chan struct{})}
	w.stage = newStage(w, nil)
	w.trace = &trace{out: opt.trace, sum: newSummer(), names: names{known: map[string]int{}}}
	if opt.trace != nil {
		w.log = slog.New(slog.NewTextHandler(opt.trace, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	if opt.attack != "" {
		opt.about = anything
	}
	if w.sc = opt.scenario; w.sc == nil {
		w.sc = w.drawScenario(opt.about)
	}
	w.versions = &versions{seed: seed, next: map[string]bool{}, only: map[string]bool{}}
	if w.sc.focus == upgrades {
		for _, machine := range []string{"d2", "w2", "api", "p1", "judge"} {
			w.versions.next[machine] = true
		}
	}
	if !opt.calm {
		w.fate = w.drawFate()
		if opt.attack != "" {
			w.attacked(opt.attack)
		}
		w.note("", "%s", w.fate)
	}
	for _, a := range w.sc.agents {
		for _, b := range a.batches {
			w.seen[b.batch.Key()] = &seen{spec: b}
		}
	}
	return w
}

// play plays the history to its end, and returns when nothing of it runs any more.
func (w *world) play(opt options) *report {
	w.workersReady.Add(len(w.sc.workers))
	for i := range w.sc.dispatchers {
		w.add(fmt.Sprint("d", i+1), dispatch)
	}
	for i, s := range w.sc.workers {
		m := &machine{name: fmt.Sprint("w", i+1), run: work(s), worker: true}
		w.machines = append(w.machines, m)
		w.start(m)
	}
	if w.sc.peopleHTTP || slices.ContainsFunc(w.sc.agents, func(a agentSpec) bool { return a.http }) {
		w.add("api", serve)
	}
	w.workersReady.Wait()
	var agents []*machine
	if m := w.startRaise(); m != nil {
		agents = append(agents, m)
	}
	for _, s := range w.sc.agents {
		agents = append(agents, w.add(string(s.name), agent(s)))
	}
	if w.sc.people {
		w.add("p1", person(0, w.sc.peopleHTTP))
		w.add("p2", person(1, false))
	}
	if len(w.stage.acts) > 0 {
		w.add("p3", w.stage.extra)
	}
	over := make(chan struct{})
	w.running.Go(func() {
		defer close(over) // and nothing goes wrong any more
		for _, m := range agents {
			for !w.through(m) {
				time.Sleep(look)
			}
		}
	})
	if opt.script != nil {
		opt.script(w)
	}
	if w.fate != nil {
		w.fate.run(over, w.broken)
	}
	limit := time.NewTimer(patience)
	select {
	case <-over:
	case <-limit.C:
		w.fail("liveness", "not everything is over %s after the last fault: %s", patience, w.open())
	case <-w.broken:
	}
	limit.Stop()
	r := &report{seed: w.seed, took: w.now(), plays: map[string]bool{}}
	w.judge(r)
	// the history is over: in which order the parties stop is no part of it
	w.trace.mu.Lock()
	r.hash = w.trace.sum.hex()
	w.trace.mu.Unlock()
	close(w.over)
	w.mu.Lock()
	parties := w.parties
	w.mu.Unlock()
	for _, p := range parties {
		p.heal()
		p.stop(context.Canceled)
	}
	w.running.Wait()
	r.problems = w.problems
	return r
}

// look is how long whoever waits for something waits between two looks.
const look = 50 * time.Millisecond

// through reports whether an agent has done all that it wants to do, in some process of it; or that the history is
// over.
func (w *world) through(m *machine) bool {
	w.mu.Lock()
	p := m.p
	w.mu.Unlock()
	select {
	case <-w.over:
		return true
	case <-p.done:
		return p.ctx.Err() == nil
	default:
		return false
	}
}

// add adds a machine and starts its first party.
func (w *world) add(name string, run func(*party) error) *machine {
	m := &machine{name: name, run: run}
	w.machines = append(w.machines, m)
	w.start(m)
	return m
}

// open says which batches are not over.
func (w *world) open() string {
	var out []string
	for k, b := range w.seen {
		b.mu.Lock()
		if b.over.IsZero() {
			got := 0
			for _, r := range b.results {
				got = max(got, len(r.results))
			}
			out = append(out, fmt.Sprintf("%s has %d results of %d", k, got, len(b.spec.batch.Calls)))
		}
		b.mu.Unlock()
	}
	return strings.Join(out, "; ")
}

// TestOnARealServer plays histories without faults on a real nats-server, in real time: it shows that the parties, the
// scenario and the checks are right without the server in memory.
func TestOnARealServer(t *testing.T) {
	for seed := range uint64(*realSeeds) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			opt := options{calm: true, trace: t.Output()}
			w := newWorld(seed, newRealBus(t), opt)
			w.disturbed.Store(true) // by whatever else this machine does
			if r := w.play(opt); len(r.problems) > 0 {
				t.Error(r)
			}
		})
	}
}
