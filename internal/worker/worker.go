package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/crew"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/scan"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/internal/traceparent"
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
	// Pool is whose queues it serves. Default [broker.PoolOf] its tags.
	Pool toolyard.Pool
	// Tags are what calls may ask of it. All workers of a pool should have the same: what only some have does not
	// count.
	Tags []toolyard.Tag
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
	// ToolsetWait is how long the worker's start waits for the toolsets to have tools. 0: not at all; the tools are
	// offered when they are there.
	ToolsetWait time.Duration
	// Rules and Mode are the operator's permissions.
	Rules policy.Rules
	Mode  policy.Mode
	// Hooks run around calls. Nil: none.
	Hooks *hooks.Set
	// Repair mends inputs that do not fit their tool's schema, where the batch wants that and the built-in repair does
	// not help. It may take [broker.RepairTimeout], and should return when its context ends. Nil: nothing more is
	// mended.
	Repair func(context.Context, Malformed) (Repaired, error)
	// Redact takes secrets out of what others will read. Nil: nothing is taken out.
	Redact func(string) string
	// Unfinished is that of [pipeline.Pipeline].
	Unfinished func(string) int
	// Scan are the scanners that look through outputs from outside. Nil: none do.
	Scan []scan.Rule
	// Fence puts outputs from outside between delimiters, also where their batch does not ask for it.
	Fence bool
	// Tokens limits results in tokens too. Nil: characters alone count.
	Tokens *pipeline.Tokens
	// Credentials are what tools get with each call: values by their names, by tool. Redact should know the values.
	Credentials map[string]map[string]string
	// Isolation names what it can put around commands. Default "none": nothing, and calls that need it are not taken;
	// see [registry.Host]. NoIsolation says why and what an operator can do, in one line.
	Isolation, NoIsolation string
	// Unsandboxed lets calls that need isolation run without. Only an operator says so.
	Unsandboxed bool
	// Snapshots is where workspaces are kept as they were. Nil: nowhere, and calls that ask for it do not run.
	Snapshots Snapshots
	// Shells is what bash has its shells remember; the worker removes what is no longer kept. Nil: nothing.
	Shells *shells.Store
	// DrainGrace is how long running calls may go on after the worker was told to stop. Default 10 s.
	DrainGrace time.Duration
	// Meter counts what the worker does. Nil: nobody counts.
	Meter Meter
	// Trace begins the span of an attempt of a call, as a child of the trace context of its batch, and returns the
	// context for the call's tool. Nil: nobody watches.
	Trace func(ctx context.Context, parent traceparent.Context, d *events.Requested, call *events.RequestedCall,
		worker string) (context.Context, CallSpan)
	Log *slog.Logger
}

// Worker runs calls. Make it with [New], run it with [Worker.Run].
type Worker struct {
	b     Broker
	cfg   Config
	log   *slog.Logger
	tools *toolbox
	// pipe is replaced as a whole, by Reload.
	pipe atomic.Pointer[pipeline.Pipeline]
	// schemas and leaked are of all its pipelines, the former ones too.
	schemas schema.Cache
	leaked  atomic.Int64
	// breakers are this worker's own; what it finds out rides on its heartbeat, and what others found is imposed on it.
	breakers *breaker.Breakers
	ready    chan struct{}
	slots    *slots
	// asked are the classes that it is to take calls of, as far as it can.
	asked []toolyard.Class
	// roots are the directories of the workspaces, held since the start.
	roots    map[toolyard.Workspace]*place.Root
	surfaces surfaces
	toolsets runningSets
	// reoffer says that the tools may have changed.
	reoffer chan struct{}

	// judging has a place for each judge of a tool that runs.
	judging chan struct{}
	// repairing has one for each run of Config.Repair.
	repairing chan struct{}

	// stalls counts what watch has seen. It rides on the heartbeat.
	stalls atomic.Int64

	// registered is the right to count as alive: renewed by each heartbeat that was stored.
	registered lease
	announced  time.Time // when the tools were last stored; only the heartbeat looks at it, and at unannounced
	// unannounced is why they could not be stored since, as the log has said it.
	unannounced broker.Said

	crew     *crew.Crew   // runs messages and their calls
	unstored atomic.Int32 // calls that have given their slots back, and whose ends are not stored

	mu      sync.Mutex
	running map[callKey]*running
	// inLine ends the wait of calls that wait for a slot.
	inLine map[callKey]func()
	// messages are those that this worker has.
	messages map[*message]bool
	// begun are attempts that were started here and whose end is not stored yet: of calls that were claimed, or may not
	// run twice.
	begun begun
	// newer are the messages of newer versions that the log has spoken of.
	newer map[string]bool
	peers peers
	// aborts are the calls that were aborted not long ago, under mu.
	aborts aborts
}

// Check says what of a configuration does not hold together, as far as that can be told without a broker.
func Check(cfg Config) error {
	_, _, err := cfg.complete()
	return err
}

