package workercmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what isolation this machine can give, and whether declared tools can be used",
		Long: `check runs a command in each kind of sandbox that this system could have, as a worker does at its start,
and says which layers stood around it, which further ones this machine does not give, and what is missing where it
cannot run. What is on the first line is what a worker with the same flags announces.

With --tools it reads the files of tools too, and starts or asks each MCP server for its tools. What is wrong is said
with the file and the key, and the exit status is 2. Each tool of a server that is left out, or offered with another
schema than the server declares, is named with the reason. The exit status is 1 when a server has no tools to offer or
a tool is left out.`,
		Example: `  worker check
  worker check --tools examples/tools.yaml`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			box, err := flags.Box()
			if err != nil {
				return err
			}
			policy, err := flags.Policy()
			if err != nil {
				return err
			}
			found := check(cmd.Context(), box, sandbox.Options{UID: flags.UID, UnixSockets: flags.UnixSockets})
			broken := found.tools(cmd.Context(), box, policy, &manifests)
			switch {
			case !asJSON:
				_, err = io.WriteString(out, found.text())
			case broken == nil:
				err = json.NewEncoder(out).Encode(found)
			}
			return cmp.Or(err, broken, found.failure())
		},
	}
	flags.Add(cmd.Flags())
	manifests.Add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// checked is what check has found, as its JSON has it.
type checked struct {
	Isolation string           `json:"isolation"`
	Problem   string           `json:"problem,omitempty"` // why no command runs
	Backends  []checkedBackend `json:"backends"`
	Tools     []checkedTool    `json:"tools"`
	Servers   []checkedServer  `json:"servers"`
}

// checkedBackend is a kind of sandbox. Problem says why it does not work here; Missing which layers do not hold.
type checkedBackend struct {
	Name    string   `json:"name"`
	Problem string   `json:"problem,omitempty"`
	Layers  []string `json:"layers,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// checkedTool is a tool of a file, or of a server.
type checkedTool struct {
	Name    string            `json:"name"`
	Kind    string            `json:"kind,omitempty"`              // command, endpoint or module
	Class   toolyard.Class    `json:"concurrency_class,omitempty"` // of a server's tool
	Remarks []registry.Remark `json:"remarks,omitempty"`
}

// checkedServer is an MCP server. Problem says why it has no tools to offer.
type checkedServer struct {
	Name    string            `json:"name"`
	Problem string            `json:"problem,omitempty"`
	Tools   []checkedTool     `json:"tools"`
	Remarks []registry.Remark `json:"remarks,omitempty"`
}

func check(ctx context.Context, box sandbox.Sandbox, o sandbox.Options) *checked {
	caps, problem := box.Probe(ctx)
	c := &checked{Isolation: string(caps.Isolation()), Tools: []checkedTool{}, Servers: []checkedServer{}}
	if problem != nil {
		c.Problem = "no command runs on this machine: a call of bash ends as setup_required"
	}
	for _, b := range sandbox.Backends(o) {
		found := checkedBackend{Name: b.Name()}
		if caps, err := b.Probe(ctx); err != nil {
			found.Problem = err.Error()
		} else {
			found.Layers, found.Missing = caps.Layers, caps.Missing
		}
		c.Backends = append(c.Backends, found)
	}
	return c
}

// tools adds what the files declare, and what their servers answer.
func (c *checked) tools(ctx context.Context, box sandbox.Sandbox, policy sandbox.Policy,
	manifests *cli.Manifests) error {
	tools, err := manifests.Tools(box, policy)
	if err != nil {
		return err
	}
	sets, err := manifests.Toolsets(slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for _, t := range tools {
		found := checkedTool{Name: t.Name, Kind: "command"}
		switch t.Execution {
		case tool.InService:
			found.Kind = "endpoint"
		case tool.InWasm:
			found.Kind = "module"
		}
		if found.Remarks, err = registry.Unchecked(&t.Declaration); err != nil {
			return err
		}
		c.Tools = append(c.Tools, found)
	}
	c.ask(ctx, sets)
	return nil
}

// ask starts all servers, side by side, and asks each for its tools.
func (c *checked) ask(ctx context.Context, sets []*toolset.Toolset) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, set := range sets {
		running.Go(func() { set.Run(ctx) })
	}
	for _, set := range sets {
		select {
		case <-set.Settled():
		case <-ctx.Done():
		}
		found := checkedServer{Name: set.Name(), Tools: []checkedTool{}}
		if err := set.Down(); err != nil {
			found.Problem = err.Error()
		} else {
			for _, t := range set.Tools() {
				j, _ := t.StaticJudgement()
				found.Tools = append(found.Tools, checkedTool{Name: t.Name, Class: j.Class})
			}
			found.Remarks = set.Remarks()
		}
		c.Servers = append(c.Servers, found)
	}
}

// failure is why the exit status is 1: some server has no tools, or has one that is left out.
func (c *checked) failure() error {
	out := 0
	for _, s := range c.Servers {
		if s.Problem != "" {
			return errors.New("an MCP server has no tools; see above")
		}
		for _, r := range s.Remarks {
			if r.LeftOut {
				out++
			}
		}
	}
	if out > 0 {
		return fmt.Errorf("tools of MCP servers that are left out: %d; see above", out)
	}
	return nil
}

// text is what check has found, for a person.
func (c *checked) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "isolation: %s\n", c.Isolation)
	if c.Problem != "" {
		fmt.Fprintln(&b, c.Problem)
	}
	for _, s := range c.Backends {
		if s.Problem != "" {
			fmt.Fprintf(&b, "%s: %s\n", s.Name, s.Problem)
			continue
		}
		fmt.Fprintf(&b, "%s: works: %s\n", s.Name, strings.Join(s.Layers, ", "))
		for _, missing := range s.Missing {
			fmt.Fprintf(&b, "%s: does not hold: %s\n", s.Name, missing)
		}
	}
	remarks := func(list []registry.Remark) {
		for _, r := range list {
			fmt.Fprintf(&b, "  %s\n", cli.OneLine(r.String()))
		}
	}
	for _, t := range c.Tools {
		fmt.Fprintf(&b, "tool %s: %s\n", t.Name, t.Kind)
		remarks(t.Remarks)
	}
	for _, s := range c.Servers {
		if s.Problem != "" {
			fmt.Fprintf(&b, "server %s: no tools: %s\n", s.Name, cli.OneLine(s.Problem))
			continue
		}
		fmt.Fprintf(&b, "server %s: %d tools\n", s.Name, len(s.Tools))
		for _, t := range s.Tools {
			fmt.Fprintf(&b, "  %s: %s\n", cli.OneLine(t.Name), t.Class)
		}
		remarks(s.Remarks)
	}
	return b.String()
}
