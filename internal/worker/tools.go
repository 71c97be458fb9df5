package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// toolset is the tools whose code this worker has. It runs all of them; it offers those that are enabled.
type toolset struct {
	tools  []tool.Tool
	origin registry.Origin
	pool   toolyard.Pool
	// all is what it runs, also for batches that were planned when more was enabled.
	all  registry.Surface
	code map[string]tool.Tool
}

// offer is what is announced: a toolset as it is enabled now.
type offer struct {
	hash    string
	encoded []byte
}

func newToolset(tools []tool.Tool, origin registry.Origin, pool toolyard.Pool, credentials map[string]map[string]string) (*toolset, error) {
	ts := &toolset{tools: tools, origin: origin, pool: pool, code: map[string]tool.Tool{}}
	for _, t := range tools {
		if _, ok := ts.code[t.Name]; ok {
			return ts, fmt.Errorf("there are two tools %q", t.Name)
		}
		ts.code[t.Name] = grant(t, credentials[t.Name])
	}
	for name := range credentials {
		if _, ok := ts.code[name]; !ok {
			return ts, fmt.Errorf("a credential is granted to the tool %q, which this worker does not have", name)
		}
	}
	var err error
	ts.all, err = ts.assemble(func(tool.Tool) bool { return true })
	return ts, err
}

// grant gives a tool's code its credentials with each call. Nothing else is told of them: they are not part of the job.
func grant(t tool.Tool, credentials map[string]string) tool.Tool {
	granted := func(name string) (string, bool) {
		value, ok := credentials[name]
		return value, ok
	}
	run, check := t.Run, t.Check
	t.Run = func(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
		env.Granted = granted
		return run(ctx, env, input)
	}
	if check != nil {
		t.Check = func(ctx context.Context, env tool.Env, input json.RawMessage) error {
			env.Granted = granted
			return check(ctx, env, input)
		}
	}
	return t
}

func (ts *toolset) assemble(with func(tool.Tool) bool) (registry.Surface, error) {
	var entries []registry.Entry
	for _, t := range ts.tools {
		if with(t) {
			entries = append(entries, registry.Entry{Declaration: t.Declaration, Origin: ts.origin, Pool: ts.pool})
		}
	}
	reg, err := registry.Registry{}.Register(entries...)
	if err != nil {
		return registry.Surface{}, fmt.Errorf("put the tools together: %w", err)
	}
	s, err := registry.Assemble(reg, nil)
	if err != nil {
		return s, fmt.Errorf("put the tools together: %w", err)
	}
	return s, nil
}

// offer asks each tool whether it is enabled. One that panics is not.
func (ts *toolset) offer() (offer, error) {
	s, err := ts.assemble(enabled)
	if err != nil {
		return offer{}, err
	}
	encoded, err := s.Encode()
	return offer{hash: s.Hash, encoded: encoded}, err
}

func enabled(t tool.Tool) (yes bool) {
	if t.Enabled == nil {
		return true
	}
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return t.Enabled()
}

// Lookup implements [pipeline.Tools].
func (ts *toolset) Lookup(name string) (tool.Tool, registry.Entry, bool) {
	loaded := map[string]bool{name: true} // whether a deferred tool was loaded was decided at plan
	e, code := ts.all.Resolve(name, loaded)
	if code != toolyard.OK && code != toolyard.SchemaNotLoaded {
		return tool.Tool{}, e, false
	}
	t, ok := ts.code[e.Name]
	return t, e, ok
}

// judge answers for the calls that only a tool's code can judge.
func (w *Worker) judge(calls []broker.JudgeCall) []broker.Judged {
	var out []broker.Judged
	for _, c := range calls {
		t, e, ok := w.tools.Lookup(c.Tool)
		if !ok || e.Hash != c.Declaration || t.Judge == nil {
			continue
		}
		if j, err := judgeOne(t, c); err != nil {
			w.log.Warn("a tool could not judge a call; it counts as UNSAFE", "tool", c.Tool, "error", err)
		} else {
			out = append(out, broker.Judged{Index: c.Index, Judgement: j})
		}
	}
	return out
}

func judgeOne(t tool.Tool, c broker.JudgeCall) (j tool.Judgement, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the judge panicked: %v", p)
		}
	}()
	return t.Judge(c.Input)
}

// blobs implements [pipeline.Blobs].
type blobs struct{ b *broker.Broker }

func (s blobs) Put(ctx context.Context, k toolyard.BatchKey, content string) (string, error) {
	return s.b.PutResult(ctx, k.Agent, []byte(content))
}

// agentBlobs implements [tool.Blobs] for the calls of one agent.
type agentBlobs struct {
	b     *broker.Broker
	agent toolyard.Agent
}

func (s agentBlobs) ReadBlob(ctx context.Context, ref string) ([]byte, error) {
	return s.b.Result(ctx, s.agent, ref)
}
