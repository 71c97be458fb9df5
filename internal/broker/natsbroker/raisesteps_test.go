package natsbroker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestARaiseStopsAnywhere: who raises stops before any of its steps, and the system is as before, or has all shards.
// The same again finishes.
func TestARaiseStopsAnywhere(t *testing.T) {
	for at := range 5 {
		t.Run(fmt.Sprint("before step ", at), func(t *testing.T) {
			g := growing(t, 1)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			steps := 0
			err := g.raise(ctx, 2, func(natsbroker.Raising) {
				if steps++; steps > at {
					stop()
				}
			})
			if at < 4 && err == nil {
				t.Fatalf("it has not stopped before step %d of %d", at, steps)
			}
			if err := g.b.Submit(t.Context(), submission("between")); err != nil {
				t.Errorf("between: %v", err)
			}
			if err := g.attach().Submit(t.Context(), submission("between")); err != nil {
				t.Errorf("between, by another one: %v", err)
			}
			want := 2
			err = g.raise(t.Context(), 3, g.renew)
			if announced := g.attach().Shards().Next; announced == 2 {
				if err == nil || !strings.Contains(err.Error(), "finish that") {
					t.Errorf("to another number: %v", err)
				}
			} else if want = 4; err != nil {
				t.Errorf("to another number, when none is announced: %v", err)
			}
			if at == 2 && want != 2 {
				t.Error("before the epoch is opened no number is announced")
			}
			g.raised(want)
			if m := g.attach().Shards(); m.Shards() != want || m.Next != 0 {
				t.Errorf("the map is %+v", m)
			}
			if err := g.attach().Submit(t.Context(), submission("between")); err != nil {
				t.Errorf("behind all: %v", err)
			}
		})
	}
}

