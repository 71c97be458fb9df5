package natsbroker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAPoolDoesNotFillTheRegistry has the credentials of one pool announce long entries of many workers that are none.
// A worker of another pool goes on living, and so does one of the same pool that was there before.
func TestAPoolDoesNotFillTheRegistry(t *testing.T) {
	t.Parallel()
	s := testenv.Guarded(t)
	b := testenv.BrokerAs(t, s, access.Principal{Role: access.Dispatcher}, "/dispatcher")
	var mu sync.Mutex
	live := map[string]broker.Worker{}
	workers := func() (out []broker.Worker) {
		mu.Lock()
		defer mu.Unlock()
		for _, w := range live {
			out = append(out, w)
		}
		return out
	}
	defer answersWith(t, b, workers, nil)()
	before := broker.Worker{ID: "flood.before", Pool: "flood", Isolation: "native"}
	honest := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "flood"}, "/worker/flood.before")
	must.OK(t, honest.Beat(t.Context(), before))
	live[before.ID] = before
	flood := testenv.ConnAs(t, s, access.Principal{Role: access.Worker, Name: "flood"})
	n := 0
	for _, size := range []int{200 << 10, 10 << 10, 500, 0} { // each until there is no room for one more
		for refused := false; !refused; n++ {
			w := broker.Worker{ID: fmt.Sprintf("flood.%d", n), Pool: "flood", Host: strings.Repeat("x", size)}
			beat := must.JSON(t, map[string]any{"worker": w})
			a, err := flood.Request("ty.beat.flood."+broker.Escape(w.ID), beat, 20*time.Second)
			must.OK(t, err)
			if refused = a.Header.Get("Toolyard-Problem") != ""; !refused {
				mu.Lock()
				live[w.ID] = w
				mu.Unlock()
			}
		}
	}
	quiet := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "quiet"}, "/worker/quiet.me")
	if err := quiet.Beat(t.Context(), broker.Worker{ID: "quiet.me", Pool: "quiet", Isolation: "native"}); err != nil {
		t.Errorf("another pool's worker: %v", err)
	}
	if err := honest.Beat(t.Context(), before); err != nil {
		t.Errorf("the pool's worker that was there before: %v", err)
	}
	for n, size := range []int{1 << 10, 900 << 10} {
		w := broker.Worker{ID: fmt.Sprintf("quiet.%d", n), Pool: "quiet", Host: strings.Repeat("x", size)}
		if err := quiet.Beat(t.Context(), w); (err == nil) != (n == 0) {
			t.Errorf("an entry of %d bytes: %v", size, err)
		}
	}
}

// TestAPoolThatSignsOffWorkersThatAreNoneLeavesNothing: the credentials of one pool sign off many workers that never
// were. The registry has nothing of them, and a worker that is there can be signed off.
func TestAPoolThatSignsOffWorkersThatAreNoneLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Guarded(t)
	b := testenv.BrokerAs(t, s, access.Principal{Role: access.Dispatcher}, "/dispatcher")
	defer answers(t, b)()
	w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/p.w")
	for i := range 20 {
		must.OK(t, w.Gone(t.Context(), fmt.Sprint("p.none", i)))
	}
	if last, err := b.LastEntry(t.Context()); err != nil || last != 0 {
		t.Errorf("the newest entry or marker in the registry is %d, %v", last, err)
	}
	must.OK(t, w.Beat(t.Context(), broker.Worker{ID: "p.w", Pool: "p", Isolation: "native"}))
	must.OK(t, w.Gone(t.Context(), "p.w"))
	if at, err := b.ReadEntry(t.Context(), "p.w"); err != nil || at.Kind == presence.Present {
		t.Errorf("the entry of a worker that has signed off: %+v, %v", at, err)
	}
}
