package ticket_test

import (
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
)

// This is a model of one workspace's key: the server that stores it, batches that join and leave, dispatchers that
// delete it and that remove abandoned tickets. Each of them reads, sends and waits in separate steps. Requests reach
// the server late, and out of order; answers are lost, and their requests are repeated; the server is killed. A party
// that makes no more steps has crashed. [explore] visits every state that any order of steps leads to.

// rules are the conditions of a safe deletion. Each can be left out.
type rules struct {
	bounded bool // a deletion takes out what was seen and nothing newer
	empty   bool // only an empty queue is deleted
	above   bool // only a queue is deleted whose numbers are below those of the next one
	absent  bool // a queue is made only where no key stands
	floor   floor
}

// floor is where a new queue begins.
type floor int

const (
	ofRevision floor = iota // above the floor of its own revision
	ofReading               // above the floor of what the server had stored when it was read that there is no key
	ofNothing               // at 1
)

var allRules = rules{bounded: true, empty: true, above: true, absent: true}

// setup says who takes part, and what the server is like.
type setup struct {
	parties []party
	// replicated is a server that accepts a write and stores it later. Until then it refuses other writes for the key;
	// it accepts deletions without a check.
	replicated bool
}

// party is one that takes part.
type party struct {
	kind   kind
	rounds int8
	mode   ticket.Mode // of a batch
	wide   bool        // a batch whose changes give out very many numbers, as those of many batches at once do
}

type kind int8

const (
	batch   kind = iota // joins, holds the workspace, leaves
	deleter             // deletes the key
	sweeper             // takes out a ticket whose batch has left
)

// timeouts is how often in one history the server is killed, or a party repeats a request because no answer came. The
// earlier request may still arrive.
var timeouts = flag.Int("timeouts", 1, "faults in one history of the model; 2 takes minutes")

const maxParties, maxSends, maxQueue = 4, 2, 3

// world is a state. It is comparable.
type world struct {
	last     uint8 // revision of the bucket
	timeouts int8
	key      cell
	log      [2]request // accepted and not stored yet
	net      [maxParties][maxSends]request
	at       [maxParties]state
	gone     cell   // what was deleted, until something is stored
	ever     number // the highest number that any ticket had
	highest  number // the highest token that was used alone
}

// number is one of a ticket. The model's are small.
type number uint32

// cell is the key as it is stored. Revision 0: it is not there.
type cell struct {
	revision uint8
	relative bool
	n        int8
	who      [maxQueue]int8
	last     number
	numbers  [maxQueue]number
}

type what int8

const (
	nothing what = iota
	join
	leave
	remove
	purge
)

// request is on its way to the server. Purges are delivered twice.
type request struct {
	what     what
	who, no  int8
	copies   int8
	expected uint8
	number   number // of the ticket to be removed
	value    cell
}

type step int8

const (
	idle   step = iota
	ready       // it has read the key
	asks        // it waits for an answer
	waits       // its ticket stands and is not granted
	holds       // it holds the workspace
	goes        // it leaves
	goesOn      // it leaves, and has read the key
	leaves      // it leaves, and waits for an answer
	ended
)

type state struct {
	step         step
	round, sends int8
	bucket       uint8 // the revision of the bucket when it read
	since        uint8 // the revision under which it joined
	seen         cell
	number       number // of its ticket
	target       number // of the ticket that a sweeper takes out
}

var names = [maxParties]toolyard.BatchID{"0", "1", "2", "3"}

func (s setup) holder(who int8) ticket.Holder { return ticket.Holder{Agent: "a", Batch: names[who]} }

// queue is what dispatchers make of a cell.
func (s setup) queue(c cell) ticket.Queue {
	q := ticket.Queue{Last: uint64(c.last), Relative: c.relative}
	for i, who := range c.who[:c.n] {
		t := ticket.Ticket{N: uint64(c.numbers[i]), Holder: s.holder(who), Mode: s.parties[who].mode}
		q.Tickets = append(q.Tickets, t)
	}
	return q.At(uint64(c.revision))
}

