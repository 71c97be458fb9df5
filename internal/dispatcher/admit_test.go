package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// status waits for the answer to a batch, and returns the status with which it was refused; 200 when it was not.
func (y *yard) status(k toolyard.BatchKey) int {
	y.Helper()
	status := 0
	y.Eventually("the batch is answered", func() bool {
		switch s := y.fold(k); {
		case s.Refused != nil && s.ReplySeq != 0:
			status = s.Refused.Status
		case s.Completed:
			status = 200
		}
		return status != 0
	})
	return status
}

// of submits a batch of one call for an agent.
func (y *yard) of(a toolyard.Agent, names ...string) toolyard.BatchKey {
	y.Helper()
	sub := toolyard.Batch{Agent: a}
	for _, name := range names {
		sub.Calls = append(sub.Calls, toolyard.Call{Tool: name})
	}
	return y.submitBatch(sub)
}

// settle lets the dispatcher take all that was submitted.
func (y *yard) settle() { time.Sleep(time.Second) }

// TestAQuietAgentsBatchTakesItsTurn: a dispatcher runs one batch at a time, and one agent has a hundred that wait.
// Another agent's batch, submitted last, comes after the one that runs and one more at most.
func TestAQuietAgentsBatchTakesItsTurn(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) { c.MaxBatches = 1 })
		var all []toolyard.BatchKey
		for range 100 {
			all = append(all, y.of("flood", "read"))
		}
		quiet := y.of("quiet", "read")
		y.settle()
		y.work()
		for _, k := range append(all, quiet) {
			if got := y.codes(k); got != "ok" {
				y.Errorf("a batch of %s: %s", k.Agent, got)
			}
		}
		if at := slices.Index(y.order(), "quiet"); at < 0 || at > 2 {
			y.Errorf("the quiet agent's batch was number %d, want 3 at most: behind the one that ran, and one turn of "+
				"the other agent", at+1)
		}
	})
}

// TestAFullQueue: past an agent's cap new batches are refused with a reason that says what to do, and others' are
// not.
func TestAFullQueue(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) { c.MaxAgentBatches, c.MaxAgentWaiting = 2, 3 })
		var all []toolyard.BatchKey
		for range 7 {
			all = append(all, y.of("flood", "read"))
		}
		for n, k := range all[5:] {
			if got := y.status(k); got != statusTooMany {
				y.Errorf("batch %d is answered with status %d", n+5, got)
			}
			if s := y.fold(k); s.Refused.Detail == "" || s.Plan != nil {
				y.Errorf("batch %d is refused with %+v", n+5, s.Refused)
			}
		}
		other := y.of("other", "read")
		y.work()
		for _, k := range append(all[:5], other, y.of("other", "read")) {
			if got := y.codes(k); got != "ok" {
				y.Errorf("a batch within the caps: %s", got)
			}
		}
		if got := y.codes(y.of("flood", "read")); got != "ok" {
			y.Errorf("when there is room again: %s", got)
		}
	})
}

// TestAWaitingBatchGoesToTheNextDispatcher: what waits in a dispatcher that ends is another's at once, and in turn.
func TestAWaitingBatchGoesToTheNextDispatcher(t *testing.T) {
	inYard(t, func(y *yard) {
		first := y.dispatcher("d", func(c *Config) { c.MaxBatches = 1 })
		var all []toolyard.BatchKey
		for range 4 {
			all = append(all, y.submit("read"))
		}
		y.settle()
		first.End()
		ended := time.Now()
		y.work()
		y.dispatcher("next", func(c *Config) { c.MaxBatches = 1 })
		for _, k := range all {
			if got := y.codes(k); got != "ok" {
				y.Errorf("the results are %s", got)
			}
		}
		if took := time.Since(ended); took > 2*y.b.Settings().BatchAckWait {
			y.Errorf("it took %s", took)
		}
	})
}

// TestAFullDispatcherTakesOver: a batch that is under way may hold what running ones wait for, so it runs beside them.
func TestAFullDispatcherTakesOver(t *testing.T) {
	inYard(t, func(y *yard) {
		one := func(c *Config) { c.MaxBatches = 1 }
		first := y.dispatcher("d", one)
		all := []toolyard.BatchKey{y.submit("write")} // it holds the workspace
		y.settle()
		y.dispatcher("next", one)
		// One dispatcher is full with what holds the workspace; sooner or later the other is with what waits for it.
		y.Eventually("a batch is planned that waits", func() bool {
			all = append(all, y.submit("write"))
			return slices.ContainsFunc(all[1:], func(k toolyard.BatchKey) bool { return y.fold(k).Plan != nil })
		})
		first.End()
		y.work()
		for _, k := range all {
			if got := y.codes(k); got != "ok" {
				y.Errorf("the results are %s", got)
			}
		}
	})
}

// filling is a store that says how full it is.
type filling struct {
	Broker
	percent, refusals atomic.Int32
}

