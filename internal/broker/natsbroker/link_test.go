package natsbroker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// follow tells what a watch of the workers tells.
func follow(t *testing.T, b *natsbroker.Broker, again <-chan struct{}) <-chan broker.WorkerChange {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, done := make(chan broker.WorkerChange, 256), make(chan struct{})
	go func() {
		defer close(done)
		err := b.WatchWorkers(ctx, again, func(c broker.WorkerChange, err error) {
			if err != nil {
				t.Error(err)
			}
			changes <- c
		})
		if !errors.Is(err, context.Canceled) && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("the watch ended with %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return changes
}

// until takes changes until one is wanted, and returns the others.
func until(t *testing.T, changes <-chan broker.WorkerChange, what string,
	is func(broker.WorkerChange) bool) (others []broker.WorkerChange) {
	t.Helper()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case c := <-changes:
			if is(c) {
				return others
			}
			others = append(others, c)
		case <-deadline:
			t.Fatalf("the watch does not tell that %s; it told %+v", what, others)
		}
	}
}

func state(s broker.WatchState) func(broker.WorkerChange) bool {
	return func(c broker.WorkerChange) bool { return c.State == s }
}

// TestAWatchBeginsAnewWithTheConnection: it reports that it is deaf as soon as the server is away, and reports
// everything again, also removals, as soon as it is back. The client library alone takes ten seconds to notice that its
// consumer is gone.
func TestAWatchBeginsAnewWithTheConnection(t *testing.T) {
	s := testenv.Restartable(t)
	b := testenv.Open(t, testenv.Conn(t, s.Server), broker.Settings{WorkerTTL: time.Minute}, "/test")
	for _, id := range []string{"stays", "goes"} {
		must.OK(t, b.Beat(t.Context(), broker.Worker{ID: id, Pool: "default"}))
	}
	changes := follow(t, b, nil)
	until(t, changes, "it has caught up", state(broker.WatchCaughtUp))
	s.Shutdown()
	until(t, changes, "it is deaf", state(broker.WatchDeaf))
	s.Start()
	back := time.Now()
	seen := until(t, changes, "it has caught up again", state(broker.WatchCaughtUp))
	t.Logf("%s after the server was back the watch had caught up", time.Since(back))
	told := func(id string) bool {
		return slices.ContainsFunc(seen, func(c broker.WorkerChange) bool { return c.ID == id && c.Worker != nil })
	}
	if !told("stays") || !told("goes") {
		t.Errorf("after the server was back it told %+v", seen)
	}

	// An entry that goes while the watch is deaf is reported as gone.
	s.Shutdown()
	until(t, changes, "it is deaf", state(broker.WatchDeaf))
	opts := s.Options
	opts.Listen = "" // nobody hears of this
	quiet, err := natsd.Start(t.Context(), opts)
	must.OK(t, err)
	nc, err := quiet.Connect()
	must.OK(t, err)
	js := testenv.JetStream(t, nc)
	stream := testenv.Stream(t, js, "KV_ty_worker")
	must.OK(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.ty_worker.goes")))
	quiet.Shutdown()
	s.Start()
	gone := func(c broker.WorkerChange) bool { return c.ID == "goes" && c.Worker == nil }
	until(t, changes, "a worker has vanished", gone)
}

// TestAWatchBeginsAnewOnRequest: it restarts when a caller knows that it has missed something.
func TestAWatchBeginsAnewOnRequest(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	must.OK(t, b.Beat(t.Context(), broker.Worker{ID: "w", Pool: "default"}))
	again := make(chan struct{})
	changes := follow(t, b, again)
	until(t, changes, "it has caught up", state(broker.WatchCaughtUp))
	again <- struct{}{}
	until(t, changes, "it is deaf", state(broker.WatchDeaf))
	until(t, changes, "the worker is there", func(c broker.WorkerChange) bool { return c.ID == "w" && c.Worker != nil })
	until(t, changes, "it has caught up", state(broker.WatchCaughtUp))
}

// TestReadEntry: a worker's registry entry through its life, which leaves nothing behind at the end.
func TestReadEntry(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Open(t, testenv.Conn(t, s), broker.Settings{WorkerTTL: time.Second}, "/test")
	await := func(id string, want presence.Kind) presence.Reading {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			r, err := b.ReadEntry(t.Context(), id)
			must.OK(t, err)
			if r.Kind == want {
				return r
			}
			if time.Now().After(end) {
				t.Fatalf("worker %s: %+v, want %s", id, r, want)
			}
		}
	}
	await("mortal", presence.Missing)
	for _, id := range []string{"mortal", "tidy"} {
		must.OK(t, b.Beat(t.Context(), broker.Worker{ID: id, Pool: "default"}))
	}
	first := await("mortal", presence.Present)
	must.OK(t, b.Beat(t.Context(), broker.Worker{ID: "mortal", Pool: "default"}))
	if second := await("mortal", presence.Present); second.Seq <= first.Seq {
		t.Errorf("a heartbeat has revision %d after %d", second.Seq, first.Seq)
	}
	must.OK(t, b.Gone(t.Context(), "tidy"))
	await("tidy", presence.Removed)
	await("mortal", presence.Expired)
	await("mortal", presence.Missing)
	await("tidy", presence.Missing)
	stream := testenv.Stream(t, testenv.JetStream(t, testenv.Conn(t, s)), "KV_ty_worker")
	if n := stream.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("workers that are gone leave %d messages behind", n)
	}
}

