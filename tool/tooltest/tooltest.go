// Package tooltest runs calls of a tool in a unit test as a worker runs them: with the checks of schema and values, the
// permission rules, and the limits on outputs. It needs no server and no other process.
//
//	func TestCount(t *testing.T) {
//		r := tooltest.Call(t, count, `{"text": "to be or not to be"}`, tooltest.Options{})
//		if r.Output != "6 words" {
//			t.Error(r.Code, r.Text())
//		}
//	}
package tooltest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
	toolworker "github.com/toolyard/toolyard/worker"
)

// Options configure a call. With the zero value the call has no workspace and is allowed.
type Options struct {
	// Workspace is the directory of the call's workspace. Empty: there is none.
	Workspace string
	// Allow, Deny and Ask are permission rules: tool or tool(specifier). Mode says what happens to calls that no rule
	// decides. Nobody can be asked, so a call that needs a person is denied. All empty: the call is allowed.
	Allow, Deny, Ask []string
	Mode             toolworker.Mode
	// Context has the values that earlier calls of the session set.
	Context map[string]string
	// Credentials are the values that [tool.Env.Secret] returns, by name.
	Credentials map[string]string
	// Timeout limits the execution further than the tool's own timeout. 0: it does not.
	Timeout time.Duration
	// Tools are returned by [tool.Env].Tools. Nil: they are not known.
	Tools []tool.Offered
}

// Outcome is the outcome of a call.
type Outcome struct {
	// Result is the result that a worker would store, with its phases.
	toolyard.Result
	// Session is the call's change to the session. Nil: none, or the call failed.
	Session *tool.SessionChange
	// Progress has the tool's reports, between a first one of 0 and a last one of 1.
	Progress []tool.Progress
	// Stored has the outputs that were too long for the result, by reference.
	Stored map[string]string
}

// FailedAt returns the phase that ended the call, or "" if the call succeeded.
func (o *Outcome) FailedAt() toolyard.Phase {
	for _, f := range o.Phases {
		if f.Outcome == toolyard.OutcomeFailed {
			return f.Phase
		}
	}
	return ""
}

// Call runs one call of a tool and returns its outcome. It ends the test if the tool or the options are invalid. An
// invalid input is an outcome.
func Call(t testing.TB, tl tool.Tool, input string, o Options) Outcome {
	t.Helper()
	out, err := run(t.Context(), tl, json.RawMessage(input), o)
	if err != nil {
		t.Fatalf("call %s: %v", tl.Name, err)
	}
	return out
}

func run(ctx context.Context, tl tool.Tool, input json.RawMessage, o Options) (out Outcome, err error) {
	if _, err := tool.Raw(tl); err != nil {
		return out, err
	}
	if _, err := (registry.Registry{}).Register(registry.Entry{Declaration: tl.Declaration,
		Origin: registry.Toolset}); err != nil {
		return out, err
	}
	permission, err := o.permission(&tl)
	if err != nil {
		return out, err
	}
	c := &call{tool: granted(tl, o.Credentials)}
	if c.hash, err = registry.Hash(tl.Declaration); err != nil {
		return out, err
	}
	p := &pipeline.Pipeline{
		Tools: c, Permission: permission, Blobs: c, Classify: shell.Judge, Worker: "tooltest",
	}
	var job pipeline.Job
	job.Key = toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: "tooltest"}
	job.Call = toolyard.Call{ID: "call_1", Tool: tl.Name, Input: input}
	job.Workspace, job.Context, job.CallTimeout, job.Attempt = toolyard.DefaultWorkspace, o.Context, o.Timeout, 1
	job.Judgement = judge(&tl, input)
	job.Rules = policy.Rules{Deny: permission.Rules.Deny} // a rule without a specifier takes the tool out
	job.Blobs = c
	job.Progress = c.progress
	job.Start = func(context.Context) (func(), error) { return func() {}, nil } // a slot is free, and the call is ours
	job.SessionChange = func(change tool.SessionChange) { out.Session = &change }
	if o.Tools != nil {
		job.Tools = func(context.Context) ([]tool.Offered, error) { return o.Tools, nil }
	}
	if o.Workspace != "" {
		list, err := protect.New()
		if err != nil {
			return out, err
		}
		root, err := place.Hold(o.Workspace, list)
		if err != nil {
			return out, fmt.Errorf("the workspace: %w", err)
		}
		defer func() { err = firstOf(err, root.Close()) }()
		job.Root, job.WorkspaceDir = root, root.Dir()
	}
	result, err := p.Run(ctx, job)
	c.mu.Lock()
	defer c.mu.Unlock()
	out.Result, out.Progress, out.Stored = result, c.reports, c.stored
	return out, err
}

