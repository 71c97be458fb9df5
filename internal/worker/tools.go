package worker

import (
	"context"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// toolset is the tools whose code this worker has.
type toolset struct {
	surface registry.Surface
	encoded []byte
	code    map[string]tool.Tool
}

func newToolset(tools []tool.Tool, origin registry.Origin, pool toolyard.Pool) (toolset, error) {
	ts := toolset{code: map[string]tool.Tool{}}
	entries := make([]registry.Entry, 0, len(tools))
	for _, t := range tools {
		if _, ok := ts.code[t.Name]; ok {
			return ts, fmt.Errorf("there are two tools %q", t.Name)
		}
		ts.code[t.Name] = t
		entries = append(entries, registry.Entry{Declaration: t.Declaration, Origin: origin, Pool: pool})
	}
	reg, err := registry.Registry{}.Register(entries...)
	if err != nil {
		return ts, fmt.Errorf("put the tools together: %w", err)
	}
	if ts.surface, err = registry.Assemble(reg, nil); err != nil {
		return ts, fmt.Errorf("put the tools together: %w", err)
	}
	ts.encoded, err = ts.surface.Encode()
	return ts, err
}

// Lookup implements [pipeline.Tools].
func (ts *toolset) Lookup(name string) (tool.Tool, registry.Entry, bool) {
	e, code := ts.surface.Resolve(name, nil)
	if code == toolyard.UnknownTool || code == toolyard.BlockedTool {
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
