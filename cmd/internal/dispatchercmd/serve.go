package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	url, listen, natsListen     string
	reach                       cli.Reach
	natsCert, natsKey           string
	tlsCert, tlsKey             string
	natsPlain                   bool
	tokenFile                   string
	oidc                        oidcFlags
	auditLog                    string
	withWorker, syncAlways      bool
	migrate                     bool
	replicas, maxConcurrency    int
	maxBatches, maxAgentBatches int
	maxOpen                     int
	maxWaiting, maxAgentWaiting int
	admitPercent                int
	lifetime, ackWait           time.Duration
	timeout, workerWait         time.Duration
	queueWait, approvalWait     time.Duration
	archiveAfter                time.Duration
	maxStore, reserve           int64
	perms                       cli.Permissions
	views, deferAllBut          []string
	agentQuotas, teamQuotas     []string
	worker                      cli.Worker
	mcp                         mcpFlags
	memory                      cli.Memory
	observe                     cli.Observe
}

func (o *serveFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080",
		"where the HTTP API is served, as `HOST:PORT`; port 0 takes a free one")
	f.StringVar(&o.tlsCert, "tls-cert", "", "the HTTP API speaks TLS with the certificate in `FILE`, which is read "+
		"again when it changes; with --tls-key")
	f.StringVar(&o.tlsKey, "tls-key", "", "the key of --tls-cert, in `FILE`")
	f.StringVar(&o.tokenFile, "token-file", "", "the bearer tokens of the HTTP API: lines TOKEN AGENT [KEY=VALUE "+
		"...] in `FILE`, the agent * for an operator; docs/http.md has the keys. It has the mode 0600, and is read "+
		"again when it changes (default: no tokens, and only a loopback --listen)")
	o.oidc.add(f)
	f.StringVar(&o.auditLog, "audit-log", "", "append to `FILE` who handed in, decided and canceled what: a line of "+
		"JSON for each; SIGHUP opens it again (default: none)")
	f.StringVar(&o.natsListen, "nats-listen", "127.0.0.1:4222",
		"where the embedded NATS server listens, as `HOST:PORT`; port 0 takes a free one")
	f.StringVar(&o.natsCert, "nats-cert", "",
		"the embedded NATS server speaks TLS with the certificate in `FILE`; with --nats-key")
	f.StringVar(&o.natsKey, "nats-key", "", "the key of --nats-cert, in `FILE`")
	f.BoolVar(&o.natsPlain, "dangerously-listen-without-tls", false, "let --nats-listen name an address that others "+
		"reach though there is no --nats-cert: whoever is on the way reads and changes everything")
	f.StringVar(&o.reach.Data, "data", "", "where the embedded NATS server keeps its streams, and in creds the "+
		"credentials that it makes at its first start (default: toolyard in the user's state directory)")
	o.reach.AddCreds(f)
	f.StringVar(&o.url, "nats", "", "use the NATS system at `URL` instead of an embedded server")
	f.BoolVar(&o.migrate, "migrate", false,
		"first bring streams that an older version has made to the form that this one needs; stop all other "+
			"dispatchers and all workers before")
	f.BoolVar(&o.withWorker, "with-worker", false, "run a worker in this process too")
	f.BoolVar(&o.syncAlways, "sync-always", false,
		"the embedded server writes each message through to the disk: it survives a power loss, and is slower")
	standard := broker.Settings{}.WithDefaults()
	f.IntVar(&o.replicas, "replicas", 0,
		fmt.Sprintf("on how many NATS servers each stream is kept: 1, 3 or 5 (default: as the system was made, or %d)",
			standard.Replicas))
	f.DurationVar(&o.lifetime, "batch-lifetime", 0,
		fmt.Sprintf("how long a batch is kept, waits for people included (default: as the system was made, or %s)",
			standard.Lifetime))
	f.DurationVar(&o.ackWait, "ack-wait", 0, fmt.Sprintf("how long a worker may be silent before its calls are "+
		"settled or given to others, in whole seconds: longer where the way to NATS is long "+
		"(default: as the system was made, or %s, and %s with several replicas)", standard.CallAckWait,
		broker.Settings{Replicas: 3}.WithDefaults().CallAckWait))
	f.Int64Var(&o.maxStore, "max-store-bytes", 0,
		fmt.Sprintf("what the streams may use on disk together (default: as the system was made, or %d)",
			standard.MaxStoreBytes))
	f.Int64Var(&o.reserve, "disk-reserve", 0, fmt.Sprintf("how many bytes of the disk under --data are kept for "+
		"batches under way: when less is free, new ones are refused "+
		"(default: a hundredth of the disk, %d to %d)", natsd.MinReserve, natsd.MaxReserve))
	f.IntVar(&o.maxConcurrency, "max-concurrency", toolyard.DefaultMaxConcurrency,
		"calls in flight of a batch that names no number")
	f.IntVar(&o.maxBatches, "max-batches", dispatcher.DefaultMaxBatches,
		"batches that this dispatcher runs at a time; agents take turns")
	f.IntVar(&o.maxAgentBatches, "max-agent-batches", dispatcher.DefaultMaxAgentBatches,
		"batches of one agent that this dispatcher runs at a time")
	f.IntVar(&o.maxOpen, "max-open", dispatcher.DefaultMaxOpen,
		"open batches that wait in this dispatcher for calls of their agents, beside those that run")
	f.IntVar(&o.maxWaiting, "max-waiting", dispatcher.DefaultMaxWaiting,
		"new batches that wait in this dispatcher; more are refused, those of the agent that has the most first")
	f.IntVar(&o.maxAgentWaiting, "max-agent-waiting", dispatcher.DefaultMaxAgentWaiting,
		"new batches of one agent that wait in this dispatcher; more are refused")
	f.StringArrayVar(&o.agentQuotas, "agent-quota", nil, "what each agent may use in all dispatchers together, as "+
		"`AGENTS=KEY:N,...` of batches, calls, calls-per-minute, waiting-bytes; a name of agents may end in *, the first "+
		"that names an agent counts, and all dispatchers need the same; may be repeated")
	f.StringArrayVar(&o.teamQuotas, "team-quota", nil, "the same for a team, as `AGENTS=KEY:N,...`: all agents that it "+
		"names share it; may be repeated")
	f.IntVar(&o.admitPercent, "admit-percent", dispatcher.DefaultAdmitPercent,
		"how full the store may be, in percent, before new batches are refused; the rest is for those under way")
	f.DurationVar(&o.timeout, "timeout", dispatcher.DefaultBatchTimeout, "the time limit of a batch that names none")
	f.DurationVar(&o.workerWait, "worker-wait", dispatcher.DefaultWorkerWait,
		"how long a call waits while no worker can take it, before it ends as dependency_unavailable; "+
			"and how long after its start a dispatcher waits for workers that serve a batch's workspace")
	f.DurationVar(&o.queueWait, "queue-wait", dispatcher.DefaultQueueWait,
		"how long a call waits for a free worker, before it ends as dependency_unavailable")
	f.DurationVar(&o.approvalWait, "approval-wait", dispatcher.DefaultApprovalWait,
		"how long a call waits for a person, within the batch's lifetime, before it ends as approval_expired")
	f.DurationVar(&o.archiveAfter, "archive-after", 0, fmt.Sprintf("how long batches are over, at least %s, before "+
		"they are packed into the archive, which may use a quarter of --max-store-bytes beside it; all dispatchers, "+
		"workers and clients must be of this version or a later one (default: never)", broker.MinArchiveAfter))
	o.perms.Add(f)
	addDeferAllBut(f, &o.deferAllBut)
	o.perms.AddKnown(f)
	f.StringArrayVar(&o.views, "view", nil, "show agents some tools only, as `AGENT=TOOL,TOOL`; a name may end in *, "+
		"and the first view that names an agent counts; may be repeated")
	o.worker.Add(f)
	o.mcp.add(f)
	o.mcp.addKey(f)
	o.memory.Add(f)
	o.observe.Add(f)
}

