package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"
	"golang.org/x/sync/semaphore"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/crew"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/lock"
	"github.com/toolyard/toolyard/internal/registry"
)

// Defaults of [Config].
const (
	DefaultBatchTimeout = 10 * time.Minute
	DefaultWorkerWait   = 30 * time.Second
	DefaultMaxBatches   = 1_024
	// DefaultMaxAgentBatches leaves room for 15 other agents.
	DefaultMaxAgentBatches = 64
	// DefaultMaxWaiting batches cost some hundred bytes each, and a heartbeat.
	DefaultMaxWaiting      = 4_096
	DefaultMaxAgentWaiting = 1_024
	// DefaultMaxOpen open batches cost some ten kilobytes each, and a heartbeat.
	DefaultMaxOpen = 10_000
	// DefaultAdmitPercent leaves the rest of the store to batches that are under way.
	DefaultAdmitPercent = 85
	DefaultOpenIdle     = 5 * time.Minute
	DefaultRestAfter    = 5 * time.Second
	DefaultQueueWait    = 5 * time.Minute
	DefaultApprovalWait = 24 * time.Hour
	DefaultTicketIdle   = time.Minute
	DefaultStoreEvery   = time.Second
	// DefaultMaxDeliveries takes about a minute; see backoff.
	DefaultMaxDeliveries = 12
	maxAttempts          = 3
	abortEvery           = time.Second
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
	// WorkerWait is how long a queued call waits while no worker can take it, and how long after the dispatcher's
	// start a batch waits for a worker that serves its workspace. Default 30 s.
	WorkerWait time.Duration
	// OpenIdle is how long an open batch may get no calls before it is closed. Default 5 minutes.
	OpenIdle time.Duration
	// RestAfter is how long an open batch is idle before its state is dropped, and read again when something comes:
	// less than 10 s. Default 5 s.
	RestAfter time.Duration
	// QueueWait is how long a queued call waits for a free worker, under one owner. Default 5 minutes.
	QueueWait time.Duration
	// ApprovalWait is how long a call waits for a person, within the batch's lifetime. Default 24 hours.
	ApprovalWait time.Duration
	// BackgroundCalls is how many background calls a session may have at a time, and BackgroundTime how long each may
	// run, within the lifetime of batches. Default 8 and 1 hour.
	BackgroundCalls int
	BackgroundTime  time.Duration
	// TicketIdle is how long the queue of a workspace's tickets is empty before its key is deleted. Default 1 minute.
	TicketIdle time.Duration
	// StoreEvery is how often the dispatcher looks how full the store is, and whether its disk has room. Default 1 s.
	StoreEvery time.Duration
	// MaxDeliveries is how often a batch that cannot go on is taken up before its open calls are answered as
	// internal_error. Default 12, which takes about a minute.
	MaxDeliveries uint64
	// MaxBatches is how many batches this dispatcher runs at a time, and MaxAgentBatches how many of one agent:
	// default 1,024 and 64. Batches that are under way already, of a dispatcher that died or woken, may be as many
	// again.
	MaxBatches, MaxAgentBatches int
	// MaxOpen is how many open batches may be idle here beside those that run, while their agents' models talk:
	// default 10,000.
	MaxOpen int
	// MaxWaiting is how many new batches wait here for their turn, and MaxAgentWaiting how many of one agent: default
	// 4,096 and 1,024. More are refused.
	MaxWaiting, MaxAgentWaiting int
	// Quotas bound what agents and teams use in all dispatchers. All dispatchers must have the same.
	Quotas admission.Grants
	// QuotasChange says that quotas may come and change while it runs: see [Dispatcher.Regrant].
	QuotasChange bool
	// AdmitPercent is how full the store may be before new batches are refused. Default 85.
	AdmitPercent int
	// ArchiveAfter is how long batches are over before they are archived; 0: they are not. No process of an older
	// version may be in the system.
	ArchiveAfter time.Duration
	// SigningKey signs what is archived; nil: nobody does.
	SigningKey nkeys.KeyPair
	// RunCode lets scripts of [toolyard.RunCodeTool] call tools, which workers offer if their operator says so. False:
	// batches that are made for running calls are refused.
	RunCode bool
	// Room says what room the NATS server's disk has, where the server is in this process. Nil: others are asked.
	Room func() broker.Room
	// AfterBatch is told of each batch that is over, before its last reply says so: at least once, and once again
	// after a takeover. What it returns goes with that reply. Nil: nobody is told.
	AfterBatch func(context.Context, hooks.BatchInput) (*toolyard.Notice, error)
	// Meter counts what the dispatcher does. Nil: nobody counts.
	Meter Meter
	// Trace begins the span of a batch that this dispatcher owns from now on. Nil: nobody watches.
	Trace func(*batch.State) BatchSpan
	Log   *slog.Logger
}