// TestWhatARaiseRefuses: fewer shards, more than there may be, a store that is too small or too full, and workers of an
// older version. Nothing changes.
func TestWhatARaiseRefuses(t *testing.T) {
	g := growing(t, 2)
	for shards, says := range map[int]string{1: "only grows", 2: "", shard.Max + 1: "too many"} {
		if err := g.raise(t.Context(), shards, func(natsbroker.Raising) {}); says == "" && err != nil ||
			says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%d shards: %v", shards, err)
		}
	}
	js := testenv.JetStream(t, testenv.Conn(t, g.s))
	if _, err := js.Publish(t.Context(), "$KV.ty_worker.old", []byte(`{"id":"old","pool":"default","wire_version":11}`),
		jetstream.WithMsgTTL(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := g.raise(t.Context(), 3, func(natsbroker.Raising) {}); err == nil ||
		!strings.Contains(err.Error(), "wire version 11") {
		t.Errorf("beside an older worker: %v", err)
	}
	small := &grower{t: t, s: testenv.Server(t)}
	small.b = small.open(broker.Settings{MaxStoreBytes: 64 << 20})
	if err := small.raise(t.Context(), 2, func(natsbroker.Raising) {}); err == nil ||
		!strings.Contains(err.Error(), "64 MiB for each shard") {
		t.Errorf("a small store: %v", err)
	}
	if _, _, err := natsbroker.Raise(t.Context(), testenv.Conn(t, small.s), broker.Settings{Shards: 2,
		MaxStoreBytes: 128 << 20}, 0, func(natsbroker.Raising) {}); err != nil {
		t.Errorf("with a larger one: %v", err)
	}
	if s := small.attach().Settings(); s.MaxStoreBytes != 128<<20 || s.Shards != 2 {
		t.Errorf("the settings are %+v", s)
	}
}

// TestShardsHaveEqualParts: also where a raise to another number, or with another store, has stopped when its streams
// were made. A raise to fewer than those goes on too.
func TestShardsHaveEqualParts(t *testing.T) {
	for _, c := range []struct {
		first, then int
		bytes       int64
	}{{2, 4, 0}, {4, 4, 36 << 30}, {4, 2, 0}} {
		g := growing(t, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		steps := 0
		if err := g.raise(ctx, c.first, func(natsbroker.Raising) {
			if steps++; steps == 2 {
				stop()
			}
		}); err == nil {
			t.Fatal("it has not stopped")
		}
		_, now, err := natsbroker.Raise(t.Context(), testenv.Conn(t, g.s), broker.Settings{Shards: c.then,
			MaxStoreBytes: c.bytes}, 0, g.renew)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		js := testenv.JetStream(t, testenv.Conn(t, g.s))
		want := now.MaxStoreBytes / 4 / int64(c.then) // a quarter of a shard's part is for events
		for n := range c.then {
			name := "TY_EVENT"
			if n > 0 {
				name = fmt.Sprintf("TY%d_EVENT", n)
			}
			s := testenv.Stream(t, js, name)
			if got := s.CachedInfo().Config.MaxBytes; got > want || got < want && c.then >= c.first {
				t.Errorf("%+v: %s has %d bytes, want %d", c, name, got, want)
			}
		}
	}
}

// TestAStoreThatARaiseDoesNotChange: who names a store beside a number of shards gets it, or hears that it is not
// changed.
func TestAStoreThatARaiseDoesNotChange(t *testing.T) {
	g := growing(t, 1)
	raise := func(shards int, bytes int64, say func(natsbroker.Raising)) error {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		want := broker.Settings{Shards: shards, MaxStoreBytes: bytes}
		_, now, err := natsbroker.Raise(ctx, testenv.Conn(t, g.s), want, 0, func(r natsbroker.Raising) {
			if say(r); r.Map.Next != 0 {
				stop()
			}
		})
		if err == nil && now.MaxStoreBytes != bytes {
			t.Errorf("it says nothing, and the store has %d bytes, not %d", now.MaxStoreBytes, bytes)
		}
		return err
	}
	if err := raise(1, 36<<30, g.renew); err == nil || !strings.Contains(err.Error(), "max-store-bytes") {
		t.Errorf("beside the number that the system has: %v", err)
	}
	if err := raise(2, 36<<30, g.renew); err == nil {
		t.Fatal("it has not stopped when the number was announced")
	}
	if err := raise(2, 38<<30, func(natsbroker.Raising) {}); err == nil ||
		!strings.Contains(err.Error(), "max-store-bytes") {
		t.Errorf("another store while the number is raised: %v", err)
	}
	if err := g.raise(t.Context(), 2, g.renew); err != nil {
		t.Error(err)
	}
	if err := raise(2, 36<<30, g.renew); err != nil {
		t.Errorf("the same command again: %v", err)
	}
}

// TestARaiseWaits: for a worker and a dispatcher that do not serve the new shards yet, and until the number was
// announced for long enough.
func TestARaiseWaits(t *testing.T) {
	g := growing(t, 1)
	in, err := g.b.Submissions()
	must.OK(t, err)
	t.Cleanup(in.Stop)
	late := g.attach()
	must.OK(t, late.Beat(t.Context(), broker.Worker{ID: "late", Pool: "default"}))
	const announced = 2 * time.Second
	var waits []string
	var left time.Duration
	_, _, err = natsbroker.Raise(t.Context(), testenv.Conn(t, g.s), broker.Settings{Shards: 2}, announced,
		func(r natsbroker.Raising) {
			waits = append(waits, r.Waits)
			left = max(left, r.Left)
			switch {
			case strings.Contains(r.Waits, "dispatchers"):
				g.renew(r)
			case strings.Contains(r.Waits, "late"):
				if _, _, err := late.Renew(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := late.Beat(t.Context(), broker.Worker{ID: "late", Pool: "default"}); err != nil {
				t.Error(err)
			}
		})
	must.OK(t, err)
	all := strings.Join(waits, "\n")
	for _, says := range []string{"of 1 dispatchers 0 take batches", "do not take calls of the new shards yet: late"} {
		if !strings.Contains(all, says) {
			t.Errorf("it has not waited since %q:\n%s", says, all)
		}
	}
	if left <= 0 || left > announced {
		t.Errorf("everybody had %s of %s", left, announced)
	}
}
