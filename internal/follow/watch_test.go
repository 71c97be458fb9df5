package follow_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestWatchingEndsWithItsConnection: a connection that was closed never comes back, so that who follows all batches of
// an agent is told, and does not wait for ever.
func TestWatchingEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	testenv.Broker(t, s, "/owner")
	for _, shared := range []bool{false, true} {
		for _, agent := range []toolyard.Agent{"a", ""} {
			nc := testenv.Conn(t, s)
			b, err := natsbroker.Attach(t.Context(), nc, "/reader")
			must.OK(t, err)
			const enough = 20 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), enough)
			defer cancel()
			stored, leave, err := follow.New(b, follow.Options{Shared: shared}).Everything(ctx, agent)
			must.OK(t, err)
			defer leave()
			nc.Close()
			var end error
			gap := false
			for some, err := range stored {
				end = err
				for _, h := range some {
					gap = gap || h.Gap != ""
				}
			}
			if !errors.Is(end, nats.ErrConnectionClosed) || !gap {
				t.Errorf("shared %t, agent %q: it ended with %v, gap %t", shared, agent, end, gap)
			}
		}
	}
}

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
			must.OK(t, err)
			last[agent] = r.Seq
		}
	}
	for _, shared := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reader := follow.New(testenv.Broker(t, s, "/reader"), follow.Options{Shared: shared})
		stored, leave, err := reader.Everything(ctx, "a")
		must.OK(t, err)
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