// value is a queue as it is sent to be stored.
func (s setup) value(q ticket.Queue) cell {
	c := cell{last: number(q.Last), relative: q.Relative, n: int8(len(q.Tickets))}
	for i, t := range q.Tickets {
		c.who[i], c.numbers[i] = int8(slices.Index(names[:], t.Batch)), number(t.N)
	}
	return c
}

// broken is a promise that is violated in a state.
type broken struct{ what string }

func (b broken) Error() string { return b.what }

type explorer struct {
	setup
	rules
	seen  map[[2]uint64]bool // by two hashes
	seeds [2]maphash.Seed
	todo  []world
	err   error
}

// explore visits all states, and returns their number and the first violated promise.
func explore(s setup, r rules) (int, error) {
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	e := &explorer{setup: s, rules: r, seen: map[[2]uint64]bool{}, seeds: seeds}
	e.add(world{})
	for len(e.todo) > 0 && e.err == nil {
		w := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		e.next(w)
	}
	return len(e.seen), e.err
}

func (e *explorer) add(w world) {
	if int(w.timeouts) >= *timeouts {
		w.gone = cell{} // nothing brings it back any more
	}
	if k := [2]uint64{maphash.Comparable(e.seeds[0], w), maphash.Comparable(e.seeds[1], w)}; !e.seen[k] {
		e.seen[k] = true
		e.todo = append(e.todo, w)
	}
}

func (e *explorer) fail(format string, args ...any) {
	if e.err == nil {
		e.err = broken{fmt.Sprintf(format, args...)}
	}
}

// next adds every state that one step leads to.
func (e *explorer) next(w world) {
	for who := range e.parties {
		e.act(w, int8(who))
		for no := range w.net[who] {
			if w.net[who][no].what != nothing {
				e.deliver(w, int8(who), int8(no))
			}
		}
	}
	if w.log[0].what != nothing {
		e.apply(w)
	}
	if int(w.timeouts) < *timeouts && (w.log[0].what != nothing || w.gone.revision != 0) {
		// The server is killed: a write that was accepted and not stored is lost, and a deletion that was its last act
		// is undone.
		if w.timeouts++; w.gone.revision != 0 {
			w.key = w.gone
		}
		w.log, w.gone = [2]request{}, cell{}
		e.add(w)
	}
}

// act lets a party make a step of its own.
func (e *explorer) act(w world, who int8) {
	p, s := e.parties[who], &w.at[who]
	read := func(to step) {
		s.step, s.seen, s.bucket = to, w.key, w.last
		e.add(w)
	}
	switch s.step {
	case idle:
		if s.round < p.rounds && s.sends < maxSends {
			read(ready)
		}
	case ready:
		e.send(w, who)
	case asks, leaves: // no answer comes
		if s.step = map[step]step{asks: idle, leaves: goes}[s.step]; int(w.timeouts) < *timeouts {
			w.timeouts++
			e.add(w)
		}
	case waits:
		if q := e.queue(w.key); w.key.revision >= s.since {
			e.grant(w, who, q)
		}
	case holds:
		s.step, s.sends = goes, 0
		e.add(w)
	case goes:
		if s.sends < maxSends {
			read(goesOn)
		}
	case goesOn:
		e.send(w, who)
	}
}

// send puts a request on its way, as of what the party has read.
func (e *explorer) send(w world, who int8) {
	p, s := e.parties[who], &w.at[who]
	q := e.queue(s.seen)
	r := request{who: who, no: s.sends, expected: s.seen.revision, copies: 1}
	switch {
	case p.kind == deleter:
		empty, above := len(q.Tickets) == 0, ticket.Queue{Last: q.Last}.MayGo(uint64(s.seen.revision))
		if s.seen.revision == 0 || e.empty && !empty || e.above && !above {
			s.step = idle
			s.round++
			e.add(w)
			return
		}
		r.what, r.copies = purge, 2
	case p.kind == sweeper:
		// It found before that the ticket's batch has left, and acts on it now.
		if s.target == 0 {
			i := slices.IndexFunc(s.seen.who[:s.seen.n], func(who int8) bool { return w.at[who].step == ended })
			if s.step = idle; i >= 0 {
				s.target = number(q.Tickets[i].N)
			} else {
				s.round++
			}
			e.add(w)
			return
		}
		r.what, r.number, q = remove, s.target, q.Remove(uint64(s.target))
	case s.step == goesOn:
		r.what, q = leave, q.Leave(e.holder(who))
	default:
		next, _, err := q.Join(e.holder(who), p.mode)
		if err != nil {
			e.fail("%v", err)
			return
		}
		if r.what, q = join, next; p.wide {
			q.Last += 3 * ticket.NumbersPerRevision
		}
	}
	if r.what != purge {
		if s.seen.revision == 0 && e.floor != ofRevision {
			base := uint64(0)
			if e.floor == ofReading {
				base = ticket.Floor(uint64(s.bucket))
			}
			q.Relative, q.Last = false, q.Last+base
			for i := range q.Tickets {
				q.Tickets[i].N += base
			}
		}
		r.value = e.value(q)
	}
	w.net[who][r.no] = r
	s.sends++
	if s.step == goesOn {
		s.step = leaves
	} else {
		s.step = asks
	}
	e.add(w)
}

