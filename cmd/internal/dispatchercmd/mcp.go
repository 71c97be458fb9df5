package dispatchercmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/version"
)

// mcpGrace is how long the MCP server of a process waits beyond the time limit of a batch.
const mcpGrace = time.Minute

// maxKeyBytes is how long the file of a key may be.
const maxKeyBytes = 4 << 10

// mcpFlags are what every MCP server is told.
type mcpFlags struct {
	approvals bool
	keyFile   string
}

func (o *mcpFlags) add(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicHTTP)()
	f.BoolVar(&o.approvals, "mcp-approvals", false, "ask the person at an MCP client about calls that wait for one: "+
		"what holds an agent's token can then answer for its person (default: such calls are denied)")
}

func (o *mcpFlags) addKey(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicHTTP)()
	f.StringVar(&o.keyFile, "mcp-key-file", "", "the secret in `FILE` protects what MCP clients carry between a "+
		"question and its answer; servers behind one address need the same (default: one of this process)")
}

// key reads the secret, of 16 bytes at least.
func (o *mcpFlags) key() ([]byte, error) {
	if o.keyFile == "" {
		return nil, nil
	}
	key, err := cli.ReadFile("--mcp-key-file", o.keyFile, maxKeyBytes)
	if err != nil {
		return nil, err
	}
	if key = bytes.TrimSpace(key); len(key) < server.MinKeyBytes {
		return nil, cli.Usagef("--mcp-key-file %s: has %d bytes; use %d to %d", o.keyFile, len(key), server.MinKeyBytes,
			maxKeyBytes)
	}
	return key, nil
}

// mcpParts are what an MCP server is made from in this process.
type mcpParts struct {
	broker  *natsbroker.Broker
	client  *client.Client
	log     *slog.Logger
	base    []registry.Entry
	blocked func(name string, aliases []string) bool
}

