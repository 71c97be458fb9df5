package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
)

// alone is a node that has everything in this process: a server whose streams are in memory, a dispatcher, and a worker
// with one workspace.
type alone struct {
	*node
	client *client.Client
	base   []registry.Entry
	rules  policy.Rules
	// notices says that hooks run when a batch is over.
	notices bool
}

// aloneConfig says what such a node runs.
type aloneConfig struct {
	workspace toolyard.Workspace
	dir       string
	// onDisk has the streams in files, which go with the process too.
	onDisk         bool
	maxConcurrency int
	perms          *cli.Permissions
	worker         *cli.Worker
}

// aloneStore begins the name of a temporary store.
const aloneStore = "toolyard-alone-"

// aloneStoreBytes bounds the streams, which go with the process.
const aloneStoreBytes = 2 << 30

// withAlone starts a node, does something with it, and takes it away again. What ends the node ends that.
func withAlone(ctx context.Context, log *slog.Logger, cfg aloneConfig, do func(context.Context, *alone) error) error {
	tools, rules, mode, err := cfg.worker.Toolbox(cfg.perms, cli.Scope{Dirs: []string{cfg.dir}})
	if err != nil {
		return err
	}
	w, err := cfg.worker.Config(tools, rules, mode, log)
	if err != nil {
		return err
	}
	w.Workspaces[cfg.workspace], w.ToolsetWait = cfg.dir, cli.ToolsetWait // what it is for is planned at once
	after, err := cfg.worker.Guard.AfterBatch(tools, mode, log)
	if err != nil {
		return err
	}
	store, remove, err := tempDir(aloneStore, log)
	if err != nil {
		return fmt.Errorf("make a temporary store: %w", err)
	}
	defer remove()
	a := &alone{base: base(tools), rules: rules, notices: after != nil}
	a.node, err = startNode(ctx, log, nodeConfig{
		observed: cli.NewObserved(), hooks: cfg.worker.Guard.Hooks(),
		store: store, settings: broker.Settings{InMemory: !cfg.onDisk, MaxStoreBytes: aloneStoreBytes}, worker: &w,
		dispatcher: dispatcher.Config{Planner: planner(rules, cfg.maxConcurrency, w.Redact), Base: a.base,
			AfterBatch: after, RunCode: cfg.worker.RunCode},
	})
	if err != nil {
		return ended(ctx, err)
	}
	defer a.close()
	if a.client, err = client.Connect(ctx, a.nc, client.Options{}); err != nil {
		return ended(ctx, err)
	}
	return untilFailed(ctx, a.failed, func(ctx context.Context) error { return do(ctx, a) })
}

// untilFailed does something until it is done, or failed says why it cannot go on. A nil failed never does.
func untilFailed(ctx context.Context, failed <-chan error, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-failed:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ended(ctx, err)
}
