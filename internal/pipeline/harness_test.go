package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/tool"
)

// The test's seams fit the package's interfaces.
var (
	_ Rules               = policy.Rules{}
	_ Breakers            = (*breaker.Breakers)(nil)
	_ registry.Classifier = shell.Judge
)

// rig is a pipeline with everything allowed, plus the test's changes.
type rig struct {
	*Pipeline
	job   Job
	tools map[string]tool.Tool
	pre   func(ctx context.Context, in HookInput) (HookVerdict, error)
	post  func(ctx context.Context, in HookInput) (HookVerdict, error)
	// decide, start, put and allow replace the answers of the seams.
	decide func(ctx context.Context, in PermissionInput) (PermissionDecision, error)
	start  func(context.Context) (func(), error)
	put    func(ctx context.Context, content string) (string, error)
	hidden func(path string) bool
	allow  func(dep string) (func(breaker.Outcome), time.Duration, error)

	mu     sync.Mutex
	freed  int // slots that were given back
	stored []string
}

// schemaText is the schema of the rig's tool.
const schemaText = `{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"n":{"type":"integer"}}}`

// echo is a read-only tool that returns its text.
func echo() tool.Tool {
	return tool.Tool{
		Declaration: tool.Declaration{
			Name: "echo", Description: "Gives the text back.", InputSchema: json.RawMessage(schemaText),
			Aliases: []string{"Echo"}, Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
		},
		Run: func(_ context.Context, _ tool.Env, input json.RawMessage) (tool.Output, error) {
			var in struct{ Text string }
			if err := json.Unmarshal(input, &in); err != nil {
				return tool.Output{}, err
			}
			return tool.Output{Text: in.Text}, nil
		},
	}
}

func newRig(change ...func(*rig)) *rig {
	r := &rig{tools: map[string]tool.Tool{}}
	r.Pipeline = &Pipeline{Tools: r, Hooks: nil, Permission: r, Blobs: r, Worker: "w1"}
	r.job = Job{
		CallContext: CallContext{Key: toolyard.BatchKey{Agent: "a", ID: "b"}, Index: 2, Session: "s", Workspace: "ws",
			WorkspaceDir: "/ws"},
		Call: toolyard.Call{ID: "c3", Tool: "echo", Input: json.RawMessage(`{"text":"hi"}`)}, Attempt: 1,
		Start: r.startCall,
	}
	r.setTool(echo())
	for _, c := range change {
		c(r)
	}
	if r.pre != nil || r.post != nil {
		r.Hooks = r
	}
	if r.allow != nil {
		r.Breakers = breakersOf(r.allow)
	}
	if r.job.Judgement.Class == "" {
		if t, ok := r.tools[r.job.Call.Tool]; ok {
			r.job.Judgement, _ = registry.Judge(t.Declaration, r.job.Call.Input, r.Classify)
		}
	}
	return r
}

func (r *rig) setTool(t tool.Tool) { r.tools[t.Name] = t }

func (r *rig) Lookup(name string) (*tool.Tool, *registry.Entry, bool) {
	for _, t := range r.tools {
		if t.Name == name || (len(t.Aliases) > 0 && t.Aliases[0] == name) {
			hash, err := registry.Hash(t.Declaration)
			if err != nil {
				panic(err)
			}
			return &t, &registry.Entry{Declaration: t.Declaration, Hash: hash, Origin: registry.Builtin,
				Pool: "default"}, true
		}
	}
	return &tool.Tool{}, &registry.Entry{}, false
}

func (r *rig) Pre(ctx context.Context, in HookInput) (HookVerdict, error) {
	if r.pre == nil {
		return HookVerdict{}, nil
	}
	return r.pre(ctx, in)
}

func (r *rig) Post(ctx context.Context, in HookInput) (HookVerdict, error) {
	if r.post == nil {
		return HookVerdict{}, nil
	}
	return r.post(ctx, in)
}

func (r *rig) Decide(ctx context.Context, in PermissionInput) (PermissionDecision, error) {
	if r.decide == nil {
		return PermissionDecision{Behavior: Allow, Source: "test"}, nil
	}
	return r.decide(ctx, in)
}

func (r *rig) Hidden(_ *tool.Declaration, _ Rules, _ string) func(string) bool { return r.hidden }

func (r *rig) startCall(ctx context.Context) (func(), error) {
	if r.start != nil {
		return r.start(ctx)
	}
	return func() { r.mu.Lock(); r.freed++; r.mu.Unlock() }, nil
}