// deliver brings a request to the server.
func (e *explorer) deliver(w world, who, no int8) {
	r := w.net[who][no]
	if w.net[who][no].copies--; w.net[who][no].copies == 0 {
		w.net[who][no] = request{}
	}
	inFlight := slices.ContainsFunc(w.log[:], func(r request) bool { return r.what != nothing && r.what != purge })
	refused := r.what != purge && (r.expected != w.key.revision || inFlight) && (r.expected != 0 || e.absent)
	free := slices.IndexFunc(w.log[:], func(r request) bool { return r.what == nothing })
	switch {
	case refused:
		e.add(w)
		e.answer(w, r, false)
	case free >= 0:
		if w.log[free] = r; e.replicated {
			e.add(w)
		} else {
			e.apply(w)
		}
	}
}

// apply stores what the server accepted first.
func (e *explorer) apply(w world) {
	r := w.log[0]
	copy(w.log[:], w.log[1:])
	w.log[len(w.log)-1] = request{}
	before := e.queue(w.key)
	after := ticket.Queue{}
	if r.what != purge {
		w.last++
		w.key, w.gone = r.value, cell{}
		w.key.revision = w.last
		after = e.queue(w.key)
	} else if w.key.revision <= r.expected || !e.bounded {
		w.key, w.gone = cell{}, w.key
	} else {
		after = before
	}
	stands := func(q ticket.Queue, t ticket.Ticket) bool {
		return slices.ContainsFunc(q.Tickets, func(o ticket.Ticket) bool { return o.N == t.N && o.Batch == t.Batch })
	}
	for _, t := range before.Tickets {
		gone := r.what == leave && t.Batch == e.holder(r.who).Batch || r.what == remove && t.N == uint64(r.number)
		if !stands(after, t) && !gone {
			e.fail("ticket %d of batch %s is lost, by request %+v", t.N, t.Batch, r)
		}
		for who, s := range w.at {
			needs := (s.step == waits || s.step == holds) && uint64(s.number) == t.N &&
				t.Batch == e.holder(int8(who)).Batch
			if r.what == remove && t.N == uint64(r.number) && needs {
				e.fail("ticket %d of batch %s is taken out, which needs it", t.N, t.Batch)
			}
		}
	}
	for _, t := range after.Tickets {
		if !stands(before, t) && t.N <= uint64(w.ever) {
			e.fail("batch %s gets number %d, and %d was given out before", t.Batch, t.N, w.ever)
		}
	}
	w.ever = max(w.ever, number(after.Last))
	if int(w.timeouts) < *timeouts {
		e.add(w) // the answer is lost
	}
	e.answer(w, r, true)
}

// answer tells a party the outcome of its request, if it still waits for it.
func (e *explorer) answer(w world, r request, stored bool) {
	s := &w.at[r.who]
	if s.step != asks && s.step != leaves || s.sends != r.no+1 {
		return
	}
	switch {
	case r.what == purge || r.what == remove && stored:
		s.step, s.sends, s.target = idle, 0, 0
		s.round++
		e.add(w)
	case !stored && s.step == asks:
		s.step = idle
		e.add(w)
	case !stored:
		s.step = goes
		e.add(w)
	case r.what == join:
		s.since = w.key.revision
		e.grant(w, r.who, e.queue(w.key))
	case r.what == leave:
		s.round++
		if s.step, s.sends, s.number = ended, 0, 0; s.round < e.parties[r.who].rounds {
			s.step = idle
		}
		e.add(w)
	}
}

