package admission

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// grants are two teams, in one of which agents have quotas of their own.
var grants = Grants{
	Agents: []Grant{
		{"web-1", Quota{Batches: 2}}, {"web-*", Quota{Batches: 3, Calls: 5, CallsPerMinute: 40, WaitingBytes: 100}},
	},
	Teams: []Grant{
		{"web-*", Quota{Batches: 4, Calls: 8, CallsPerMinute: 60, WaitingBytes: 150}}, {"ci-*", Quota{Calls: 3}},
	},
}

// yard is some dispatchers, between whom reports are under way.
type yard struct {
	t      *testing.T
	now    time.Time
	queues []*Queue
	quotas []*Quotas
	runs   []map[toolyard.BatchKey]Batch
	// stream has the reports in their order, heard how many each dispatcher has heard, and sent whether one of its own
	// is under way.
	stream []reported
	heard  []int
	sent   []bool
	// begun are the calls that began, by scope, with the time.
	begun map[Scope][]begin
	n     int
	seed  uint64
}

type reported struct {
	by     int
	number uint64
	usage  map[Scope]Usage
}

type begin struct {
	at    time.Time
	calls int
}

func newYard(t *testing.T, seed uint64, dispatchers int) *yard {
	y := &yard{t: t, now: time.Unix(1_000_000, 0), begun: map[Scope][]begin{}, seed: seed}
	for range dispatchers {
		q := NewQuotas(grants)
		q.Know(true)
		y.quotas = append(y.quotas, q)
		y.queues = append(y.queues, NewQueue(Limits{Running: 100, AgentRunning: 100, Waiting: 1_000,
			AgentWaiting: 1_000}, q))
		y.runs = append(y.runs, map[toolyard.BatchKey]Batch{})
		y.heard, y.sent = append(y.heard, 0), append(y.sent, false)
	}
	return y
}

// report has a dispatcher tell the others, unless it is waiting for its last report.
func (y *yard) report(d int) {
	if !y.sent[d] {
		u, n := y.queues[d].Report(y.now)
		y.stream, y.sent[d] = append(y.stream, reported{d, n, u}), true
	}
}

// hear has a dispatcher hear the next report, and reports whether there is one.
func (y *yard) hear(d int) bool {
	if y.heard[d] == len(y.stream) {
		return false
	}
	r := y.stream[y.heard[d]]
	if y.heard[d]++; r.by == d {
		y.sent[d] = false
		y.queues[d].Settle(r.number, y.now)
	} else {
		y.quotas[d].Heard(fmt.Sprint(r.by), r.usage, y.now)
	}
	return true
}

// hearAll has all dispatchers report, and hear everything.
func (y *yard) hearAll() {
	for d := range y.queues {
		for y.hear(d) {
		}
		y.report(d)
	}
	for d := range y.queues {
		for y.hear(d) {
		}
	}
}

func (y *yard) arrive(d int, a toolyard.Agent, calls, bytes int) Reason {
	y.n++
	k := toolyard.BatchKey{Agent: a, ID: toolyard.BatchID(fmt.Sprint(y.n))}
	_, why := y.queues[d].Add(Batch{Key: k, Calls: min(calls, 10), Begins: calls, Bytes: bytes}, false, y.now)
	return why
}

func (y *yard) start(d int) bool {
	b, ok := y.queues[d].Next(y.now)
	if ok {
		y.runs[d][b.Key] = b
		for _, s := range grants.of(b.Key.Agent) {
			y.begun[s.scope] = append(y.begun[s.scope], begin{y.now, b.Begins})
		}
	}
	return ok
}

func (y *yard) end(d int) {
	for k := range y.runs[d] {
		y.queues[d].Remove(k, y.now)
		delete(y.runs[d], k)
		return
	}
}

// used is what a scope uses in truth.
func (y *yard) used(s Scope) (batches, calls int) {
	for d := range y.queues {
		for k, b := range y.runs[d] {
			for _, at := range grants.of(k.Agent) {
				if at.scope == s {
					batches++
					calls += y.quotas[d].reserves(&b)
				}
			}
		}
	}
	return batches, calls
}

