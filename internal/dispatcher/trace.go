package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// BatchSpan is a batch as those see it who watch, from its submission to its last reply, over all of its owners. It is
// safe for concurrent use, and its methods return at once.
type BatchSpan interface {
	// Trace is the trace context of what is done for the batch. Recording reports whether anybody will see it.
	Trace() traceparent.Context
	Recording() bool
	// Planned, Granted and Replied say that a step is over, and when it began. behind are the batches whose tickets
	// stood before this one.
	Planned(began time.Time, s *batch.State)
	Granted(group int, mode ticket.Mode, number uint64, asked, granted time.Time, behind []broker.Origin)
	Replied(began time.Time, first, results int)
	// Answered has the results that the owner gave, because no worker did.
	Answered([]toolyard.Result)
	// Completed ends the span.
	Completed(*batch.State)
}

// batchTrace is what is followed of a batch. The zero value follows nothing.
type batchTrace struct {
	// carried is the trace context that all events of the batch and its work carry: the span's, or the agent's where
	// nobody watches. The baggage is the agent's.
	carried traceparent.Context
	span    BatchSpan // nil: nobody watches
}

// follow begins to follow a batch that this dispatcher is about to own.
func (d *Dispatcher) follow(s *batch.State) batchTrace {
	if d.cfg.Trace == nil {
		return batchTrace{carried: s.Trace}
	}
	span := d.cfg.Trace(s)
	return batchTrace{span.Trace(), span}
}

// within returns a context in which the batch's trace context is stored with every event.
func (t batchTrace) within(ctx context.Context) context.Context {
	return traceparent.With(ctx, t.carried)
}

// named returns a log that names the trace.
func (t batchTrace) named(log *slog.Logger) *slog.Logger {
	if id := traceparent.TraceID(t.carried.Parent); id != "" {
		return log.With("trace_id", id)
	}
	return log
}

func (t batchTrace) planned(began time.Time, s *batch.State) {
	if t.span == nil {
		return
	}
	t.span.Planned(began, s)
	if len(s.Plan.Results) > 0 {
		t.span.Answered(s.Plan.Results)
	}
}

// linkTimeout bounds the search for the batches that one has waited for.
const linkTimeout = 5 * time.Second

// traceTicket follows that the batch has a ticket. The batches that it waited for are looked up meanwhile; one that is
// not found has no link.
func (r *runner) traceTicket(ctx context.Context, g *grantAnswer) {
	if r.trace.span == nil || !r.trace.span.Recording() {
		return
	}
	r.besides.run(func() {
		looking, cancel := context.WithTimeout(ctx, linkTimeout)
		defer cancel()
		var behind []broker.Origin
		for _, k := range g.behind {
			if o, err := r.d.b.Origin(looking, k); err == nil {
				behind = append(behind, o)
			}
		}
		r.trace.span.Granted(g.wanted.Group, g.wanted.Mode, g.t.Number(g.wanted.Group), g.asked, g.granted, behind)
	})
}

// stored follows an event that the owner has stored.
func (t batchTrace) stored(began time.Time, e batch.Append) {
	if t.span == nil {
		return
	}
	switch b := e.Body.(type) {
	case events.Reply:
		t.span.Replied(began, e.Index, len(b.Results))
	case events.Extended:
		t.span.Answered(b.Results)
	case events.Settled:
		t.span.Answered(b.Results)
	case events.Finished:
		t.span.Answered(b.Results())
	}
}

func (t batchTrace) completed(s *batch.State) {
	if t.span != nil {
		t.span.Completed(s)
	}
}
