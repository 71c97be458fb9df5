package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// TestNobodyWatches: a call without a trace that nobody watches costs nothing.
func TestNobodyWatches(t *testing.T) {
	w, r, res := &Worker{}, &running{d: &broker.Delivery{}}, &toolyard.Result{}
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	if got := testing.AllocsPerRun(100, func() {
		within, trace := w.follow(ctx, r)
		if within != ctx || traceparent.With(ctx, r.d.Trace) != ctx || logOf(log, r.d.Trace.Parent) != log {
			t.Error("it is followed")
		}
		trace.ran(res, nil)
		trace.stored(nil)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// TestTheLogNamesTheTrace of a call, whether anybody watches or not.
func TestTheLogNamesTheTrace(t *testing.T) {
	var b bytes.Buffer
	logOf(slog.New(slog.NewJSONHandler(&b, nil)), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").Info("it")
	if !strings.Contains(b.String(), `"trace_id":"0af7651916cd43dd8448eb211c80319c"`) {
		t.Errorf("the log says %s", b.String())
	}
}
