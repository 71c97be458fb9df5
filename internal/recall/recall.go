// Package recall reads many logs, for reports and exports.
//
// Several logs are read at a time, and used in their order. What is read is only ever in memory for a moment, however
// long the history is.
//
// It stands beside package follow because a report brings a histogram with it, which no client needs.
package recall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/report"
)

// historyReaders is how many batches of history are read at a time: so many are in memory at most.
const historyReaders = 8

// Period says which batches of history are meant.
type Period struct {
	// Agent is whose; empty means everybody's.
	Agent toolyard.Agent
	// Since and Until are when they were submitted: from the one on, and before the other. Zero sets no bound.
	Since, Until time.Time
}

// Story is what reads the log of a batch.
type Story interface {
	// Add takes the next event in.
	Add(batch.Record)
	// Stop says why the log cannot be followed any further.
	Stop(problem string)
}

// Tell adds the whole log of a batch to what reads it. kept is false if the batch has expired.
func Tell(ctx context.Context, h broker.History, k toolyard.BatchKey, log Story) (kept bool, err error) {
	for tail := h.Tail(k); ; {
		l, ok, err := tail.Next(ctx)
		if errors.Is(err, broker.ErrNoBatch) {
			return false, nil
		}
		_, unreadable := errors.AsType[*events.UnreadableError](err)
		switch {
		case unreadable, errors.Is(err, broker.ErrDamaged), errors.Is(err, events.ErrNewer):
			log.Stop(err.Error())
		case err != nil:
			return false, fmt.Errorf("read batch %s: %w", k, err)
		case ok:
			log.Add(l.Record)
			continue
		}
		return true, nil
	}
}

// InOrder reads batches, so many at a time, and yields what read makes of them in their order. It leaves out those of
// which read makes nil. ctx is read's too: it ends when nobody asks for more.
func InOrder[T any](ctx context.Context, kept iter.Seq2[broker.Kept, error],
	read func(context.Context, broker.Kept) (*T, error)) iter.Seq2[*T, error] {
	type answer struct {
		made *T
		err  error
	}
	return func(yield func(*T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var reading sync.WaitGroup
		defer reading.Wait()
		defer cancel()
		queue := make(chan chan answer, historyReaders-1)
		reading.Go(func() {
			defer close(queue)
			for k, err := range kept {
				a := make(chan answer, 1)
				select {
				case queue <- a:
				case <-ctx.Done():
					return
				}
				if err != nil {
					a <- answer{err: err}
					return
				}
				reading.Go(func() {
					made, err := read(ctx, k)
					a <- answer{made, err}
				})
			}
		})
		for a := range queue {
			switch got := <-a; {
			case got.err != nil:
				yield(nil, got.err)
				return
			case got.made != nil && !yield(got.made, nil):
				return
			}
		}
		if err := context.Cause(ctx); err != nil { // the list may have ended for it
			yield(nil, err)
		}
	}
}

// Sum says what a report adds up.
type Sum struct {
	Period
	// Most is how many batches are added up: the newest. 0 means all.
	Most int
	// Enough ends the reading: what was not read until then is left out. It needs Most, or the newest would be missing.
	// Nil: never.
	Enough <-chan struct{}
	// See is told how many batches and calls are added up. Nil: nobody is.
	See func(batches, calls int) error
}

// AddUp makes a report of what a system has run.
func AddUp(ctx context.Context, h broker.History, o Sum) (report.Report, error) {
	list, cut := h.Kept(ctx, o.Agent, o.Since, o.Until), false
	if o.Most > 0 {
		newest, more, err := h.Newest(ctx, o.Agent, o.Since, o.Until, o.Most)
		if err != nil {
			return report.Report{}, err
		}
		cut, list = more, func(yield func(broker.Kept, error) bool) {
			for _, k := range newest {
				if !yield(k, nil) {
					return
				}
			}
		}
	}
	type read struct {
		broker.Kept
		log *report.Log
	}
	logs := InOrder(ctx, list, func(ctx context.Context, k broker.Kept) (*read, error) {
		log := report.NewLog(k.Key)
		if kept, err := Tell(ctx, h, k.Key, log); !kept || err != nil {
			return nil, err
		}
		return &read{k, log}, nil
	})
	sum, oldest := report.New(), time.Time{}
	for l, err := range logs {
		if err != nil {
			return report.Report{}, err
		}
		if over(o.Enough) {
			cut = true
			break
		}
		sum.Add(l.log)
		if oldest.IsZero() || l.Time.Before(oldest) {
			oldest = l.Time
		}
		if o.See != nil {
			if err := o.See(sum.Batches(), sum.Calls()); err != nil {
				return report.Report{}, err
			}
		}
	}
	for _, hash := range sum.Surfaces() {
		if err := addSurface(ctx, h, sum, hash); err != nil {
			return report.Report{}, err
		}
	}
	r := sum.Report()
	r.Since, r.Until, r.Oldest, r.Cut = o.Since, o.Until, oldest, cut
	return r, nil
}

func over(enough <-chan struct{}) bool {
	select {
	case <-enough:
		return true
	default:
		return false
	}
}

// addSurface adds what a surface offers, unless it has expired with the batches that saw it first. One that cannot be
// read, since the store has damaged it or a newer version has written it, is left out too.
func addSurface(ctx context.Context, h broker.History, sum *report.Builder, hash string) error {
	content, err := h.Surface(ctx, hash)
	if errors.Is(err, broker.ErrNoObject) || errors.Is(err, broker.ErrDamaged) {
		return nil
	}
	if err != nil {
		return err
	}
	surface, err := registry.Decode(content)
	if err != nil { // there would be no report
		return nil
	}
	sizes := map[string]int{}
	for _, e := range surface.Offered(nil) {
		schema, err := json.Marshal(e.InputSchema)
		if err != nil {
			return fmt.Errorf("surface %s: %s: %w", hash, e.Name, err)
		}
		sizes[e.Name] = len(e.Name) + len(e.Description) + len(schema)
	}
	sum.Offered(hash, sizes)
	return nil
}

// Shared is a history that others read too, who take turns.
type Shared interface {
	broker.History
	// Turn waits for one of an agent's turns at reading, which lasts until done is called.
	Turn(ctx context.Context, agent toolyard.Agent) (done func(), err error)
}

// InTurns is a history whose logs are read in their agents' turns.
func InTurns(s Shared) broker.History { return inTurns{s} }

type inTurns struct{ Shared }

type turnedTail struct {
	broker.Tail
	of    Shared
	agent toolyard.Agent
}

func (h inTurns) Tail(k toolyard.BatchKey) broker.Tail {
	return &turnedTail{h.Shared.Tail(k), h.Shared, k.Agent}
}

func (t *turnedTail) Next(ctx context.Context) (l broker.Logged, ok bool, err error) {
	done, err := t.of.Turn(ctx, t.agent)
	if err != nil {
		return l, false, err
	}
	defer done()
	return t.Tail.Next(ctx)
}