func (o *serveFlags) check() error {
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"--timeout", o.timeout}, {"--worker-wait", o.workerWait}, {"--queue-wait", o.queueWait},
		{"--approval-wait", o.approvalWait}} {
		if d.v <= 0 {
			return cli.Usagef("%s %s: use a positive time", d.flag, d.v)
		}
	}
	if o.reserve < 0 {
		return cli.Usagef("--disk-reserve %d: use a positive number of bytes", o.reserve)
	}
	if o.reserve > 0 && o.url != "" {
		return cli.Usagef("--disk-reserve: the NATS server is not in this process (--nats); it looks after its own " +
			"disk")
	}
	if o.lifetime < 0 {
		return cli.Usagef("--batch-lifetime %s: use a positive time", o.lifetime)
	}
	if o.ackWait < 0 || o.ackWait%time.Second != 0 {
		return cli.Usagef("--ack-wait %s: use whole seconds", o.ackWait)
	}
	if o.maxConcurrency < 1 || o.maxConcurrency > toolyard.MaxConcurrency {
		return cli.Usagef("--max-concurrency %d: use 1 to %d", o.maxConcurrency, toolyard.MaxConcurrency)
	}
	if _, _, err := net.SplitHostPort(o.natsListen); err != nil && o.url == "" {
		return cli.Usagef("--nats-listen %q: use HOST:PORT", o.natsListen)
	}
	if err := o.checkTLS(); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return cli.Usagef("--listen %q: use HOST:PORT", o.listen)
	}
	if o.tokenFile == "" && o.oidc.issuer == "" && !api.IsLoopbackHost(o.listen) {
		return cli.Usagef("--listen %s: without --token-file anybody who reaches it could run tools; give it one, or "+
			"listen on 127.0.0.1", o.listen)
	}
	for _, n := range []struct {
		flag    string
		v, most int
	}{
		{"--max-batches", o.maxBatches, broker.MaxOpenSubmissions},
		{"--max-agent-batches", o.maxAgentBatches, broker.MaxOpenSubmissions},
		{"--max-open", o.maxOpen, broker.MaxOpenSubmissions},
		{"--max-waiting", o.maxWaiting, broker.MaxOpenSubmissions},
		{"--max-agent-waiting", o.maxAgentWaiting, broker.MaxOpenSubmissions},
		{"--admit-percent", o.admitPercent, dispatcher.SilentPercent},
	} {
		if n.v < 1 || n.v > n.most {
			return cli.Usagef("%s %d: use 1 to %d", n.flag, n.v, n.most)
		}
	}
	return nil
}