// complete gives what is left out its default, and checks all that needs no broker. asked are the classes before those
// are left out that the worker cannot run.
func (cfg *Config) complete() (tools *toolbox, asked []toolyard.Class, err error) {
	if err := toolyard.CheckTags("tags", cfg.Tags, broker.MaxTags); err != nil {
		return nil, nil, err
	}
	if cfg.Pool == "" {
		cfg.Pool = broker.PoolOf(cfg.Tags)
	}
	if cfg.ID == "" {
		cfg.ID = broker.WorkerID(cfg.Pool)
	}
	if err := broker.CheckPool(cfg.Pool); err != nil {
		return nil, nil, err
	}
	if len(cfg.Classes) == 0 {
		cfg.Classes = toolyard.Classes
	}
	slots := map[toolyard.Class]int{}
	for _, c := range cfg.Classes {
		if !c.Known() {
			return nil, nil, fmt.Errorf("class %q is unknown; use some of %q", c, toolyard.Classes)
		}
		slots[c] = cfg.Slots[c]
		if slots[c] == 0 && c.Safe() {
			slots[c] = DefaultReadSlots
		} else if slots[c] == 0 {
			slots[c] = DefaultWriteSlots
		}
		if slots[c] < 0 || slots[c] > MaxSlots {
			return nil, nil, fmt.Errorf("%d slots for %s; use 1 to %d", slots[c], c, MaxSlots)
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
	if cfg.Meter == nil {
		cfg.Meter = unmetered{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if tools, err = newToolbox(*cfg); err != nil {
		return nil, nil, err
	}
	asked = cfg.Classes
	cfg.Classes, err = takes(cfg)
	return tools, asked, err
}

// New makes a worker on a broker. It fails when its configuration does not hold together.
func New(b Broker, cfg Config) (*Worker, error) {
	tools, asked, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if who := b.Who(); who.Role == access.Agent || who.Role == access.Worker && who.Name != string(cfg.Pool) {
		return nil, fmt.Errorf("the credentials are those of %s, and the worker is of pool %q: make others "+
			"(dispatcher creds --pool %s)", who, cfg.Pool, cfg.Pool)
	}
	if cfg.Snapshots != nil {
		cfg.Snapshots.Keep(b.Settings().Lifetime)
	}
	dirs, err := checkPlaces(&cfg)
	if err != nil {
		return nil, err
	}
	roots, err := place.HoldAll(cfg.Workspaces, cfg.Protect, cfg.Avoid)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		roots: roots, b: b, cfg: cfg, log: b.Quiet(cfg.Log).With("worker", cfg.ID), tools: tools,
		ready:   make(chan struct{}),
		running: map[callKey]*running{}, inLine: map[callKey]func(){}, messages: map[*message]bool{}, crew: crew.New(),
		newer:    map[string]bool{},
		breakers: breaker.New(breaker.Options{}), slots: newSlots(cfg.Slots),
		reoffer: make(chan struct{}, 1), judging: make(chan struct{}, maxJudging),
		repairing: make(chan struct{}, maxRepairing),
		toolsets:  runningSets{all: cfg.Toolsets}, asked: asked,
		aborts: newAborts(broker.Patience(b.Settings().CallAckWait)),
	}
	w.pipe.Store(w.newPipe(&cfg, dirs))
	return w, nil
}

// ID is the worker's.
func (w *Worker) ID() string { return w.cfg.ID }

// Ready returns a channel that is closed when the worker is registered and takes calls.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Run takes calls until ctx ends, lets those that run finish within the drain grace, and returns when nothing of it
// runs any more: nil then, an error when it could not go on. Calls that are left when the grace is over are stopped:
// those that may run twice are handed over, others end as outcome_unknown.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.b.CheckRoundTrip(); err != nil {
		return err
	}
	for name, root := range w.roots { // what a worker has left that was killed
		if err := sandbox.Recover(ctx, root); err != nil {
			w.log.Warn("a workspace cannot be used", "workspace", name, "error", err)
		}
	}
	defer w.crew.End()
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
	offJudge, err := w.b.OnJudge(w.cfg.Pool, w.judge,
		func(err error) { w.log.Warn("a request to judge failed", "error", err) })
	if err != nil {
		return errors.Join(err, offAbort())
	}
	offHolds, err := w.b.OnHolds(w.cfg.ID, w.holds, w.tail,
		func(err error) { w.log.Warn("a question was not answered", "error", err) })
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
	heart.Go(func() { w.sweepStores(beating) })

	var lanes, opened sync.WaitGroup
	// open opens the lanes from one on, and returns how many there are then.
	open := func(first int) (n int, more <-chan struct{}) {
		n, more = w.b.Lanes()
		for _, class := range w.cfg.Classes {
			for lane := first; lane < n; lane++ {
				opened.Go(func() {
					from, err := w.b.Lane(ctx, batch.Route{Pool: w.cfg.Pool, Class: class}, lane,
						func(d *broker.Delivery) { w.returnMessage(ctx, d) })
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
		return n, more
	}
	n, more := open(0)
	opened.Wait()
	if taking.Err() == nil {
		close(w.ready)
	}
	heart.Go(func() { w.followSettings(taking) })
	for taking.Err() == nil {
		select {
		case <-more: // the system has more shards
			n, more = open(n)
			opened.Wait()
		case <-taking.Done():
		}
	}

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