func (r *rig) Put(ctx context.Context, _ toolyard.BatchKey, content string) (string, error) {
	if r.put != nil {
		return r.put(ctx, content)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = append(r.stored, content)
	return fmt.Sprintf("ref-%d", len(r.stored)), nil
}

type breakersOf func(dep string) (func(breaker.Outcome), time.Duration, error)

func (f breakersOf) Allow(dep string) (func(breaker.Outcome), time.Duration, error) { return f(dep) }

type blockRule string

func (b blockRule) Blocks(name string, aliases []string) bool { return name == string(b) }

// result runs the rig's call, and checks the properties of every result.
func (r *rig) result(t *testing.T) toolyard.Result {
	t.Helper()
	return r.resultIn(t, t.Context())
}

func (r *rig) resultIn(t *testing.T, ctx context.Context) toolyard.Result {
	t.Helper()
	res, err := r.Run(ctx, r.job)
	if err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, res)
	return res
}

func checkInvariants(t *testing.T, res toolyard.Result) {
	t.Helper()
	if res.IsError != res.Code.IsError() {
		t.Errorf("is_error %t with code %q", res.IsError, res.Code)
	}
	if res.IsError == (res.Error == "") {
		t.Errorf("code %q with error %q", res.Code, res.Error)
	}
	failures, executed, posted := 0, false, false
	for i, f := range res.Phases {
		if f.Outcome == toolyard.OutcomeFailed {
			failures++
			if f.Code != res.Code {
				t.Errorf("%s failed with %q, the result has %q", f.Phase, f.Code, res.Code)
			}
		}
		executed = executed || f.Phase == toolyard.PhaseExecute
		posted = posted || f.Phase == toolyard.PhasePostHooks
		if last := i == len(res.Phases)-1; last != (f.Phase == toolyard.PhaseEmitTerminal) {
			t.Errorf("emit_terminal is not the last fact: %v", res.Phases)
		}
	}
	if (failures == 1) != res.IsError || failures > 1 {
		t.Errorf("%d failed facts, is_error %t", failures, res.IsError)
	}
	reused := res.Cache == toolyard.CacheHit || res.Cache == toolyard.CacheShared
	if posted != (res.Isolation != "") && !reused {
		t.Errorf("post_hooks ran: %t, isolation %q", posted, res.Isolation)
	}
	if strings.Contains(res.Error, "goroutine ") || strings.Contains(res.Output, "goroutine ") {
		t.Errorf("a stack trace reached the model: %s", res.Error)
	}
}

// phaseOf is the phase that failed.
func phaseOf(res toolyard.Result) toolyard.Phase {
	for _, f := range res.Phases {
		if f.Outcome == toolyard.OutcomeFailed {
			return f.Phase
		}
	}
	return ""
}

// Changes to the rig.

func with(change func(t *tool.Tool)) func(*rig) {
	return func(r *rig) {
		t := r.tools["echo"]
		change(&t)
		r.setTool(t)
	}
}

func returns(text string, err error) func(*rig) {
	return with(func(t *tool.Tool) {
		t.Run = func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
			return tool.Output{Text: text}, err
		}
	})
}

func checks(err error) func(*rig) {
	return with(func(t *tool.Tool) { t.Check = func(context.Context, tool.Env, json.RawMessage) error { return err } })
}

func input(raw string) func(*rig) { return func(r *rig) { r.job.Call.Input = json.RawMessage(raw) } }

func classed(c toolyard.Class) func(*rig) {
	return with(func(t *tool.Tool) { t.Class.Static, t.ReadOnly = c, c == toolyard.ReadOnly })
}

func before(v HookVerdict, err error) func(*rig) {
	return func(r *rig) { r.pre = func(context.Context, HookInput) (HookVerdict, error) { return v, err } }
}

func after(v HookVerdict, err error) func(*rig) {
	return func(r *rig) { r.post = func(context.Context, HookInput) (HookVerdict, error) { return v, err } }
}

func decides(d PermissionDecision, err error) func(*rig) {
	return func(r *rig) {
		r.decide = func(context.Context, PermissionInput) (PermissionDecision, error) { return d, err }
	}
}

func starts(err error) func(*rig) {
	return func(r *rig) { r.start = func(context.Context) (func(), error) { return nil, err } }
}

// prepares has something come of what is to be done before the tool.
func prepares(did string, err error) func(*rig) {
	return func(r *rig) { r.job.Prepare = func(context.Context) (string, error) { return did, err } }
}

func secretless(r *rig) {
	r.Redact = func(s string) string { return strings.ReplaceAll(s, "s3cret", "[redacted]") }
}

func newText(s string) *string { return &s }

var errBoom = errors.New("boom")

// released is how often the slot was given back.
func (r *rig) released() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freed
}
