package dispatcher

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// queue is the default workspace's queue, as it is stored.
func (y *yard) queue() (tickets int, revision uint64) {
	y.Helper()
	q, err := y.b.Tickets(y.Context(), toolyard.DefaultWorkspace)
	must.OK(y.T, err)
	return len(q.Tickets), q.Revision
}

// TestAPlanStartsTheFirstGroup: where a ticket is granted at once, the plan says so, and the queue changes twice for
// the whole batch however many exclusive groups it has. Each group has a higher token than the one before.
func TestAPlanStartsTheFirstGroup(t *testing.T) {
	for what, calls := range map[string][]string{
		"a read": {"read"}, "a write": {"write"}, "writes": {"write", "write", "write", "write"},
	} {
		t.Run(what, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.dispatcher("d")
				y.work()
				k := y.submit(calls...)
				y.codes(k)
				s := y.fold(k)
				if s.Plan.Start == nil || s.Plan.Start.Ticket == 0 || s.Plan.Start.Ticket != s.Started[0] {
					y.Errorf("the plan starts %+v", s.Plan.Start)
				}
				for g := 1; g < len(s.Plan.Groups); g++ {
					if s.Started[g] <= s.Started[g-1] {
						y.Errorf("the groups have the tokens %v", s.Started)
					}
				}
				y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
				if _, revision := y.queue(); revision != 2 {
					y.Errorf("the queue was stored %d times", revision)
				}
			})
		})
	}
}

// TestWhoWaitsComesBetween: a batch goes on under its ticket only while nobody waits.
func TestWhoWaitsComesBetween(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		long := y.submitBatch(toolyard.Batch{Agent: "long", Calls: []toolyard.Call{{Tool: "write"}, {Tool: "write"},
			{Tool: "write"}}})
		y.Eventually("it has begun", func() bool { n, _ := y.queue(); return n == 1 })
		short := y.submitBatch(toolyard.Batch{Agent: "short", Calls: []toolyard.Call{{Tool: "write"}}})
		y.Eventually("another one waits", func() bool { n, _ := y.queue(); return n == 2 })
		y.work()
		if got := y.codes(long) + " " + y.codes(short); got != "ok ok ok ok" {
			y.Errorf("the results are %s", got)
		}
		if got := y.order(); len(got) != 4 || got[1] != "short" {
			y.Errorf("the calls ran in the order %v", got)
		}
	})
}

// TestALaterGroupHoldsTheWorkspace: while the second group runs under the ticket of the first, and another batch waits
// for long, the ticket is not swept. Another owner keeps it, with the token under which the call was queued.
func TestALaterGroupHoldsTheWorkspace(t *testing.T) {
	inYard(t, func(y *yard) {
		d := y.dispatcher("d")
		k := y.submit("write", "write")
		y.run(y.take(toolyard.WriteExclusive))
		var s batch.State
		y.Eventually("the second group has begun", func() bool { s = y.fold(k); return len(s.Started) == 2 })
		waits := y.submitBatch(toolyard.Batch{Agent: "other", Calls: []toolyard.Call{{Tool: "write"}}})
		y.Eventually("another one waits", func() bool { n, _ := y.queue(); return n == 2 })
		head := func(of string) {
			y.Helper()
			q, err := y.b.Tickets(y.Context(), toolyard.DefaultWorkspace)
			must.OK(y.T, err)
			if len(q.Tickets) != 2 || q.Tickets[0].Batch != k.ID || q.Tickets[0].Number(1) != s.Started[1] {
				y.Fatalf("%s: the queue is %+v", of, q)
			}
		}
		time.Sleep(30 * time.Second)
		head("after half a minute")
		d.End()
		y.dispatcher("next")
		y.Eventually("another owner", func() bool { return y.fold(k).Takeovers == 1 })
		time.Sleep(30 * time.Second)
		head("with another owner")
		if now := y.fold(k); now.Started[1] != s.Started[1] {
			y.Errorf("the second group has the token %d, and had %d", now.Started[1], s.Started[1])
		}
		y.work()
		if got := y.codes(k) + " " + y.codes(waits); got != "ok ok ok" || y.ran.Load() != 3 {
			y.Errorf("the results are %s, and %d calls ran", got, y.ran.Load())
		}
	})
}

// TestATicketOfAPlanThatLost: the dispatcher whose plan came too late leaves the ticket to the batch's owner, and takes
// it out when the batch is over.
func TestATicketOfAPlanThatLost(t *testing.T) {
	for _, over := range []bool{false, true} {
		inYard(t, func(y *yard) {
			sub := toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}}}
			y.dispatcher("d")
			k := y.submitBatch(sub)
			y.Eventually("it has begun", func() bool { n, _ := y.queue(); return n == 1 })
			if over {
				y.run(y.take(toolyard.WriteExclusive))
				y.codes(k)
				y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
			}
			if n := y.reserveLate(k); n == 0 != over {
				y.Errorf("the batch is over: %t, and %d tickets are in the queue", over, n)
			}
		})
	}
}

