package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// TestACallWhoseTagsAreElsewhere: a worker that lacks a tag of a call never runs it. It leaves it to another one of the
// pool that has the tag, and when there is none any more, it says so.
func TestACallWhoseTagsAreElsewhere(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		other := broker.Worker{ID: "other", Pool: toolyard.DefaultPool, Classes: toolyard.Classes,
			Tags: []toolyard.Tag{"gpu", "region=eu"}}
		beat := func() {
			if err := y.b.Beat(y.Context(), other); err != nil {
				y.Error(err)
			}
		}
		beat()
		y.asked = []toolyard.Tag{"region=eu", "gpu"}
		q := y.queue("read")
		for range 60 { // many times what a call is handed out before it ends
			time.Sleep(y.b.Settings().WorkerTTL / 3)
			beat()
		}
		for _, r := range q.events() {
			if _, ok := r.Body.(events.Returned); !ok {
				y.Fatalf("while another has the tags, the call has the event %T", r.Body)
			}
		}
		if err := y.b.Gone(y.Context(), "other"); err != nil {
			y.Fatal(err)
		}
		r := q.result()
		if r.Code != toolyard.DependencyUnavailable || !r.Retryable || y.ran.Load() != 0 ||
			!strings.Contains(r.Error, `"region=eu" "gpu"`) || !strings.Contains(r.Detail, "pool default") {
			y.Errorf("after %d runs: %+v", y.ran.Load(), r)
		}
		y.asked = nil
		if r := y.queue("read").result(); r.IsError {
			y.Errorf("a call that asks for nothing: %+v", r)
		}
	})
}
