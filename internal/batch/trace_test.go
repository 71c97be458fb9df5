package batch

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/partition"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

var update = flag.Bool("update", false, "rewrite the golden traces")

// TestTraces plays whole runs of a batch and compares them with testdata/*.txt. A line that begins with "> " is what
// happens; the lines under it are what the machine does, an effect a line:
//
//	> plan rrw            a batch of two reads and a write (see planFor) is planned and owned
//	> claim 2 w1          a worker's claim of call 2 is in the log; > finish, > retry, > cancel likewise
//	> grant 1             the ticket of group 1 is granted (tickets are numbered by group, from 10)
//	> observe dropped=0   what is known of the workers: that of call 0 no longer runs it; absent=POOL/CLASS
//	> append rw           calls are appended to an open batch (plan rr open); > close, and no more follow
//	> after 30s           time passes
//	> wait 0              a worker asks a person about call 0; > decide 0 allow, or deny, is the answer
//	> withdrawn 1         no worker was ever handed call 1
//	> held 1              call 1 is kept back, which was to be queued; > handed 1, it is queued now, or > limited 1, and
//	                      has waited for too long
//	> lapse               the owner was silent for so long that another may have the batch
//	> notice red          hooks say something of a batch that is over (plan r hooks)
//	> interrupt           the session is interrupted
//	> die 0 timeout       call 0 is finished, and the owner dies before it knows
//	> adopt               the owner dies and another goes on from the log; > wake, and one takes a parked batch up
//	> conflict            the next append finds that somebody else was faster, see the trace
//
// What the machine appends is stored at once, and is its next input. What happens is what a pool can do: see
// [player.possible].
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want := must.Read(t, file)
			got := play(t, want)
			if *update {
				must.OK(t, os.WriteFile(file, got, 0o644))
			} else if !bytes.Equal(got, want) {
				t.Errorf("%s differs; see the change with -update. Now:\n%s", file, got)
			}
		})
	}
}

type player struct {
	t   *testing.T
	out bytes.Buffer
	log []Record
	m   *Machine
	now time.Time
	seq uint64
	// queueWait is set by plan: none, unless it says so.
	queueWait time.Duration
	// alone has every call go in a message of its own.
	hooks, alone bool
	// conflict and overtake say how many appends from now on find a worker's result, or a worker's claim, instead.
	conflict, overtake int
	// requests are those that were queued, by call. The others are what else the shell was asked for.
	requests          map[int][]events.Requested
	withdrawn, ticket map[int]bool
	notified          bool
}

// possible reports what keeps a line of a trace from happening in a pool; "" when nothing does.
func (p *player) possible(args []string) string {
	switch args[0] {
	case "claim", "finish", "die", "retry", "wait":
		i := p.nums(args[1])[0]
		early := len(args) > 3 && args[3] == "early" // the tool was not started
		claimed := p.m.State().Calls[i].Status == Claimed
		switch {
		case len(p.requests[i]) == 0:
			return "no worker was handed the call"
		case claimed && (args[0] == "claim" || args[0] == "wait"):
			return "a worker has claimed the call"
		case args[0] != "claim" && args[0] != "wait" && !claimed && !early && !p.runsUnclaimed(i):
			return "no worker runs the call without a claim"
		}
	case "withdrawn":
		if len(args) == 1 || slices.ContainsFunc(args[1:], func(a string) bool { return !p.withdrawn[p.num(a)] }) {
			return "the calls were not asked about"
		}
	case "grant":
		if !p.ticket[p.num(args[1])] {
			return "the batch does not wait for the ticket"
		}
	case "notice":
		if !p.notified {
			return "hooks were not told"
		}
	case "append", "close":
		if s := p.m.State(); !s.Submission.Open || s.InputClosed {
			return "the batch is not open"
		}
	case "observe":
		for _, a := range args[1:] {
			i, dropped := strings.CutPrefix(a, "dropped=")
			if dropped && p.m.State().Calls[p.num(i)].Status != Claimed {
				return "nobody has claimed the call"
			}
		}
	}
	return ""
}

// runsUnclaimed reports whether a worker may run a call without a claim: it was handed the call for the first time, and
// nothing had happened to its item.
func (p *player) runsUnclaimed(i int) bool {
	return slices.ContainsFunc(p.requests[i], func(r events.Requested) bool {
		n := slices.IndexFunc(r.Calls, func(c events.RequestedCall) bool { return c.Index == i })
		c := r.Calls[n]
		return r.Expected == 0 && p.m.State().Calls[i].Seq == 0 && !c.Claim && !c.Again && c.Attempt == 1
	})
}