// Dispatcher owns batches. Make it with [New], run it with [Dispatcher.Run].
type Dispatcher struct {
	b       Broker
	cfg     Config
	log     *slog.Logger
	locks   *lock.Locks
	workers *workerRegistry
	ready   chan struct{} // closed when Run takes batches and answers

	admission *admissionQueue
	// rejecting is a semaphore for concurrent rejections, and restReads one for readings of batches that rest.
	rejecting, restReads chan struct{}
	suspects             *semaphore.Weighted // who is taken up now of those whose dispatchers may have ended
	unsure               awayShards          // of which it could not be told which batches are under way
	objectsAway          time.Time           // when a submission that is an object could not be looked at
	newer                newerBatches
	store                storeWatch
	clock                serverClock
	planner              atomic.Pointer[Planner]
	budgets              atomic.Pointer[admission.Budgets]
	demand               demand
	crew                 *crew.Crew // runs batches, and what is stored and read beside them

	mu     sync.Mutex
	stored map[string]time.Time // when this dispatcher last stored a surface
	built  map[surfaceKey]registry.Surface
	// builtOf is which planner and which tools built follows from.
	builtOf builtOf
}

// New makes a dispatcher on a broker.
func New(b Broker, cfg Config) *Dispatcher {
	if cfg.ID == "" {
		cfg.ID = "dispatcher-" + broker.NewID()
	}
	if cfg.Meter == nil {
		cfg.Meter = unmetered{}
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
	if cfg.RestAfter == 0 {
		cfg.RestAfter = DefaultRestAfter
	}
	if cfg.QueueWait == 0 {
		cfg.QueueWait = DefaultQueueWait
	}
	if cfg.ApprovalWait == 0 {
		cfg.ApprovalWait = DefaultApprovalWait
	}
	if cfg.BackgroundTime == 0 {
		cfg.BackgroundTime = toolyard.DefaultBackgroundTime
	}
	if cfg.TicketIdle == 0 {
		cfg.TicketIdle = DefaultTicketIdle
	}
	if cfg.StoreEvery == 0 {
		cfg.StoreEvery = DefaultStoreEvery
	}
	if cfg.MaxDeliveries == 0 {
		cfg.MaxDeliveries = DefaultMaxDeliveries
	}
	for _, d := range []struct {
		to  *int
		def int
	}{
		{&cfg.MaxBatches, DefaultMaxBatches}, {&cfg.MaxAgentBatches, DefaultMaxAgentBatches},
		{&cfg.MaxWaiting, DefaultMaxWaiting},
		{&cfg.MaxAgentWaiting, DefaultMaxAgentWaiting}, {&cfg.AdmitPercent, DefaultAdmitPercent},
		{&cfg.MaxOpen, DefaultMaxOpen}, {&cfg.BackgroundCalls, toolyard.DefaultBackgroundCalls},
	} {
		if *d.to == 0 {
			*d.to = d.def
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	log := b.Quiet(cfg.Log).With("dispatcher", cfg.ID)
	d := &Dispatcher{
		b: b, cfg: cfg, log: log, workers: newWorkerRegistry(b, log, cfg.Base),
		admission: newAdmissionQueue(&cfg, log), rejecting: make(chan struct{}, maxRejecting),
		restReads: make(chan struct{}, maxRestReads), suspects: semaphore.NewWeighted(suspectsAtOnce),
		ready: make(chan struct{}), unsure: awayShards{},
		stored: map[string]time.Time{}, built: map[surfaceKey]registry.Surface{}, crew: crew.New(),
	}
	d.Reload(cfg.Planner)
	d.budgets.Store(&cfg.Quotas.Budgets)
	return d
}

// Reload takes another planner: batches and calls that are planned from now on are planned by it.
func (d *Dispatcher) Reload(p Planner) {
	if p.MaxConcurrency == 0 {
		p.MaxConcurrency = toolyard.DefaultMaxConcurrency
	}
	d.planner.Store(&p)
}

// CheckCalls refuses calls that must not be in a batch, as the planner says, for those who store them.
func (d *Dispatcher) CheckCalls(from int, calls []toolyard.Call) error {
	return d.planner.Load().check(from, calls)
}

// Regrant takes other quotas: what starts from now on starts within them, and what runs goes on and counts. The
// dispatcher must have been made with [Config.QuotasChange].
func (d *Dispatcher) Regrant(g admission.Grants) {
	d.budgets.Store(&g.Budgets)
	d.admission.regrant(g)
}

// Ready returns a channel that is closed when the dispatcher has seen the workers that were there when it started, and
// takes batches and what agents and workers ask.
func (d *Dispatcher) Ready() <-chan struct{} { return d.ready }

// Run takes batches until ctx ends, and returns when nothing of it runs any more. It returns nil then, and an error
// when it could not go on. Its batches are taken over by another dispatcher, or by this one at its next start.
func (d *Dispatcher) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	d.locks = lock.New(ctx, d.b, d.log, d.cfg.TicketIdle)
	d.locks.TellBehind = d.cfg.Trace != nil
	var wg sync.WaitGroup
	defer func() {
		stop(nil)
		wg.Wait()
		d.crew.End()
		d.locks.Wait()
	}()
	part := func(what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); ctx.Err() == nil { // none of them ends by itself
				stop(fmt.Errorf("%s: %w", what, orElse(err, errEnded)))
			}
		})
	}
	d.lookAtClock(ctx)
	part("watch the server's clock", every(sweepEvery, d.lookAtClock))
	part("watch workers", d.workers.watch)
	part("watch tickets", d.locks.Watch)
	part("watch approvals", d.watchApprovals)
	part("sweep tickets", every(sweepEvery, func(ctx context.Context) {
		d.locks.Reread(ctx)
		d.endLost(ctx, d.locks.Sweep(ctx))
		d.workers.checkOverdue(ctx)
		d.workers.forgetPools()
	}))
	part("delete the keys of unused workspaces", every(sweepEvery, d.locks.DeleteUnused))
	part("delete acknowledged calls", every(sweepEvery, d.deleteAcknowledged))
	select {
	case <-d.workers.ready:
	case <-ctx.Done():
		return failure(ctx)
	}
	subs, err := d.b.Submissions()
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, subs.Stop)
	defer subs.Stop()
	if d.cfg.Room != nil {
		silent, err := d.b.OnRoom(d.cfg.Room, func(err error) {
			d.log.Warn("a question was not answered",
				"error", err)
		})
		if err != nil {
			return err
		}
		defer func() {
			if err := silent(); err != nil {
				d.log.Info("questions about room are still listened to", "error", err)
			}
		}()
	}
	answerer, err := d.b.AnswerGuests(d.log, d.workers.workers, checkToolset, d.background,
		d.admission.runs)
	if err != nil {
		return err
	}
	defer func() {
		if err := answerer.Close(); err != nil {
			d.log.Warn("answering agents and workers did not end tidily", "error", err)
		}
	}()
	close(d.ready)
	d.lookAtStore(ctx)
	part("watch the store", d.watchStore)
	d.shareUsage(part)
	if d.cfg.ArchiveAfter > 0 {
		part("archive", every(min(archiveEvery, d.cfg.ArchiveAfter), d.archive()))
	}
	part("keep what waits", d.keepWaiting)
	part("tell what waits", d.tellWaiting)
	part("start what waited", func(ctx context.Context) error { return d.startFreed(ctx, &wg) })
	for {
		sub, err := subs.Next(ctx)
		if errors.Is(err, broker.ErrStopped) && ctx.Err() == nil {
			err = fmt.Errorf("take submissions: %w", errEnded)
			stop(err)
			return err
		}
		if errors.Is(err, broker.ErrStopped) {
			return failure(ctx)
		}
		if errors.Is(err, events.ErrNewer) {
			d.logNewer(err, 0)
			continue
		}
		if _, ok := errors.AsType[*events.UnreadableError](err); ok {
			d.log.Error("a message on the batch stream is no submission; it was dropped", "error", err)
			continue
		}
		if err != nil {
			stop(err)
			return err
		}
		d.receive(ctx, &wg, sub)
	}
}

// sweepEvery is how often a dispatcher looks for tickets, workers and messages that nobody else takes out.
const sweepEvery = time.Second

// every returns a service that does something at an interval, until ctx ends.
func every(pause time.Duration, do func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				do(ctx)
			}
		}
	}
}

// errEnded: a service that runs for ever has ended, because the connection was closed.
var errEnded = errors.New("it ended, which it does when the connection to NATS is closed")

func orElse(err, or error) error {
	if err == nil {
		return or
	}
	return err
}

// failure is why ctx ended: nil when the caller wanted it.
func failure(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// deleteAcknowledged deletes what a NATS server that was killed has left in the work queues although it is done.
func (d *Dispatcher) deleteAcknowledged(ctx context.Context) {
	switch n, err := d.b.DeleteAcknowledged(ctx); {
	case err != nil && ctx.Err() == nil:
		d.log.Warn("acknowledged messages are still in the work queues", "error", err)
	case n > 0:
		d.log.Info("acknowledged messages were still in the work queues", "deleted", n)
	}
}