// newMCP makes an MCP server whose tools follow the workers', from when it returns until ctx ends.
func newMCP(ctx context.Context, p mcpParts, cfg server.Config) (*server.Server, error) {
	p.log = p.broker.Quiet(p.log)
	cfg.Client, cfg.Log, cfg.Version = p.client, p.log, version.Build()
	cfg.Lifetime = p.broker.Settings().Lifetime
	m, err := server.New(cfg)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	first := sync.OnceFunc(func() { close(ready) })
	go follow.Offers{Store: p.broker, Base: p.base, Blocked: p.blocked, Log: p.log}.Follow(ctx,
		func(tools registry.Surface) error {
			defer first()
			return m.SetSurface(tools)
		})
	select {
	case <-ready:
		return m, nil
	case <-time.After(setupTimeout):
		return nil, errors.New("the workers' tools were not read in time")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mcpCommandFlags are those of the command.
type mcpCommandFlags struct {
	natsFlags
	mcpFlags
	workspace, agent, session string
	timeout                   time.Duration
	perms                     cli.Permissions
	worker                    cli.Worker
}

func (s *std) mcpCommand() *cobra.Command {
	var o mcpCommandFlags
	cmd := &cobra.Command{
		Use:   "mcp [flags]",
		Short: "Serve the pool to one MCP client on standard input and output",
		Long: `mcp is the pool as an MCP server on standard input and output, for a client that starts its servers
itself. Each call of a tool is a batch of one call, and goes the way of all calls: checks, permission, hooks, sandbox.

By itself it runs everything in this process, against the directory --workspace, with all streams in memory. With
--nats it hands the calls to the system there.

Calls that read inside the workspace need no permission. For others say so: with --allow RULE, or with
--permission-mode accept_edits for edits of files. What nobody decided is denied; with --mcp-approvals a client that
can ask its person is asked to. The rules of a running system are the system's: --nats takes --deny and --ask only as
far as it has them itself.

A client ends it by closing standard input, or with SIGTERM. Both are a tidy end, with exit status 0.

The server at /mcp of "dispatcher serve" is the same over HTTP; docs/mcp.md says what both do.`,
		Example: `  dispatcher mcp --workspace . --permission-mode accept_edits
  dispatcher mcp --nats nats://127.0.0.1:4222 --agent reviewer`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.mcp(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.nats, "nats", "", "hand the calls to the NATS system at `URL`, in place of running them here")
	o.reach.Add(f)
	f.StringVar(&o.workspace, "workspace", "", "the directory that the calls act on (default: here), or with --nats "+
		"the workspace's name (default: \"default\")")
	f.StringVar(&o.agent, "agent", "", "whose calls they are (default: \"default\")")
	f.StringVar(&o.session, "session", "", "the conversation (default: \"default\")")
	f.DurationVar(&o.timeout, "timeout", dispatcher.DefaultBatchTimeout, "bound each call")
	o.mcpFlags.add(f)
	o.perms.Add(f)
	o.worker.AddSlots(f, runDrainGrace)
	o.worker.Guard.AddFence(f)
	return cmd
}

func (s *std) mcp(ctx context.Context, o mcpCommandFlags) error {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	cfg := server.Config{
		Pipe:      server.Caller{Agent: toolyard.Agent(o.agent), Session: toolyard.Session(o.session)},
		Approvals: o.approvals, CallTimeout: o.timeout, MaxWait: o.timeout + mcpGrace,
	}
	if err := cfg.Pipe.Check(); err != nil {
		return cli.Usagef("--%w", err)
	}
	if o.timeout <= 0 {
		return cli.Usagef("--timeout %s: use a positive time", o.timeout)
	}
	served := false
	pipe := func(ctx context.Context, p mcpParts, cfg server.Config) (err error) {
		served, err = s.mcpPipe(ctx, p, cfg)
		return err
	}
	run := s.mcpAlone
	if o.named() {
		run = s.mcpOver
	}
	err = run(ctx, o, cfg, log, pipe)
	return tidy(served, err)
}

// mcpOver has a pipe hand the calls to a running system.
func (s *std) mcpOver(ctx context.Context, o mcpCommandFlags, cfg server.Config, log *slog.Logger,
	pipe func(context.Context, mcpParts, server.Config) error) error {
	cfg.Pipe.Workspace = toolyard.Workspace(o.workspace)
	if err := cfg.Pipe.Check(); err != nil {
		return cli.Usagef("--%w", err)
	}
	rules, _, err := o.perms.Rules(nil)
	if err != nil {
		return err
	}
	if len(rules.Allow) > 0 || len(o.perms.Files) > 0 || o.perms.Mode != "" && o.perms.Mode != string(policy.Default) {
		return cli.Usagef("--allow, --rules and --permission-mode are for calls that run here; those of a running " +
			"system have its rules")
	}
	cfg.Deny, cfg.Ask = o.perms.Deny, o.perms.Ask
	return s.overNATS(ctx, &o.natsFlags, "mcp", func(nc *nats.Conn) error {
		b, err := attachAs(ctx, nc, "mcp")
		if err != nil {
			return err
		}
		setup, cancel := context.WithTimeout(ctx, setupTimeout)
		defer cancel()
		c, err := client.Connect(setup, nc, client.Options{})
		if err != nil {
			return err
		}
		return pipe(ctx, mcpParts{broker: b, client: c, log: log, blocked: rules.Blocks}, cfg)
	})
}

// mcpAlone has a pipe hand the calls to this process.
func (s *std) mcpAlone(ctx context.Context, o mcpCommandFlags, cfg server.Config, log *slog.Logger,
	pipe func(context.Context, mcpParts, server.Config) error) error {
	if o.workspace == "" {
		o.workspace = "."
	}
	dir, err := cli.Dir("--workspace", o.workspace)
	if err != nil {
		return err
	}
	here := aloneConfig{
		workspace: toolyard.DefaultWorkspace, dir: dir, maxConcurrency: toolyard.DefaultMaxConcurrency, perms: &o.perms,
		worker: &o.worker,
	}
	return withAlone(ctx, log, here, func(ctx context.Context, a *alone) error {
		b := a.broker.As("/mcp/" + broker.NewID())
		cfg.Notices = a.notices
		return pipe(ctx, mcpParts{broker: b, client: a.client, log: log, base: a.base, blocked: a.rules.Blocks}, cfg)
	})
}

// mcpPipe serves the client on standard input and output until it goes. served says that it came to that.
func (s *std) mcpPipe(ctx context.Context, p mcpParts, cfg server.Config) (served bool, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err := newMCP(running, p, cfg)
	if err != nil {
		return false, err
	}
	return true, m.Run(running, io.NopCloser(s.in), nopWriteCloser{s.out})
}

// nopWriteCloser leaves standard output open: the process ends with it.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