// note notes what the shell is told to do.
func (p *player) note(e Effect) {
	switch e := e.(type) {
	case Queue:
		for _, i := range callsOf(e.Request) {
			p.requests[i] = append(p.requests[i], e.Request)
		}
	case Withdraw:
		for _, i := range e.Calls {
			p.withdrawn[i] = true
		}
	case TakeTicket:
		p.ticket[e.Group] = true
	case ReleaseTickets:
		clear(p.ticket)
	case Notify:
		p.notified = true
	}
}

func newPlayer(t *testing.T) *player {
	return &player{t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), requests: map[int][]events.Requested{},
		withdrawn: map[int]bool{}, ticket: map[int]bool{}}
}

func play(t *testing.T, script []byte) []byte {
	p := newPlayer(t)
	lines := bufio.NewScanner(bytes.NewReader(script))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || line == "" {
			fmt.Fprintln(&p.out, line)
		}
		if cmd, ok := strings.CutPrefix(line, "> "); ok {
			fmt.Fprintln(&p.out, line)
			p.do(strings.Fields(cmd))
		}
	}
	return p.out.Bytes()
}

func (p *player) do(args []string) {
	if why := p.possible(args); why != "" {
		p.t.Errorf("%v cannot happen: %s", args, why)
	}
	switch args[0] {
	case "plan":
		sub, planned := planFor(args[1], args[2:], p.now)
		for _, o := range args[2:] {
			p.hooks, p.alone = p.hooks || o == "hooks", p.alone || o == "alone"
			if v, ok := strings.CutPrefix(o, "queue_wait="); ok {
				var err error
				if p.queueWait, err = time.ParseDuration(v); err != nil {
					p.t.Fatal(err)
				}
			}
		}
		p.store(Record{Chain: ChainSubmission, Body: events.Submitted{Batch: sub}})
		p.store(Record{Chain: ChainBatch, Body: planned})
		p.restart()
	case "adopt":
		p.store(Record{Chain: ChainBatch, Body: events.Adopted{Owner: "next", Takeover: 1}})
		p.restart()
	case "wake":
		s := p.m.State()
		p.store(Record{Chain: ChainBatch, Body: events.Adopted{Owner: "next", Takeover: s.Takeovers + 1,
			Handle: 1_000 + p.seq, Deadline: p.now.Add(s.Remaining)}})
		p.restart()
		fmt.Fprintf(&p.out, "  time left: %s\n", p.m.State().Plan.Deadline.Sub(p.now))
	case "wait":
		i := p.num(args[1])
		p.step(Stored{p.store(Record{Chain: ChainItem, Index: i, Body: events.Waiting{Call: i, Worker: "w1",
			InputSHA256: "hash", Attempt: p.m.State().Calls[i].Attempt}})})
	case "decide":
		r := p.store(Record{Chain: ChainItem, Index: p.num(args[1]),
			Body: events.Decided{Call: p.num(args[1]), Decision: events.Decision(args[2]), By: "person",
				InputSHA256: "hash"}})
		if !p.m.State().Parked {
			p.step(Stored{r})
		}
	case "held":
		p.step(Held{p.nums(args[1])})
		for _, i := range p.nums(args[1]) { // it was not handed to anybody
			p.requests[i] = p.requests[i][:len(p.requests[i])-1]
		}
	case "handed":
		for _, i := range p.nums(args[1]) {
			p.requests[i] = append(p.requests[i], events.Requested{Calls: []events.RequestedCall{{Index: i, Attempt: 1,
				Claim: p.m.State().Plan.Calls[i].Claim}}})
		}
		p.step(Handed{p.nums(args[1])})
	case "limited":
		p.step(Limited{Calls: p.nums(args[1]), Code: toolyard.RateLimited, Why: "Too many calls.",
			Detail: "waited", RetryAfterMS: 1_000})
	case "withdrawn":
		var w Withdrawn
		for _, a := range args[1:] {
			w.Never = append(w.Never, p.num(a))
		}
		p.step(w)
	case "lapse":
		p.step(Lapsed{})
	case "notice":
		p.step(Noticed{&toolyard.Notice{Context: args[1]}})
	case "interrupt":
		r := p.store(Record{Chain: ChainControl, Body: events.Interrupted{By: "person"}})
		if !p.m.State().Parked {
			p.step(Stored{r})
		}
	case "claim":
		p.step(Stored{p.store(Record{Chain: ChainItem, Index: p.num(args[1]),
			Body: events.Claimed{Call: p.num(args[1]), Worker: args[2],
				Attempt: p.m.State().Calls[p.num(args[1])].Attempt + 1}})})
	case "finish":
		p.step(Stored{p.store(p.finished(args[1], args[2:]))})
	case "die": // the call is finished, and the owner dies before it knows
		p.store(p.finished(args[1], args[2:]))
	case "return": // a worker gives calls back that it has not started
		calls := p.nums(args[1])
		p.step(Stored{p.store(Record{Chain: ChainItem, Index: calls[0], Body: events.Returned{Worker: "w1",
			Calls: calls}})})
	case "append":
		var b events.Appended
		for _, letter := range args[1] {
			b.Calls = append(b.Calls, toolyard.Call{Tool: string(letter)})
		}
		p.step(Stored{p.store(Record{Chain: ChainInput, Body: b})})
	case "close":
		p.step(Stored{p.store(Record{Chain: ChainInput, Body: events.Closed{By: "agent"}})})
	case "retry":
		c := p.m.State().Calls[p.num(args[1])]
		b := events.AttemptFailed{Call: p.num(args[1]), Attempt: c.Attempt, Code: toolyard.DependencyUnavailable}
		if c.Status != Claimed {
			b.Attempt++
		}
		if len(args) > 2 {
			b.RetryAfterMS = int64(p.num(args[2]))
		}
		p.step(Stored{p.store(Record{Chain: ChainItem, Index: p.num(args[1]), Body: b})})
	case "cancel":
		c := events.Canceled{By: "person"}
		for _, a := range args[1:] {
			c.Calls = append(c.Calls, p.num(a))
		}
		p.step(Stored{p.store(Record{Chain: ChainControl, Body: c})})
	case "grant":
		g := p.num(args[1])
		p.step(Granted{Group: g, Ticket: uint64(10 + g)})
	case "observe":
		var o Observed
		for _, a := range args[1:] {
			if i, ok := strings.CutPrefix(a, "dropped="); ok {
				o.Dropped = map[int]uint64{p.num(i): p.m.State().Calls[p.num(i)].Seq}
			} else if n, ok := strings.CutPrefix(a, "serving="); ok {
				o.Serving = map[Route]int{{Pool: "default", Class: toolyard.ReadOnly}: p.num(n)}
			} else if r, ok := strings.CutPrefix(a, "absent="); ok {
				pool, class, _ := strings.Cut(r, "/")
				o.Absent = append(o.Absent, Route{Pool: toolyard.Pool(pool), Class: toolyard.Class(class)})
			}
		}
		p.step(o)
	case "after":
		d, err := time.ParseDuration(args[1])
		must.OK(p.t, err)
		p.now = p.now.Add(d)
		p.step()
	case "conflict":
		p.conflict++
	case "overtake":
		p.overtake++
	default:
		p.t.Fatalf("unknown command %q", args)
	}
}

