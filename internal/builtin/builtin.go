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
	"github.com/toolyard/toolyard/tool"
)

// Options is what an operator decides about the built-in tools. The zero value is the strictest.
type Options struct {
	// Sandbox is what commands run in. Nil: [sandbox.Refuse], and bash answers setup_required.
	Sandbox sandbox.Sandbox
	// Commands is what commands may use, beside the workspace. Its zero value is the strictest.
	Commands sandbox.Policy
	// AllowPrivateAddresses lists what web_fetch may reach beside public addresses. An entry is an address
	// ("127.0.0.1"), a prefix ("10.1.0.0/16") or a host name ("wiki.internal", also ".internal" for every name under
	// it), which allows that name whatever address it has. Empty: public addresses only.
	AllowPrivateAddresses []string
}

// All returns the built-in tools sorted by name. It fails when an option is malformed.
func All(opts Options) ([]tool.Tool, error) {
	if opts.Sandbox == nil {
		opts.Sandbox = sandbox.Refuse{}
	}
	allowed, err := parseAllowed(opts.AllowPrivateAddresses)
	if err != nil {
		return nil, fmt.Errorf("builtin: AllowPrivateAddresses: %w", err)
	}
	if opts.Commands.Network.Private == nil {
		// what an operator lets web_fetch reach, named places of commands may be too
		opts.Commands.Network.Private = allowed.address
	}
	var tools []tool.Tool
	for _, build := range []func() (tool.Tool, error){
		func() (tool.Tool, error) { return bash(opts.Sandbox, opts.Commands) },
		func() (tool.Tool, error) { return webFetch(newFetcher(allowed)) },
		readFile, glob, grep, writeFile, editFile, readResult, toolSearch,
	} {
		t, err := build()
		if err != nil {
			return nil, fmt.Errorf("builtin: %w", err)
		}
		tools = append(tools, t)
	}
	slices.SortFunc(tools, func(a, b tool.Tool) int { return cmp.Compare(a.Name, b.Name) })
	return tools, nil
}

// PrivateAddresses reads a list as [Options] has it, and reports whether an address that is not public may be reached
// under a host's name: for the places of commands.
func PrivateAddresses(entries []string) (func(host string, at netip.Addr) bool, error) {
	allowed, err := parseAllowed(entries)
	return allowed.address, err
}

// define makes a tool whose check and run share one input type: [tool.New] with a stricter decoder ([decode]). Each run
// finds out again what its check found, so that a caller that skips validate_values meets the same refusals.
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
			return nil // permission says no, or the run does
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
