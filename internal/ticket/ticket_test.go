package ticket_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

func holder(batch string, group int) ticket.Holder {
	return ticket.Holder{Agent: "a", Batch: toolyard.BatchID(batch), Group: group}
}

// TestQueueKeepsItsPromises plays random joins and leaves and checks after each step what must always hold: granted
// tickets are all shared or a single exclusive one, numbers only grow, a repeat changes nothing, and no ticket
// waits behind a later one that is granted and conflicts with it.
func TestQueueKeepsItsPromises(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var q ticket.Queue
		for step := range 60 {
			h := holder(fmt.Sprint(r.IntN(6)), r.IntN(3))
			if r.IntN(3) == 0 {
				h.Through = h.Group + 1
			}
			last := q.Last
			if r.IntN(5) < 3 {
				mode := []ticket.Mode{ticket.Shared, ticket.Exclusive}[r.IntN(2)]
				join := []func(ticket.Queue) (ticket.Queue, ticket.Ticket, error){
					func(q ticket.Queue) (ticket.Queue, ticket.Ticket, error) { return q.Join(h, mode) },
					func(q ticket.Queue) (ticket.Queue, ticket.Ticket, error) { return q.Reserve(h, mode) },
				}[r.IntN(2)]
				q2, t1, err := join(q)
				if errors.Is(err, ticket.ErrPassed) {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				q3, t2, _ := join(q2)
				if !reflect.DeepEqual(t1, t2) || len(q3.Tickets) != len(q2.Tickets) || q3.Last != q2.Last {
					t.Fatalf("seed %d step %d: joining again changed the queue", seed, step)
				}
				q = q2
			} else {
				q = q.Leave(h)
				for _, mode := range []ticket.Mode{ticket.Shared, ticket.Exclusive} {
					if _, ok := q.Find(h, mode); ok {
						t.Fatalf("seed %d step %d: %v still stands after leaving", seed, step, h)
					}
				}
			}
			if q.Last < last {
				t.Fatalf("seed %d step %d: numbers went back from %d to %d", seed, step, last, q.Last)
			}
			check(t, q)
		}
	}
}

func check(t *testing.T, q ticket.Queue) {
	t.Helper()
	shared, exclusive := 0, 0
	var n uint64
	for i, tk := range q.Tickets {
		if tk.N <= n || tk.Number(tk.Holder.Last()) > q.Last {
			t.Fatalf("numbers do not grow: %v", q.Tickets)
		}
		n = tk.Number(tk.Holder.Last())
		_, granted := q.Granted(tk.Holder, tk.Mode)
		conflictBefore := false
		for _, e := range q.Tickets[:i] {
			conflictBefore = conflictBefore || e.Mode == ticket.Exclusive || tk.Mode == ticket.Exclusive
		}
		if granted == conflictBefore {
			t.Fatalf("ticket %d of %v: granted %v, with an earlier conflict %v", tk.N, q.Tickets, granted,
				conflictBefore)
		}
		if granted && tk.Mode == ticket.Exclusive {
			exclusive++
		} else if granted {
			shared++
		}
	}
	if exclusive > 1 || exclusive == 1 && shared > 0 {
		t.Fatalf("%d exclusive and %d shared tickets are granted together: %v", exclusive, shared, q.Tickets)
	}
}

func TestOldQueuesAreLeftAlone(t *testing.T) {
	a, _, _ := ticket.Queue{}.Join(holder("a", 0), ticket.Exclusive)
	b, _, _ := a.Join(holder("b", 0), ticket.Exclusive)
	_ = b.Leave(holder("a", 0))
	if len(a.Tickets) != 1 || len(b.Tickets) != 2 || b.Tickets[0].Batch != "a" {
		t.Errorf("a change reached an older queue: %v, %v", a, b)
	}
}

func TestAFormerOwnerChangesNothingForALaterGroup(t *testing.T) {
	q, _, _ := ticket.Queue{}.Join(holder("b", 1), ticket.Shared)
	next := holder("b", 2)
	next.Term = 1
	q, now, err := q.Join(next, ticket.Exclusive)
	if err != nil || len(q.Tickets) != 1 || now.N != 2 {
		t.Fatalf("passing on to group 2: %v, %v, %v", q, now, err)
	}
	if _, _, err := q.Join(holder("b", 1), ticket.Shared); !errors.Is(err, ticket.ErrPassed) {
		t.Errorf("joining for group 1 again: %v, want ErrPassed", err)
	}
	if left := q.Leave(holder("b", 1)); len(left.Tickets) != 1 {
		t.Errorf("leaving for group 1 took out group 2's ticket: %v", left)
	}
}