func (p *player) num(s string) int {
	n, err := strconv.Atoi(s)
	must.OK(p.t, err)
	return n
}

// nums reads the indices of calls, "0,2".
func (p *player) nums(s string) (out []int) {
	for _, n := range strings.Split(s, ",") {
		out = append(out, p.num(n))
	}
	return out
}

// finished is the event by which calls of one item get their results.
func (p *player) finished(calls string, as []string) Record {
	which := p.nums(calls)
	return Record{Chain: ChainItem, Index: which[0], Body: finished(which, as)}
}

func finished(calls []int, as []string) events.Finished {
	var ends []events.End
	for _, i := range calls {
		ends = append(ends, events.End{Result: resultFor(i, as)})
	}
	return events.Finish(ends...)
}

// store puts an event into the log. The index of a call stands for its item.
func (p *player) store(r Record) Record {
	if r.Chain == ChainItem {
		r.Index = p.m.State().Calls[r.Index].Item
	}
	p.seq++
	r.Seq, r.Time = p.seq, p.now
	p.log = append(p.log, r)
	return r
}

// restart makes a machine from the log alone.
func (p *player) restart() {
	var s State
	for _, r := range p.log {
		must.OK(p.t, s.Apply(r))
	}
	p.m = New(Config{WorkerWait: 30 * time.Second, MaxAttempts: 3, AbortEvery: time.Second,
		EndGrace: 4500 * time.Millisecond, OpenIdle: time.Minute, QueueWait: p.queueWait,
		Alone: func(*events.PlannedCall) bool { return p.alone }, Hooks: p.hooks}, s)
	p.step()
}