func firstOf(err, next error) error {
	if err != nil {
		return err
	}
	return next
}

// permission is the operator's, as a worker has it.
func (o *Options) permission(tl *tool.Tool) (p worker.Permission, err error) {
	allow := o.Allow
	if len(o.Allow)+len(o.Deny)+len(o.Ask) == 0 && o.Mode == "" {
		allow = []string{tl.Name}
	}
	if p.Mode, err = policy.ParseMode(string(o.Mode)); err != nil {
		return p, fmt.Errorf("mode: %w", err)
	}
	for _, list := range []struct {
		name  string
		texts []string
		to    *[]policy.Rule
	}{{"allow", allow, &p.Rules.Allow}, {"deny", o.Deny, &p.Rules.Deny}, {"ask", o.Ask, &p.Rules.Ask}} {
		if *list.to, err = policy.ParseRules(list.texts); err != nil {
			return p, fmt.Errorf("%s: %w", list.name, err)
		}
	}
	if o.Workspace != "" {
		p.Dirs = []string{o.Workspace}
	}
	return p, p.Rules.Check(&tl.Declaration)
}

// judge is what a dispatcher knows of a call, with the tool's own answer where only its code can tell.
func judge(tl *tool.Tool, input json.RawMessage) (j tool.Judgement) {
	j, ask := registry.Judge(tl.Declaration, input, shell.Judge)
	if !ask {
		return j
	}
	defer func() {
		if p := recover(); p != nil {
			j = tool.Strictest(registry.Why(fmt.Sprintf("the tool's judge panicked: %v", p)))
		}
	}()
	own, err := tl.Judge(input)
	if err != nil {
		return tool.Strictest("the tool cannot judge the call: " + err.Error())
	}
	return registry.CheckJudgement(tl.Declaration, own)
}

// granted is a tool whose code finds credentials.
func granted(tl tool.Tool, credentials map[string]string) tool.Tool {
	find := func(name string) (string, bool) { v, ok := credentials[name]; return v, ok }
	check, permission, execute := tl.Check, tl.CheckPermission, tl.Run
	if check != nil {
		tl.Check = func(ctx context.Context, env tool.Env, input json.RawMessage) error {
			env.Granted = find
			return check(ctx, env, input)
		}
	}
	if permission != nil {
		tl.CheckPermission = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Permission, error) {
			env.Granted = find
			return permission(ctx, env, input)
		}
	}
	tl.Run = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
		env.Granted = find
		return execute(ctx, env, input)
	}
	return tl
}

// call is what stands around one call: its tool, a free slot, and a store.
type call struct {
	tool tool.Tool
	hash string

	mu      sync.Mutex
	stored  map[string]string
	reports []tool.Progress
}

// Lookup implements [pipeline.Tools].
func (c *call) Lookup(name string) (*tool.Tool, *registry.Entry, bool) {
	return &c.tool, &registry.Entry{Declaration: c.tool.Declaration, Hash: c.hash, Origin: registry.Toolset},
		name == c.tool.Name
}

// Put implements [pipeline.Blobs].
func (c *call) Put(_ context.Context, _ toolyard.BatchKey, content string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stored == nil {
		c.stored = map[string]string{}
	}
	ref := fmt.Sprintf("result-%d", len(c.stored)+1)
	c.stored[ref] = content
	return ref, nil
}

// ReadBlob implements [tool.Blobs].
func (c *call) ReadBlob(_ context.Context, ref string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	content, ok := c.stored[ref]
	if !ok {
		return nil, fmt.Errorf("%s: %w", ref, tool.ErrNoBlob)
	}
	return []byte(content), nil
}

func (c *call) progress(p tool.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, p)
}