// grant checks whether a party's ticket is granted.
func (e *explorer) grant(w world, who int8, q ticket.Queue) {
	s := &w.at[who]
	own, ok := q.Find(e.holder(who), e.parties[who].mode)
	if !ok {
		return // reported when it was lost
	}
	s.step, s.number = waits, number(own.N)
	if _, ok = q.Granted(e.holder(who), e.parties[who].mode); !ok {
		e.add(w)
		return
	}
	s.step = holds
	alone := func(who int) bool { return e.parties[who].mode == ticket.Exclusive }
	for other, o := range w.at {
		if int8(other) != who && o.step == holds && (alone(other) || alone(int(who))) {
			e.fail("batches %d and %d hold the workspace together, by tickets %d and %d", who, other, own.N, o.number)
		}
	}
	if alone(int(who)) {
		if number(own.N) <= w.highest {
			e.fail("batch %d has the token %d, after %d", who, own.N, w.highest)
		}
		w.highest = number(own.N)
	}
	e.add(w)
}

// setups are small, and each has what one rule is for. All of them run on both kinds of server; with the race
// detector, which makes them ten times as slow and finds nothing in one thread, the longest do not.
func setups() map[string]setup {
	const x = ticket.Exclusive
	comes := func(rounds int8, mode ticket.Mode) party { return party{kind: batch, rounds: rounds, mode: mode} }
	deletes := func(rounds int8) party { return party{kind: deleter, rounds: rounds} }
	out := map[string]setup{}
	for name, parties := range map[string][]party{
		"two batches":               {comes(1, x), comes(1, x), deletes(1)},
		"one that comes back":       {comes(2, x), comes(1, ticket.Shared), deletes(1)},
		"one that is left behind":   {comes(2, x), deletes(1), {kind: sweeper, rounds: 1}},
		"one with numbers for many": {{kind: batch, rounds: 1, mode: x, wide: true}, comes(1, x), deletes(2)},
		"two that delete":           {comes(2, x), deletes(2), deletes(1)},
	} {
		out[name] = setup{parties: parties}
		twice := slices.ContainsFunc(parties, func(p party) bool { return p.kind == batch && p.rounds > 1 })
		if !raced || !twice {
			out[name+replicated] = setup{parties: parties, replicated: true}
		}
	}
	return out
}

const replicated = ", replicated"

// TestDeletingKeepsEveryPromise visits all histories of a key that is deleted and created again: no ticket in the queue
// is lost, no number is given twice or after a higher one, and no two conflicting holders have the workspace.
func TestDeletingKeepsEveryPromise(t *testing.T) {
	for name, s := range setups() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := explore(s, allRules)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states", n)
		})
	}
}

// TestEachRuleOfDeletingBites leaves out one rule at a time: a promise must break.
func TestEachRuleOfDeletingBites(t *testing.T) {
	const plain, wide = "two batches", "one with numbers for many"
	for what, tooth := range map[string]struct {
		setup  string
		change func(*rules)
	}{
		"the bound of a deletion":                {plain, func(r *rules) { r.bounded = false }},
		"the look whether the queue is empty":    {plain, func(r *rules) { r.empty = false }},
		"the look whether its numbers are below": {wide, func(r *rules) { r.above = false }},
		"the expectation that no key stands":     {plain, func(r *rules) { r.absent = false }},
		"the floor":                              {plain, func(r *rules) { r.floor = ofNothing }},
		"the server's part in the floor":         {plain, func(r *rules) { r.floor = ofReading }},
	} {
		for _, kind := range []string{"", replicated} {
			t.Run(what+kind, func(t *testing.T) {
				t.Parallel()
				r := allRules
				tooth.change(&r)
				n, err := explore(setups()[tooth.setup+kind], r)
				if err == nil {
					t.Fatalf("every promise holds without it, in %d states", n)
				}
				t.Logf("after %d states: %v", n, err)
			})
		}
	}
}
