package dispatchercmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/audit"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/metrics"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/tracing"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// setupTimeout bounds the start where everything is in this process: the server, its streams, the first look at the
// workers.
const setupTimeout = 30 * time.Second

// node is what one process of this command runs: maybe a NATS server, a dispatcher, maybe a worker.
type node struct {
	log *slog.Logger
	id  string // the dispatcher's
	// guarded says that workers and agents have accounts of their own.
	guarded bool
	server  *natsd.Server
	nc      *nats.Conn
	broker  *natsbroker.Broker
	// room says what room the disk of the store has.
	room func() broker.Room
	// crowded is why a new batch of an agent would be turned away now; "" when it would not.
	crowded func(toolyard.Agent) string
	// silence is which shards have had no dispatcher, and since when; nil before the first roll call.
	silence atomic.Pointer[broker.Silence]
	// surface is what the dispatcher would show a batch now.
	surface    func(toolyard.Agent, toolyard.Workspace, toolyard.Options) (registry.Surface, error)
	dispatcher *dispatcher.Dispatcher
	worker     *worker.Worker // nil when there is none
	// counts are the dispatcher's.
	counts *metrics.Dispatcher
	// failed gets the first error of a part that could not go on.
	failed chan error
	stop   context.CancelFunc
	parts  sync.WaitGroup
	// auditEnd ends the audit log, which goes on until the parts have ended; nil: there is none.
	auditEnd context.CancelFunc
	auditing sync.WaitGroup
	// unsend sends the last spans and metrics, and ends that; nil: nothing is sent.
	unsend func()
	tracer *tracing.Tracer // nil: nobody watches
}

// nodeConfig says what a node runs. With a URL or a context it uses the NATS system there, otherwise it embeds a
// server.
type nodeConfig struct {
	url   string
	reach *cli.Reach
	// tls is what the embedded server speaks; nil: plain text.
	tls        *tls.Config
	store      string
	listen     string
	syncAlways bool
	migrate    bool
	// reserve is what is kept of the disk under the store; 0 is the server's default.
	reserve  int64
	settings broker.Settings
	// serves are the shards whose batches and calls it takes.
	serves cli.Shards
	// audit gets who did what; nil: nobody.
	audit      *audit.Log
	dispatcher dispatcher.Config
	worker     *worker.Config
	// observed has the metrics of this process.
	observed *cli.Observed
	// hooks run when a batch is over; nil when there are none.
	hooks *hooks.Set
}

// embeds reports whether the NATS server is in this process.
func (c *nodeConfig) embeds() bool { return !c.reach.Elsewhere(c.url) }

// memory is what the embedded server's streams may use in memory; 0 is its default.
func (c *nodeConfig) memory() int64 {
	if c.settings.InMemory {
		return c.settings.MaxStoreBytes
	}
	return 0
}

// keep is what of the disk is kept; nothing where the streams are in memory.
func (c *nodeConfig) keep() int64 {
	if c.settings.InMemory {
		return -1
	}
	return c.reserve
}

// access is who may connect to the embedded server; nil when it has no address.
func (c *nodeConfig) access() *natsd.Access {
	if c.listen == "" {
		return nil
	}
	return cli.Access(c.store)
}

