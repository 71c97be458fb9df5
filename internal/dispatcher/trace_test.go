package dispatcher

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/traceparent"
)

const agents = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestNobodyWatches: a batch without a trace that nobody watches costs nothing.
func TestNobodyWatches(t *testing.T) {
	d := &Dispatcher{}
	s, ctx, log := &batch.State{}, t.Context(), slog.New(slog.DiscardHandler)
	e := batch.Append{Chain: batch.ChainReply, Body: events.Reply{}}
	r, g := &runner{}, &grantAnswer{}
	if got := testing.AllocsPerRun(100, func() {
		trace := d.follow(s)
		if trace.within(ctx) != ctx || trace.named(log) != log {
			t.Error("it is followed")
		}
		trace.planned(time.Time{}, s)
		r.traceTicket(ctx, g)
		trace.stored(time.Time{}, e)
		trace.completed(s)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// TestAnAgentsTraceGoesOn: where nobody watches, events and the log name the agent's trace.
func TestAnAgentsTraceGoesOn(t *testing.T) {
	sent := traceparent.Context{Parent: agents, State: "vendor=1", Baggage: "user=ann"}
	trace := (&Dispatcher{}).follow(&batch.State{Trace: sent})
	if got := traceparent.From(trace.within(t.Context())); got != sent {
		t.Errorf("events carry %q", got)
	}
	var b bytes.Buffer
	trace.named(slog.New(slog.NewJSONHandler(&b, nil))).Info("something")
	if !strings.Contains(b.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c"`) {
		t.Errorf("the log says %s", b.String())
	}
}
