package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/presence"
)

// TestUnreadableToolsAreLoggedOnce: the tools of the worker w cannot be read at any of its heartbeats. The log says so
// once, and again when the worker has left and come back.
func TestUnreadableToolsAreLoggedOnce(t *testing.T) {
	inYard(t, func(y *yard) {
		var log bytes.Buffer
		d := y.dispatcher("d", func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ttl := y.b.Settings().WorkerTTL
		time.Sleep(3 * ttl)
		y.still()
		time.Sleep(3 * ttl)
		y.beat("w")
		time.Sleep(3 * ttl)
		d.End()
		if n := strings.Count(log.String(), "tools cannot be read"); n != 2 {
			t.Errorf("%d lines about one worker's tools:\n%s", n, log.String())
		}
	})
}

// unreadEntry has one worker, whose entry cannot be read at any of its heartbeats.
type unreadEntry struct {
	Broker
	beats int
}

func (unreadEntry) Settings() broker.Settings { return broker.Settings{WorkerTTL: time.Minute} }

func (b unreadEntry) WatchWorkers(_ context.Context, _ <-chan struct{}, see func(broker.WorkerChange, error)) error {
	for n := range b.beats {
		see(broker.WorkerChange{ID: "w", Revision: uint64(n + 1)}, errors.New("it is no JSON"))
	}
	return nil
}

// TestAnUnreadableEntryIsLoggedOnce: the log says once that a worker's entry cannot be read, and not at each heartbeat.
func TestAnUnreadableEntryIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	r := newWorkerRegistry(unreadEntry{beats: 10}, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err := r.watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "entry cannot be read"); n != 1 {
		t.Errorf("%d lines about one worker's entry:\n%s", n, log.String())
	}
}

// TestWhatWorkersSayAddsUp: the entries of broken workers have numbers that no worker has. The sums over all workers
// are numbers all the same.
func TestWhatWorkersSayAddsUp(t *testing.T) {
	inYard(t, func(y *yard) {
		d := New(y.Broker("d"), Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner()})
		y.Start(d)
		beat := func(n int) {
			for _, id := range []string{"v", "u"} {
				if err := y.b.Beat(y.Context(), broker.Worker{ID: id, Pool: toolyard.DefaultPool, Slots: n, Busy: n,
					Stalls: n}); err != nil {
					y.Fatal(err)
				}
			}
		}
		var l Load
		for _, n := range []int{math.MaxInt, math.MinInt, math.MaxInt} {
			beat(n)
			y.settle()
			l = Load{}
			if d.workers.count(&l); l.Slots < 0 || l.Busy < 0 || l.Stalls < 0 {
				y.Errorf("the workers have %d slots, %d are busy, %d calls have stalled", l.Slots, l.Busy, l.Stalls)
			}
		}
		if l.Workers != 3 || l.Slots == 0 || l.Stalls == 0 {
			y.Errorf("in the end there is %+v", l)
		}
	})
}

// awayEntries cannot read the entry of any worker.
type awayEntries struct{ unreadEntry }

func (awayEntries) ReadEntry(context.Context, string) (presence.Reading, error) {
	return presence.Reading{}, errors.New("no leader")
}

// TestWorkersOfWhichNothingCanBeReadAreLoggedOnce: the registry is away for longer than workers are known to live. The
// log says so once.
func TestWorkersOfWhichNothingCanBeReadAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newWorkerRegistry(awayEntries{}, slog.New(slog.NewTextHandler(&log, nil)), nil)
		r.book.CaughtUp(time.Now())
		r.noteEntry(broker.Worker{ID: "w"}, 1, true)
		for range 20 {
			time.Sleep(r.b.Settings().WorkerTTL)
			r.checkOverdue(t.Context())
		}
		if n := strings.Count(log.String(), "was not heard of"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}