// step steps the machine and performs its effects.
func (p *player) step(inputs ...Input) {
	for first := true; first || len(inputs) > 0; first = false {
		effects, err := p.m.Step(p.now, inputs...)
		if err != nil {
			fmt.Fprintf(&p.out, "broken: %v\n", err)
			return
		}
		inputs = nil
		wanted := 0
		for _, n := range p.m.Wanted() {
			wanted += n
		}
		if n := p.m.inFlight(); wanted != n {
			p.t.Fatalf("%d slots are wanted, and %d calls may run at a time", wanted, n)
		}
		for _, e := range effects {
			fmt.Fprintln(&p.out, line(e))
			p.note(e)
			a, ok := e.(Append)
			if x, extend := e.(Extend); extend {
				a, ok = Append{Chain: ChainBatch, Expected: x.Expected, Body: extendFor(p.m.State())}, true
				fmt.Fprintln(&p.out, line(a))
			}
			if !ok {
				continue
			}
			if expected := p.expected(a); expected != a.Expected {
				p.t.Fatalf("%s expects %d where the chain ends at %d", line(e), a.Expected, expected)
			}
			rec := Record{Chain: a.Chain, Index: a.Index, Body: a.Body}
			if p.overtake > 0 {
				p.overtake--
				rec.Body = events.Claimed{Call: rec.Calls()[0], Worker: "w1", Attempt: 1}
				fmt.Fprintf(&p.out, "  conflict: a worker has claimed it\n")
			}
			if p.conflict > 0 {
				p.conflict--
				rec.Body = finished(rec.Calls(), nil)
				fmt.Fprintf(&p.out, "  conflict: the worker was faster\n")
			}
			inputs = append(inputs, Stored{p.store(rec)})
		}
	}
	if at := p.m.Wake(); !at.IsZero() && !at.After(p.now) {
		p.t.Fatalf("Wake is %s; a step at %s has decided all that was due then", at, p.now)
	}
	// What the machine keeps so that a step costs little follows from its state, and from what it has queued.
	again := New(p.m.cfg, *p.m.State())
	again.flight.queued = p.m.flight.queued
	again.reindex()
	kept := func(m *Machine) string {
		return fmt.Sprintf("%+v, active %v, retrying %v, waiting %v", m.index, m.flight.active, m.flight.retrying,
			m.approvals.waiting)
	}
	if got, want := kept(p.m), kept(again); got != want {
		p.t.Fatalf("the machine has\n%s\nfrom its state follows\n%s", got, want)
	}
	// Whatever the machine believes, the fold of the log says the same.
	var s State
	for _, r := range p.log {
		if err := s.Apply(r); err != nil {
			p.t.Fatalf("the log contradicts itself: %v", err)
		}
	}
	if got, want := fmt.Sprintf("%+v", p.m.State().View()), fmt.Sprintf("%+v", s.View()); got != want {
		p.t.Fatalf("the machine's state is\n%s\nthe fold of its log\n%s", got, want)
	}
}

// expected is where a chain of the log ends.
func (p *player) expected(a Append) uint64 {
	for _, r := range slices.Backward(p.log) {
		if r.Chain == a.Chain && (a.Chain != ChainItem || r.Index == a.Index) {
			return r.Seq
		}
	}
	return 0
}

