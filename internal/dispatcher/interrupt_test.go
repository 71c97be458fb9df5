package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
)

// TestAnInterruptBeforeThePlan: what was submitted before the interrupt does not begin, though no dispatcher has seen
// it yet. What is submitted later runs, and so does what belongs to another session.
func TestAnInterruptBeforeThePlan(t *testing.T) {
	inYard(t, func(y *yard) {
		y.work()
		of := func(s toolyard.Session) toolyard.BatchKey {
			return y.submitBatch(toolyard.Batch{Session: s, Calls: []toolyard.Call{{Tool: "read"}, {Tool: "write"}}})
		}
		before, other := of("s"), of("other")
		n, err := y.b.Interrupt(y.Context(), toolyard.DefaultAgent, "s", "the user said stop")
		if err != nil || n != 0 {
			y.Fatalf("%d batches were asked (%v); none is planned", n, err)
		}
		after := of("s")
		y.dispatcher("d")
		for k, want := range map[toolyard.BatchKey]string{
			before: "canceled canceled", other: "ok ok", after: "ok ok",
		} {
			if got := y.codes(k); got != want {
				y.Errorf("%s: %s, want %s", k, got, want)
			}
		}
		s := y.fold(before)
		if len(s.Interrupts) != 1 || s.Interrupts[0].Reason != "the user said stop" {
			y.Errorf("its log has the interrupts %+v", s.Interrupts)
		}
	})
}

// slowReader reads sessions for a dispatcher that goes on only when the test says so.
type slowReader struct {
	*natsbroker.Broker
	read, goOn chan struct{}
}

func (b slowReader) Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (broker.Session, error) {
	v, err := b.Broker.Session(ctx, a, s)
	select {
	case b.read <- struct{}{}:
		<-b.goOn
	default: // it was read before
	}
	return v, err
}

// TestAnInterruptBesideThePlan: a dispatcher that has read the session before the interrupt, and plans the batch after
// it, still stops the batch.
func TestAnInterruptBesideThePlan(t *testing.T) {
	inYard(t, func(y *yard) {
		b := slowReader{y.Broker("d"), make(chan struct{}, 1), make(chan struct{})}
		y.Start(New(b, Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()}))
		k := y.submitBatch(toolyard.Batch{Session: "s", Calls: []toolyard.Call{{Tool: "write"}, {Tool: "write"}}})
		y.Eventually("the session is read", func() bool { return len(b.read) == 1 })
		if n, err := y.b.Interrupt(y.Context(), toolyard.DefaultAgent, "s", "stop"); err != nil || n != 0 {
			y.Fatalf("%d batches were asked (%v); none is planned", n, err)
		}
		close(b.goOn)
		if got := y.codes(k); got != "canceled canceled" {
			y.Errorf("the calls ended as %s", got)
		}
		if s := y.fold(k); len(s.Interrupts) != 1 || time.Since(s.SubmittedAt) > 10*time.Second {
			y.Errorf("it has the interrupts %+v and took %s", s.Interrupts, time.Since(s.SubmittedAt))
		}
	})
}

// TestWhatComesAfterAnInterrupt: who interrupts and goes on at once does not stop what is handed in then, though the
// interrupt still looks for batches.
func TestWhatComesAfterAnInterrupt(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		y.settle()
		of := func() toolyard.BatchKey {
			return y.submitBatch(toolyard.Batch{Session: "s", Calls: []toolyard.Call{{Tool: "write"}}})
		}
		before := of()
		y.settle()
		done := make(chan error, 1)
		go func() {
			_, err := y.b.Interrupt(y.Context(), toolyard.DefaultAgent, "s", "the user said stop")
			done <- err
		}()
		y.Eventually("the first batch is asked", func() bool { return len(y.fold(before).Interrupts) > 0 })
		after := of()
		if err := <-done; err != nil {
			y.Fatal(err)
		}
		y.work()
		if got := y.codes(before) + ", " + y.codes(after); got != "canceled, ok" {
			y.Errorf("what came before and behind the interrupt: %s", got)
		}
	})
}

// unreadSession reads each session once, and fails then.
type unreadSession struct {
	*natsbroker.Broker
	reads *atomic.Int32
}

func (b unreadSession) Session(ctx context.Context, a toolyard.Agent, s toolyard.Session) (broker.Session, error) {
	if b.reads.Add(1) > 1 {
		return broker.Session{}, errors.New("it is damaged")
	}
	return b.Broker.Session(ctx, a, s)
}

// TestASessionThatStaysUnreadableIsLoggedOnce: a batch looks each second whether its session was interrupted. The log
// says once that this cannot be known.
func TestASessionThatStaysUnreadableIsLoggedOnce(t *testing.T) {
	inYard(t, func(y *yard) {
		var log bytes.Buffer
		b := unreadSession{y.Broker("d"), new(atomic.Int32)}
		d := y.Start(New(b, Config{ID: "d", Base: y.entries(), Planner: planner(),
			Log: slog.New(slog.NewTextHandler(&log, nil))}))
		y.submit("write")
		time.Sleep(time.Minute) // of the bubble
		d.End()
		if n := strings.Count(log.String(), "session was interrupted"); n != 1 || b.reads.Load() < 10 {
			y.Errorf("%d lines about %d looks:\n%s", n, b.reads.Load(), log.String())
		}
	})
}
