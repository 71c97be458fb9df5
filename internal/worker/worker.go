// Package worker takes calls from the work queues of its pool and runs them: the shell around package pipeline.
//
// Authority: the log. A worker may execute a call that needs a claim only after its own claimed event is stored, and its
// result counts only when its finished event is: both are appended behind what the worker was told, and a conflict means
// that somebody else has answered. Being handed a message gives no right to anything.
//
//	take ─▶ resolve … permission ─▶ claim ─▶ execute … persist ─▶ finished ─▶ acknowledge
//	└──────────── lease: kept by answered heartbeats, checked at commit points ───────────┘
//
// Ordering: each class has slots, and each slot runs one message at a time. Agents queue in lanes, which are served side by
// side: each holds a few messages at most that wait for a slot, and slots are given to the agents of these in turn.
//
// Failure: when the worker dies, the message is delivered to another, who finds the claim or runs the call. When the
// worker cannot renew its delivery, it stops the tool before anyone else may act.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/tool"
)

// Defaults of [Config].
const (
	DefaultReadSlots  = 16
	DefaultWriteSlots = 4
	DefaultDrainGrace = 10 * time.Second
	// MaxSlots bounds the slots of one class.
	MaxSlots = 1_024
)

// Config says how a worker works. What is zero has its default.
type Config struct {
	// ID is unique among workers. Default: a new one.
	ID string
	// Pool is whose queues it serves. Default [toolyard.DefaultPool].
	Pool toolyard.Pool
	// Classes are those it takes calls of. Default all.
	Classes []toolyard.Class
	// Slots are how many calls of a class run at a time. Default 16 for READ_ONLY and 4 for the others.
	Slots map[toolyard.Class]int
	// Workspaces are the directories it serves. None: it serves every workspace, and tools get no directory.
	Workspaces map[toolyard.Workspace]string
	// Protect is what is protected in them. Nil: the built-in list.
	Protect *protect.List
	// Avoid are paths that no workspace may hold or lie in.
	Avoid []place.Avoided
	// Tools are what it can run, and Origin where they come from (default built-in).
	Tools  []tool.Tool
	Origin registry.Origin
	// Declared are the tools that its operator has declared in manifests. None may have the name of one of Tools.
	Declared []tool.Tool
	// Toolsets are tools that come and go.
	Toolsets []Toolset
	// ToolsetWait is how long the worker's start waits for the toolsets to have tools. 0: not at all; the tools are offered when
	// they are there.
	ToolsetWait time.Duration
	// Rules and Mode are the operator's permissions.
	Rules policy.Rules
	Mode  policy.Mode
	// Hooks run around calls. Nil: none.
	Hooks *hooks.Set
	// Redact takes secrets out of what others will read. Nil: nothing is taken out.
	Redact func(string) string
	// Credentials are what tools get with each call: values by their names, by tool. Redact should know the values.
	Credentials map[string]map[string]string
	// Isolation names what it can put around commands. Default "none": nothing, and calls that need it are not taken; see
	// [registry.Host]. NoIsolation says why and what an operator can do, in one line.
	Isolation, NoIsolation string
	// Unsandboxed lets calls that need isolation run without. Only an operator says so.
	Unsandboxed bool
	// DrainGrace is how long running calls may go on after the worker was told to stop. Default 10 s.
	DrainGrace time.Duration
	Log        *slog.Logger
}

// Worker runs calls. Make it with [New], run it with [Worker.Run].
type Worker struct {
	b     Broker
	cfg   Config
	log   *slog.Logger
	tools *toolbox
	pipe  *pipeline.Pipeline
	// breakers are this worker's own; what it finds out rides on its heartbeat, and what others found is imposed on it.
	breakers *breaker.Breakers
	ready    chan struct{}
	places   *places
	// roots are the directories of the workspaces, held since the start.
	roots    map[toolyard.Workspace]*place.Root
	surfaces surfaces
	// reoffer says that the tools may have changed.
	reoffer chan struct{}

	// judging has a place for each judge of a tool that runs.
	judging chan struct{}

	// stalls counts what watch has seen. It rides on the heartbeat.
	stalls atomic.Int64

	// registered is the right to count as alive: renewed by each heartbeat that was stored.
	registered lease
	announced  time.Time // when the tools were last stored; only the heartbeat looks at it

	mu      sync.Mutex
	running map[callKey]*running
	// begun are attempts of calls that may not run twice which were started here and whose end is not stored yet.
	begun map[attemptKey]bool
	// newer are the messages of newer versions that the log has spoken of.
	newer map[string]bool
	peers peers
	// aborts are the calls that were aborted not long ago, under mu.
	aborts aborts
}

