package follow_test

import (
	"context"
	"iter"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestWatchingSaysWhatItMissed: who follows all batches of an agent gets its events and no other's. When more is stored
// than is kept for one who does not read, a gap says so, and the last events come.
func TestWatchingSaysWhatItMissed(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/owner")
	last := map[toolyard.Agent]uint64{}
	store := func(agent toolyard.Agent, n int) {
		t.Helper()
		for range n {
			r, err := b.Append(t.Context(), toolyard.BatchKey{Agent: agent, ID: "b"}, batch.ChainBatch, "", 0,
				last[agent], events.Started{})
			if err != nil {
				t.Fatal(err)
			}
			last[agent] = r.Seq
		}
	}
	for _, shared := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reader := follow.New(testenv.Broker(t, s, "/reader"), follow.Options{Shared: shared})
		stored, leave, err := reader.Everything(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		next, stop := iter.Pull2(stored)
		defer stop()
		// read returns what comes until the last event that is stored, and whether a gap was among it.
		read := func() (seen int, gap bool) {
			t.Helper()
			for {
				some, err, ok := next()
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				for _, h := range some {
					switch {
					case h.Gap != "":
						gap = true
						continue
					case h.Key.Agent != "a" || len(h.Data) == 0:
						t.Errorf("an event of %s, %s", h.Key, h.Data)
					}
					if seen++; h.Seq == last["a"] {
						return seen, gap
					}
				}
			}
		}
		store("a", 2)
		store("other", 1)
		if seen, gap := read(); seen != 2 || gap {
			t.Errorf("shared %t: %d events of 2 came, gap %t", shared, seen, gap)
		}
		const more = 3 * follow.MaxTopicItems
		store("a", more)
		if seen, gap := read(); seen >= more || !gap {
			t.Errorf("shared %t: %d of %d events came to one who did not read, gap %t", shared, seen, more, gap)
		}
	}
}
