// Package workercmd is the command line of the worker, for the programs worker and toolyard.
package workercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/tokens"
	"github.com/toolyard/toolyard/internal/wasm"
	"github.com/toolyard/toolyard/internal/worker"
)

// Command makes the command tree. The streams are those of the process.
func Command(out, errw io.Writer) *cobra.Command {
	var logs cli.Log
	root := &cobra.Command{
		Use:   "worker",
		Short: "Runs tool calls for Toolyard's dispatchers",
		Long: `worker takes tool calls from the queues of its pool and runs them.

Every flag can also be set by an environment variable (--read-slots is TOOLYARD_READ_SLOTS) or by a key of a
YAML file (--config; the key is the flag's name).

Exit status: 0 stopped tidily, 1 the system failed, 2 the flags are wrong, 130 interrupted before it was ready.`,
		Example: `  worker check
  worker serve --workspace default=.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(out)
	cli.Modules = wasm.New
	cli.Tokens = func(most int) *pipeline.Tokens {
		return &pipeline.Tokens{Name: tokens.Name, Count: tokens.New(), Max: most}
	}
	logs.Add(root.PersistentFlags())
	cli.WithSettings(root)
	root.AddGroup(&cobra.Group{ID: cli.ProgramGroup, Title: "This program"})
	man := cli.ManCommand("worker")
	man.GroupID = cli.ProgramGroup
	root.AddCommand(serveCommand(out, errw, &logs), checkCommand(out), workspaceCommand(out), man)
	cli.WithHelp(root, out)
	cli.WithCompletion(root, cli.Words())
	return root
}

func serveCommand(out, errw io.Writer, logs *cli.Log) *cobra.Command {
	var w cli.Worker
	var perms cli.Permissions
	var url string
	var reach cli.Reach
	var serves cli.Shards
	var memory cli.Memory
	var observe cli.Observe
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Take calls and run them until it is stopped",
		Long: `serve takes calls from the NATS system at --nats and runs them. The directories that calls may act on
are named with --workspace. All workers of a pool serve the same workspaces, with the same tools. Each directory is
looked up once, at the start, and held: one that is replaced later is not used. Workspaces that overlap are refused,
and so are /, a home directory and the directory that the embedded server keeps its streams in.

With --tag a worker has tags ("gpu", "region=eu"). Calls of batches and tools that ask for tags run only on workers
that have all of them. All workers of a pool should have the same tags; what only some of them have does not count.

An embedded server asks for credentials. Those of a dispatcher of the same user on this machine are found, by --data
if it has one; elsewhere --creds names them. "dispatcher creds --pool NAME" makes them for other pools than "default".

Permission rules are the operator's and hold for every call that runs here. Read-only calls inside the workspace need
none.

Tools that are not Go come from the files of --tools: commands, which run in the sandbox, HTTP endpoints, and MCP
servers, whose tools are offered when the server is there. "worker check --tools FILE" says what is wrong with one.

SIGHUP has the files of --rules and --tools read again; what is wrong with one is logged, and what was read before
holds.

SIGTERM stops taking calls and lets those that run finish for --drain-grace. What is left then is stopped: calls that
may run twice are handed to another worker, others end as outcome_unknown. A second SIGTERM is immediate, unless it
comes within a second of the first.`,
		Example: `  worker serve --nats nats://127.0.0.1:4222 --workspace default=. --permission-mode accept_edits`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), out, errw, logs, url, &reach, serves, w, perms, memory, observe)
		},
	}
	reach.Add(cmd.Flags())
	end := cli.Topic(cmd.Flags(), cli.TopicSystem)
	cmd.Flags().StringVar(&url, "nats", "nats://127.0.0.1:4222", "the NATS system, as `URL`")
	cli.Alternatives(cmd.Flags(), "nats", "nats-context")
	serves.Add(cmd.Flags(), "calls")
	end()
	w.Add(cmd.Flags())
	perms.Add(cmd.Flags())
	memory.Add(cmd.Flags())
	observe.Add(cmd.Flags())
	return cmd
}

func serve(ctx context.Context, out, errw io.Writer, logs *cli.Log, url string, reach *cli.Reach,
	serves cli.Shards, flags cli.Worker, perms cli.Permissions, memory cli.Memory, observe cli.Observe) (err error) {
	log, err := logs.Logger(errw)
	if err != nil {
		return err
	}
	if err := errors.Join(serves.Check(), memory.Apply(log)); err != nil {
		return err
	}
	var reload cli.Reload
	reload.Follow(ctx, log)
	observed := cli.NewObserved()
	observed.Count(&flags)
	tools, rules, mode, err := flags.Toolbox(&perms, cli.Scope{})
	if err != nil {
		return err
	}
	flags.Avoid = reach.Avoid()
	cfg, err := flags.Config(tools, rules, mode, log)
	if err != nil {
		return err
	}
	cfg.ID, cfg.Meter = broker.WorkerID(cfg.Pool), observed.Meter
	unsend, err := observed.Send(ctx, "toolyard-worker", cfg.ID, log)
	if err != nil {
		return err
	}
	defer unsend()
	observed.TraceCalls(&cfg)
	shown, unobserve, err := observe.Open(ctx, observed.Metrics, observed.WorkerReady, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unobserve()) }()
	who := access.Principal{Role: access.Worker, Name: string(cfg.Pool)}
	nc, err := reach.Await(ctx, url, who, "toolyard worker", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	observed.Connection(nc)
	warning, still := context.WithCancel(ctx)
	var warns sync.WaitGroup
	warns.Go(func() { reach.WarnOfEnds(warning, nc, url, who, log) })
	defer func() {
		still()
		warns.Wait()
	}()
	b, err := natsbroker.Join(ctx, nc, broker.SourceWorker+
		cfg.ID, func(why error) { log.Warn("waiting for the system", "url", natsbroker.ShownURL(url), "error", why) })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w while it waited: %w", cli.ErrInterrupted, err)
	}
	if err != nil {
		return err
	}
	if b, err = serves.Serve(b); err != nil {
		return err
	}
	w, err := worker.New(b, cfg)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	observed.Worker(w)
	flags.WarnOfNoWorkspace("worker serve", log) // who cannot connect reads one line, of what is wrong
	reload.On("rules and tools", func() error {
		next := flags.Again()
		tools, rules, mode, err := next.Toolbox(&perms, cli.Scope{})
		if err != nil {
			return err
		}
		cfg, err := next.Config(tools, rules, mode, log)
		if err != nil {
			return err
		}
		if err := w.Reload(cfg); err != nil {
			return err
		}
		flags = next
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Ready():
		if _, err := fmt.Fprintf(out, "toolyard worker ready\nid: %s\npool: %s\n%s", cfg.ID, cfg.Pool,
			shown); err != nil {
			return fmt.Errorf("say that the worker is ready: %w", err)
		}
	case err := <-ended:
		return err
	}
	return <-ended
}
