package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// lostOne is a broker that cannot read the submission of one batch. Its plan is not there yet when it is first read.
type lostOne struct {
	*natsbroker.Broker
	key  toolyard.BatchKey
	late int // how many readings of the plan find none
}

var errSubmissionLost = &broker.LostError{Subject: "its submission", Problem: "a test", Submission: true}

func (b *lostOne) Fold(ctx context.Context, k toolyard.BatchKey) (batch.State, error) {
	if k == b.key {
		return batch.State{Key: k}, errSubmissionLost
	}
	return b.Broker.Fold(ctx, k)
}

func (b *lostOne) AsPlanned(ctx context.Context, k toolyard.BatchKey) (*toolyard.Batch, error) {
	if k == b.key && b.late > 0 {
		b.late--
		return nil, nil
	}
	return b.Broker.AsPlanned(ctx, k)
}

// TestATicketOfALostSubmission: a batch has a ticket and no plan, and its submission is lost. Who waits for its replies
// is told, nobody can plan it any more, and another batch gets the workspace.
func TestATicketOfALostSubmission(t *testing.T) {
	for name, before := range map[string]func(*yard, toolyard.BatchKey) error{
		"alone": func(*yard, toolyard.BatchKey) error { return nil },
		"turned away before": func(y *yard, k toolyard.BatchKey) error {
			_, err := y.b.Append(y.Context(), k, batch.ChainBatch, "", 0, 0, events.Refused{Status: 503})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				k := toolyard.BatchKey{Agent: "lost", ID: "lost"}
				_, err := y.b.ChangeTickets(y.Context(), broker.TicketQueue{Workspace: toolyard.DefaultWorkspace},
					func(q ticket.Queue) (next ticket.Queue, err error) {
						next, _, err = q.Reserve(ticket.Holder{Agent: k.Agent, Batch: k.ID}, ticket.Exclusive)
						return next, err
					})
				if err == nil {
					err = before(y, k)
				}
				if err != nil {
					t.Fatal(err)
				}
				y.work()
				y.Start(New(&lostOne{Broker: y.Broker("d"), key: k},
					Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()}))
				if got := y.codes(y.submit("write")); got != "ok" {
					t.Errorf("who waited is answered %s", got)
				}
				s := batch.State{Key: k}
				if err := y.b.CatchUp(y.Context(), &s, batch.ChainReply, 0); err != nil || s.Refused == nil {
					t.Errorf("who waits for the lost one is told %+v, %v", s.Refused, err)
				}
				if planned, err := y.b.Planned(y.Context(), k); err != nil || !planned {
					t.Errorf("the lost one can still be planned: %v", err)
				}
			})
		})
	}
}

// TestALostSubmissionThatIsPlannedMeanwhile: its ticket stays until its calls are answered.
func TestALostSubmissionThatIsPlannedMeanwhile(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submit("write")
		y.Eventually("it has begun", func() bool { return len(y.fold(k).Started) == 1 })
		b := &lostOne{Broker: y.Broker("late"), key: k, late: 1}
		late := New(b, Config{ID: "late", Base: y.entries(), Log: y.Log(), Planner: planner()})
		y.Start(late)
		late.endLost(y.Context(), map[toolyard.BatchKey]error{k: errSubmissionLost})
		if n, _ := y.queue(); n != 1 || b.late != 0 {
			t.Errorf("%d tickets are in the queue of a batch that runs", n)
		}
		if s := y.fold(k); s.Refused != nil || s.Completed {
			t.Errorf("a batch that runs is told %+v", s.Refused)
		}
	})
}

// lostMessage is a submission that cannot be read, and how it was answered.
type lostMessage struct {
	broker.SubmissionMessage
	done, buried bool
}

func (m *lostMessage) Read(context.Context) (batch.State, error) {
	return batch.State{}, errSubmissionLost
}
func (m *lostMessage) BuryBatch(context.Context, string) error { m.buried = true; return nil }
func (m *lostMessage) Done(context.Context) error              { m.done = true; return nil }

func (m *lostMessage) Heartbeat(context.Context, bool) (bool, error) { return true, nil }

// TestALostSubmissionThatAnotherHasRead: another dispatcher has read the submission before it was lost, and stands
// still. The batch is refused in place of its plan, so that nothing of it runs when the other goes on. A plan that
// cannot be read stands in the way: then only who waits is told.
func TestALostSubmissionThatAnotherHasRead(t *testing.T) {
	for name, c := range map[string]struct {
		plan     error // why the plan cannot be read; nil: there is none
		replaced bool
	}{
		"not planned":         {replaced: true},
		"a plan that is lost": {plan: errSubmissionLost},
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, func(y *yard) {
				k := y.submit("write")
				d := New(&lostPlan{y.Broker("d"), c.plan}, Config{ID: "d", Base: y.entries(), Log: y.Log()})
				m := &lostMessage{}
				err := d.giveUp(y.Context(), &kept{key: k, log: d.log, sub: &broker.Submission{SubmissionMessage: m}},
					errSubmissionLost)
				if err != nil || !m.buried || !m.done {
					t.Errorf("giving it up: %v, %+v", err, m)
				}
				s := batch.State{Key: k}
				if err := y.b.CatchUp(y.Context(), &s, batch.ChainReply, 0); err != nil || s.Refused == nil {
					t.Errorf("who waits is told %+v, %v", s.Refused, err)
				}
				if planned, err := y.b.Planned(y.Context(), k); err != nil || planned != c.replaced {
					t.Errorf("the batch chain has begun: %t, %v; want %t", planned, err, c.replaced)
				}
			})
		})
	}
}

// lostPlan is a broker that finds no plan, or cannot read it.
type lostPlan struct {
	*natsbroker.Broker
	err error
}

func (b *lostPlan) AsPlanned(context.Context, toolyard.BatchKey) (*toolyard.Batch, error) {
	return nil, b.err
}

// TestGivingABatchUpIsNotLeftToOthers: giving a batch up waits for its worker to stop, for longer than a dispatcher may
// be silent. Nobody else is given the batch meanwhile, finds it complete, and lets others into its workspace.
func TestGivingABatchUpIsNotLeftToOthers(t *testing.T) {
	inYard(t, func(y *yard) {
		stops := y.b.Settings().CallAckWait
		if wait := y.b.Settings().BatchAckWait; stops <= wait {
			t.Fatalf("the wait for a worker, %s, is no longer than that for a dispatcher, %s", stops, wait)
		}
		for _, party := range []string{"d1", "d2", "d3", "d4"} { // of many, another one gets what is delivered again
			y.dispatcher(party, func(c *Config) { c.MaxDeliveries = 2 })
		}
		y.settle()
		k := y.submit("write")
		seq := y.claim(y.take(toolyard.WriteExclusive), "w")
		// nobody was asked, so the log contradicts itself
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, 0, seq,
			events.Decided{Decision: events.Reject, By: "nobody"}); err != nil {
			t.Fatal(err)
		}
		answered := y.firstEnd(k)
		y.Eventually("its ticket is given back", func() bool { n, _ := y.queue(); return n == 0 })
		if took := time.Since(answered); took < stops {
			t.Errorf("others have the workspace %s after the call was answered, which its worker may not know for %s", took,
				stops)
		}
	})
}