// checkTLS refuses half a pair of files, and an embedded server that others reach in plain text.
func (o *serveFlags) checkTLS() error {
	switch {
	case o.url != "" && (o.natsCert != "" || o.natsKey != "" || o.natsPlain):
		return cli.Usagef("--nats-cert, --nats-key and --dangerously-listen-without-tls are for the embedded server; " +
			"with --nats there is none")
	case (o.natsCert == "") != (o.natsKey == ""):
		return cli.Usagef("--nats-cert and --nats-key go together; give both")
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return cli.Usagef("--tls-cert and --tls-key go together; give both")
	case o.url == "" && o.natsCert == "" && !o.natsPlain && !api.IsLoopbackHost(o.natsListen):
		return cli.Usagef("--nats-listen %s: others reach it, and without TLS whoever is on the way reads and "+
			"changes everything; "+
			"give it --nats-cert and --nats-key, listen on 127.0.0.1, or say --dangerously-listen-without-tls",
			o.natsListen)
	}
	return nil
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
			return cli.Usagef("--token-file: %w", err)
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
	if o.archiveAfter != 0 && o.archiveAfter < broker.MinArchiveAfter {
		return cli.Usagef("--archive-after: is %s; use at least %s, or 0 for never", o.archiveAfter,
			broker.MinArchiveAfter)
	}
	tools, rules, mode := decided.tools, decided.rules, decided.mode
	// Those of files come and go with them, and the worker of this process offers them.
	fixed := slices.DeleteFunc(base(tools), func(e registry.Entry) bool { return e.Origin != registry.Builtin })
	cfg := nodeConfig{
		observed: observed, url: o.url, reach: &o.reach, listen: o.natsListen,
		syncAlways: o.syncAlways, migrate: o.migrate, reserve: o.reserve,
		settings: broker.Settings{Replicas: o.replicas, Lifetime: o.lifetime,
			MaxStoreBytes: o.maxStore}.WithAckWait(o.ackWait),
		dispatcher: dispatcher.Config{
			Planner: decided.planner, Base: fixed, BatchTimeout: o.timeout,
			WorkerWait: o.workerWait, QueueWait: o.queueWait, ApprovalWait: o.approvalWait, MaxBatches: o.maxBatches,
			MaxOpen: o.maxOpen, MaxAgentBatches: o.maxAgentBatches, MaxWaiting: o.maxWaiting,
			MaxAgentWaiting: o.maxAgentWaiting, AdmitPercent: o.admitPercent, Quotas: quotas,
			ArchiveAfter: o.archiveAfter,
		},
	}
	cfg.audit = deeds
	if natsCert != nil {
		cfg.tls = natsCert.Config()
	}
	o.worker.Guard.SayLeft(log)
	if cfg.dispatcher.AfterBatch, err = o.worker.Guard.AfterBatch(tools, mode, log); err != nil {
		return err
	}
	if len(o.worker.Guard.Manifests.Files) > 0 && !o.withWorker {
		return cli.Usagef("--tools: this process runs no calls; give the files to its workers, or add --with-worker")
	}
	if o.worker.Guard.HooksFile != "" && !o.withWorker && cfg.dispatcher.AfterBatch == nil {
		return cli.Usagef("--hooks: this process runs no calls, and the file has no PostToolBatch hook; give the " +
			"hooks to its workers, or add --with-worker")
	}
	if err := cfg.settings.WithDefaults().Check(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if o.withWorker {
		o.worker.Avoid = o.reach.Avoid()
		w, err := o.worker.Config(tools, rules, mode, log)
		if err != nil {
			return err
		}
		w.Meter, cfg.worker = observed.Meter, &w
	}
	if o.url == "" {
		if cfg.store, err = cli.DataDir(o.reach.Data); err != nil {
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
	var blocks atomic.Pointer[policy.Rules]
	blocks.Store(&rules)
	reload.On("rules and tools", func() error {
		now, err := o.reload(n, log)
		if err == nil {
			blocks.Store(&now)
		}
		return err
	})
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return cli.Usagef("--listen %s: %w", o.listen, err)
	}
	handler, err := n.api(ctx, l.Addr(), api.Config{Tokens: tokens, Issuer: issuer, Audit: deeds,
		PublicURL: o.oidc.publicURL, Metrics: observed.Metrics})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	tooled, untool := context.WithCancel(ctx)
	defer untool()
	mcp, err := n.mcp(tooled, handler, mcpParts{base: fixed, blocked: func(name string, aliases []string) bool {
		return blocks.Load().Blocks(name, aliases)
	}}, server.Config{
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
	httpServer.RegisterOnShutdown(func() {
		mcp.Stop() // first: a call whose client was cut off is given up, and these go on
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

	natsURL := o.url
	if n.server != nil {
		natsURL = n.server.ClientURL()
	}
	made := ""
	if n.server != nil {
		if dir, first := n.server.Creds(); first {
			made = fmt.Sprintf("credentials: %s\n", dir)
		}
	}
	if _, err := fmt.Fprintf(s.out, "toolyard dispatcher ready\nhttp: %s://%s\nnats: %s\n%s%s", scheme, l.Addr(),
		natsURL, made, shown); err != nil {
		return fmt.Errorf("say that the dispatcher is ready: %w", err)
	}
	select {
	case <-ctx.Done():
	case err = <-n.failed:
	case err = <-served:
		err = fmt.Errorf("serve HTTP: %w", err)
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return errors.Join(err, httpServer.Shutdown(bye))
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
	redact, err := w.Guard.Redactor()
	if err != nil {
		return d, err
	}
	d.planner = planner(d.rules, o.maxConcurrency, redact)
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
	c, err := client.Connect(ctx, n.nc, client.Options{})
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
	cfg.Ready, cfg.Room, cfg.Crowded = n.ready, n.room, n.crowded
	return api.New(cfg)
}

// mcp makes the MCP server of this process, behind the door of its HTTP API.
func (n *node) mcp(ctx context.Context, door *api.Server, p mcpParts, cfg server.Config) (*server.Server, error) {
	setup, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	var err error
	if p.client, err = client.Connect(setup, n.nc, client.Options{}); err != nil {
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