// callKey names a call among all.
type callKey struct {
	batch toolyard.BatchKey
	index int
}

// New makes a worker on a broker. It fails when its configuration does not hold together.
func New(b Broker, cfg Config) (*Worker, error) {
	if cfg.ID == "" {
		cfg.ID = broker.WorkerID(cfg.Pool)
	}
	if cfg.Pool == "" {
		cfg.Pool = toolyard.DefaultPool
	}
	if err := broker.CheckPool(cfg.Pool); err != nil {
		return nil, err
	}
	if who := b.Who(); who.Role == access.Agent || who.Role == access.Worker && who.Name != string(cfg.Pool) {
		return nil, fmt.Errorf("the credentials are those of %s, and the worker is of pool %q: make others (dispatcher creds --pool %s)", who, cfg.Pool, cfg.Pool)
	}
	if len(cfg.Classes) == 0 {
		cfg.Classes = toolyard.Classes
	}
	slots := map[toolyard.Class]int{}
	for _, c := range cfg.Classes {
		if !c.Known() {
			return nil, fmt.Errorf("class %q is unknown; use some of %q", c, toolyard.Classes)
		}
		slots[c] = cfg.Slots[c]
		if slots[c] == 0 && c.Safe() {
			slots[c] = DefaultReadSlots
		} else if slots[c] == 0 {
			slots[c] = DefaultWriteSlots
		}
		if slots[c] < 0 || slots[c] > MaxSlots {
			return nil, fmt.Errorf("%d slots for %s; use 1 to %d", slots[c], c, MaxSlots)
		}
	}
	cfg.Slots = slots
	if cfg.Origin == "" {
		cfg.Origin = registry.Builtin
	}
	if cfg.Isolation == "" {
		cfg.Isolation = "none"
	}
	if cfg.DrainGrace == 0 {
		cfg.DrainGrace = DefaultDrainGrace
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	tools, err := newToolbox(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Classes, err = takes(&cfg); err != nil {
		return nil, err
	}
	dirs := slices.Sorted(maps.Values(cfg.Workspaces))
	declarations := make([]*tool.Declaration, len(cfg.Tools))
	for i := range cfg.Tools {
		declarations[i] = &cfg.Tools[i].Declaration
	}
	if err := cfg.Rules.CheckPlaces(dirs, declarations...); err != nil {
		return nil, err
	}
	roots, err := place.HoldAll(cfg.Workspaces, cfg.Protect, cfg.Avoid)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		roots: roots, b: b, cfg: cfg, log: b.Quiet(cfg.Log).With("worker", cfg.ID), tools: tools, ready: make(chan struct{}),
		running: map[callKey]*running{}, begun: map[attemptKey]bool{}, newer: map[string]bool{}, breakers: breaker.New(breaker.Options{}), places: newPlaces(slots),
		reoffer: make(chan struct{}, 1), judging: make(chan struct{}, maxJudging), aborts: newAborts(broker.Patience(b.Settings().CallAckWait)),
	}
	w.pipe = &pipeline.Pipeline{
		Tools: w.tools, Permission: Permission{Rules: cfg.Rules, Mode: cfg.Mode, Dirs: dirs}, Breakers: w.breakers,
		Scheduler: w, Blobs: blobs{b}, Classify: shell.Classify, Isolation: cfg.Isolation, Unsandboxed: cfg.Unsandboxed, Worker: cfg.ID,
		Redact: cfg.Redact, StopGrace: broker.StopGrace(b.Settings().CallAckWait),
	}
	if cfg.Hooks != nil {
		w.pipe.Hooks = cfg.Hooks
		// Hooks have their own limits, and storing the result keeps its time beside them.
		w.pipe.FinishTimeout = pipeline.DefaultFinishTimeout + cfg.Hooks.PostTime()
	}
	return w, nil
}

// ID is the worker's.
func (w *Worker) ID() string { return w.cfg.ID }

// Ready returns a channel that is closed when the worker is registered and takes calls.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Run takes calls until ctx ends, lets those that run finish within the drain grace, and returns when nothing of it runs
// any more: nil then, an error when it could not go on. Calls that are left when the grace is over are stopped: those that
// may run twice are handed over, others end as outcome_unknown.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.b.CheckRoundTrip(); err != nil {
		return err
	}
	for name, root := range w.roots { // what a worker has left that was killed
		if err := sandbox.Recover(ctx, root); err != nil {
			w.log.Warn("a workspace cannot be used", "workspace", name, "error", err)
		}
	}
	defer w.startToolsets(ctx)() // they outlive the calls
	entry, err := w.announce(ctx, w.entry())
	if err != nil {
		return err
	}
	taking, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Calls outlive the end of taking by the drain grace.
	calls, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)

	offAbort, err := w.b.OnAbort(w.abort)
	if err != nil {
		return err
	}
	offJudge, err := w.b.OnJudge(w.cfg.Pool, w.judge, func(err error) { w.log.Warn("a request to judge failed", "error", err) })
	if err != nil {
		return errors.Join(err, offAbort())
	}
	offHolds, err := w.b.OnHolds(w.cfg.ID, w.has, func(err error) { w.log.Warn("a question was not answered", "error", err) })
	if err != nil {
		return errors.Join(err, offAbort(), offJudge())
	}
	// Registered first: a call that is taken needs the registration.
	if err := w.register(ctx, entry); err != nil {
		return errors.Join(err, offAbort(), offJudge(), offHolds())
	}
	var heart sync.WaitGroup
	beating, still := context.WithCancel(context.WithoutCancel(ctx))
	defer still()
	heart.Go(func() { w.beat(beating, entry) })
	heart.Go(func() { w.listen(beating) })

	var lanes, opened sync.WaitGroup
	for _, class := range w.cfg.Classes {
		for lane := range broker.Lanes {
			opened.Go(func() {
				from, err := w.b.Lane(ctx, batch.Route{Pool: w.cfg.Pool, Class: class}, lane, func(d *broker.Delivery) { w.returnUnstarted(ctx, d, 0) })
				if err != nil {
					stop(err)
					return
				}
				context.AfterFunc(taking, from.Stop)
				lanes.Go(func() {
					if err := w.serve(taking, calls, from, laneKey{class, lane}); err != nil {
						stop(err)
					}
				})
			})
		}
	}
	opened.Wait()
	if taking.Err() == nil {
		close(w.ready)
	}
	<-taking.Done()

	grace := time.AfterFunc(w.cfg.DrainGrace, func() { abandon(errShutdown) })
	lanes.Wait()
	grace.Stop()
	still()
	heart.Wait()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	ended := errors.Join(offAbort(), offJudge(), offHolds(), w.b.Gone(leave, w.cfg.ID))
	if ended != nil {
		w.log.Warn("the worker did not sign off; its entry expires", "error", ended)
	}
	if err := context.Cause(taking); ctx.Err() == nil {
		return err
	}
	return nil
}