// TestATicketOfAPlanThatLostToABatchThatWaits: the batch's owner has no ticket, because a person is asked, when another
// dispatcher reserves one for its own plan of the batch, too late. It goes when the batch is parked, or is over.
func TestATicketOfAPlanThatLostToABatchThatWaits(t *testing.T) {
	for name, end := range map[string]func(*yard, toolyard.BatchKey){
		"parked": func(y *yard, k toolyard.BatchKey) {
			y.input(k, events.Closed{By: "agent"})
			y.Eventually("the batch is parked", func() bool { return y.fold(k).Parked })
		},
		"over": func(y *yard, k toolyard.BatchKey) {
			must.OK(y.T, y.b.Cancel(y.Context(), k, ""))
			y.codes(k)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				y.dispatcher("d")
				k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}}, Open: true})
				y.ask(k, y.take(toolyard.WriteExclusive))
				y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
				if n := y.reserveLate(k); n != 1 {
					y.Fatalf("%d tickets are in the queue of a batch that goes on", n)
				}
				end(y, k)
				time.Sleep(100 * time.Millisecond)
				if n, _ := y.queue(); n != 0 {
					y.Errorf("%d tickets are in the queue", n)
				}
			})
		})
	}
}

// reserveLate has a dispatcher reserve a ticket for its own plan of a batch that another one has planned. It returns
// how many tickets are left in the queue.
func (y *yard) reserveLate(k toolyard.BatchKey) int {
	y.Helper()
	late := New(y.Broker("late"), Config{ID: "late", Base: y.entries(), Log: y.Log(), Planner: planner()})
	y.Start(late)
	_, reserved, granted := late.reserve(y.Context(), &batch.State{Key: k}, toolyard.DefaultWorkspace,
		batch.TakeTicket{Mode: "exclusive"})
	if !reserved || !granted {
		y.Fatalf("reserved %t, granted %t", reserved, granted)
	}
	must.OK(y.T, late.locks.Settle(y.Context(), toolyard.DefaultWorkspace, k))
	n, _ := y.queue()
	return n
}

// TestATicketOfAPlanThatLostBlocksNobody: the batch's owner has no ticket and needs none for as long as it lasts. It
// takes out the one that came too late, and another batch gets the workspace.
func TestATicketOfAPlanThatLostBlocksNobody(t *testing.T) {
	for name, leave := range map[string]func(*yard) toolyard.BatchKey{
		"a call waits for a person": func(y *yard) toolyard.BatchKey {
			y.dispatcher("d")
			k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}}, Open: true})
			y.ask(k, y.take(toolyard.WriteExclusive))
			y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
			return k
		},
		"open": func(y *yard) toolyard.BatchKey {
			y.work()
			y.dispatcher("d", func(c *Config) { c.OpenIdle, c.RestAfter = time.Hour, time.Hour })
			k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "write"}}, Open: true})
			y.Eventually("the workspace is free", func() bool {
				n, _ := y.queue()
				return n == 0 && y.fold(k).Replied == 1
			})
			return k
		},
		"open, and rests": func(y *yard) toolyard.BatchKey { _, _, k := y.rest(false); return k },
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				k := leave(y)
				if n := y.reserveLate(k); n != 1 {
					y.Fatalf("%d tickets are in the queue of a batch that goes on", n)
				}
				time.Sleep(3 * broker.Heartbeat(y.b.Settings().BatchAckWait))
				if n, _ := y.queue(); n != 0 {
					y.Errorf("%d tickets are in the queue", n)
				}
				if s := y.fold(k); s.Completed || s.Takeovers > 0 {
					y.Errorf("the batch is %s, after %d takeovers", s.Status(), s.Takeovers)
				}
			})
		})
	}
}

// TestAFormerOwnerJoinsTooLate: an owner stands still when it joins the queue. The next owner runs the batch to its
// end, and then the former one joins. It takes its ticket out, since nobody else does.
func TestAFormerOwnerJoinsTooLate(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("former")
		first := y.submit("write")
		held := y.take(toolyard.WriteExclusive)
		var joins atomic.Int32
		y.Server.Hold(func(st membroker.Step) bool {
			is := st.Party == "former" && st.Kind == membroker.Operation && strings.Contains(st.What, "ty_ticket")
			if is {
				joins.Add(1)
			}
			return is
		})
		k := y.submit("write")
		y.Eventually("the former owner joins", func() bool { return joins.Load() > 0 })
		y.run(held)
		y.dispatcher("next")
		y.work()
		for _, k := range []toolyard.BatchKey{first, k} {
			if got := y.codes(k); got != "ok" {
				y.Errorf("the results of %s are %s", k, got)
			}
		}
		y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
		_, before := y.queue()
		y.Server.Hold(nil)
		y.Eventually("the former owner has joined", func() bool { _, now := y.queue(); return now > before })
		time.Sleep(time.Second)
		if n, _ := y.queue(); n != 0 {
			y.Errorf("%d tickets are in the queue", n)
		}
	})
}

// TestACanceledBatchLeavesNoReservation: a ticket that was reserved and not granted goes with the batch, although its
// group never starts.
func TestACanceledBatchLeavesNoReservation(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		first := y.submit("write")
		d := y.take(toolyard.WriteExclusive)
		second := y.submit("write")
		y.Eventually("the second one waits", func() bool { n, _ := y.queue(); return n == 2 })
		must.OK(y.T, y.b.Cancel(y.Context(), second, ""))
		if got := y.codes(second); got != string(toolyard.Canceled) {
			y.Errorf("the results are %s", got)
		}
		time.Sleep(time.Second)
		if n, _ := y.queue(); n != 1 {
			y.Errorf("%d tickets are in the queue", n)
		}
		y.run(d)
		y.codes(first)
	})
}
