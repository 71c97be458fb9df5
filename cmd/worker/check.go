package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/mcp/toolset"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/tool"
)

// checkTimeout bounds how long check waits for MCP servers in all.
const checkTimeout = time.Minute

func checkCommand(out io.Writer) *cobra.Command {
	var flags cli.Sandbox
	var manifests cli.Manifests
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what isolation this machine can give, and whether declared tools can be used",
		Long: `check runs a command in each kind of sandbox that this system could have, as a worker does at its start, and says which
layers stood around it, which further ones this machine does not give, and what is missing where it cannot run. What is on
the first line is what a worker with the same flags announces.

With --tools it reads the files of tools too, and starts or asks each MCP server for its tools. What is wrong is said with
the file and the key, and the exit status is 2. Each tool of a server that is left out, or offered with another schema
than the server declares, is named with the reason. The exit status is 1 when a server has no tools to offer or a tool is
left out.`,
		Example: `  worker check
  worker check --tools examples/tools.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			box, err := flags.Box()
			if err != nil {
				return err
			}
			if err := check(cmd.Context(), out, box, sandbox.Options{UID: flags.UID, UnixSockets: flags.UnixSockets}); err != nil {
				return err
			}
			policy, err := flags.Policy()
			if err != nil {
				return err
			}
			return checkTools(cmd.Context(), out, box, policy, &manifests)
		},
	}
	flags.Add(cmd.Flags())
	manifests.Add(cmd.Flags())
	return cmd
}

func check(ctx context.Context, out io.Writer, box sandbox.Sandbox, o sandbox.Options) error {
	caps, problem := box.Probe(ctx)
	text := fmt.Sprintf("isolation: %s\n", caps.Isolation())
	if problem != nil {
		text += "no command runs on this machine: a call of bash ends as setup_required\n"
	}
	for _, b := range sandbox.Backends(o) {
		if caps, err := b.Probe(ctx); err != nil {
			text += fmt.Sprintf("%s: %v\n", b.Name(), err)
		} else {
			text += fmt.Sprintf("%s: works: %s\n", b.Name(), strings.Join(caps.Layers, ", "))
			for _, missing := range caps.Missing {
				text += fmt.Sprintf("%s: does not hold: %s\n", b.Name(), missing)
			}
		}
	}
	_, err := io.WriteString(out, text)
	return err
}

// checkTools says what the files declare, and what their servers answer.
func checkTools(ctx context.Context, out io.Writer, box sandbox.Sandbox, policy sandbox.Policy, manifests *cli.Manifests) error {
	tools, err := manifests.Tools(box, policy)
	if err != nil {
		return err
	}
	sets, err := manifests.Toolsets(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, t := range tools {
		kind := "command"
		if t.Execution != tool.InSandbox {
			kind = "endpoint"
		}
		fmt.Fprintf(&text, "tool %s: %s\n", t.Name, kind)
		remarks, err := registry.Unchecked(&t.Declaration)
		if err != nil {
			return err
		}
		for _, r := range remarks {
			fmt.Fprintf(&text, "  %s\n", cli.OneLine(r.String()))
		}
	}
	failed := askServers(ctx, &text, sets)
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	return failed
}

// askServers starts all servers, side by side, and says what tools they have. The error is that some have none.
func askServers(ctx context.Context, text *strings.Builder, sets []*toolset.Toolset) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, set := range sets {
		running.Go(func() { set.Run(ctx) })
	}
	down, out := 0, 0
	for _, set := range sets {
		select {
		case <-set.Settled():
		case <-ctx.Done():
		}
		if err := set.Down(); err != nil {
			down++
			fmt.Fprintf(text, "server %s: no tools: %s\n", set.Name(), cli.OneLine(err.Error()))
			continue
		}
		fmt.Fprintf(text, "server %s: %d tools\n", set.Name(), len(set.Tools()))
		for _, t := range set.Tools() {
			j, _ := t.StaticJudgement()
			fmt.Fprintf(text, "  %s: %s\n", cli.OneLine(t.Name), j.Class)
		}
		for _, r := range set.Remarks() {
			fmt.Fprintf(text, "  %s\n", cli.OneLine(r.String()))
			if r.LeftOut {
				out++
			}
		}
	}
	switch {
	case down > 0:
		return errors.New("an MCP server has no tools; see above")
	case out > 0:
		return fmt.Errorf("tools of MCP servers that are left out: %d; see above", out)
	}
	return nil
}
