package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/scan"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// shutdownTimeout bounds the end of the HTTP server.
const shutdownTimeout = 5 * time.Second

func (s *std) serveCommand() *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Dispatch batches for agents and workers until it is stopped",
		Long: `serve dispatches batches. By itself it embeds a NATS server that keeps its streams in --data and listens
for workers and agents on --nats-listen. That asks them for credentials, which it makes at its first start
("dispatcher creds" makes more); commands of the same user find them. With --nats URL it uses the NATS system there,
beside any number of other dispatchers. --with-worker adds a worker to the process: then one machine needs nothing
else.

Permission rules that deny or ask hold for the calls of all workers. --allow and --permission-mode are for the worker
in this process, with --with-worker; other workers have their own.

Agents use it over NATS, or over HTTP on --listen: docs/http.md and /openapi.json there say how. Without --token-file
that is for this machine only.

The addresses are printed when it is ready. SIGHUP has the files of --rules and --tools read again; what is wrong with
one is logged, and what was read before holds. SIGTERM ends it tidily: the batches that it owned go on with another
dispatcher, or when it is started again.`,
		Example: `  dispatcher serve --with-worker --workspace default=.
  dispatcher serve --nats nats://10.0.0.7:4222 --replicas 3
  dispatcher serve --listen 0.0.0.0:8080 --token-file tokens`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.serve(cmd.Context(), o) },
	}
	o.add(cmd.Flags())
	return cmd
}