func (f *filling) Fill(context.Context) (broker.Fill, error) {
	return broker.Fill{Stream: "TY_EVENT", Percent: int(f.percent.Load()), Refusals: int(f.refusals.Load())}, nil
}

// TestANearlyFullStore: new batches are refused while what is left is for those under way, which finish; near the end
// nothing is stored for them at all, and they wait.
func TestANearlyFullStore(t *testing.T) {
	inYard(t, func(y *yard) {
		store := &filling{Broker: y.Broker("d")}
		y.Start(New(store, Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()}))
		fill := func(percent, refusals int32) {
			store.percent.Store(percent)
			store.refusals.Store(refusals)
			time.Sleep(2 * DefaultStoreEvery)
		}
		underWay := y.submit("read")
		y.settle()
		fill(DefaultAdmitPercent, DefaultAdmitPercent)
		if got := y.status(y.submit("read")); got != statusUnavailable {
			y.Errorf("a new batch ends with status %d", got)
		}
		fill(SilentPercent, SilentPercent)
		silent := y.submit("read")
		time.Sleep(time.Minute)
		if s := y.fold(silent); s.Refused != nil || s.Plan != nil {
			y.Errorf("near the end a batch has a plan (%v), or is refused with %+v", s.Plan != nil, s.Refused)
		}
		y.work()
		if got := y.codes(underWay); got != "ok" {
			y.Errorf("the batch that was under way: %s", got)
		}
		fill(0, 0)
		for _, k := range []toolyard.BatchKey{silent, y.submit("read")} {
			if got := y.codes(k); got != "ok" {
				y.Errorf("when there is room again: %s", got)
			}
		}
	})
}

// TestOpenBatchesHoldNoSlot: many more agents have an open batch than batches may run. Each gets the result of each
// call, while all the others stay open.
func TestOpenBatchesHoldNoSlot(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) { c.MaxBatches = 4 })
		y.work()
		var open []toolyard.BatchKey
		for n := range 40 {
			open = append(open, y.submitBatch(toolyard.Batch{Agent: toolyard.Agent(fmt.Sprint("agent-", n)), Open: true,
				Workspace: toolyard.Workspace(fmt.Sprint("w", n))}))
		}
		for turn := range 2 {
			for _, k := range open {
				y.input(k, events.Appended{Calls: []toolyard.Call{{ID: fmt.Sprint("c", turn), Tool: "read"}}})
			}
			for _, k := range open {
				y.Eventually("the call has its result", func() bool { return y.fold(k).Replied == turn+1 })
			}
		}
		for _, k := range open {
			y.input(k, events.Closed{By: "agent"})
		}
		for _, k := range open {
			if got := y.codes(k); got != "ok ok" {
				y.Errorf("the results are %s", got)
			}
		}
	})
}

// TestAnOpenBatchThatIsLeftAlone is closed when nothing comes for too long, and taken over when its owner dies.
func TestAnOpenBatchThatIsLeftAlone(t *testing.T) {
	inYard(t, func(y *yard) {
		first := y.dispatcher("d", func(c *Config) { c.OpenIdle = time.Hour })
		y.work()
		k := y.submitBatch(toolyard.Batch{Open: true, Calls: []toolyard.Call{{Tool: "read"}}})
		y.Eventually("the first result is there while the batch is open", func() bool { return y.fold(k).Replied == 1 })
		first.End()
		y.input(k, events.Appended{Calls: []toolyard.Call{{ID: "b", Tool: "read"}, {ID: "c", Tool: "unknown"}}})
		y.dispatcher("next", func(c *Config) { c.OpenIdle = time.Second })
		if got := y.codes(k); got != "ok ok unknown_tool" {
			y.Errorf("the results are %s", got)
		}
	})
}

// input appends to the input chain of an open batch.
func (y *yard) input(k toolyard.BatchKey, body events.Body) {
	y.Helper()
	if _, err := y.b.Input(y.Context(), k, y.fold(k).InputSeq, body); err != nil {
		y.Fatal(err)
	}
}

// TestACancelBeforeThePlan stands in the log when the batch is taken up.
func TestACancelBeforeThePlan(t *testing.T) {
	inYard(t, func(y *yard) {
		k := y.submit("read", "read")
		must.OK(y.T, y.b.Cancel(y.Context(), k, "changed my mind"))
		y.dispatcher("d")
		y.work()
		if got := y.codes(k); got != "canceled canceled" || y.ran.Load() != 0 {
			y.Errorf("the results are %s, and %d calls ran", got, y.ran.Load())
		}
	})
}

