// Package command makes tools from the commands that an operator has declared.
//
// A command runs once for each call, always in the sandbox: if no sandbox is available, its calls end as
// setup_required. The model chooses only values: not the program, not the number of its arguments, not its environment.
//
// Authority: the manifest, and the worker's sandbox, which bounds what the manifest leaves open. Failure: an exit
// status other than 0 is execution_failed, with the end of stderr for the model. However a command ends, none of its
// processes remains.
package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/tool"
)

// command is one tool.
type command struct {
	tool.Declaration
	spec        *manifest.Command
	credentials []string
	box         sandbox.Sandbox
	policy      sandbox.Policy
}

// New makes the tool of a manifest's command. policy is the minimum that every command of the worker may use; the
// manifest's own places and limits are added. It fails if they are invalid.
func New(t manifest.Tool, box sandbox.Sandbox, policy sandbox.Policy) (tool.Tool, error) {
	c := &command{Declaration: t.Declaration, spec: t.Command, credentials: t.Credentials, box: box, policy: policy}
	p := &c.policy
	for i, place := range t.Command.Network {
		if err := sandbox.CheckPlace(place); err != nil {
			return tool.Tool{}, fmt.Errorf("tool %q: command.network[%d]: %w", t.Name, i, err)
		}
	}
	p.Network.Allow = t.Command.Network
	p.Read = append(append([]string(nil), policy.Read...), t.Command.Read...)
	const mib = 1 << 20
	l := t.Command.Limits
	p.Limits = sandbox.Limits{
		Wall: t.Timeout(), CPU: time.Duration(l.CPUMS) * time.Millisecond,
		Memory: cmp.Or(l.MemoryMiB*mib, policy.Limits.Memory), FileSize: l.FileMiB * mib,
		Scratch: l.ScratchMiB * mib, Processes: cmp.Or(l.Processes, policy.Limits.Processes), Files: l.Files,
		Output: l.OutputBytes,
	}
	return tool.Raw(tool.Tool{Declaration: t.Declaration, Check: c.check, Run: c.run})
}

// check finds errors that would otherwise only show when the command runs.
func (c *command) check(ctx context.Context, env tool.Env, input json.RawMessage) error {
	if _, err := c.spec.Arguments(input); err != nil {
		return err
	}
	for _, name := range c.credentials {
		if _, err := env.Secret(name); err != nil {
			return err
		}
	}
	if _, ok := env.Root.(*place.Root); c.NeedsWorkspace() && !ok {
		return tool.SetupRequired("this worker serves no directory for workspace %q; %s can't be used in it",
			env.Workspace, c.Name)
	}
	if _, err := c.box.Probe(ctx); err != nil {
		return c.notIsolated(err)
	}
	return nil
}

func (c *command) notIsolated(err error) error {
	return &tool.Error{Code: toolyard.SetupRequired, Err: err,
		Message: fmt.Sprintf("this worker cannot isolate commands, so %s does not run; an operator must set that up. "+
			"Do without it", c.Name)}
}

func (c *command) run(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
	if err := c.check(ctx, env, input); err != nil {
		return tool.Output{}, err
	}
	argv, err := c.spec.Arguments(input)
	if err != nil {
		return tool.Output{}, err
	}
	p := c.policy
	p.Env = Environment(c.spec.Env, env)
	for _, name := range c.credentials {
		value, err := env.Secret(name)
		if err != nil {
			return tool.Output{}, err
		}
		p.Secrets = append(p.Secrets, sandbox.Secret{Name: name, Content: []byte(value)})
	}
	if c.NeedsWorkspace() {
		root, _ := env.Root.(*place.Root) // check has verified it
		p.Workspace = &sandbox.Workspace{Root: root, Writable: !c.onlyReads(input), Hidden: env.Hidden}
	}
	if env.CommitPoint != nil {
		if err := env.CommitPoint(); err != nil {
			return tool.Output{}, err
		}
	}
	var stdin io.Reader
	if c.spec.Stdin == "json" {
		stdin = bytes.NewReader(input)
	}
	said := &Streams{Progress: env.Progress}
	res, err := c.box.Run(ctx, p, sandbox.Command{Argv: argv},
		sandbox.Streams{Stdin: stdin, Stdout: said.Stdout(), Stderr: said.Stderr()})
	if err != nil {
		return tool.Output{}, c.refused(ctx, err, argv[0])
	}
	if a, ok := shell.AnswersOf(argv); ok && c.spec.Output != "json" {
		if text, ok := builtin.Answered(res, a, said.All()); ok {
			return tool.Output{Text: text}, nil
		}
	}
	if err := builtin.CommandEnded(ctx, res, p.Limits, p.Limits.Wall, said.All()); err != nil {
		if res.Reason == sandbox.OutputLimit {
			return tool.Output{Text: said.CutOff(env)}, err
		}
		return tool.Output{Text: said.All()}, err
	}
	return said.Output(c.spec.Output)
}

// onlyReads reports whether a call gets the workspace read-only: a call that is declared or judged to only read does.
func (c *command) onlyReads(input json.RawMessage) bool {
	if field := c.Class.Shell; field != "" {
		var fields map[string]json.RawMessage
		var line string
		if json.Unmarshal(input, &fields) != nil || json.Unmarshal(fields[field], &line) != nil {
			return false
		}
		class, _ := shell.Classify(line)
		return class.Safe()
	}
	return c.Class.Static.Safe()
}

// refused is the error of a command that has not started.
func (c *command) refused(ctx context.Context, err error, program string) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNoIsolation):
		return c.notIsolated(err)
	case errors.Is(err, sandbox.ErrViolation):
		return &tool.Error{Code: toolyard.SandboxViolation, Message: "the sandbox does not allow this: " +
			strings.TrimPrefix(err.Error(), sandbox.ErrViolation.Error()+": "), Err: err}
	case errors.Is(err, sandbox.ErrNotStarted):
		return &tool.Error{Code: toolyard.SetupRequired,
			Message: fmt.Sprintf("this worker has no program %q that a command can start", program), Err: err}
	}
	return &tool.Error{Code: toolyard.DependencyUnavailable, Message: "the command could not be started", Err: err,
		Retryable: true}
}