// check compares all that is used with the quotas.
func (y *yard) check() {
	y.t.Helper()
	for _, a := range agents {
		for _, s := range grants.of(a) {
			batches, calls := y.used(s.scope)
			if q := s.quota; q.Batches > 0 && batches > q.Batches || q.Calls > 0 && calls > q.Calls {
				y.t.Fatalf("seed %d: %s runs %d batches with %d calls of %+v", y.seed, s.scope, batches, calls, *q)
			}
			minute, last := 0, 0
			for _, b := range y.begun[s.scope] {
				if y.now.Sub(b.at) < time.Minute {
					minute += b.calls
					last = b.calls
				}
			}
			if q := s.quota; q.CallsPerMinute > 0 && minute > q.CallsPerMinute && minute > last {
				y.t.Fatalf("seed %d: %d calls of %s began in a minute, of %d", y.seed, minute, s.scope,
					q.CallsPerMinute)
			}
		}
	}
}

var agents = []toolyard.Agent{"web-1", "web-2", "web-3", "ci-1", "free"}

// TestQuotasHold plays dispatchers whose reports are under way for any time: what runs and begins in all of them is
// never past a quota, and everything starts in the end.
func TestQuotasHold(t *testing.T) {
	refused, waited := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 5))
		y := newYard(t, seed, 1+int(seed%3))
		admitted, started := 0, 0
		for range 400 {
			d := r.IntN(len(y.queues))
			switch n := r.IntN(16); {
			case n < 3:
				a := agents[r.IntN(len(agents))]
				calls, bytes := 1+r.IntN(30), r.IntN(60)
				would := y.queues[d].WouldReject(a, bytes)
				why := y.arrive(d, a, calls, bytes)
				if why != would || why != Admitted && (why != QuotaFull || !strings.HasPrefix(string(a), "web-")) {
					t.Fatalf("seed %d: %s was to be %q and is %q", seed, a, would, why)
				}
				if why == Admitted {
					admitted++
				} else {
					refused++
				}
			case n < 8:
				if y.start(d) {
					started++
				}
			case n < 10:
				y.end(d)
			case n < 12:
				y.report(d)
			case n < 15:
				before := len(y.queues[d].reserved)
				y.hear(d)
				if q := y.queues[d]; before > 0 && len(q.reserved) == 0 && len(q.granted) == 0 {
					waited++
				}
			default:
				y.now = y.now.Add(time.Duration(r.IntN(20_000)) * time.Millisecond)
			}
			y.check()
		}
		for turns := 0; started < admitted; turns++ {
			if turns > 1_000 {
				t.Fatalf("seed %d: %d of %d batches start", seed, started, admitted)
			}
			y.now = y.now.Add(30 * time.Second)
			for range 3 {
				for d := range y.queues {
					for y.start(d) {
						started++
						y.check()
					}
				}
				y.hearAll()
				y.check()
			}
			for d := range y.queues {
				for len(y.runs[d]) > 0 {
					y.end(d)
				}
			}
		}
		for d := range y.queues {
			for len(y.runs[d]) > 0 {
				y.end(d)
			}
		}
		y.now = y.now.Add(2 * time.Minute)
		for d, q := range y.quotas {
			if got := q.report(y.now); len(got) != 0 || len(q.used) != 0 {
				t.Fatalf("seed %d: dispatcher %d still has %v of %d scopes", seed, d, got, len(q.used))
			}
			if l := y.queues[d]; l.running != 0 || l.waiting != 0 || len(l.agents) != 0 || len(l.reserved) != 0 {
				t.Fatalf("seed %d: dispatcher %d still has %+v", seed, d, l)
			}
		}
	}
	if refused < 100 || waited < 100 {
		t.Errorf("%d batches were refused, and %d waited on when others were faster: the test sees too little", refused,
			waited)
	}
}

// TestOfTwoThatWantTheLastPlace the one starts that reported first.
func TestOfTwoThatWantTheLastPlace(t *testing.T) {
	y := newYard(t, 0, 2)
	for d := range 2 {
		y.arrive(d, "web-1", 1, 0)
		y.arrive(d, "web-1", 1, 0)
		if y.start(d) || !y.queues[d].Reserves() {
			t.Error("a batch starts before it is reported")
		}
	}
	y.report(1)
	y.report(0)
	for d := range 2 {
		for y.hear(d) {
		}
		for y.start(d) {
		}
	}
	if len(y.runs[0]) != 0 || len(y.runs[1]) != 2 {
		t.Errorf("%v and %v run", y.runs[0], y.runs[1])
	}
	y.end(1)
	y.hearAll()
	y.start(0)
	y.hearAll()
	y.start(0)
	if len(y.runs[0]) != 1 || len(y.runs[1]) != 1 {
		t.Errorf("when one has ended, %v and %v run", y.runs[0], y.runs[1])
	}
}