// TestABatchThatCannotBeFollowed has an event in its log that nobody can read. It is ended, and its workspace is free.
func TestABatchThatCannotBeFollowed(t *testing.T) {
	inYard(t, func(y *yard) {
		broken := y.submit("read", "write")
		js, err := jetstream.New(y.Conn("test"))
		must.OK(y.T, err)
		if _, err := js.Publish(y.Context(), fmt.Sprintf("ty.event.%s.%s._.batch", broken.Agent, broken.ID),
			[]byte("what is this")); err != nil {
			y.Fatal(err)
		}
		if _, err := y.b.ChangeTickets(y.Context(), broker.TicketQueue{Workspace: toolyard.DefaultWorkspace},
			func(q ticket.Queue) (ticket.Queue, error) {
				next, _, err := q.Join(ticket.Holder{Agent: broken.Agent, Batch: broken.ID}, ticket.Exclusive)
				return next, err
			}); err != nil {
			y.Fatal(err)
		}
		y.dispatcher("d", func(c *Config) { c.MaxDeliveries = 2 })
		y.work()
		if got := y.codes(y.submit("write")); got != "ok" {
			y.Errorf("the next batch in the workspace: %s", got)
		}
		replies, err := y.b.Replies(y.Context(), broken, 0)
		must.OK(y.T, err)
		answered := 0
		for _, rec := range replies {
			for _, r := range rec.Body.(events.Reply).Results {
				answered++
				if r.Code != toolyard.InternalError {
					y.Errorf("call %d of the broken batch ends as %s", r.Index, r.Code)
				}
			}
		}
		if answered != 2 {
			y.Errorf("%d of 2 calls are answered", answered)
		}
		y.Eventually("both batches are listed as completed", func() bool {
			page, _, err := y.b.Index().Page(y.Context(), broker.Filter{Status: toolyard.StatusCompleted})
			return err == nil && len(page) == 2
		})
	})
}

// logsAway is a broker that cannot tell whether some batches were planned: the stream of their logs has no leader.
type logsAway struct {
	*natsbroker.Broker
	of map[toolyard.BatchKey]bool
}

func (b logsAway) Planned(ctx context.Context, k toolyard.BatchKey) (bool, error) {
	if !b.of[k] {
		return b.Broker.Planned(ctx, k)
	}
	return false, pause.For(ctx, time.Minute)
}

// TestBatchesBehindOnesOfWhichNothingIsKnown: batches are delivered again, and whether they are under way cannot be
// told for as long as their logs are away. A batch that comes behind them begins all the same.
func TestBatchesBehindOnesOfWhichNothingIsKnown(t *testing.T) {
	inYard(t, func(y *yard) {
		away := map[toolyard.BatchKey]bool{}
		for range 20 {
			away[y.submit("read")] = true
		}
		subs, err := y.b.Submissions()
		must.OK(y.T, err)
		for range away {
			sub, err := subs.Next(y.Context())
			if err == nil {
				err = sub.Return(0)
			}
			must.OK(y.T, err)
		}
		subs.Stop()
		y.Start(New(logsAway{y.Broker("d"), away},
			Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()}))
		y.settle()
		next, began := y.submit("read"), time.Now()
		y.Eventually("the next batch is planned", func() bool { return y.fold(next).Plan != nil })
		if took := time.Since(began); took > 5*time.Second {
			y.Errorf("the next batch is planned after %s", took)
		}
	})
}

// objectsAway is a broker of batches some of which are objects, whose store is away.
type objectsAway struct {
	*natsbroker.Broker
	of map[toolyard.BatchKey]bool
}

func (b objectsAway) Submissions() (broker.Submissions, error) {
	subs, err := b.Broker.Submissions()
	return awaySubmissions{subs, b.of}, err
}

type awaySubmissions struct {
	broker.Submissions
	of map[toolyard.BatchKey]bool
}

func (s awaySubmissions) Next(ctx context.Context) (*broker.Submission, error) {
	sub, err := s.Submissions.Next(ctx)
	if err == nil && s.of[sub.Key] {
		sub.SubmissionMessage = awayObject{sub.SubmissionMessage}
	}
	return sub, err
}

type awayObject struct{ broker.SubmissionMessage }

func (awayObject) Outline(ctx context.Context, _ bool) (o broker.Outline) {
	_ = pause.For(ctx, time.Minute) // it is not read then either
	return o
}

// TestBatchesBehindLargeOnesThatCannotBeRead: large batches come while the store of objects is away. One that comes
// behind them begins all the same.
func TestBatchesBehindLargeOnesThatCannotBeRead(t *testing.T) {
	inYard(t, func(y *yard) {
		large := map[toolyard.BatchKey]bool{}
		for range 20 {
			large[y.submit("read")] = true
		}
		next, began := y.submit("read"), time.Now()
		y.Start(New(objectsAway{y.Broker("d"), large},
			Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()}))
		y.Eventually("the next batch is planned", func() bool { return y.fold(next).Plan != nil })
		if took := time.Since(began); took > 5*time.Second {
			y.Errorf("the next batch is planned after %s", took)
		}
	})
}