// TestAReservationOfALostPlanForALaterGroup: the owner, whose plan has another first group, takes it out.
func TestAReservationOfALostPlanForALaterGroup(t *testing.T) {
	q, _, err := ticket.Queue{}.Reserve(holder("b", 1), ticket.Exclusive)
	must.OK(t, err)
	q, now, err := q.Join(holder("b", 0), ticket.Shared)
	if err != nil || len(q.Tickets) != 1 || now.Group != 0 {
		t.Errorf("joining for group 0: %v, %v, %v", q, now, err)
	}
}

// TestATicketThatALaterOwnerHolds: a former owner cannot release it, even for the same group.
func TestATicketThatALaterOwnerHolds(t *testing.T) {
	former, later := holder("b", 0), holder("b", 0)
	later.Term = 1
	q, first, _ := ticket.Queue{}.Join(former, ticket.Shared)
	q, again, err := q.Join(later, ticket.Shared)
	if err != nil || again.N != first.N || len(q.Tickets) != 1 {
		t.Fatalf("the later owner finds %v, %v in %v", again, err, q)
	}
	if left := q.Leave(former); len(left.Tickets) != 1 {
		t.Error("the former owner gave the ticket away")
	}
	if left := q.Leave(later); len(left.Tickets) != 0 {
		t.Error("the owner cannot leave")
	}
	if left := q.Remove(again.N); len(left.Tickets) != 0 {
		t.Error("a ticket cannot be taken out by its number")
	}
	if left := q.Remove(again.N + 1); len(left.Tickets) != 1 {
		t.Error("another number took it out")
	}
}

func TestFullQueueRefuses(t *testing.T) {
	q := ticket.Queue{Tickets: make([]ticket.Ticket, ticket.MaxQueue)}
	if _, _, err := q.Join(holder("late", 0), ticket.Shared); !errors.Is(err, ticket.ErrFull) {
		t.Errorf("Join on a full queue: %v, want ErrFull", err)
	}
}

// TestANewQueueCountsFromItsRevision: numbers that are first stored under a revision are above all that an earlier one
// could give out, and their holders find them.
func TestANewQueueCountsFromItsRevision(t *testing.T) {
	q := ticket.Queue{}.At(0)
	q, _, _ = q.Join(holder("a", 0), ticket.Exclusive)
	q, _, _ = q.Join(holder("b", 0), ticket.Shared)
	stored := q.Leave(holder("a", 0))
	stands := stored.At(7)
	own, ok := stands.Granted(holder("b", 0), ticket.Shared)
	if !ok || own.N != ticket.Floor(7)+2 || stands.Last != own.N || stands.Relative {
		t.Errorf("under revision 7 it is %+v", stands)
	}
	if again := stands.At(9); again.Last != stands.Last || again.Relative {
		t.Errorf("a queue with its own numbers changes with its revision: %+v", again)
	}
	if stored.Tickets[0].N != 2 {
		t.Errorf("the queue as it is stored was changed: %+v", stored)
	}
	next, second, _ := stands.Join(holder("c", 0), ticket.Shared)
	if second.N != own.N+1 || next.Relative {
		t.Errorf("the next ticket is %+v", second)
	}
}