// startNode starts everything and returns when it is ready. Stop it with close.
func startNode(ctx context.Context, log *slog.Logger, cfg nodeConfig) (n *node, err error) {
	n = &node{log: log, failed: make(chan error, 3)}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if cfg.dispatcher.ID == "" {
		cfg.dispatcher.ID = "dispatcher-" + broker.NewID()
	}
	if n.unsend, err = cfg.observed.Send(ctx, "toolyard-dispatcher", cfg.dispatcher.ID, log); err != nil {
		return n, err
	}
	if n.tracer = cfg.observed.Tracer(); n.tracer != nil {
		cfg.dispatcher.Trace = func(s *batch.State) dispatcher.BatchSpan { return n.tracer.Batch(s) }
		cfg.observed.TraceHooks(cfg.hooks)
	}
	setup, cancel := context.WithCancel(ctx) // what others have to answer is waited for, as it is later
	if cfg.embeds() {
		setup, cancel = context.WithTimeout(ctx, setupTimeout)
	}
	defer cancel()
	if !cfg.embeds() {
		if n.nc, err = cfg.reach.Await(ctx, cfg.url, access.Principal{Role: access.Dispatcher}, "toolyard dispatcher",
			log); err != nil {
			return n, err
		}
	} else {
		n.server, err = natsd.Start(setup, natsd.Options{
			Access: cfg.access(), TLS: cfg.tls,
			StoreDir: cfg.store, Listen: cfg.listen, SyncAlways: cfg.syncAlways, Reserve: cfg.keep(), Logger: log,
			// The streams' own sizes bound the store, and may grow while the server runs.
			MaxStoreBytes: natsd.NoStoreLimit, MaxMemoryBytes: cfg.memory(),
		})
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "listen" {
			return n, cli.ListenError("--nats-listen", cfg.listen, op)
		}
		if err != nil {
			return n, fmt.Errorf("start the embedded NATS server: %w", err)
		}
		if n.nc, err = n.server.Connect(natsbroker.ConnectOptions("toolyard dispatcher", log)...); err != nil {
			return n, fmt.Errorf("connect to the embedded NATS server: %w", err)
		}
	}
	cfg.observed.Connection(n.nc)
	n.id = cfg.dispatcher.ID
	cfg.dispatcher.Log = log
	if cfg.migrate {
		if err := natsbroker.Migrate(setup, n.nc); err != nil {
			return n, err
		}
	}
	if n.broker, err = natsbroker.Open(setup, n.nc, cfg.settings, "/dispatcher/"+cfg.dispatcher.ID); err != nil {
		return n, n.another(setup, cfg, err)
	}
	if n.broker, err = cfg.serves.Serve(n.broker); err != nil {
		return n, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	if n.server != nil {
		n.run(running, "the embedded NATS server", n.server.Keep)
		cfg.dispatcher.Room = func() broker.Room {
			r := n.server.Room()
			return broker.Room{Full: r.Full, Stalled: r.Stalled != nil, Reason: r.String()}
		}
	}
	n.run(running, "settings", n.followSettings)
	since, err := n.guardedSince()
	if err != nil {
		return n, err
	}
	if n.guarded = !since.IsZero(); n.guarded {
		if err := n.broker.Guard(setup, since); err != nil {
			return n, err
		}
		n.run(running, "guard", func(ctx context.Context) error { return n.guard(ctx, since) })
	}
	if cfg.audit != nil { // before anything is planned
		begun := make(chan struct{})
		first := sync.OnceFunc(func() { close(begun) })
		auditing, end := context.WithCancel(context.WithoutCancel(ctx))
		n.auditEnd = end
		n.auditing.Go(func() { n.audit(auditing, cfg.audit, first) })
		if err := n.await(setup, begun); err != nil {
			return n, err
		}
	}
	if cfg.worker != nil {
		if cfg.embeds() {
			cfg.worker.Avoid = append(cfg.worker.Avoid,
				place.Avoided{Path: cfg.store, What: "where the NATS server keeps its streams"})
		}
		if cfg.worker.ID == "" {
			cfg.worker.ID = broker.WorkerID(cfg.worker.Pool)
		}
		cfg.observed.TraceCalls(cfg.worker)
		w, err := worker.New(n.broker.As(broker.SourceWorker+cfg.worker.ID), *cfg.worker)
		if err != nil {
			return n, &cli.UsageError{Err: err}
		}
		n.worker = w
		cfg.observed.Worker(w)
		n.run(running, "worker", w.Run)
		if err := n.await(setup, w.Ready()); err != nil { // so that the dispatcher's first look sees it
			return n, err
		}
	}
	var d *dispatcher.Dispatcher
	n.counts = cfg.observed.Metrics.Dispatcher(func() metrics.Load { return metrics.Load(d.Load()) })
	cfg.dispatcher.Meter = n.counts
	d = dispatcher.New(n.broker, cfg.dispatcher)
	n.dispatcher = d
	n.surface, n.room, n.crowded = d.Surface, d.Room, d.Crowded
	n.run(running, "dispatcher", d.Run)
	return n, n.await(setup, d.Ready())
}

// another adds to an error of the start what to do if the streams are those of another system: an account of NATS has
// one.
func (n *node) another(ctx context.Context, cfg nodeConfig, err error) error {
	b, aerr := natsbroker.Attach(ctx, n.nc, "")
	if cfg.embeds() || aerr != nil || b.Settings().Agree(cfg.settings) == nil {
		return err
	}
	return fmt.Errorf("%w; an account of NATS has one Toolyard system: if this one is another, give it an account of "+
		"its own", err)
}

func (n *node) run(ctx context.Context, what string, run func(context.Context) error) {
	n.parts.Go(func() {
		if err := run(ctx); err != nil {
			n.failed <- fmt.Errorf("%s: %w", what, err)
		}
	})
}

func (n *node) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case err := <-n.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("start: %w", context.Cause(ctx))
	}
}