func (s *std) serve(ctx context.Context, o serveFlags) (err error) {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := o.memory.Apply(log); err != nil {
		return err
	}
	var reload cli.Reload
	reload.Follow(ctx, log)
	var tokens *api.Tokens
	if o.tokenFile != "" {
		if tokens, err = api.ReadTokens(o.tokenFile); err != nil {
			return cli.Usagef("--token-file: %w; docs/http.md says what is in it", err)
		}
		reload.On("the token file", func() error { return tokens.Read(o.tokenFile) })
	}
	issuer, err := o.oidc.open(log)
	if err != nil {
		return err
	}
	deeds, err := openAudit(o.auditLog, &reload, log)
	if err != nil {
		return err
	}
	if deeds != nil {
		defer func() { err = errors.Join(err, deeds.Close()) }()
	}
	certificates, httpCert, natsCert, err := o.certificates(&reload, log)
	if err != nil {
		return err
	}
	mcpKey, err := o.mcp.key()
	if err != nil {
		return err
	}
	observed := cli.NewObserved()
	if o.withWorker {
		observed.Count(&o.worker)
	}
	decided, err := o.decide(&o.worker)
	if err != nil {
		return err
	}
	quotas, err := o.quotas()
	if err != nil {
		return err
	}
	cfg := o.nodeConfig(&decided)
	cfg.observed, cfg.audit, cfg.dispatcher.Quotas = observed, deeds, quotas
	if o.signingKey != "" {
		if cfg.dispatcher.SigningKey, err = readSigningKey("--signing-key", o.signingKey); err != nil {
			return err
		}
	}
	if natsCert != nil {
		cfg.tls = natsCert.Config()
	}
	o.worker.Guard.SayLeft(log)
	if cfg.dispatcher.AfterBatch, err = o.worker.Guard.AfterBatch(decided.tools, decided.mode, log); err != nil {
		return err
	}
	cfg.hooks = o.worker.Guard.Hooks()
	if err := o.checkUnused(cfg.dispatcher.AfterBatch != nil, log); err != nil {
		return err
	}
	if err := cfg.settings.WithDefaults().Check(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if o.withWorker {
		if cfg.worker, err = o.workerConfig(&decided, log); err != nil {
			return err
		}
		cfg.worker.Meter = observed.Meter
	}
	if cfg.embeds() {
		if cfg.store, err = storeDir(o.reach.Data); err != nil {
			return err
		}
	}
	var ready atomic.Pointer[node]
	shown, unobserve, err := o.observe.Open(ctx, observed.Metrics, func() error {
		if n := ready.Load(); n != nil {
			return n.ready()
		}
		return errors.New("the dispatcher is starting")
	}, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unobserve()) }()
	n, err := startNode(ctx, log, cfg)
	if err != nil {
		return ended(ctx, err)
	}
	defer n.close()
	ready.Store(n)
	watching, still := context.WithCancel(ctx)
	defer still() // before n is closed, which waits for it
	n.run(watching, "watch the store", n.watchStock)
	if !cfg.embeds() {
		n.parts.Go(func() {
			o.reach.WarnOfEnds(watching, n.nc, o.url, access.Principal{Role: access.Dispatcher}, log)
		})
	}
	var blocks atomic.Pointer[policy.Rules]
	blocks.Store(&decided.rules)
	reload.On("rules and tools", func() error {
		now, err := o.reload(n, log)
		if err == nil {
			blocks.Store(&now)
		}
		return err
	})
	if o.quotaFile != "" {
		reload.On("quotas", func() error {
			now, err := o.quotas()
			if err == nil {
				n.dispatcher.Regrant(now)
			}
			return err
		})
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return cli.ListenError("--listen", o.listen, err)
	}
	handler, err := n.api(ctx, l.Addr(), api.Config{Tokens: tokens, Issuer: issuer, Audit: deeds,
		PublicURL: o.oidc.publicURL, Metrics: observed.Metrics})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := openConsole(handler); err != nil {
		return errors.Join(err, l.Close())
	}
	tooled, untool := context.WithCancel(ctx)
	defer untool()
	parts := mcpParts{base: cfg.dispatcher.Base, blocked: func(name string, aliases []string) bool {
		return blocks.Load().Blocks(name, aliases)
	}}
	mcp, err := n.mcp(tooled, handler, parts, server.Config{
		Approvals: o.mcp.approvals, Key: mcpKey, MaxWait: o.timeout +
			mcpGrace, Hide: decided.planner.Views.Hide, Notices: cfg.dispatcher.AfterBatch != nil,
	})
	if err != nil {
		return errors.Join(ended(ctx, err), l.Close())
	}
	httpServer := &http.Server{
		Handler: handler, ReadHeaderTimeout: api.HeaderTimeout, IdleTimeout: api.IdleTimeout,
		MaxHeaderBytes: api.MaxHeaderBytes,
		ConnContext:    handler.ConnContext, ConnState: handler.ConnState,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	cli.CloseUnused(httpServer)
	httpServer.RegisterOnShutdown(func() {
		mcp.Stop() // first: a call whose client was cut off is given up, and these go on and are answered
		handler.Stop()
	})
	if tokens != nil {
		go tokens.Follow(tooled, o.tokenFile, log)
	}
	for _, c := range certificates {
		go c.Follow(tooled)
	}
	served, scheme := make(chan error, 1), "http"
	if httpCert != nil {
		scheme, httpServer.TLSConfig = "https", httpCert.Config()
		go func() { served <- httpServer.ServeTLS(l, "", "") }()
	} else {
		go func() { served <- httpServer.Serve(l) }()
	}

	natsURL, made := natsbroker.ShownURL(o.url), ""
	if o.reach.Context != "" {
		natsURL = natsbroker.ShownURL(n.nc.ConnectedUrlRedacted())
	}
	if n.server != nil {
		natsURL = n.server.ClientURL()
		if dir, untold := n.server.Creds(); untold {
			made = fmt.Sprintf("credentials: %s\n", dir)
		}
	}
	if _, err := fmt.Fprintf(s.out, "toolyard dispatcher ready\nhttp: %s://%s\nnats: %s\n%s%s", scheme, l.Addr(),
		natsURL, made, shown); err != nil {
		return fmt.Errorf("say that the dispatcher is ready: %w", err)
	}
	if made != "" {
		if err := n.server.Told(); err != nil {
			log.Warn("the next start says again where the credentials are", "error", err)
		}
	}
	select {
	case <-ctx.Done():
	case err = <-n.failed:
	case err = <-served:
		err = fmt.Errorf("serve HTTP: %w", err)
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if late := httpServer.Shutdown(bye); late != nil {
		late = fmt.Errorf("HTTP requests still run after %v, and are cut off: %w", shutdownTimeout, late)
		err = errors.Join(err, late, httpServer.Close())
	}
	return err
}

// storeDir is where an embedded server is to keep its streams.
func storeDir(data string) (string, error) {
	dir, err := cli.DataDir(data)
	if err != nil {
		return "", err
	}
	return dir, toBeDir("--data", dir)
}

// toBeDir refuses a path that is no directory, and cannot become one.
func toBeDir(from, path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() || errors.Is(err, syscall.ENOTDIR) {
		return cli.Usagef("%s %s: is not a directory; name one, which is made if need be", from, path)
	}
	return nil // what else is wrong, who makes it says
}

// nodeConfig is what the flags, and the files of rules and tools, say of the parts in this process.
func (o *serveFlags) nodeConfig(d *fileDecisions) nodeConfig {
	return nodeConfig{
		url: o.url, reach: &o.reach, listen: o.natsListen, serves: o.serves,
		syncAlways: o.syncAlways, migrate: o.migrate, reserve: o.reserve,
		settings: broker.Settings{Replicas: o.replicas, Shards: o.shards, Lifetime: o.lifetime,
			MaxStoreBytes: o.maxStore, Compression: o.compression}.WithAckWait(o.ackWait),
		dispatcher: dispatcher.Config{
			// Tools of files come and go with them, and the worker of this process offers them. Not all workers have
			// run_code.
			Base: slices.DeleteFunc(base(d.tools), func(e registry.Entry) bool {
				return e.Origin != registry.Builtin || e.Name == toolyard.RunCodeTool
			}),
			RunCode: o.worker.RunCode,
			Planner: d.planner, BatchTimeout: o.timeout,
			WorkerWait: o.workerWait, QueueWait: o.queueWait, ApprovalWait: o.approvalWait, MaxBatches: o.maxBatches,
			BackgroundCalls: o.backgroundCalls, BackgroundTime: o.backgroundTime,
			MaxOpen: o.maxOpen, MaxAgentBatches: o.maxAgentBatches, MaxWaiting: o.maxWaiting,
			MaxAgentWaiting: o.maxAgentWaiting, AdmitPercent: o.admitPercent,
			QuotasChange: o.quotaFile != "", ArchiveAfter: o.archiveAfter,
		},
	}
}

// checkUnused refuses flags that mean nothing without a worker in this process, or warns of them. notices says that the
// dispatcher runs hooks itself.
func (o *serveFlags) checkUnused(notices bool, log *slog.Logger) error {
	if o.withWorker {
		return nil
	}
	if len(o.worker.Workspaces) > 0 {
		log.Warn("--workspace without --with-worker: this process runs no calls, so the directories are not used; give "+
			"them to worker serve, or add --with-worker", "workspace", o.worker.Workspaces)
	}
	if len(o.worker.Guard.Manifests.Files) > 0 {
		return cli.Usagef("--tools: this process runs no calls; give the files to its workers, or add --with-worker")
	}
	if len(o.worker.Guard.ScanOutputs) > 0 || o.worker.Guard.FenceOutputs {
		return cli.Usagef("--scan-outputs and --fence-outputs: this process runs no calls; give them to its workers, or " +
			"add --with-worker")
	}
	if o.worker.Guard.HooksFile != "" && !notices {
		return cli.Usagef("--hooks: this process runs no calls, and the file has no PostToolBatch hook; give the " +
			"hooks to its workers, or add --with-worker")
	}
	return nil
}

// workerConfig is the worker in this process.
func (o *serveFlags) workerConfig(d *fileDecisions, log *slog.Logger) (*worker.Config, error) {
	o.worker.Avoid = o.reach.Avoid()
	w, err := o.worker.Config(d.tools, d.rules, d.mode, log)
	if err == nil {
		o.worker.WarnOfNoWorkspace("--with-worker", log)
	}
	return &w, err
}

// certificates reads the certificates of the HTTP API and of the embedded NATS server, and has SIGHUP read them again.
// One that no flag names is nil, and not among all.
func (o *serveFlags) certificates(reload *cli.Reload, log *slog.Logger) (all []*cli.Certificate, http,
	nats *cli.Certificate, err error) {
	for _, c := range []struct {
		flags, cert, key string
		to               **cli.Certificate
	}{
		{"--tls-cert, --tls-key", o.tlsCert, o.tlsKey, &http},
		{"--nats-cert, --nats-key", o.natsCert, o.natsKey, &nats},
	} {
		if c.cert == "" {
			continue
		}
		read, err := cli.ReadCertificate(c.cert, c.key, log)
		if err != nil {
			return nil, nil, nil, cli.Usagef("%s: %w", c.flags, err)
		}
		*c.to, all = read, append(all, read)
		reload.On("the certificate "+c.cert, read.Read)
	}
	return all, http, nats, nil
}

// fileDecisions is what the files of rules and tools say, and what plans by them.
type fileDecisions struct {
	tools   []tool.Tool
	rules   policy.Rules
	mode    policy.Mode
	planner dispatcher.Planner
}

// decide reads the files of rules and tools.
func (o *serveFlags) decide(w *cli.Worker) (d fileDecisions, err error) {
	d.tools, d.rules, d.mode, err = w.Toolbox(&o.perms, cli.Scope{System: true, NoCalls: !o.withWorker})
	if err != nil {
		return d, err
	}
	secrets, err := w.Guard.Redactor()
	if err != nil {
		return d, err
	}
	d.planner = planner(d.rules, o.maxConcurrency, secrets.Redact)
	if o.refuseSecrets {
		d.planner.CheckCalls = func(from int, calls []toolyard.Call) error {
			return scan.Inputs(from, calls, secrets.Redact)
		}
	}
	if d.planner.Views, err = registry.ParseViews(o.views); err != nil {
		return d, cli.Usagef("--view: %w", err)
	}
	d.planner.DeferAllBut = o.deferAllBut
	if err := registry.CheckPatterns(o.deferAllBut); err != nil {
		return d, cli.Usagef("--defer-all-but: %w", err)
	}
	if err := d.planner.ForAll(d.rules, o.perms.Known, d.tools); err != nil {
		return d, &cli.UsageError{Err: err}
	}
	return d, nil
}

// reload reads the files of rules and tools again, and has the node's parts work by them. It returns the rules.
func (o *serveFlags) reload(n *node, log *slog.Logger) (policy.Rules, error) {
	next := o.worker.Again()
	d, err := o.decide(&next)
	if err != nil {
		return d.rules, err
	}
	if n.worker != nil {
		cfg, err := next.Config(d.tools, d.rules, d.mode, log)
		if err == nil {
			err = n.worker.Reload(cfg)
		}
		if err != nil {
			return d.rules, err
		}
	}
	n.dispatcher.Reload(d.planner)
	o.worker = next
	return d.rules, nil
}

// api makes the HTTP API of this process. What a listener is named says little: its address says who reaches it.
func (n *node) api(ctx context.Context, at net.Addr, cfg api.Config) (*api.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	c, err := client.Connect(ctx, n.nc, client.Options{Check: n.dispatcher.CheckCalls})
	if err != nil {
		return nil, err
	}
	tcp, ok := at.(*net.TCPAddr)
	loopback := ok && tcp.IP.IsLoopback()
	if cfg.Tokens == nil && cfg.Issuer == nil && !loopback {
		return nil, cli.Usagef("--listen: without --token-file the HTTP API is for this machine only, and %s is not",
			at)
	}
	cfg.Client, cfg.Loopback, cfg.Log = c, loopback, n.log
	cfg.Reader = follow.New(n.broker.As("/api/"+broker.NewID()), follow.Options{Shared: true})
	cfg.Surface = n.surface
	if n.tracer != nil {
		cfg.Trace = n.tracer.Submit
	}
	cfg.CheckOptions = func(o toolyard.Options) error {
		_, err := dispatcher.BatchRules(o)
		return err
	}
	cfg.Ready, cfg.Room, cfg.Crowded, cfg.Workspaces = n.ready, n.room, n.crowded, n.workspaces
	cfg.Waiting, cfg.Unserved, cfg.Refused = n.broker.CountApprovals, n.unserved, n.counts.Refused
	return api.New(cfg)
}

// mcp makes the MCP server of this process, behind the door of its HTTP API.
func (n *node) mcp(ctx context.Context, door *api.Server, p mcpParts, cfg server.Config) (*server.Server, error) {
	setup, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	var err error
	if p.client, err = client.Connect(setup, n.nc, client.Options{Check: n.dispatcher.CheckCalls}); err != nil {
		return nil, err
	}
	p.broker, p.log = n.broker.As("/mcp/"+broker.NewID()), n.log
	if n.tracer != nil {
		cfg.Trace = n.tracer.Submit
	}
	m, err := newMCP(ctx, p, cfg)
	if err != nil {
		return nil, err
	}
	door.Mount(api.MCPPath, server.MaxRequestBytes, m.Serve)
	return m, nil
}
