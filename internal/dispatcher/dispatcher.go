// Package dispatcher takes batches and runs them: the shell around package batch.
//
// Authority: the log. A dispatcher owns a batch from its own planned or adopted event until another's adopted event;
// it learns that it lost one by an append that conflicts, and then stops without a word. It holds nothing that the log
// does not say, so that any dispatcher can go on with any batch.
//
//	submission ─▶ accept ─▶ plan ─▶ [ step ─▶ perform effects ─▶ wait for events, tickets, time ]* ─▶ acknowledge
//
// Ordering: one goroutine a batch; effects are performed in the machine's order, each before the next.
//
// Failure: whatever happens to a dispatcher, its submissions are delivered to another when the ack wait is over. An
// error that is not a loss stops one batch and is logged; the batch is tried again by redelivery.
package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
)

// Defaults of [Config].
const (
	DefaultBatchTimeout = 10 * time.Minute
	DefaultWorkerWait   = 30 * time.Second
	DefaultMaxBatches   = 1_024
	DefaultOpenIdle     = 5 * time.Minute
	maxAttempts         = 3
	abortGrace          = 2 * time.Second
)

// Config says how a dispatcher works. Planner is required; what is zero has its default.
type Config struct {
	// ID is unique among dispatchers. Default: a new one.
	ID      string
	Planner Planner
	// Base are tools that are known without any worker.
	Base []registry.Entry
	// BatchTimeout bounds batches that name no timeout. Default 10 minutes.
	BatchTimeout time.Duration
	// WorkerWait is how long a queued call waits while no worker can take it. Default 30 s.
	WorkerWait time.Duration
	// OpenIdle is how long an open batch may get no calls before it is closed. Default 5 minutes.
	OpenIdle time.Duration
	// MaxBatches is how many batches this dispatcher owns at a time; more wait in the stream. Default 1,024.
	MaxBatches int
	Log        *slog.Logger
}

func (c *Config) machine() batch.Config {
	return batch.Config{WorkerWait: c.WorkerWait, MaxAttempts: maxAttempts, AbortGrace: abortGrace, OpenIdle: c.OpenIdle}
}

// Dispatcher owns batches. Make it with [New], run it with [Dispatcher.Run].
type Dispatcher struct {
	b      *broker.Broker
	cfg    Config
	log    *slog.Logger
	desk   *desk
	roster *roster

	mu       sync.Mutex
	open     map[toolyard.BatchKey]*runner
	surfaces map[string]time.Time // when this dispatcher last stored a surface
}

// surfacesKept is how many surfaces a dispatcher remembers to have stored.
const surfacesKept = 1_024

// New makes a dispatcher on a broker.
func New(b *broker.Broker, cfg Config) *Dispatcher {
	if cfg.ID == "" {
		cfg.ID = "dispatcher-" + broker.NewID()
	}
	if cfg.BatchTimeout == 0 {
		cfg.BatchTimeout = DefaultBatchTimeout
	}
	if cfg.WorkerWait == 0 {
		cfg.WorkerWait = DefaultWorkerWait
	}
	if cfg.OpenIdle == 0 {
		cfg.OpenIdle = DefaultOpenIdle
	}
	if cfg.MaxBatches == 0 {
		cfg.MaxBatches = DefaultMaxBatches
	}
	if cfg.Planner.MaxConcurrency == 0 {
		cfg.Planner.MaxConcurrency = toolyard.DefaultMaxConcurrency
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	log := cfg.Log.With("dispatcher", cfg.ID)
	return &Dispatcher{
		b: b, cfg: cfg, log: log, desk: newDesk(b, log), roster: newRoster(b, log, cfg.Base),
		open: map[toolyard.BatchKey]*runner{}, surfaces: map[string]time.Time{},
	}
}

// Ready returns a channel that is closed when the dispatcher has seen the workers that were there when it started.
func (d *Dispatcher) Ready() <-chan struct{} { return d.roster.ready }

// Run takes batches until ctx ends, and returns when nothing of it runs any more: nil then, an error when it could not go
// on. The batches that it owned are another dispatcher's, or its own again at the next start.
func (d *Dispatcher) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	part := func(what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	part("watch workers", d.roster.watch)
	part("watch tickets", d.desk.watch)
	part("sweep tickets", func(ctx context.Context) error {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				d.desk.sweep(ctx)
			}
		}
	})
	select {
	case <-d.roster.ready:
	case <-ctx.Done():
		return failure(ctx)
	}
	subs, err := d.b.Submissions()
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, subs.Stop)
	defer subs.Stop()
	slots := make(chan struct{}, d.cfg.MaxBatches)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return failure(ctx)
		}
		sub, err := subs.Next()
		if errors.Is(err, broker.ErrStopped) {
			return failure(ctx)
		}
		if _, ok := errors.AsType[*events.UnreadableError](err); ok {
			<-slots
			d.log.Error("a message on the batch stream is no submission; it was dropped", "error", err)
			continue
		}
		if err != nil {
			stop(err)
			return err
		}
		r, ours := d.register(sub)
		if !ours { // it runs here already: this is a new handle to keep it by
			<-slots
			select {
			case r.redelivered <- sub:
			default: // one is waiting already; the next redelivery will do
			}
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer d.unregister(sub.Key)
			d.serve(ctx, r)
		})
	}
}

// failure is why ctx ended: nil when the caller wanted it.
func failure(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func (d *Dispatcher) register(sub *broker.Submission) (r *runner, ours bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r, ok := d.open[sub.Key]; ok {
		return r, false
	}
	r = d.newRunner(sub)
	d.open[sub.Key] = r
	return r, true
}

func (d *Dispatcher) unregister(k toolyard.BatchKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, k)
}

// serve runs one batch, from a delivery of its submission to its end, here.
func (d *Dispatcher) serve(ctx context.Context, r *runner) {
	err := d.accept(ctx, r)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errLost):
		r.log.Info("another dispatcher owns the batch now")
	default:
		r.log.Error("the batch stopped here; it will be taken up again", "error", err)
	}
}
