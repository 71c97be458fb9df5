package broker_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
)

// TestUnreadableEventsAreShown: an event that cannot be read, also one whose attributes cannot, has a place in what is
// shown of a log, and who reads that finds it on its chain.
func TestUnreadableEventsAreShown(t *testing.T) {
	t.Parallel()
	for _, chain := range []batch.Chain{batch.ChainControl, batch.ChainInput} {
		for _, meta := range []events.Meta{{}, {ID: "a", Source: "%", Subject: "no batch"}} {
			l := broker.Logged{Record: batch.Record{Chain: chain, Seq: 7, Time: time.Unix(5, 0),
				Body: events.Unreadable{Problem: "no JSON"}}, Meta: meta}
			text, err := l.JSON()
			if err != nil {
				t.Errorf("%v on %s: %v", meta, chain, err)
				continue
			}
			e, err := replay.Decode(text, 7)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			want := events.Unreadable{Problem: "no JSON", Chain: string(chain)}
			if d := cmp.Diff(want, e.Body); d != "" || e.Chain != chain || !e.Time.Equal(l.Time) {
				t.Errorf("%s on %s at %s: %s", text, e.Chain, e.Time, d)
			}
		}
	}
}
