package ticket_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// want is what a batch asks a queue for.
type want struct {
	mode  ticket.Mode
	locks []tool.Lock
}

func exclusively(names ...string) []tool.Lock { return locksOf(false, names) }
func sharing(names ...string) []tool.Lock     { return locksOf(true, names) }

func locksOf(shared bool, names []string) (out []tool.Lock) {
	for _, name := range names {
		out = append(out, tool.Lock{Name: name, Shared: shared})
	}
	return out
}

// wants are all kinds of tickets, with two names.
var wants = map[string]want{
	"shared": {mode: ticket.Shared}, "exclusive": {mode: ticket.Exclusive},
	"a": {ticket.Named, exclusively("a")}, "b": {ticket.Named, exclusively("b")},
	"both": {ticket.Named, exclusively("a", "b")}, "reads a": {ticket.Named, sharing("a")},
	"reads both": {ticket.Named, sharing("a", "b")}, "reads a, b": {ticket.Named, slices.Concat(sharing("a"),
		exclusively("b"))},
	"unknown mode": {mode: "of a later version"},
}

func kinds() (out []string) {
	for name := range wants {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// places is what a ticket lets its calls touch, in a workspace that has just three places: true says that they may
// change the place. It is the twin of [ticket.Conflict], and shares no idea with it.
func (w want) places() map[string]bool {
	all := map[string]bool{}
	for _, place := range []string{"a", "b", "rest"} {
		switch w.mode {
		case ticket.Shared:
			all[place] = false
		case ticket.Named:
		default:
			all[place] = true
		}
	}
	for _, l := range w.locks {
		all[l.Name] = !l.Shared
	}
	return all
}

// clash reports whether one of two changes a place that the other touches.
func clash(a, b want) bool {
	of := b.places()
	for place, writes := range a.places() {
		if other, touches := of[place]; touches && (writes || other) {
			return true
		}
	}
	return false
}

// TestNamesAgainstPlaces asks every queue of up to four tickets of all kinds who has its turn: exactly those that clash
// with none before them.
func TestNamesAgainstPlaces(t *testing.T) {
	all := kinds()
	var try func(q ticket.Queue, standing []string)
	try = func(q ticket.Queue, standing []string) {
		for i, name := range standing {
			w, h := wants[name], holder(fmt.Sprint(i), 0)
			var before []string
			for _, earlier := range standing[:i] {
				if clash(wants[earlier], w) {
					before = append(before, earlier)
				}
			}
			if _, ok := q.Granted(h, w.mode, w.locks...); ok != (len(before) == 0) {
				t.Fatalf("%q: ticket %d is granted: %v, behind %q", standing, i, ok, before)
			}
			if n := len(q.Blocking(h, w.mode, len(standing), w.locks...)); n != len(before) {
				t.Fatalf("%q: ticket %d waits for %d tickets, want %q", standing, i, n, before)
			}
		}
		if len(standing) == 4 {
			return
		}
		for _, name := range all {
			next, _, err := q.Join(holder(fmt.Sprint(len(standing)), 0), wants[name].mode, wants[name].locks...)
			must.OK(t, err)
			try(next, append(slices.Clone(standing), name))
		}
	}
	try(ticket.Queue{}, nil)
}

// crowd is a state of three batches, each of which takes two tickets one after the other.
type crowd struct {
	q  ticket.Queue
	at [3]member
}

type member struct {
	step  int  // 0, 1: before its first and second ticket; 2: over
	waits bool // its ticket stands in the queue
	holds bool
	token uint64
}

// TestBatchesWithNamesGoOn visits every order in which three batches take two tickets each, of all kinds: no two that
// clash hold theirs together, a later holder has the higher token, and whoever waits waits for somebody who goes on.
func TestBatchesWithNamesGoOn(t *testing.T) {
	plans := [][3][2]string{
		{{"a", "b"}, {"b", "a"}, {"both", "shared"}}, // each other's names in the other order
		{{"a", "a"}, {"reads a", "exclusive"}, {"reads both", "b"}},
		{{"shared", "a"}, {"shared", "b"}, {"exclusive", "reads a"}},
		{{"a", "exclusive"}, {"b", "exclusive"}, {"reads a, b", "shared"}},
	}
	states := 0
	for _, plan := range plans {
		seen := map[string]bool{}
		todo := []crowd{{}}
		for len(todo) > 0 {
			c := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if key := fmt.Sprint(c); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			moves := c.next(t, plan)
			over := !slices.ContainsFunc(c.at[:], func(m member) bool { return m.step < 2 })
			if len(moves) == 0 && !over {
				t.Fatalf("%v: nobody can go on: %+v", plan, c)
			}
			todo = append(todo, moves...)
		}
		states += len(seen)
	}
	t.Logf("%d states", states)
}

func (c crowd) next(t *testing.T, plan [3][2]string) (out []crowd) {
	for i, m := range c.at {
		if m.step == 2 {
			continue
		}
		w, n := wants[plan[i][m.step]], c
		h := holder(fmt.Sprint(i), m.step)
		switch {
		case m.holds && m.step == 0: // the next ticket takes the place of this one, in one change
			next := wants[plan[i][1]]
			q, _, err := c.q.Join(holder(fmt.Sprint(i), 1), next.mode, next.locks...)
			must.OK(t, err)
			n.q, n.at[i] = q, member{step: 1, waits: true, token: m.token}
		case m.holds:
			n.q, n.at[i] = c.q.Leave(h), member{step: 2}
		case m.waits:
			own, ok := c.q.Granted(h, w.mode, w.locks...)
			if !ok {
				continue
			}
			for j, o := range c.at {
				if !o.holds {
					continue
				}
				if other := wants[plan[j][o.step]]; clash(w, other) {
					t.Fatalf("%v: batches %d and %d hold tickets that clash: %+v", plan, i, j, c)
				}
			}
			if own.N <= m.token {
				t.Fatalf("%v: batch %d has the token %d after %d", plan, i, own.N, m.token)
			}
			n.at[i].holds, n.at[i].token = true, own.N
		default:
			q, _, err := c.q.Join(h, w.mode, w.locks...)
			must.OK(t, err)
			n.q, n.at[i].waits = q, true
		}
		out = append(out, n)
	}
	return out
}

// TestNamesAndGenerations: a ticket under which something may change begins a generation, whatever its names; a named
// one has none of its own, since others change the rest meanwhile.
func TestNamesAndGenerations(t *testing.T) {
	for name, w := range wants {
		q := ticket.Queue{Last: 5, Exclusive: 5}
		q, own, err := q.Join(ticket.Holder{Agent: "a", Batch: toolyard.BatchID("first")}, w.mode, w.locks...)
		must.OK(t, err)
		if named := w.mode == ticket.Named; named && own.After != 0 {
			t.Errorf("%s: it has the generation %d", name, own.After)
		}
		_, reader, err := q.Join(ticket.Holder{Agent: "a", Batch: "second"}, ticket.Shared)
		must.OK(t, err)
		changes := false
		for _, writes := range w.places() {
			changes = changes || writes
		}
		if changed := reader.After != 5; changed != changes {
			t.Errorf("%s: the generation after it is new: %v, want %v", name, changed, changes)
		}
	}
}
