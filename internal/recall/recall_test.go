package recall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/recall"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// numbered yields so many submissions, named by their places.
func numbered(n int) iter.Seq2[broker.Kept, error] {
	return func(yield func(broker.Kept, error) bool) {
		for i := range n {
			if !yield(broker.Kept{Place: uint64(i)}, nil) {
				return
			}
		}
	}
}

// TestInOrder: what several readers make comes in the order of the list, and an error ends it.
func TestInOrder(t *testing.T) {
	broken := errors.New("broken")
	var got []uint64
	read := func(_ context.Context, k broker.Kept) (*uint64, error) {
		switch {
		case k.Place == 50:
			return nil, broken
		case k.Place%3 == 0:
			return nil, nil
		}
		return &k.Place, nil
	}
	for v, err := range recall.InOrder(t.Context(), numbered(100), read) {
		if err != nil {
			if !errors.Is(err, broken) {
				t.Error(err)
			}
			break
		}
		got = append(got, *v)
	}
	if want := 33; len(got) != want || got[0] != 1 || got[len(got)-1] != 49 {
		t.Errorf("it yields %v", got)
	}
}

// TestHalfAListIsNotTakenForTheWhole: a context that ends between two reads is an error, or a report of the first
// batches would look like one of all.
func TestHalfAListIsNotTakenForTheWhole(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	read := func(_ context.Context, k broker.Kept) (*uint64, error) {
		if k.Place == 20 {
			cancel()
		}
		return &k.Place, nil
	}
	for _, err := range recall.InOrder(ctx, numbered(1_000), read) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the list ends with %v", last)
	}
}

// TestAddUp: a report is of the batches that are asked for, and says which ones these are.
func TestAddUp(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/reader")
	h := recall.InTurns(follow.New(b, follow.Options{Shared: true}))
	for i := range 10 {
		agent := toolyard.Agent(fmt.Sprint("agent-", i%2))
		sub := toolyard.Batch{Agent: agent, Calls: []toolyard.Call{{Tool: "t"}}}
		sub.Normalize(toolyard.BatchID(fmt.Sprint("b", i)))
		must.OK(t, b.Submit(t.Context(), sub))
		if i%4 != 0 {
			continue
		}
		refused := events.Refused{Status: 400}
		if _, err := b.Append(t.Context(), sub.Key(), batch.ChainBatch, "", 0, 0, refused); err != nil {
			t.Fatal(err)
		}
	}
	var kept []broker.Kept
	for k, err := range b.Kept(t.Context(), "", time.Time{}, time.Time{}) {
		must.OK(t, err)
		kept = append(kept, k)
	}
	gone := make(chan struct{})
	close(gone)
	for _, c := range []struct {
		what    string
		sum     recall.Sum
		batches int
		oldest  time.Time
		cut     bool
	}{
		{"all", recall.Sum{}, 10, kept[0].Time, false},
		{"an agent's", recall.Sum{Period: recall.Period{Agent: "agent-1"}}, 5, kept[1].Time, false},
		{"those of a period", recall.Sum{Period: recall.Period{Since: kept[3].Time, Until: kept[7].Time}}, 4,
			kept[3].Time, false},
		{"the newest", recall.Sum{Most: 3}, 3, kept[7].Time, true},
		{"as many as there are", recall.Sum{Most: 10}, 10, kept[0].Time, false},
		{"the newest of an agent", recall.Sum{Period: recall.Period{Agent: "agent-0"}, Most: 2}, 2, kept[6].Time,
			true},
		{"when there is no time", recall.Sum{Most: 10, Enough: gone}, 0, time.Time{}, true},
		{"nobody's", recall.Sum{Period: recall.Period{Agent: "nobody"}}, 0, time.Time{}, false},
	} {
		got, err := recall.AddUp(t.Context(), h, c.sum)
		must.OK(t, err)
		if got.Batches.Total != c.batches || got.Cut != c.cut || !got.Oldest.Equal(c.oldest) ||
			!got.Since.Equal(c.sum.Since) || !got.Until.Equal(c.sum.Until) {
			t.Errorf("%s: %d batches from %v on (want %v), cut %t, from %v to %v", c.what, got.Batches.Total,
				got.Oldest, c.oldest, got.Cut, got.Since, got.Until)
		}
	}
	seen := 0
	stop := errors.New("stop")
	if _, err := recall.AddUp(t.Context(), h, recall.Sum{See: func(batches, _ int) error {
		if seen = batches; seen == 4 {
			return stop
		}
		return nil
	}}); !errors.Is(err, stop) || seen != 4 {
		t.Errorf("after %d batches: %v", seen, err)
	}
	away, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := recall.AddUp(away, h, recall.Sum{}); !errors.Is(err, context.Canceled) {
		t.Errorf("for nobody: %v", err)
	}
}

// brokenSurfaces is a history in which surfaces are not what they should be.
type brokenSurfaces struct {
	broker.History
	content []byte
	err     error
}

func (h brokenSurfaces) Surface(context.Context, string) ([]byte, error) { return h.content, h.err }

// TestAReportWithoutASurface: a surface that the store has lost, or that a newer version has written, is left out of a
// report, as one that has expired is. Everything else is in it. A store that does not answer ends it.
func TestAReportWithoutASurface(t *testing.T) {
	t.Parallel()
	b := testenv.Broker(t, testenv.Server(t), "/reader")
	sub := toolyard.Batch{Agent: "a", Calls: []toolyard.Call{{Tool: "t"}}}
	sub.Normalize("b")
	must.OK(t, b.Submit(t.Context(), sub))
	origin, err := b.Origin(t.Context(), sub.Key())
	must.OK(t, err)
	if _, err := b.Append(t.Context(), sub.Key(), batch.ChainBatch, "", 0, 0, events.Planned{Owner: "d",
		SubmissionSeq: origin.Seq, Surface: "hash", Deadline: time.Now().Add(time.Hour),
		Calls:  []events.PlannedCall{{ID: "0", Tool: "t", Pool: "p"}},
		Groups: []events.Group{{Calls: []int{0}}}}); err != nil {
		t.Fatal(err)
	}
	silent := errors.New("no answer")
	for what, c := range map[string]struct {
		h    brokenSurfaces
		want error
	}{
		"expired":            {brokenSurfaces{b, nil, broker.ErrNoObject}, nil},
		"lost":               {brokenSurfaces{b, nil, &broker.LostError{Subject: "object"}}, nil},
		"of a newer version": {brokenSurfaces{b, []byte(`{"hash":"hash","newer":true}`), nil}, nil},
		"unreadable":         {brokenSurfaces{b, []byte(`{`), nil}, nil},
		"not answered":       {brokenSurfaces{b, nil, silent}, silent},
	} {
		r, err := recall.AddUp(t.Context(), c.h, recall.Sum{})
		if !errors.Is(err, c.want) || err == nil && (r.Batches.UnderWay != 1 || r.Calls.Total != 1) {
			t.Errorf("%s: %+v, %v", what, r.Batches, err)
		}
	}
}