// TestReplicasAreReadThroughTheLeader: where there are several, none answers that may lag. A single one is read
// directly.
func TestReplicasAreReadThroughTheLeader(t *testing.T) {
	for _, replicas := range []int{1, 3, 5} {
		wanted, err := natsbroker.Definitions(broker.Settings{Replicas: replicas}.WithDefaults())
		if err != nil || len(wanted) < 11 {
			t.Fatalf("%d streams: %v", len(wanted), err)
		}
		for _, cfg := range wanted {
			if cfg.AllowDirect != (replicas == 1) {
				t.Errorf("stream %s with %d replicas allows direct gets: %t", cfg.Name, replicas, cfg.AllowDirect)
			}
			cfg.AllowDirect = true
			what, mended := natsbroker.Mended(cfg, replicas)
			if replicas == 1 && len(what) > 0 || replicas > 1 && (len(what) != 1 || mended.AllowDirect) {
				t.Errorf("stream %s with %d replicas and direct gets has %q, and is migrated to %+v", cfg.Name, replicas,
					what, mended)
			}
			cfg.AllowDirect = false
			if what, _ := natsbroker.Mended(cfg, replicas); len(what) > 0 {
				t.Errorf("stream %s with %d replicas has %q", cfg.Name, replicas, what)
			}
		}
	}
}

// TestLeasesFitTogether: a holder has stopped before others act, for every possible wait, and three heartbeats fit into
// a lease.
func TestLeasesFitTogether(t *testing.T) {
	for _, wait := range []time.Duration{100 * time.Millisecond, 800 * time.Millisecond, time.Second, 3 * time.Second,
		10 * time.Second, time.Hour} {
		switch stopped := broker.Stop(wait) + broker.StopGrace(wait); {
		case 3*broker.Heartbeat(wait) > broker.Lease(wait):
			t.Errorf("%s: three heartbeats do not fit into the lease", wait)
		case broker.Lease(wait) >= broker.Stop(wait):
			t.Errorf("%s: there is no time to renew a lease that has lapsed", wait)
		case stopped+wait/8 > broker.Patience(wait):
			t.Errorf("%s: a holder has stopped after %s and others act after %s", wait, stopped, broker.Patience(wait))
		case broker.Patience(wait) <= wait:
			t.Errorf("%s: others act before the entry has expired", wait)
		}
	}
}

// TestAnErrorOfTheConnectionIsOneLine: nats.go reports a failed write before it says that the connection is lost, and
// perhaps several times. Other errors are told.
func TestAnErrorOfTheConnectionIsOneLine(t *testing.T) {
	var said strings.Builder
	var o nats.Options
	for _, set := range natsbroker.ConnectOptions("test", slog.New(slog.NewTextHandler(&said, nil))) {
		must.OK(t, set(&o))
	}
	o.AsyncErrorCB(nil, nil, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE})
	o.AsyncErrorCB(nil, &nats.Subscription{Subject: "a.b"}, nats.ErrSlowConsumer)
	if lines := strings.Split(strings.TrimSpace(said.String()), "\n"); len(lines) != 1 ||
		!strings.Contains(lines[0], "subject=a.b") {
		t.Errorf("%q", lines)
	}
}

// TestAskingTakesLittleMemory: a request with a subscription of its own has room for the answers that may come, not for
// thousands.
func TestAskingTakesLittleMemory(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	var before, after runtime.MemStats
	const times = 20
	runtime.ReadMemStats(&before)
	for range times {
		_, err := b.Judge(t.Context(), "nobody", []broker.JudgeCall{{Tool: "t", Input: json.RawMessage(`{}`)}})
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Fatalf("nobody judges, and the answer is %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 128<<10 {
		t.Errorf("a request to judge allocates %d bytes", each)
	}
}
