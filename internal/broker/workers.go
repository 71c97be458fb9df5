package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
)

// Worker is what a worker says of itself: the value of its registry key.
type Worker struct {
	ID         string               `json:"id"`
	Pool       toolyard.Pool        `json:"pool"`
	Classes    []toolyard.Class     `json:"classes"`
	Workspaces []toolyard.Workspace `json:"workspaces"`
	Isolation  string               `json:"isolation"`
	// NoIsolation says why it isolates nothing, and what an operator can do about that; Unsandboxed that its operator has it
	// run everything all the same.
	NoIsolation string `json:"no_isolation,omitempty"`
	Unsandboxed bool   `json:"unsandboxed,omitempty"`
	// Toolset is the hash of its tools' declarations, stored as a surface.
	Toolset string    `json:"toolset"`
	Slots   int       `json:"slots"`
	Started time.Time `json:"started"`
	// Breakers says until when each dependency that this worker found to be down is not tried.
	Breakers map[string]time.Time `json:"breakers,omitempty"`
}

// Beat writes the worker's key. It lives for the worker TTL; the worker alone writes it.
func (b *Broker) Beat(ctx context.Context, w Worker) error {
	value, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode worker %s: %w", w.ID, err)
	}
	msg := nats.NewMsg("$KV." + bucketAlive + "." + Escape(w.ID))
	msg.Data = value
	// Twice, so that an answer that is lost is no heartbeat that is: a worker's first one decides whether it starts at all. And
	// no longer than until the next is due.
	for range 2 {
		attempt, cancel := context.WithTimeout(ctx, Heartbeat(b.settings.WorkerTTL)/2)
		_, err = b.js.PublishMsg(attempt, msg, jetstream.WithMsgTTL(b.settings.WorkerTTL))
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("beat of worker %s: %w", w.ID, err)
}

// Gone takes the worker's key out: it takes nothing more.
func (b *Broker) Gone(ctx context.Context, id string) error {
	if err := b.workers.Delete(ctx, Escape(id)); err != nil {
		return fmt.Errorf("sign off worker %s: %w", id, err)
	}
	return nil
}

// WorkerChange is one change of the registry. Worker is nil when the worker is gone; an empty ID says that all workers
// that were there when the watch began have been seen.
type WorkerChange struct {
	ID     string
	Worker *Worker
}

// updates yields what a watcher sees until ctx ends: its own channel stays open for ever when the connection is closed in the
// moment in which the watch begins.
func updates(ctx context.Context, w jetstream.KeyWatcher) iter.Seq[jetstream.KeyValueEntry] {
	return func(yield func(jetstream.KeyValueEntry) bool) {
		for {
			select {
			case e, ok := <-w.Updates():
				if !ok || !yield(e) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// WatchWorkers calls see with every live worker and with each change from then on, until ctx ends.
func (b *Broker) WatchWorkers(ctx context.Context, see func(WorkerChange, error)) error {
	w, err := b.workers.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch the workers: %w", err)
	}
	for e := range updates(ctx, w) {
		if e == nil {
			see(WorkerChange{}, nil)
			continue
		}
		id, err := Unescape(e.Key())
		if err != nil {
			see(WorkerChange{ID: e.Key()}, err)
			continue
		}
		if e.Operation() != jetstream.KeyValuePut {
			see(WorkerChange{ID: id}, nil)
			continue
		}
		var v Worker
		if err := json.Unmarshal(e.Value(), &v); err != nil {
			see(WorkerChange{ID: id}, fmt.Errorf("the key of worker %q is not readable: %w", id, err))
			continue
		}
		see(WorkerChange{ID: id, Worker: &v}, nil)
	}
	return context.Cause(ctx)
}

// Workers returns the live workers.
func (b *Broker) Workers(ctx context.Context) ([]Worker, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out []Worker
	var failed error
	err := b.WatchWorkers(ctx, func(c WorkerChange, err error) {
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case c.ID == "":
			cancel()
		case c.Worker != nil && ctx.Err() == nil:
			out = append(out, *c.Worker)
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	return out, failed
}