// close stops everything that runs, in the order in which it depends on each other.
func (n *node) close() {
	if n.stop != nil {
		n.stop()
	}
	n.parts.Wait()
	n.endAudit()
	if n.unsend != nil {
		n.unsend()
	}
	if n.nc != nil {
		n.nc.Close()
	}
	if n.server != nil {
		n.server.Shutdown()
	}
}

// guardedSince is when workers and agents got accounts of their own; the zero time where they have none. On a NATS
// system elsewhere they have some if the credentials of this process are ours, and the system asks for any: those of
// another system of this user may lie on this machine.
func (n *node) guardedSince() (time.Time, error) {
	if n.server != nil {
		return n.server.GuardedSince(), nil
	}
	if n.nc.Opts.UserJWT == nil || !n.nc.AuthRequired() {
		return time.Time{}, nil
	}
	token, err := n.nc.Opts.UserJWT()
	if token == "" || err != nil {
		return time.Time{}, err
	}
	c, err := natsd.DecodeCreds(token)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the credentials of this process: %w", err)
	}
	if who, ours := c.Principal(); !ours || !who.Platform() {
		return time.Time{}, nil
	}
	return c.Issued, nil
}

// guard says again and again that decisions need proofs, before that is forgotten.
func (n *node) guard(ctx context.Context, since time.Time) error {
	for pause.For(ctx, n.broker.Settings().Lifetime/4) == nil {
		if err := n.broker.Guard(ctx, since); err != nil && ctx.Err() == nil {
			n.log.Warn("what says that decisions need proofs was not renewed", "error", err)
		}
	}
	return nil
}

// stockEvery is how often a dispatcher looks what stands in the store and who serves each shard: for its metrics, and
// to refuse batches that nobody would take.
const stockEvery = 5 * time.Second

// watchStock reads again and again what stands in the store, for the metrics. What cannot be read is not shown.
func (n *node) watchStock(ctx context.Context) error {
	var letters *uint64 // how many there were at first
	for more := true; more; more = pause.For(ctx, stockEvery) == nil {
		reading, cancel := context.WithTimeout(ctx, stockEvery)
		read, err := n.broker.Stock(reading)
		var served []broker.ServedShard
		if err == nil {
			served, err = n.broker.Served(reading)
		}
		cancel()
		stock := metrics.Stock{Streams: map[string]float64{}}
		if err == nil {
			if letters == nil || *letters > read.DeadLetters { // a stream that was made anew begins again
				letters = &read.DeadLetters
			}
			stock.DeadLetters = read.DeadLetters - *letters
			for name, percent := range read.Streams {
				stock.Streams[name] = float64(percent) / 100
			}
			for _, q := range read.Queues {
				stock.Queues = append(stock.Queues, metrics.Queue(q))
			}
			for _, s := range served {
				stock.Shards = append(stock.Shards, metrics.Shard(s))
			}
		} else if ctx.Err() == nil {
			n.log.Info("the metrics do not show what stands in the store", "error", err)
		}
		n.counts.Stock(stock)
		var heard broker.Silence
		if before := n.silence.Load(); before != nil {
			heard = *before
		}
		heard = heard.Hear(served, time.Now())
		n.silence.Store(&heard)
	}
	return nil
}

// unserved is why no dispatcher would take a new batch; "" when one would, or when nobody knows.
func (n *node) unserved(k toolyard.BatchKey) string {
	heard := n.silence.Load()
	if heard == nil {
		return ""
	}
	return heard.Refuses(n.broker.Settings().ShardOf(k), time.Now())
}

// planner makes the planner of this process. What is wrong with an input is said at plan, and it may hold a secret.
func planner(rules policy.Rules, maxConcurrency int, redact func(string) string) dispatcher.Planner {
	return dispatcher.Planner{Pipeline: &pipeline.Pipeline{Redact: redact}, Rules: rules,
		MaxConcurrency: maxConcurrency}
}

// base are the tools that are known without any worker.
func base(tools []tool.Tool) []registry.Entry {
	var out []registry.Entry
	for _, t := range tools {
		out = append(out, registry.Entry{Declaration: t.Declaration, Origin: cli.Origin(t.Name), Pool: "default"})
	}
	return out
}

// ready is why new batches cannot be taken now; nil when they can.
func (n *node) ready() error {
	if !n.nc.IsConnected() {
		return errors.New("not connected to NATS")
	}
	if room := n.room(); room.Full {
		return errors.New(room.Reason)
	}
	return nil
}

// tidy is the end of a service. That it was told to stop is no error when it has served before.
func tidy(served bool, err error) error {
	if served && errors.Is(err, cli.ErrInterrupted) {
		return nil
	}
	return err
}

// ended turns the end of a command's context into what is reported.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return cli.ErrInterrupted
	}
	return err
}