func TestWhichKeysMayGo(t *testing.T) {
	const first = ticket.NumbersPerRevision
	one, _, _ := ticket.Queue{}.Join(holder("a", 0), ticket.Shared)
	for name, c := range map[string]struct {
		q        ticket.Queue
		revision uint64
		want     bool
	}{
		"somebody stands in it":           {one, 7, false},
		"nobody, of an older version":     {ticket.Queue{Last: 12}, 7, true},
		"nobody, and no number was given": {ticket.Queue{}.At(7), 7, true},
		"the next queue begins above":     {ticket.Queue{Last: 8 * first}, 7, true},
		"the next queue may begin below":  {ticket.Queue{Last: 8*first + 1}, 7, false},
		"a later revision has passed it":  {ticket.Queue{Last: 8*first + 1}, 8, true},
	} {
		if got := c.q.MayGo(c.revision); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBlocking: a ticket waits for the earlier ones that it cannot be granted beside.
func TestBlocking(t *testing.T) {
	var q ticket.Queue
	holders := []ticket.Holder{{Batch: "a"}, {Batch: "b"}, {Batch: "c"}, {Batch: "d"}}
	for i, mode := range []ticket.Mode{ticket.Shared, ticket.Exclusive, ticket.Shared, ticket.Exclusive} {
		var err error
		if q, _, err = q.Join(holders[i], mode); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"", "a", "b", "abc"} {
		mode := []ticket.Mode{ticket.Shared, ticket.Exclusive}[i%2]
		got := ""
		for _, b := range q.Blocking(holders[i], mode, 9) {
			got += string(b.Batch)
		}
		if _, granted := q.Granted(holders[i], mode); got != want || granted != (want == "") {
			t.Errorf("%s waits for %q; want %q (granted: %t)", holders[i].Batch, got, want, granted)
		}
	}
	if got := q.Blocking(holders[3], ticket.Exclusive, 2); len(got) != 2 {
		t.Errorf("it names %d tickets; want 2 at most", len(got))
	}
	if got := q.Blocking(ticket.Holder{Batch: "e"}, ticket.Shared, 9); got != nil {
		t.Errorf("who is not in the queue waits for %v", got)
	}
}

// TestGenerations plays queues from the beginning of a key on, and notes which groups run. Two shared tickets that say
// the same generation have no exclusive group between them, also across keys, and a queue whose key was stored says
// one for each shared ticket.
func TestGenerations(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		revision, ran := uint64(1), 0
		q := ticket.Queue{}.At(0)
		during := map[uint64]int{} // how many exclusive groups had run under each generation
		begun := map[uint64]bool{}
		repeats := 0
		for range 120 {
			revision++
			h := holder(fmt.Sprint(r.IntN(5)), r.IntN(3))
			mode := []ticket.Mode{ticket.Shared, ticket.Shared, ticket.Exclusive}[r.IntN(3)]
			if mode == ticket.Exclusive {
				h.Through = h.Group + r.IntN(2)
			}
			switch r.IntN(4) {
			case 0, 1:
				join := q.Join
				if r.IntN(3) == 0 {
					join = q.Reserve
				}
				if next, _, err := join(h, mode); err == nil {
					q = next
				}
			case 2:
				if len(q.Tickets) > 0 { // whoever is first leaves
					q = q.Leave(q.Tickets[0].Holder)
				}
			case 3:
				if q.MayGo(revision) && !q.Relative {
					q = ticket.Queue{}.At(0)
				}
			}
			q = q.At(revision)
			for i, own := range q.Tickets {
				if _, granted := q.Granted(own.Holder, own.Mode); !granted || i > 0 && own.Mode == ticket.Exclusive {
					continue
				}
				if own.Mode == ticket.Exclusive {
					if !begun[own.N] {
						begun[own.N] = true
						ran++
					}
					continue
				}
				if own.After == 0 || own.After >= own.N {
					t.Fatalf("seed %d: the ticket %+v says no generation before its own number", seed, own)
				}
				if had, known := during[own.After]; known && had != ran {
					t.Fatalf("seed %d: generation %d lasts from %d exclusive groups to %d", seed, own.After, had, ran)
				} else if known {
					repeats++
				}
				during[own.After] = ran
			}
		}
		if len(during) < 2 || repeats == 0 {
			t.Fatalf("seed %d shows nothing: %d generations, %d repeats", seed, len(during), repeats)
		}
	}
}

// TestGenerationsOfSeveralQueues: a workspace whose queue goes on in another shard has a generation there, which each
// exclusive ticket ends.
func TestGenerationsOfSeveralQueues(t *testing.T) {
	former, first, err := ticket.Queue{Last: 6, Exclusive: 5}.Join(holder("a", 0), ticket.Exclusive)
	must.OK(t, err)
	former.Sealed = true
	queues := []ticket.Queue{former, ticket.Queue{}.At(0).At(2)}
	one := func() ticket.Queue { return ticket.One(queues, former.Last) }
	join := func(batch string, mode ticket.Mode) ticket.Ticket {
		t.Helper()
		next, own, err := one().Join(holder(batch, 0), mode)
		must.OK(t, err)
		queues = next.Split(queues)
		return own
	}
	before := join("b", ticket.Shared)
	change := join("c", ticket.Exclusive)
	after := join("d", ticket.Shared)
	for _, own := range []ticket.Ticket{before, after} {
		if own.After == 0 || own.After < first.N || own.After >= own.N {
			t.Errorf("the ticket %+v says no generation between %d and its own number", own, first.N)
		}
	}
	if before.After == after.After || after.After != change.N {
		t.Errorf("ticket %d comes between %+v and %+v", change.N, before, after)
	}
	if alone := queues[1]; alone.Exclusive != change.N {
		t.Errorf("the new queue alone has generation %d; the last exclusive ticket is %d", alone.Exclusive, change.N)
	}
}