// goodbyeTimeout bounds the last words to the registry.
const goodbyeTimeout = 2 * time.Second

func (w *Worker) entry() broker.Worker {
	e := broker.Worker{
		ID: w.cfg.ID, Pool: w.cfg.Pool, Classes: w.cfg.Classes, Isolation: w.cfg.Isolation, Unsandboxed: w.cfg.Unsandboxed,
		Started: time.Now().UTC(),
	}
	if !w.cfg.host().Isolates() {
		e.NoIsolation = clip(w.cfg.NoIsolation, maxNoIsolation)
	}
	for ws := range w.cfg.Workspaces {
		e.Workspaces = append(e.Workspaces, ws)
	}
	for _, n := range w.cfg.Slots {
		e.Slots += n
	}
	return e
}

// announce stores what the worker offers now, if that has changed or may soon expire, and puts it into the entry.
func (w *Worker) announce(ctx context.Context, e broker.Worker) (broker.Worker, error) {
	now, err := w.tools.offer()
	if err == nil {
		e.Remarks = w.tools.remarks
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

// register stores the first heartbeat. A server that is away, or elects a leader just now, is waited for.
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

// beatAgain is how soon a heartbeat is repeated that failed: what lets the next one through may be there any moment.
const beatAgain = 50 * time.Millisecond

// beat keeps the worker's registry key alive, and what it says of the tools true. Heartbeats do not wait for each other's
// answers: however long these take, each renews the lease from when it was sent.
func (w *Worker) beat(ctx context.Context, e broker.Worker) {
	interval := broker.Heartbeat(w.b.Settings().WorkerTTL)
	var sent sync.WaitGroup
	defer sent.Wait()
	failed := make(chan error, 1)
	lost, level := false, slog.LevelWarn // that they fail was said, at that level
	send := func() {
		e.Breakers, e.Stalls = w.breakers.OpenUntil(), int(w.stalls.Load())
		entry := e
		sent.Go(func() {
			if err := w.sendBeat(ctx, entry); err != nil {
				select {
				case failed <- err:
				default: // one failure is like another
				}
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
			if next, ok := w.reannounce(ctx, e); ok && (next.Toolset != e.Toolset || !slices.Equal(next.Remarks, e.Remarks)) {
				e = next
				send()
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return
			}
			if !lost {
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
			if _, alive := w.registered.holds(); alive && lost {
				lost = false
				w.log.Log(ctx, level, "heartbeats are stored again")
			}
			due.Reset(interval)
			e, _ = w.reannounce(ctx, e) // no longer than until the next is due
		}
	}
}

// sendBeat stores a heartbeat, and renews the registration from when it was sent. An answer that comes later than a lease
// lasts is worth nothing.
func (w *Worker) sendBeat(ctx context.Context, e broker.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, broker.Lease(w.b.Settings().WorkerTTL))
	defer cancel()
	sent := time.Now()
	if err := w.b.Beat(ctx, e); err != nil {
		return err
	}
	w.registered.again(sent)
	return nil
}

// reannounce announces the tools if they have changed, within the time of a heartbeat. When it fails, what was announced before
// stands.
func (w *Worker) reannounce(ctx context.Context, e broker.Worker) (now broker.Worker, ok bool) {
	announcing, cancel := context.WithTimeout(ctx, broker.Heartbeat(w.b.Settings().WorkerTTL))
	defer cancel()
	now, err := w.announce(announcing, e)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("the tools could not be announced; what was announced before stands", "error", err)
		}
		return e, false
	}
	return now, true
}

// listen imposes on this worker what others found to be down. An unreadable entry is another's fault.
func (w *Worker) listen(ctx context.Context) {
	err := w.b.WatchWorkers(ctx, nil, func(c broker.WorkerChange, err error) {
		if c.State != "" {
			w.peers.heard(c.State)
			return
		}
		if c.ID == w.cfg.ID {
			return
		}
		w.peers.learn(c.ID, c.Worker)
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

// abort stops calls that were aborted by broadcast, and those that come to this worker a moment later.
func (w *Worker) abort(n broker.AbortNotice, err error) {
	if err != nil {
		w.log.Warn("an abort cannot be read", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range n.Calls {
		k := callKey{toolyard.BatchKey{Agent: n.Agent, ID: n.Batch}, i}
		w.aborts.note(k, cause(&n), time.Now())
		if r, ok := w.running[k]; ok {
			r.cancel(cause(&n))
		}
	}
}

// cause is the reason for which a call's context ends.
func cause(n *broker.AbortNotice) error {
	switch n.Code {
	case toolyard.SiblingCanceled:
		return pipeline.ErrSiblingCanceled{Culprit: n.Culprit}
	case toolyard.DeadlineExceeded:
		return pipeline.ErrDeadline
	default:
		return pipeline.CanceledError{Reason: n.Reason, By: n.By}
	}
}
