package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/tool"
)

// Options are an operator's decisions about the built-in tools. The zero value is the strictest.
type Options struct {
	// Sandbox runs the commands. Nil: [sandbox.Refuse], and bash answers setup_required.
	Sandbox sandbox.Sandbox
	// Commands is what commands may use in addition to the workspace. Its zero value is the strictest.
	Commands sandbox.Policy
	// RunCode offers run_code, whose scripts call tools. Dispatchers must allow their calls too.
	RunCode bool
	// Shells has what the shells of sessions remember. Nil: each command begins in a new shell.
	Shells *shells.Store
	// AllowPrivateAddresses lists what web_fetch may reach beside public addresses. An entry is an address
	// ("127.0.0.1"), a prefix ("10.1.0.0/16") or a host name ("wiki.internal", also ".internal" for every name under
	// it). A host name is allowed with any address. Empty: public addresses only.
	AllowPrivateAddresses []string
}

// All returns the built-in tools sorted by name. It fails if an option is malformed.
func All(opts Options) ([]tool.Tool, error) {
	if opts.Sandbox == nil {
		opts.Sandbox = sandbox.Refuse{}
	}
	allowed, err := parseAllowed(opts.AllowPrivateAddresses)
	if err != nil {
		return nil, fmt.Errorf("builtin: AllowPrivateAddresses: %w", err)
	}
	if opts.Commands.Network.Private == nil {
		// what an operator lets web_fetch reach, commands may reach too, at the addresses of their list
		opts.Commands.Network.Private = allowed.address
	}
	var tools []tool.Tool
	builds := []func() (tool.Tool, error){
		func() (tool.Tool, error) { return bash(opts.Sandbox, opts.Commands, opts.Shells) },
		func() (tool.Tool, error) { return webFetch(newFetcher(allowed)) },
		readFile, glob, grep, writeFile, editFile, readResult, toolSearch,
	}
	if opts.RunCode {
		builds = append(builds, func() (tool.Tool, error) { return runCode(opts.Sandbox, opts.Commands) })
	}
	for _, build := range builds {
		t, err := build()
		if err != nil {
			return nil, fmt.Errorf("builtin: %w", err)
		}
		tools = append(tools, t)
	}
	slices.SortFunc(tools, func(a, b tool.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return tools, nil
}

// PrivateAddresses reads a list in the form of [Options]. The result reports whether commands may reach an address that
// is not public under a host's name.
func PrivateAddresses(entries []string) (func(host string, at netip.Addr) bool, error) {
	allowed, err := parseAllowed(entries)
	return allowed.address, err
}

// define makes a tool whose check and run share one input type: [tool.New] with a stricter decoder ([decode]). Each run
// repeats the work of its check, so that a caller that skips validate_values gets the same refusals.
func define[In any, Out string | tool.Output](d tool.Declaration, check func(context.Context, tool.Env, In) error,
	run func(context.Context, tool.Env, In) (Out, error),
) (tool.Tool, error) {
	return tool.Raw(tool.Tool{
		Declaration: d,
		Check: func(ctx context.Context, env tool.Env, input json.RawMessage) error {
			in, err := decode[In](input)
			if err != nil {
				return err
			}
			if err := check(ctx, env, in); !errors.Is(err, errHidden) {
				return err
			}
			return nil // permission refuses it, or the run does
		},
		Run: func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
			in, err := decode[In](input)
			if err != nil {
				return tool.Output{}, err
			}
			out, err := run(ctx, env, in)
			if whole, ok := any(out).(tool.Output); ok {
				return whole, err
			}
			return tool.Output{Text: any(out).(string)}, err
		},
	})
}