// planFor makes a batch of a word, a letter a call: r reads, n reads without a workspace, w writes, i writes
// idempotently, o reads once only, c writes and can be interrupted, x is answered at plan. People have an hour to
// decide.
func planFor(word string, opts []string, now time.Time) (toolyard.Batch, events.Planned) {
	sub := toolyard.Batch{ID: "b", Agent: "a", Session: "s", Workspace: "ws"}
	p := events.Planned{
		Owner: "first", Session: "s", Workspace: "ws", Surface: "surface", Partition: toolyard.Consecutive,
		OnError: toolyard.CancelGroup, MaxConcurrency: 10, Deadline: now.Add(10 * time.Minute),
		ApprovalWaitMS: time.Hour.Milliseconds(),
	}
	for _, o := range opts {
		switch name, v, _ := strings.Cut(o, "="); name {
		case "open":
			sub.Open, p.Open = true, true
		case "partition":
			p.Partition = toolyard.Strategy(v)
		case "on_error":
			p.OnError = toolyard.OnError(v)
		case "max":
			p.MaxConcurrency, _ = strconv.Atoi(v)
		}
	}
	p.Calls, p.Results, p.Groups = callsFor(word, p.Partition)
	for i, c := range p.Calls {
		sub.Calls = append(sub.Calls, toolyard.Call{ID: fmt.Sprint("id", i), Tool: c.Tool})
	}
	return sub, p
}

// extendFor plans what was appended.
func extendFor(s *State) events.Extended {
	var word strings.Builder
	for _, c := range s.Plan.Calls {
		word.WriteString(c.Tool)
	}
	for _, c := range s.Unplanned() {
		word.WriteString(c.Tool)
	}
	calls, results, groups := callsFor(word.String(), s.Plan.Partition)
	n, first := len(s.Plan.Calls), 0
	for first < len(s.Plan.Groups) && slices.Equal(s.Plan.Groups[first].Calls, groups[first].Calls) {
		first++
	}
	results = slices.DeleteFunc(results, func(r toolyard.Result) bool { return r.Index < n })
	return events.Extended{InputSeq: s.InputSeq, Closed: s.InputClosed, Calls: calls[n:], Results: results,
		FirstGroup: first, Groups: groups[first:]}
}

func callsFor(word string, strategy toolyard.Strategy) (calls []events.PlannedCall, results []toolyard.Result,
	groups []events.Group) {
	var classes []toolyard.Class
	for i, letter := range word {
		j := tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}
		if letter == 'o' {
			j.Idempotent = false
		}
		if letter == 'w' || letter == 'i' || letter == 'c' || letter == 'x' {
			j = tool.Judgement{Class: toolyard.WriteExclusive, Idempotent: letter == 'i'}
		}
		calls = append(calls, events.PlannedCall{
			ID: fmt.Sprint("id", i), Tool: string(letter), Pool: "default", Judgement: j,
			Claim: !j.Class.Safe() || !j.Idempotent, AbortsSiblings: true,
			Interruptible: letter == 'c', TimeoutMS: 2_000,
		})
		classes = append(classes, j.Class)
		if letter == 'x' {
			results = append(results, toolyard.Result{Index: i, CallID: fmt.Sprint("id", i), Code: toolyard.UnknownTool,
				IsError: true})
		}
	}
	for _, g := range partition.Groups(strategy, classes) {
		ticket := slices.ContainsFunc(g.Calls, func(i int) bool { return !strings.ContainsRune("nx", rune(word[i])) })
		groups = append(groups, events.Group{Safe: g.Safe, Calls: g.Calls, Ticket: ticket})
	}
	return calls, results, groups
}

// resultFor makes a worker's result: of a tool that ran, unless its code says otherwise.
func resultFor(i int, args []string) toolyard.Result {
	r := toolyard.Result{Index: i, CallID: fmt.Sprint("id", i), Phases: []toolyard.Fact{{Phase: toolyard.PhaseExecute}}}
	if len(args) > 0 {
		r.Code, r.IsError = toolyard.Code(args[0]), true
	}
	if len(args) > 1 && args[1] == "early" {
		r.Phases = nil
	}
	return r
}

// line is an effect for people.
func callsOf(r events.Requested) (out []int) {
	for _, c := range r.Calls {
		out = append(out, c.Index)
	}
	return out
}

