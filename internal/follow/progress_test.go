package follow_test

import (
	"context"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// slowly is a store that begins to listen to progress when the test says so.
type slowly struct {
	follow.Store
	asked, begin chan struct{}
}

type slowHub struct {
	broker.Hub
	s *slowly
}

func (s *slowly) Hub(all bool) broker.Hub { return slowHub{s.Store.Hub(all), s} }

func (h slowHub) Progress(ctx context.Context, k toolyard.BatchKey) (broker.Follow, error) {
	close(h.s.asked)
	<-h.s.begin
	return h.Hub.Progress(ctx, k)
}

// TestWhoGivesUpListening: somebody listens to a batch before it is stored, and gives up. Another one who listens to
// the same batch hears of its end.
func TestWhoGivesUpListening(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/reader")
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	store := &slowly{b, make(chan struct{}), make(chan struct{})}
	r := follow.New(store, follow.Options{Shared: true})
	first, giveUp := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := r.Listen(first, k)
		left <- err
	}()
	<-store.asked
	second := make(chan *follow.Listening)
	go func() {
		l, err := r.Listen(t.Context(), k)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	r.AwaitListeners(k, 2)
	giveUp()
	if err := <-left; err == nil {
		t.Fatal("it listens although it gave up")
	}
	close(store.begin)
	l := <-second
	sub := toolyard.Batch{ID: k.ID, Agent: k.Agent, Calls: []toolyard.Call{{Tool: "x"}}}
	sub.Normalize("")
	must.OK(t, b.Submit(t.Context(), sub))
	l.Stored()
	must.OK(t, b.EndReplies(t.Context(), k, &sub, "the test ends it"))
	for _, err := range l.Progress(t.Context()) {
		if err != nil {
			t.Error(err)
		}
	}
}
