package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
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