func line(e Effect) string {
	switch e := e.(type) {
	case Append:
		switch b := e.Body.(type) {
		case events.Started:
			s := fmt.Sprintf("  append started group=%d ticket=%d", b.Group, b.Ticket)
			for _, item := range b.Items {
				s += fmt.Sprint(" ", item)
			}
			return s
		case events.Extended:
			s := fmt.Sprintf("  append extended calls=%d groups from %d:", len(b.Calls), b.FirstGroup)
			for _, g := range b.Groups {
				s += fmt.Sprint(" ", g.Calls)
			}
			if b.Closed {
				s += " closed"
			}
			return s
		case events.Parked:
			return fmt.Sprintf("  append parked remaining=%s", time.Duration(b.RemainingMS)*time.Millisecond)
		case events.Closed:
			return "  append closed: " + b.Reason
		case events.Settled:
			return "  append settled " + outcomes(b.Results)
		case events.Finished:
			return "  append finished " + outcomes(b.Results())
		case events.AttemptFailed:
			return fmt.Sprintf("  append attempt_failed call=%d attempt=%d %s", b.Call, b.Attempt, b.Code)
		case events.Reply:
			s := "  reply " + outcomes(b.Results)
			if b.Completed {
				s += " completed"
			}
			if b.Notice != nil {
				s += " notice=" + b.Notice.Context
			}
			return s
		}
	case TakeTicket:
		return fmt.Sprintf("  take ticket group=%d %s", e.Group, e.Mode)
	case ReleaseTickets:
		return fmt.Sprintf("  leave ticket up to group=%d", e.Group)
	case Queue:
		c := e.Request.Calls[0]
		calls := fmt.Sprint("call=", c.Index)
		if len(e.Request.Calls) > 1 {
			calls = fmt.Sprintf("calls=%v width=%d", callsOf(e.Request), e.Request.Width)
		}
		s := fmt.Sprintf("  queue %s %s/%s ticket=%d attempt=%d expected=%v claim=%v together=%v",
			calls, e.Route.Pool, e.Route.Class, e.Request.Ticket, c.Attempt, e.Request.Expected > 0, c.Claim,
			e.Request.WasConcurrent)
		if c.Again {
			s += " again"
		}
		if c.Approved != nil {
			s += fmt.Sprintf(" approved by %s after %s", c.Approved.By,
				time.Duration(c.Approved.WaitedMS)*time.Millisecond)
		}
		return s
	case Abort:
		s := fmt.Sprintf("  abort %v %s", e.Calls, e.Code)
		if e.Culprit != "" {
			s += " culprit=" + e.Culprit
		}
		return s
	case Withdraw:
		return fmt.Sprintf("  withdraw %v", e.Calls)
	case Complete:
		return "  complete"
	case Extend:
		return "  extend"
	case ListApproval:
		if e.Remove {
			return fmt.Sprintf("  nobody is asked about call=%d any more", e.Index)
		}
		return fmt.Sprintf("  ask about call=%d", e.Index)
	case Remember:
		return fmt.Sprintf("  remember %+v", e.Change)
	case Park:
		return "  park"
	case Notify:
		return "  notify hooks"
	}
	return fmt.Sprintf("  %#v", e)
}

func outcomes(rs []toolyard.Result) string {
	var out []string
	for _, r := range rs {
		code := string(r.Code)
		if code == "" {
			code = "ok"
		}
		if strings.Contains(r.Error, "did not run") || strings.Contains(r.Error, "Not executed") {
			code += "(never ran)"
		}
		out = append(out, fmt.Sprintf("%d:%s", r.Index, code))
	}
	return strings.Join(out, " ")
}

// BenchmarkMachine steps one batch of so many reads from its plan to its last reply, an event a step. What it costs a
// call must not grow with the batch.
func BenchmarkMachine(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				now := time.Now()
				sub, planned := planFor(strings.Repeat("n", n), nil, now)
				var s State
				seq := uint64(0)
				store := func(r Record) Stored {
					seq++
					r.Seq = seq
					return Stored{r}
				}
				for _, r := range []Record{{Chain: ChainSubmission, Body: events.Submitted{Batch: sub}},
					{Chain: ChainBatch, Body: planned}} {
					must.OK(b, s.Apply(store(r).Record))
				}
				m := New(Config{WorkerWait: time.Minute, MaxAttempts: 3, AbortEvery: time.Second,
					OpenIdle: time.Minute}, s)
				var inputs []Input
				replied, steps := 0, 0
				for replied < n {
					effects, err := m.Step(now, inputs...)
					if err != nil || steps > 10*n {
						b.Fatal(err, steps)
					}
					steps++
					inputs = nil
					for _, e := range effects {
						switch e := e.(type) {
						case Append:
							inputs = append(inputs, store(Record{Chain: e.Chain, Index: e.Index, Body: e.Body}))
							if r, ok := e.Body.(events.Reply); ok {
								replied += len(r.Results)
							}
						case Queue:
							inputs = append(inputs, store(Record{Chain: ChainItem, Index: e.Request.Item,
								Body: finished(callsOf(e.Request), nil)}))
						}
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/call")
		})
	}
}
