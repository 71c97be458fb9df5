package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// Hook runs before and after the calls of some tools, in this process. Hooks run in their order, and each gets the
// input or output as the one before left it. If Before fails, panics or times out, the call ends as hook_failed. If
// After does, the hook is skipped. Continue and Block change that.
type Hook struct {
	// Name identifies it in phase facts and in the log. Required.
	Name string
	// Matcher selects tools: names separated by |, or a regular expression. Empty: all tools.
	Matcher string
	// Before runs before the permission phase. After runs after each call whose tool ran. Either may be nil. Both get
	// copies.
	Before func(ctx context.Context, c HookCall) (Before, error)
	After  func(ctx context.Context, c HookCall, o Outcome) (After, error)
	// Timeout limits each of the two. 0: a minute.
	Timeout time.Duration
	// Continue lets the call go on when Before breaks. Block ends it as post_hook_failed when After does; the output is
	// kept. Withhold ends it as hook_blocked then, without the output: a hook that looks for what a model must not read
	// should have it.
	Continue, Block, Withhold bool
}

// HookCall describes a call to a hook.
type HookCall struct {
	Agent        toolyard.Agent
	Batch        toolyard.BatchID
	Session      toolyard.Session
	Index        int
	CallID       string
	Tool         string
	Workspace    toolyard.Workspace
	WorkspaceDir string
	Interactive  bool
	Judgement    tool.Judgement
	// Input is the input without its secrets, cut if it is very long.
	Input json.RawMessage
}

// Decision is a hook's opinion on the permission of a call.
type Decision string

// The opinions.
const (
	Allow Decision = "allow" // the call may run, unless a rule says otherwise
	Ask   Decision = "ask"   // a person decides
	Deny  Decision = "deny"  // the call does not run
)

// Before is the answer of a hook before a call. The zero value changes nothing.
type Before struct {
	// Block refuses the call. Stop also asks the agent to stop. Reason is for the model.
	Block, Stop bool
	Reason      string
	// Decision is an opinion on permission. Empty: none.
	Decision Decision
	// Input replaces the whole input. Parts that are equal to the input that the hook got stand for the original, with
	// its secrets.
	Input json.RawMessage
	// Context is added to the output for the model.
	Context string
}

// Outcome is the outcome of a call.
type Outcome struct {
	Code    toolyard.Code
	IsError bool
	// Output is the output without its secrets. Error is the text for the model if the call failed.
	Output, Error string
	// Content are the parts of the output that Output was not made from, without secrets, and without data that is no
	// text. Structured is the output as data, without its secrets; nil if it is the same as Output.
	Content    []toolyard.Content
	Structured json.RawMessage
	// Origin is where they come from, if that is outside: the source of [toolyard.Origin]. Empty: it is not.
	Origin    string
	ExecuteMS float64
}

// After is the answer of a hook after a call. The zero value changes nothing.
type After struct {
	// Block withholds the output, and what a tool that failed says of it. Stop also asks the agent to stop. Reason is
	// for the model.
	Block, Stop bool
	Reason      string
	// Output replaces the output of a tool that succeeded. Nil keeps it.
	Output *string
	// Context is added to the output for the model.
	Context string
}

// hookSet makes the hooks of a worker. Nil: none.
func hookSet(all []Hook, mode policy.Mode, o Options) (*hooks.Set, error) {
	if len(all) == 0 {
		return nil, nil
	}
	names := policy.NamesOf(o.Tools)
	out := hooks.Options{Mode: mode, Log: o.Log, Names: &names}
	for _, h := range all {
		if h.Before == nil && h.After == nil {
			return nil, fmt.Errorf("hook %q has neither Before nor After", h.Name)
		}
		if h.Before != nil {
			onFailure := hooks.Block
			if h.Continue {
				onFailure = hooks.Continue
			}
			out.Funcs = append(out.Funcs, hooks.Func{Name: h.Name, Event: hooks.PreToolUse, Matcher: h.Matcher,
				Timeout: h.Timeout, OnFailure: onFailure, Run: before(h.Before)})
		}
		if h.After != nil {
			onFailure := hooks.Continue
			switch {
			case h.Withhold:
				onFailure = hooks.Withhold
			case h.Block:
				onFailure = hooks.Block
			}
			for _, event := range []hooks.Event{hooks.PostToolUse, hooks.PostToolUseFailure} {
				out.Funcs = append(out.Funcs, hooks.Func{Name: h.Name, Event: event, Matcher: h.Matcher,
					Timeout: h.Timeout, OnFailure: onFailure, Run: after(h.After)})
			}
		}
	}
	return hooks.New(out)
}

func before(fn func(context.Context, HookCall) (Before, error)) func(context.Context,
	pipeline.HookInput) (pipeline.HookVerdict, error) {
	return func(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error) {
		b, err := fn(ctx, hookCall(in))
		return pipeline.HookVerdict{Block: b.Block, Stop: b.Stop, Reason: b.Reason, Input: b.Input, Context: b.Context,
			Opinion: pipeline.Behavior(b.Decision)}, err
	}
}

func after(fn func(context.Context, HookCall, Outcome) (After, error)) func(context.Context,
	pipeline.HookInput) (pipeline.HookVerdict, error) {
	return func(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error) {
		a, err := fn(ctx, hookCall(in), Outcome(in.Outcome))
		return pipeline.HookVerdict{Block: a.Block, Stop: a.Stop, Reason: a.Reason, Output: a.Output,
			Context: a.Context}, err
	}
}

func hookCall(in pipeline.HookInput) HookCall {
	return HookCall{
		Agent: in.Key.Agent, Batch: in.Key.ID, Session: in.Session, Index: in.Index, CallID: in.CallID, Tool: in.Tool,
		Workspace: in.Workspace, WorkspaceDir: in.WorkspaceDir, Interactive: in.Interactive, Judgement: in.Judgement,
		Input: in.Input,
	}
}