// TestUnknownOthers: while a dispatcher does not know the others, nothing starts of agents that have a quota.
func TestUnknownOthers(t *testing.T) {
	y := newYard(t, 0, 1)
	y.quotas[0].Know(false)
	for _, a := range agents {
		y.arrive(0, a, 1, 1)
	}
	for range agents {
		y.start(0)
		y.hearAll()
	}
	if len(y.runs[0]) != 1 || len(y.begun) != 0 {
		t.Errorf("these run: %v", y.runs[0])
	}
	y.quotas[0].Heard("other", map[Scope]Usage{"agent web-1": {Batches: 2}, "team web-*": {Batches: 2}}, y.now)
	y.quotas[0].Know(true)
	for range 10 {
		y.start(0)
		y.hearAll()
	}
	if _, ok := y.runs[0][toolyard.BatchKey{Agent: "web-1", ID: "1"}]; ok || len(y.runs[0]) != 4 {
		t.Errorf("beside the two of web-1 in another dispatcher run %v", y.runs[0])
	}
	y.quotas[0].Heard("other", nil, y.now)
	y.start(0)
	y.hearAll()
	if !y.start(0) || len(y.runs[0]) != 5 {
		t.Errorf("when the other dispatcher is gone %v run", y.runs[0])
	}
}

// TestALargeBatch: one that has more calls than may begin in a minute, or be in flight, runs alone and narrower.
func TestALargeBatch(t *testing.T) {
	y := newYard(t, 0, 1)
	starts := func() (n int) {
		for range 3 {
			for y.start(0) {
				n++
			}
			y.hearAll()
		}
		return n
	}
	y.arrive(0, "web-2", 1, 0)
	y.arrive(0, "web-2", 500, 0)
	y.arrive(0, "web-2", 1, 0)
	if n := starts(); n != 1 {
		t.Errorf("%d batches start, and the large one is to begin when no call has begun for a minute", n)
	}
	y.end(0)
	y.now = y.now.Add(time.Minute + 2*time.Second)
	if n := starts(); n != 1 {
		t.Errorf("%d batches start, and the large one is to be alone", n)
	}
	if n := y.quotas[0].Concurrency("web-2", 10); n != 5 {
		t.Errorf("%d of its calls may be in flight", n)
	}
	if n := y.quotas[0].Concurrency("free", 10); n != 10 {
		t.Errorf("%d calls of an agent without a quota may be in flight", n)
	}
}

// TestAReportHasWhatIsBounded: where only batches and calls at a time are bounded, a report has the agents that run
// something, and not all that began something in the last minute. It is one message, and would be too long for one.
func TestAReportHasWhatIsBounded(t *testing.T) {
	t.Parallel()
	q := NewQuotas(Grants{Agents: []Grant{{"*", Quota{Batches: 8, Calls: 64}}}})
	queue, now := NewQueue(Limits{Running: 2, AgentRunning: 1, Waiting: 1, AgentWaiting: 1}, q), time.Unix(1_000_000, 0)
	q.Know(true)
	const agents = 2_000
	for n := range agents + 1 {
		k := toolyard.BatchKey{Agent: toolyard.Agent(fmt.Sprintf("%0100d", n)), ID: "b"}
		queue.Add(Batch{Key: k, Calls: 1, Begins: 1, Bytes: 1}, false, now)
		queue.Next(now)
		_, number := queue.Report(now)
		queue.Settle(number, now)
		if _, ok := queue.Next(now); !ok {
			t.Fatalf("batch %d did not start", n)
		}
		if n < agents { // the last one runs
			queue.Remove(k, now)
		}
	}
	report, _ := queue.Report(now)
	if len(report) != 1 {
		t.Errorf("%d agents stand in a report, want the one that runs a batch", len(report))
	}
	for scope, u := range report {
		if u != (Usage{Batches: 1, Calls: 1}) {
			t.Errorf("the report says %+v of %s", u, scope)
		}
	}
}
