package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/pause"
)

func (w *Worker) entry() broker.Worker {
	e := broker.Worker{
		ID: w.cfg.ID, Pool: w.cfg.Pool, Classes: w.cfg.Classes, Isolation: w.cfg.Isolation,
		Unsandboxed: w.cfg.Unsandboxed, Tags: w.cfg.Tags,
		Started: time.Now().UTC(),
	}
	if !w.cfg.host().Isolates() {
		e.NoIsolation = clip.Bytes(w.cfg.NoIsolation, maxNoIsolation)
	}
	for ws := range w.cfg.Workspaces {
		e.Workspaces = append(e.Workspaces, ws)
	}
	for _, n := range w.cfg.Slots {
		e.Slots += n
	}
	if host, err := os.Hostname(); err == nil { // a machine without a name is shown without one
		e.Host = clip.Bytes(host, maxHost)
	}
	return e
}

// announce stores what the worker offers now, if that has changed or may soon expire, and puts it into the entry.
func (w *Worker) announce(ctx context.Context, e broker.Worker) (broker.Worker, error) {
	now, err := w.tools.offer(ctx)
	if err == nil {
		e.Remarks, e.Tools = w.tools.remarks, w.tools.tools(now)
	}
	if err != nil || now.hash == e.Toolset && time.Since(w.announced) < w.b.Settings().Lifetime/4 {
		return e, err
	}
	if err := w.b.PutSurface(ctx, now.hash, now.encoded); err != nil {
		return e, fmt.Errorf("announce the tools: %w", err)
	}
	e.Toolset, w.announced = now.hash, time.Now()
	return e, nil
}

// register stores the first heartbeat. It waits while a server is away or elects a leader.
func (w *Worker) register(ctx context.Context, e broker.Worker) error {
	w.registered.begin(w.b.Settings().WorkerTTL, time.Now())
	for waiting := false; ; waiting = true {
		err := w.sendBeat(ctx, e)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !w.b.MayPass(err) {
			return err
		}
		if !waiting {
			w.log.Warn("waiting to be registered", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(beatAgain):
		}
	}
}

// beatAgain is how soon a failed heartbeat is repeated.
const beatAgain = 50 * time.Millisecond

// beat keeps the worker's registry key alive, and its tools in it up to date. Heartbeats do not wait for each
// other's answers: each renews the lease from when it was sent, however long its answer takes.
func (w *Worker) beat(ctx context.Context, e broker.Worker) {
	interval := broker.Heartbeat(w.b.Settings().WorkerTTL)
	var sent sync.WaitGroup
	defer sent.Wait()
	answers := make(chan error, 1)       // of heartbeats: nil when one was stored
	var failing time.Time                // since when, if the last one was not stored
	lost, level := false, slog.LevelWarn // that they fail was said, at that level
	send := func() {
		e.Breakers, e.Stalls = w.breakers.OpenUntil(), int(w.stalls.Load())
		e.Busy = w.slots.allBusy(w.cfg.Slots)
		entry := e
		sent.Go(func() {
			err := w.sendBeat(ctx, entry)
			select {
			case answers <- err:
			case <-ctx.Done():
			}
		})
	}
	due := time.NewTimer(interval)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.reoffer:
			if next, ok := w.reannounce(ctx, e); ok && (next.Toolset != e.Toolset ||
				!slices.Equal(next.Remarks, e.Remarks)) {
				e = next
				send()
			}
		case err := <-answers:
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				failing = time.Time{}
				if lost {
					lost = false
					w.log.Log(ctx, level, "heartbeats are stored again")
				}
				continue
			}
			if failing.IsZero() {
				failing = time.Now()
				w.log.Debug("a heartbeat was not stored", "error", err)
			}
			// One that fails while a server stops or a leader is elected says nothing yet.
			if !lost && time.Since(failing) >= interval {
				lost, level = true, slog.LevelWarn
				if w.b.Away() {
					level = slog.LevelDebug
				}
				w.log.Log(ctx, level, "heartbeats fail", "error", err)
			}
			due.Reset(beatAgain)
		case <-due.C:
			// What it offers comes second: a store that is full or slow must not make it look dead.
			send()
			due.Reset(interval)
			e, _ = w.reannounce(ctx, e) // no longer than until the next is due
		}
	}
}

// sendBeat stores a heartbeat, and renews the registration from when it was sent. An answer that takes longer than
// a lease is ignored.
func (w *Worker) sendBeat(ctx context.Context, e broker.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, broker.Lease(w.b.Settings().WorkerTTL))
	defer cancel()
	sent := w.registered.now()
	if err := w.b.Beat(ctx, e); err != nil {
		return err
	}
	w.registered.renewOrRestart(sent)
	return nil
}

// reannounce announces the tools if they have changed, within the time of a heartbeat. If it fails, the last
// announcement stands.
func (w *Worker) reannounce(ctx context.Context, e broker.Worker) (now broker.Worker, ok bool) {
	announcing, cancel := context.WithTimeout(ctx, broker.Heartbeat(w.b.Settings().WorkerTTL))
	defer cancel()
	now, err := w.announce(announcing, e)
	if err != nil {
		level := w.unannounced.Level(err.Error()) // it is tried again at each heartbeat
		if ctx.Err() == nil {
			w.log.Log(ctx, level, "the tools could not be announced; what was announced before stands", "error", err)
		}
		return e, false
	}
	if w.unannounced != "" {
		w.unannounced = ""
		w.log.Info("the tools are announced again")
	}
	return now, true
}

// settingsEvery is how often a worker reads the system's settings again: it may have more shards.
const settingsEvery = 10 * time.Second

func (w *Worker) followSettings(ctx context.Context) {
	for pause.For(ctx, settingsEvery) == nil {
		if _, _, err := w.b.Renew(ctx); err != nil && ctx.Err() == nil {
			w.log.Info("the system's settings could not be read again", "error", err)
		}
	}
}

// listen opens breakers that other workers have opened. An entry that cannot be read is ignored.
func (w *Worker) listen(ctx context.Context) {
	err := w.b.WatchWorkers(ctx, nil, func(c broker.WorkerChange, err error) {
		if c.State != "" {
			w.peers.setState(c.State)
			return
		}
		if c.ID == w.cfg.ID {
			return
		}
		w.peers.update(c.ID, c.Worker)
		if err != nil || c.Worker == nil {
			return
		}
		for dependency, until := range c.Worker.Breakers {
			w.breakers.Impose(dependency, until)
		}
	})
	if err != nil && ctx.Err() == nil {
		w.log.Warn("other workers' breakers are not followed any more", "error", err)
	}
}
