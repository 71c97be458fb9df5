package natsbroker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestAttachMakesNothing(t *testing.T) {
	s := testenv.Server(t)
	nc := testenv.Conn(t, s)
	if _, err := natsbroker.Attach(t.Context(), nc, "/test"); !errors.Is(err, broker.ErrNoSystem) {
		t.Errorf("a server without streams: %v, want ErrNoSystem", err)
	}
	js := testenv.JetStream(t, nc)
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("the server has the stream %s now", name)
	}
	testenv.Broker(t, s, "/maker")
	b, err := natsbroker.Attach(t.Context(), nc, "/test")
	must.OK(t, err)
	sub := submission("big")
	sub.Calls[0].Input = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) // stored as an object
	must.OK(t, b.Submit(t.Context(), sub))
	if st, err := b.Fold(t.Context(), sub.Key()); err != nil || len(st.Submission.Calls[0].Input) < 1<<20 {
		t.Errorf("what was submitted so does not come back: %v", err)
	}
}

func TestCancel(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/client/1")
	ctx := t.Context()
	sub := submission("b")
	for i := range 9 {
		sub.Calls = append(sub.Calls, toolyard.Call{ID: fmt.Sprint(i), Tool: "t", Input: []byte(`{}`)})
	}
	must.OK(t, b.Submit(ctx, sub))
	k := sub.Key()
	cancels := func() []events.Canceled {
		t.Helper()
		st, err := b.Fold(ctx, k)
		must.OK(t, err)
		return st.Cancels
	}
	if err := b.Cancel(ctx, toolyard.BatchKey{Agent: "a", ID: "none"}, ""); !errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("a batch that is not there: %v", err)
	}
	for _, i := range []int{-1, 10} {
		if err := b.Cancel(ctx, k, "", 0, i); !errors.Is(err, broker.ErrNoCall) {
			t.Errorf("a call that is not there: %v", err)
		}
	}
	if n := len(cancels()); n != 0 {
		t.Errorf("%d cancels of what is not there", n)
	}
	open := submission("open")
	open.Open, open.Calls = true, []toolyard.Call{}
	must.OK(t, b.Submit(ctx, open))
	if err := b.Cancel(ctx, open.Key(), "", 0, 0); !errors.Is(err, broker.ErrNoCall) ||
		!strings.Contains(err.Error(), "has no calls yet") {
		t.Errorf("a call of an open batch without any: %v", err)
	}

	// Any agent can write to its control chain, and an invalid event there stops nothing.
	junk := nats.NewMsg("ty.event.default.b._.control")
	junk.Header.Set("Nats-Expected-Last-Subject-Sequence", "0")
	must.OK(t, testenv.Conn(t, s).PublishMsg(junk))
	// Many at once, each for another call: all are stored.
	var wg sync.WaitGroup
	for i := range 10 {
		one := testenv.Broker(t, s, fmt.Sprintf("/client/%d", i))
		wg.Go(func() {
			if err := one.Cancel(ctx, k, fmt.Sprint("reason ", i), i, i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, c := range cancels() {
		if len(c.Calls) != 1 || seen[c.Calls[0]] || c.By != fmt.Sprintf("/client/%d", c.Calls[0]) ||
			c.Reason != fmt.Sprint("reason ", c.Calls[0]) {
			t.Errorf("a cancel is %+v", c)
		}
		seen[c.Calls[0]] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d cancels of 10 are stored", len(seen))
	}
	for range 2 {
		if err := b.Cancel(ctx, k, "", 3); err != nil {
			t.Error(err)
		}
	}
	if n := len(cancels()); n != 10 {
		t.Errorf("%d cancels after one that was there", n)
	}
	for range 2 {
		if err := b.Cancel(ctx, k, "all"); err != nil {
			t.Error(err)
		}
	}
	if err := b.Cancel(ctx, k, "one", 5); err != nil {
		t.Error(err)
	}
	if all := cancels(); len(all) != 11 || all[10].Calls != nil || all[10].Reason != "all" {
		t.Errorf("the cancels are %+v", all)
	}
	if _, err := b.Append(ctx, k, batch.ChainReply, "", 0, 0, events.Reply{Completed: true}); err != nil {
		t.Fatal(err)
	}
	if err := b.Cancel(ctx, k, ""); !errors.Is(err, broker.ErrCompleted) {
		t.Errorf("a batch that is completed: %v", err)
	}
}

// TestCancelIsBounded: an agent that cancels single calls again and again is refused at some time. That keeps nobody
// from stopping the batch as a whole.
func TestCancelIsBounded(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/client/1")
	sub := submission("b")
	sub.Calls = append(sub.Calls, toolyard.Call{ID: "2", Tool: "t", Input: []byte(`{}`)})
	must.OK(t, b.Submit(t.Context(), sub))
	last := uint64(0)
	for range natsbroker.MaxControlEvents {
		r, err := b.Append(t.Context(), sub.Key(), batch.ChainControl, "", 0, last, events.Canceled{Calls: []int{0}})
		must.OK(t, err)
		last = r.Seq
	}
	if err := b.Cancel(t.Context(), sub.Key(), "", 1); !errors.Is(err, broker.ErrFull) {
		t.Errorf("past the most that there may be: %v", err)
	}
	for range 2 { // the second time nothing is stored
		err := b.InterruptBatch(t.Context(), sub.Key(), events.Interrupted{By: "operator"})
		if err = errors.Join(err, b.Cancel(t.Context(), sub.Key(), "all")); err != nil {
			t.Errorf("the batch cannot be stopped any more: %v", err)
		}
	}
	s, err := b.Fold(t.Context(), sub.Key())
	if all := len(s.Cancels) + len(s.Interrupts); err != nil || all != natsbroker.MaxControlEvents+2 {
		t.Errorf("it has %d control events, %v", all, err)
	}
}

// TestTailMissesNothing reads a batch while many write to it. It ends with the whole log, each event once, and no
// contradiction on the way.
func TestTailMissesNothing(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/owner")
	ctx := t.Context()
	const calls = 40
	sub := submission("b")
	sub.Calls = nil
	p := planned(calls)
	p.Groups = []events.Group{{Safe: true}}
	for i := range calls {
		sub.Calls = append(sub.Calls, toolyard.Call{ID: fmt.Sprint(i), Tool: "t", Input: []byte(`{}`)})
		p.Groups[0].Calls = append(p.Groups[0].Calls, i)
	}
	k := sub.Key()
	if _, ok, err := b.Tail(k).Next(ctx); ok || !errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("a batch that is not there: %v", err)
	}
	must.OK(t, b.Submit(ctx, sub))
	put := func(c batch.Chain, index int, expected uint64, body events.Body) uint64 {
		r, err := b.Append(ctx, k, c, "default", index, expected, body)
		if err != nil {
			t.Error(err)
		}
		return r.Seq
	}
	result := func(i int) toolyard.Result { return toolyard.Result{Index: i, CallID: fmt.Sprint(i)} }
	var writers sync.WaitGroup
	writers.Go(func() {
		seq := put(batch.ChainBatch, 0, 0, p)
		put(batch.ChainBatch, 0, seq, events.Started{})
		finished := make([]chan struct{}, calls)
		for i := range calls {
			finished[i] = make(chan struct{})
			writers.Go(func() {
				defer close(finished[i])
				seq := put(batch.ChainItem, i, 0, events.Claimed{Worker: "w"})
				put(batch.ChainItem, i, seq, events.Finish(events.End{Result: result(i)}))
			})
		}
		last := uint64(0)
		for i := range calls {
			<-finished[i]
			last = put(batch.ChainReply, i, last, events.Reply{Results: []toolyard.Result{result(i)},
				Completed: i == calls-1})
		}
	})
	var readers sync.WaitGroup
	for n := range 3 {
		one := testenv.Broker(t, s, fmt.Sprintf("/reader/%d", n))
		readers.Go(func() {
			var r replay.Replay
			read := 0
			tail := one.Tail(k)
			for {
				l, ok, err := tail.Next(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					continue // more is on its way
				}
				read++
				if err := r.Add(replay.Event{Record: l.Record, Meta: l.Meta}); err != nil {
					t.Error(err)
					return
				}
				if broker.Over(l.Record) {
					break
				}
			}
			if report := r.Report(); read != 3+3*calls || !report.Consistent || len(report.Batch.Results) != calls {
				t.Errorf("reader %d has read %d events of %d, %v", n, read, 3+3*calls, report.Contradiction)
			}
		})
	}
	writers.Wait()
	readers.Wait()
}
